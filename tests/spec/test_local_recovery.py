"""A task that restarts on the same worker takes its state from the copies there (G8). Time is virtual."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from tests.spec.virtual_job import LEDGER, LedgerSink, Timed, VirtualJob, clear_ledger, environment, records

from penstock.base.job import JobStatus
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.common import Types
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.runtime.protocol import WorkerLost
from penstock.storage.file_store import LocalCopies

RECORDS = 60
STORAGES: list[LocalCopies] = []
FAILS: list[int] = []


class Count(KeyedProcessFunction):
    """Numbers the records of each key, and fails when it is told to."""

    def open(self, runtime_context: Any) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        if FAILS:
            FAILS.clear()
            raise RuntimeError("told to fail")
        self.state.update((self.state.value() or 0) + 1)
        yield (*value, self.state.value())


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("lost", [None, "worker-1"])
def test_a_restart_reads_copies(tmp_path: Path, store_directory: Path, backend: str, lost: str | None) -> None:
    """G8: a function fails: both workers read what they have stored themselves. A worker is lost: the other one keeps
    its subtask and its copies, and the new one reads the checkpoint. The output is that of a run without failures."""
    clear_ledger()
    STORAGES.clear()
    env = environment(
        2,
        **{
            "execution.checkpointing.dir": str(store_directory / "checkpoints"),
            "execution.checkpointing.data-inline-threshold": "0 bytes",
            "execution.state-recovery.from-local": "true",
            "execution.checkpointing.local-backup.dirs": str(tmp_path / "worker"),
            "execution.checkpointing.interval": "1 s",
            "state.backend.type": backend,
        },
    )
    source = env.from_source(Timed(100, (RECORDS, RECORDS)), WatermarkStrategy.no_watermarks(), "timed")
    source.key_by(lambda value: value[0]).process(Count()).sink_to(LedgerSink("out"))
    made = LocalCopies.__init__

    def spy(copies: LocalCopies, *arguments: Any, **named: Any) -> None:
        made(copies, *arguments, **named)
        STORAGES.append(copies)

    with mock.patch.object(LocalCopies, "__init__", spy):
        job = VirtualJob(env)
        if lost is None:
            job.at(3_550, lambda: FAILS.append(1))
        else:
            job.at(3_550, lambda: lose(job, lost))
        assert job.run() is JobStatus.FINISHED
    assert job.master.history.restarts == 1
    assert sorted(LEDGER["out"]) == sorted((s, n, n + 1) for s, n in records(RECORDS, RECORDS))
    local, remote = [s.read_locally for s in STORAGES], [s.read_remotely for s in STORAGES]
    if lost is None:
        assert min(local) > 0
        assert remote == [0, 0]
    else:
        assert len(STORAGES) == 3
        assert local[1] > 0
        assert (remote[1], remote[2] > 0) == (0, True)
    assert list((tmp_path / "worker").iterdir()) == []


def lose(job: VirtualJob, worker_id: str) -> None:
    job._cluster.release(worker_id)
    job.master.on_message(WorkerLost(worker_id, "told to"))
