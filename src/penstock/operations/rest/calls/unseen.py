"""The view of a job without a report: it has not answered yet, or it ended before it had a master."""

from __future__ import annotations

import time

from penstock.base.job_status import JobStatus
from penstock.core.checkpoint.statistics import CheckpointStatistics
from penstock.core.graph.states import ExecutionState
from penstock.core.job.history import JobHistory
from penstock.core.job.view import JobView, SubtaskView, job_view
from penstock.operations.dispatcher import DispatchedJob

_FINAL = {JobStatus.FAILED: ExecutionState.FAILED, JobStatus.CANCELED: ExecutionState.CANCELED}


def unseen_view(job: DispatchedJob) -> JobView:
    """Build a view of a job from its graph and its handle."""
    status, now_ms = job.handle.status(), int(time.time() * 1000)
    history = JobHistory()
    history.moved(JobStatus.INITIALIZING, job.began_ms)
    if status is not JobStatus.INITIALIZING:
        history.moved(status, job.began_ms if not status.is_terminal_state() else now_ms)
    state = _FINAL.get(status, ExecutionState.CREATED)
    subtasks = {
        vertex.index: [SubtaskView(index, 0, state) for index in range(vertex.parallelism)]
        for vertex in job.graph.vertices
    }
    return job_view(
        job.job_id,
        job.graph,
        status,
        history,
        subtasks,
        CheckpointStatistics(),
        now_ms=now_ms,
        configuration=job.configuration,
    )
