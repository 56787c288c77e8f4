"""Whole jobs whose windows get a trigger, an evictor or `clear` between two runs, without uids (C1, D3, H4)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from tests.datastream.places import Places
from tests.spec.virtual_job import LEDGER, LedgerSink, VirtualJob, clear_ledger, environment

from penstock.base.job import JobStatus
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.datastream.functions import ProcessWindowFunction
from penstock.datastream.window import CountEvictor, EventTimeSessionWindows, EventTimeTrigger, TumblingEventTimeWindows

RECORDS = [(f"key-{n % 5}", n) for n in range(300)]
ASSIGNERS: dict[str, Any] = {"tumbling": TumblingEventTimeWindows(70), "session": EventTimeSessionWindows(40)}


class SameTrigger(EventTimeTrigger):
    """Fires as the default one does, and is not known to."""


class Numbers(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Any:
        yield key, context.window().end, tuple(number for _, number in elements)


class Clears(Numbers):
    def clear(self, context: Any) -> None: ...


#: It is the same class, in another version of the program.
Clears.__qualname__ = Numbers.__qualname__


def compute_time(number: int) -> int:
    return number + 60 * (number // 100)  # a gap after each hundred ends the sessions


VERSIONS: dict[str, Any] = {
    "plain": lambda windows: windows.process(Numbers()),
    "trigger": lambda windows: windows.trigger(SameTrigger()).process(Numbers()),
    "clear": lambda windows: windows.process(Clears()),
    "evictor": lambda windows: windows.evictor(CountEvictor(1_000)).process(Numbers()),
}


@pytest.fixture(autouse=True)
def nothing_committed() -> None:
    clear_ledger()


def program(
    places: Places, backend: str, assigner: Any, version: str, parallelism: int, path: str | None
) -> VirtualJob:
    env = environment(
        parallelism,
        **{
            "state.backend.type": backend,
            "state.backend.rocksdb.localdir": places.local / "rocksdb",
            "execution.state-recovery.path": path,
            "execution.checkpointing.dir": places.store / "c",
            "execution.checkpointing.interval": "1 h",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "penstock.source.batch-records": 2,
        },
    )
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda r, _: compute_time(r[1]))
    keyed = env.from_collection(RECORDS).uid("numbers").assign_timestamps_and_watermarks(strategy).set_parallelism(1)
    windows = keyed.key_by(lambda record: record[0]).window(assigner)
    shown = VERSIONS[version](windows)
    shown.sink_to(LedgerSink("out")).uid("sink")
    return VirtualJob(env)


def cancelled(places: Places, job: VirtualJob, turns: int) -> str:
    """The path of its checkpoint."""
    job.when(lambda: job.turns >= turns, job.trigger_checkpoint)
    job.when(lambda: job.checkpoints, job.cancel)
    assert job.run() is JobStatus.CANCELED, job.failure()
    (kept,) = job.checkpoints
    return str(places.store / "c" / kept.job_id / f"chk-{kept.checkpoint_id}")


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("assigner", ASSIGNERS.values(), ids=ASSIGNERS)
@pytest.mark.parametrize(
    "versions",
    [("plain", "trigger"), ("plain", "evictor"), ("trigger", "plain"), ("evictor", "plain"), ("plain", "clear")],
    ids="-".join,
)
def test_windows_go_on_in_another_version_of_the_program(
    versions: tuple[str, str], assigner: Any, backend: str, places: Places
) -> None:
    """C1, H4: in a backend's own files too, at another parallelism, and though no uid says which operator it is."""
    path = cancelled(places, program(places, backend, assigner, versions[0], 2, None), 24)
    committed = len(LEDGER.get("out", ()))
    job = program(places, backend, assigner, versions[1], 3, path)
    assert job.run() is JobStatus.FINISHED, job.failure()
    found = sorted(LEDGER["out"])
    clear_ledger()
    assert program(places, backend, assigner, "plain", 2, None).run() is JobStatus.FINISHED
    assert found == sorted(LEDGER["out"])
    assert committed < len(found)
