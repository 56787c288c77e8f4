"""Checkpoints and beginnings of a job as spans (A1)."""

from __future__ import annotations

from dataclasses import replace

from tests.server.metrics.views import BEGAN_MS, JOB_ID, subtask_view, view_at

from penstock.runtime.checkpoint.statistics import (
    CheckpointRecord,
    CheckpointStatistics,
    CheckpointStatus,
    RestoredRecord,
)
from penstock.runtime.graph import ExecutionState
from penstock.server.reporters.reporter import SpanWatch


def record(checkpoint_id: int, status: CheckpointStatus = CheckpointStatus.COMPLETED) -> CheckpointRecord:
    return CheckpointRecord(checkpoint_id, status, BEGAN_MS + checkpoint_id, duration_ms=20, state_bytes=500)


def test_each_checkpoint_is_told_once() -> None:
    watch, statistics = SpanWatch(), CheckpointStatistics().with_completed(record(1))
    began, first = watch.spans([view_at(1, checkpoints=statistics)])[::-1]
    assert (first.name, first.began_ms, first.ended_ms) == ("Checkpoint", BEGAN_MS + 1, BEGAN_MS + 21)
    assert first.attributes.items() >= {"job_id": JOB_ID, "checkpointId": 1, "fullSize": 500}.items()
    assert began.name == "JobInitialization"
    assert watch.spans([view_at(2, checkpoints=statistics)]) == []
    statistics = statistics.with_failed(record(2, CheckpointStatus.FAILED)).with_completed(record(3))
    told = [span.attributes["checkpointStatus"] for span in watch.spans([view_at(3, checkpoints=statistics)])]
    assert told == ["FAILED", "COMPLETED"]


def test_a_recovery_is_told_when_all_tasks_run_again() -> None:
    watch = SpanWatch()
    (first,) = watch.spans([view_at(1)])
    assert (first.began_ms, first.ended_ms) == (BEGAN_MS - 500, BEGAN_MS)
    assert "checkpointId" not in first.attributes
    opening = subtask_view(0, 0, 1, attempt=1, state=ExecutionState.INITIALIZING)
    assert watch.spans([view_at(2, subtasks={0: (opening,)})]) == []
    since = ((ExecutionState.DEPLOYING, BEGAN_MS + 3_000), (ExecutionState.RUNNING, BEGAN_MS + 4_000))
    again = {v: tuple(replace(subtask_view(v, i, 1, attempt=1), since_ms=since) for i in range(2)) for v in range(2)}
    restored = CheckpointStatistics().with_restored(RestoredRecord(7, BEGAN_MS + 2_900))
    (second,) = watch.spans([view_at(5, subtasks=again, restarts=1, checkpoints=restored)])
    assert (second.began_ms, second.ended_ms) == (BEGAN_MS + 3_000, BEGAN_MS + 4_000)
    assert second.attributes.items() >= {"checkpointId": 7, "numRestarts": 1}.items()


def test_ended_jobs_are_remembered_up_to_the_limit() -> None:
    watch = SpanWatch(jobs_max=3)
    views = [replace(view_at(1), job_id=str(number)) for number in range(5)]
    for view in views:
        assert len(watch.spans([view])) == 1
    assert [len(watch.spans([view])) for view in views[1:]] == [0, 0, 0, 0]
    assert [len(watch.spans([view])) for view in views[:1]] == [1]
