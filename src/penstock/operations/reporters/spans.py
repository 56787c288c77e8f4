"""Spans read from job views: checkpoints, and task initialization at the start and after failures.

Names and scopes follow Flink's traces.
"""

from __future__ import annotations

from typing import Final

from penstock.core.checkpoint.statistics import CheckpointRecord
from penstock.core.graph.states import ExecutionState
from penstock.core.job.view import JobView
from penstock.operations.reporters.reporter import Span

CHECKPOINT_SCOPE: Final = "org.apache.flink.runtime.checkpoint.CheckpointStatsTracker"
JOB_SCOPE: Final = "org.apache.flink.runtime.jobmaster.JobMaster"

_READY: Final = (ExecutionState.RUNNING, ExecutionState.FINISHED)


class SpanWatch:
    """Reports each span once.

    A view holds the last ten checkpoints, so further ones that ended since the previous view are missed.

    Args:
        jobs_max: how many jobs to remember, including ended ones.
    """

    def __init__(self, jobs_max: int = 100) -> None:
        self._jobs_max = jobs_max
        self._jobs: dict[str, _Seen] = {}

    def spans(self, views: list[JobView]) -> list[Span]:
        """Return the spans that ended since the last call."""
        spans = []
        for view in views:
            spans += self._jobs.setdefault(view.job_id, _Seen()).spans(view)
        current = {view.job_id for view in views}
        ended = [job_id for job_id in self._jobs if job_id not in current]
        for job_id in ended[: max(len(ended) - self._jobs_max, 0)]:
            del self._jobs[job_id]
        return spans


class _Seen:
    """The spans of one job that were already reported."""

    def __init__(self) -> None:
        self._settled: set[int] = set()
        self._ready_ms: int | None = None

    def spans(self, view: JobView) -> list[Span]:
        job: dict[str, str | int] = {"job_id": view.job_id, "job_name": view.name}
        history = view.checkpoints.history
        new = [record for record in reversed(history) if record.checkpoint_id not in self._settled]
        self._settled = {record.checkpoint_id for record in history}
        spans = [_of_checkpoint(record, job) for record in new]
        if (began := _of_beginning(view, job)) is not None and began.ended_ms != self._ready_ms:
            self._ready_ms = began.ended_ms
            spans.append(began)
        return spans


def _of_checkpoint(record: CheckpointRecord, job: dict[str, str | int]) -> Span:
    attributes: dict[str, str | int] = {
        **job,
        "checkpointId": record.checkpoint_id,
        "checkpointStatus": record.status.value,
        "checkpointType": "Savepoint" if record.is_savepoint else "Checkpoint",
        "checkpointedSize": record.stored_bytes,
        "fullSize": record.state_bytes,
        "maxAlignmentDurationMs": record.alignment_ms,
        "maxSyncDurationMs": record.sync_ms,
        "maxAsyncDurationMs": record.async_ms,
        "isUnaligned": str(record.is_unaligned).lower(),
    }
    if record.failure is not None:
        attributes["failure"] = record.failure
    ended_ms = record.triggered_ms + record.duration_ms
    return Span(CHECKPOINT_SCOPE, "Checkpoint", record.triggered_ms, ended_ms, attributes)


def _of_beginning(view: JobView, job: dict[str, str | int]) -> Span | None:
    """Return the span from the deployment of the current tasks until the last one runs; None until all run."""
    began, ready = [], []
    for vertex in view.vertices:
        for subtask in vertex.subtasks:
            since = dict(subtask.since_ms)
            if subtask.state not in _READY or ExecutionState.RUNNING not in since:
                return None
            began.append(since.get(ExecutionState.DEPLOYING, since[ExecutionState.RUNNING]))
            ready.append(since[ExecutionState.RUNNING])
    if not ready:
        return None
    restored = view.checkpoints.restored
    attributes: dict[str, str | int] = {**job, "initializationStatus": "COMPLETED", "numRestarts": view.restarts}
    if restored is not None:
        attributes["checkpointId"] = restored.checkpoint_id
    return Span(JOB_SCOPE, "JobInitialization", min(began), max(ready), attributes)
