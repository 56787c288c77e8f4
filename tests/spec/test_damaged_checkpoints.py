"""A job whose newest checkpoint is damaged when it fails: what was committed is not committed again (G9, G11).

A real job over real files, in virtual time: the newest checkpoint's file is spoilt behind its back.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.spec.virtual_job import LEDGER, LedgerSink, Timed, VirtualJob, clear_ledger, environment, records

from penstock.base.job import JobStatus
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.collect import DiscardingSink
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.runtime.connector import Sink

RECORDS = 100
FAILS_AT = 60
PAST_DAMAGED = "penstock.recovery.past-damaged-checkpoint"
FALL_BACK: dict[str, Any] = {PAST_DAMAGED: "fall-back"}
SEEN: list[Any] = []
#: Files that were spoilt, and what was in them.
SPOILT: list[tuple[Path, bytes]] = []


class FailsOnce(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.attempt = runtime_context.get_attempt_number()
        self.state = runtime_context.get_state(ValueStateDescriptor("last"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        if value[1] == FAILS_AT and self.attempt == 0:
            raise ConnectionError("something went away")
        self.state.update(value)
        SEEN.append(value)
        yield value


@pytest.fixture(autouse=True)
def nothing_so_far() -> None:
    clear_ledger()
    SEEN.clear()
    SPOILT.clear()


def run(
    directory: Path, sink: Sink[Any], spoil: bytes | None = b"spoilt", spoils: bool = True, **options: Any
) -> VirtualJob:
    """A job with three retained checkpoints, of which the newest is spoilt just ahead of the failure."""
    prefix = "execution.checkpointing."
    conf = {prefix + "interval": "1 s", prefix + "dir": directory, prefix + "num-retained": 3}
    env = environment(1, **{**conf, prefix + "data-inline-threshold": 0, **options})
    source = env.from_source(Timed(100, (RECORDS,)), WatermarkStrategy.no_watermarks(), "timed")
    source.key_by(lambda value: value[0]).process(FailsOnce()).sink_to(sink)
    job = VirtualJob(env)

    def damage() -> None:
        newest = max(directory.glob("*/chk-*"), key=lambda path: int(path.name.removeprefix("chk-")))
        (file, *_) = sorted(path for path in newest.iterdir() if "last" in path.name)
        SPOILT.append((file, file.read_bytes()))
        file.write_bytes(spoil) if spoil is not None else file.unlink()

    if spoils:
        job.at(FAILS_AT * 100 - 50, damage)
    job.run()
    return job


@pytest.mark.parametrize("spoil", [b"spoilt", None], ids=["damaged", "missing"])
def test_the_job_fails_rather_than_commit_again(store_directory: Path, spoil: bytes | None) -> None:
    """G9, G11: the error names the checkpoint, the file, the one before, and the choice; all are still there."""
    job = run(store_directory, LedgerSink("out"), spoil)
    assert job.status() is JobStatus.FAILED
    failure = job.failure()
    assert "checkpoint 5 cannot be restored: " in failure
    assert "/chk-5/" in failure
    assert "checkpoint 4 is intact" in failure
    assert f"{PAST_DAMAGED}: fall-back" in failure
    assert max(Counter(LEDGER["out"]).values()) == 1
    assert len(list(store_directory.glob("*/chk-*/_metadata"))) == 3


def test_a_copy_put_back_is_begun_from(store_directory: Path) -> None:
    """G9, G11: another job goes on from the checkpoint that was damaged: the whole answer, each record once."""
    assert run(store_directory, LedgerSink("out"), None).status() is JobStatus.FAILED
    ((path, data),) = SPOILT
    path.write_bytes(data)
    begin: dict[str, Any] = {"execution.state-recovery.path": str(path.parent)}
    second = run(store_directory / "second", LedgerSink("out"), spoils=False, **begin)
    assert second.status() is JobStatus.FINISHED, second.failure()
    assert sorted(LEDGER["out"]) == records(RECORDS)


def test_going_back_can_be_chosen(store_directory: Path) -> None:
    """G11: the job finishes, and what was committed since that checkpoint is there twice."""
    job = run(store_directory, LedgerSink("out"), **FALL_BACK)
    assert job.status() is JobStatus.FINISHED, job.failure()
    assert set(LEDGER["out"]) == set(records(RECORDS))
    assert max(Counter(LEDGER["out"]).values()) == 2


def test_a_job_that_commits_nothing_goes_back(store_directory: Path) -> None:
    """G11: nothing that anybody relies on is repeated."""
    job = run(store_directory, DiscardingSink())
    assert job.status() is JobStatus.FINISHED, job.failure()
    assert any("checkpoint 5 cannot be restored" in line for line in job.listener.lines)
    assert set(SEEN) == set(records(RECORDS))
