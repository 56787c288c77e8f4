"""Sinks that commit in one place: one call a checkpoint, with what all subtasks have written, once."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from tests.spec.virtual_job import (
    COMMITS,
    LEDGER,
    REFUSED,
    LedgerSink,
    Timed,
    VirtualJob,
    clear_ledger,
    environment,
    records,
)

from penstock.codecs.column_data import ColumnData
from penstock.common import JobStatus, WatermarkStrategy
from penstock.connectors.split_reader import NumberSequenceSource
from penstock.runtime.checkpoint.savepoints import TakeSavepoint
from penstock.runtime.columns import ColumnBatch
from penstock.runtime.connector import Committer, SinkWriter
from penstock.runtime.operators.connector import hand_over
from penstock.runtime.protocol import StopMode
from penstock.runtime.records import Batch

CALLS: list[list[int]] = []


@dataclasses.dataclass(frozen=True)
class InOnePlace(LedgerSink):
    """Writes down, for each call of its committer, whose committables it was handed."""

    commits_globally = True

    def create_committer(self, context: Any) -> Committer[Any]:
        assert context.parallelism == 1
        return _CountingCommitter(super().create_committer(context))


class _CountingCommitter(Committer[Any]):
    def __init__(self, committer: Committer[Any]) -> None:
        self.committer = committer

    def commit(self, committables: Sequence[Any]) -> None:
        CALLS.append([subtask for subtask, _, _ in committables])
        self.committer.commit(committables)


def job_of(**options: Any) -> VirtualJob:
    clear_ledger()
    CALLS.clear()
    env = environment(3, **options)
    stream = env.from_source(Timed(100, (50, 60, 70)), WatermarkStrategy.no_watermarks(), "timed")
    stream.sink_to(InOnePlace("out")).uid("sink")
    return VirtualJob(env)


def test_one_call_a_checkpoint_for_all_subtasks() -> None:
    """G9: after 7 s and with a checkpoint each 2 s there are four, the one at the end included."""
    job = job_of(**{"execution.checkpointing.interval": "2 s"})
    assert job.run() is JobStatus.FINISHED
    assert sorted(LEDGER["out"]) == records(50, 60, 70)
    assert [sorted(call) for call in CALLS[:2]] == [[0, 1, 2], [0, 1, 2]]
    assert len(CALLS) == len(job.checkpoints)


def test_a_refused_commit_is_made_again_after_the_restart() -> None:
    """G8, G9: each record once, also when the failure comes between checkpoint and commit."""
    job = job_of(**{"execution.checkpointing.interval": "2 s"})
    job.at(3_000, lambda: REFUSED.add("out"))
    assert job.run() is JobStatus.FINISHED
    assert job.master.history.restarts == 1
    assert sorted(LEDGER["out"]) == records(50, 60, 70)


@pytest.mark.parametrize("unaligned", [False, True])
def test_nothing_is_lost_or_doubled_when_barriers_overtake(unaligned: bool) -> None:
    """G5, G9: committables under way belong to a checkpoint too."""
    job = job_of(**{"execution.checkpointing.interval": "1 s", "execution.checkpointing.unaligned.enabled": unaligned})
    job.at(2_500, lambda: REFUSED.add("out"))
    assert job.run() is JobStatus.FINISHED
    assert sorted(LEDGER["out"]) == records(50, 60, 70)


def test_without_checkpoints_it_commits_at_the_end() -> None:
    """G9, F3: once, all of it."""
    job = job_of(**{"execution.checkpointing.interval": None})
    assert job.run() is JobStatus.FINISHED
    assert [sorted(call) for call in CALLS] == [[0, 1, 2]]
    assert len(COMMITS) == 3
    assert sorted(LEDGER["out"]) == records(50, 60, 70)


@pytest.mark.parametrize("stop", list(StopMode))
def test_what_a_savepoint_that_ends_the_job_holds_is_committed(stop: StopMode, tmp_path: Any) -> None:
    """H2, G9: with drain and without."""
    job = job_of(**{"execution.checkpointing.interval": "2 s"})
    job.at(3_150, lambda: job.master.take_savepoint(TakeSavepoint(f"file://{tmp_path}/sp", stop), lambda *answer: None))
    assert job.run() is JobStatus.FINISHED
    assert sorted(LEDGER["out"]) == records(32, 32, 32)


def test_a_batch_job_commits_once_at_its_end() -> None:
    """I1, G9: the same program as a batch."""
    clear_ledger()
    CALLS.clear()
    env = environment(2, **{"execution.runtime-mode": "BATCH", "execution.checkpointing.interval": None})
    numbers = env.from_source(NumberSequenceSource(0, 99), WatermarkStrategy.no_watermarks(), "numbers")
    numbers.sink_to(InOnePlace("out")).name("all").uid("sink")
    env.execute()
    assert len(CALLS) == 1
    assert sorted(LEDGER["out"]) == list(range(100))


def test_writers_get_columns_as_columns() -> None:
    """As those of other sinks do: nothing makes rows of them on the way."""
    seen: list[tuple[str, int]] = []

    class Columns(SinkWriter[Any, Any]):
        def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
            seen.append(("rows", len(values)))

        def write_columns(self, data: ColumnData, rowtimes: Any) -> None:
            seen.append(("columns", len(data)))

        def write_changes(self, data: ColumnData, kinds: bytes, rowtimes: Any) -> None:
            seen.append(("changes", len(kinds)))

    columns = pa.record_batch({"n": [1, 2, 3]})
    for batch in (Batch([1]), ColumnBatch(columns), ColumnBatch(columns, None, bytes([0, 3, 0]))):
        hand_over(Columns(), batch, "sink")
    assert seen == [("rows", 1), ("columns", 3), ("changes", 3)]
