"""Metrics of a job itself: its status and its checkpoints."""

from __future__ import annotations

from typing import Final

from penstock.base.job_status import JobStatus
from penstock.core.checkpoint.statistics import CheckpointRecord, CheckpointStatistics
from penstock.core.graph.states import ExecutionState
from penstock.core.job.view import JobView, SubtaskView
from penstock.operations.metrics.scopes import Value

#: Flink's values for something that has not happened yet.
NEVER: Final = -1
NO_PATH: Final = "n/a"

_STATES: Final = tuple(
    status for status in JobStatus if not status.is_terminal_state() and status is not JobStatus.RECONCILING
)


def job_metrics(view: JobView, rescales: int) -> dict[str, Value]:
    """Return the metrics of a job, given the number of its rescales."""
    return {
        **_times(view),
        "numRestarts": view.restarts,
        "numRescales": rescales,
        "numSlowWorkers": sum(worker.slow is not None for worker in view.workers),
        **_checkpoints(view.checkpoints),
        "numberOfInProgressCheckpoints": len(view.in_progress),
    }


def _times(view: JobView) -> dict[str, Value]:
    now, is_running = view.now_ms, view.status is JobStatus.RUNNING
    values: dict[str, Value] = {}
    for status in _STATES:
        is_now, name = view.status is status, status.name.lower()
        values[f"{name}State"] = int(is_now)
        values[f"{name}Time"] = max(0, now - view.since_ms.get(status, now)) if is_now else 0
    running_ms = now - view.since_ms.get(JobStatus.RUNNING, now) if is_running else 0
    down_since = max((at for status, at in view.since_ms.items() if status is not JobStatus.RUNNING), default=now)
    is_over = view.status.is_terminal_state()
    subtasks = [subtask for vertex in view.vertices for subtask in vertex.subtasks]
    deploying = [subtask for subtask in subtasks if subtask.state is ExecutionState.DEPLOYING]
    deploying_since = min(
        (dict(subtask.since_ms).get(ExecutionState.DEPLOYING, now) for subtask in deploying), default=now
    )
    return {
        **values,
        "deployingState": int(is_running and bool(deploying)),
        "deployingTime": max(0, now - deploying_since) if is_running else 0,
        "uptime": NEVER if is_over else max(0, running_ms),
        "downtime": NEVER if is_over else 0 if is_running else max(0, now - down_since),
        "allSubTasksRunningOrFinishedTime": max(0, now - _all_run_since(subtasks, now)) if is_running else 0,
    }


def _all_run_since(subtasks: list[SubtaskView], now: int) -> int:
    since = []
    for subtask in subtasks:
        if subtask.state not in (ExecutionState.RUNNING, ExecutionState.FINISHED):
            return now
        times = dict(subtask.since_ms)
        since.append(times.get(ExecutionState.RUNNING, times.get(subtask.state, now)))
    return max(since, default=now)


def _checkpoints(checkpoints: CheckpointStatistics) -> dict[str, Value]:
    last, restored = _newer(checkpoints.last, checkpoints.last_savepoint), checkpoints.restored
    return {
        "lastCheckpointDuration": NEVER if last is None else last.duration_ms,
        "lastCheckpointSize": NEVER if last is None else last.stored_bytes,
        "lastCheckpointFullSize": NEVER if last is None else last.state_bytes,
        "lastCheckpointPersistedData": NEVER if last is None else last.persisted_bytes,
        "lastCheckpointProcessedData": NEVER if last is None else last.processed_bytes,
        "lastCheckpointMetadataSize": NEVER if last is None else last.metadata_bytes,
        "lastCompletedCheckpointId": NEVER if last is None else last.checkpoint_id,
        "lastCheckpointCompletedTimestamp": NEVER if last is None else last.triggered_ms + last.duration_ms,
        "lastCheckpointExternalPath": NO_PATH if last is None or last.path is None else last.path,
        "lastCheckpointRestoreTimestamp": NEVER if restored is None else restored.at_ms,
        "numberOfCompletedCheckpoints": checkpoints.completed + checkpoints.savepoints,
        "numberOfFailedCheckpoints": checkpoints.failed + checkpoints.given_up,
        "totalNumberOfCheckpoints": checkpoints.triggered,
    }


def _newer(left: CheckpointRecord | None, right: CheckpointRecord | None) -> CheckpointRecord | None:
    known = [record for record in (left, right) if record is not None]
    return max(known, key=lambda record: record.checkpoint_id, default=None)
