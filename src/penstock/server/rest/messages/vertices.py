"""A vertex and its subtasks, individually and by worker."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.runtime.job.view import JobView, SubtaskView, VertexView, WorkerView
from penstock.server.rest.messages.jobs import (
    TASK_STATES,
    Aggregated,
    IOMetrics,
    aggregated,
    derive_state,
    derive_state_times,
    duration,
    io_metrics,
    state_of_all,
    status_durations,
    subtask_end,
    subtask_start,
    task_counts,
)
from penstock.server.rest.messages.taskmanagers import taskmanager_id

#: Flink's text for the location of a subtask without a worker of Penstock's.
UNASSIGNED = "(unassigned)"


class SubtaskDetails(msgspec.Struct, frozen=True):
    """An attempt of a subtask."""

    subtask: int
    status: str
    attempt: int
    host: str
    endpoint: str
    start_time: int = msgspec.field(name="start-time")
    end_time: int = msgspec.field(name="end-time")
    duration: int
    metrics: IOMetrics
    taskmanager_id: str = msgspec.field(name="taskmanager-id")
    status_duration: dict[str, int] = msgspec.field(name="status-duration")
    start_time_too: int = msgspec.field(name="start_time")


class VertexDetails(msgspec.Struct, frozen=True):
    """A vertex with its subtasks."""

    id: str
    name: str
    parallelism: int
    max_parallelism: int = msgspec.field(name="maxParallelism")
    now: int
    subtasks: list[SubtaskDetails]
    aggregated: Aggregated


class SubtaskTimes(msgspec.Struct, frozen=True):
    """A subtask on the timeline."""

    subtask: int
    host: str
    endpoint: str
    duration: int
    timestamps: dict[str, int]


class VertexTimes(msgspec.Struct, frozen=True):
    """The subtasks of a vertex on the timeline."""

    id: str
    name: str
    now: int
    subtasks: list[SubtaskTimes]


class VertexOnWorker(msgspec.Struct, frozen=True):
    """The subtasks of a vertex on one worker."""

    host: str
    endpoint: str
    status: str
    start_time: int = msgspec.field(name="start-time")
    end_time: int = msgspec.field(name="end-time")
    duration: int
    metrics: IOMetrics
    status_counts: dict[str, int] = msgspec.field(name="status-counts")
    taskmanager_id: str = msgspec.field(name="taskmanager-id")
    aggregated: Aggregated


class VertexTaskManagers(msgspec.Struct, frozen=True):
    """The subtasks of a vertex by worker."""

    id: str
    name: str
    now: int
    taskmanagers: list[VertexOnWorker]


def index_workers(view: JobView) -> dict[str, WorkerView]:
    """Return the workers of a job by id."""
    return {worker.worker_id: worker for worker in view.workers}


def format_endpoint(workers: dict[str, WorkerView], subtask: SubtaskView) -> str:
    """Return where a subtask runs: the host and the worker's process."""
    worker = workers.get(subtask.worker_id or "")
    return UNASSIGNED if worker is None else f"{worker.host}:{worker.process_id}"


def get_host(workers: dict[str, WorkerView], subtask: SubtaskView) -> str:
    """Return just the host, which dashboards of Flink before 1.20 read."""
    worker = workers.get(subtask.worker_id or "")
    return UNASSIGNED if worker is None else worker.host


def subtask_details(view: JobView, workers: dict[str, WorkerView], subtask: SubtaskView) -> SubtaskDetails:
    """Return the current attempt of a subtask."""
    start, end = subtask_start(view, subtask), subtask_end(view, subtask)
    return SubtaskDetails(
        subtask=subtask.subtask,
        status=derive_state(view, subtask).name,
        attempt=subtask.attempt,
        host=get_host(workers, subtask),
        endpoint=format_endpoint(workers, subtask),
        start_time=start,
        end_time=end,
        duration=duration(start, end, view.now_ms),
        metrics=io_metrics([subtask]),
        taskmanager_id=taskmanager_id(view.job_id, subtask.worker_id) if subtask.worker_id else UNASSIGNED,
        status_duration=status_durations(view, subtask),
        start_time_too=start,
    )


def vertex_details(view: JobView, vertex: VertexView) -> VertexDetails:
    """Return a vertex with all its subtasks."""
    workers = index_workers(view)
    return VertexDetails(
        vertex.vertex_id,
        vertex.name,
        vertex.parallelism,
        vertex.max_parallelism,
        view.now_ms,
        [subtask_details(view, workers, subtask) for subtask in vertex.subtasks],
        aggregated(view, vertex.subtasks),
    )


def vertex_times(view: JobView, vertex: VertexView) -> VertexTimes:
    """Return when the subtasks of a vertex entered each state."""
    workers, subtasks = index_workers(view), []
    for subtask in vertex.subtasks:
        since = {state.name: at_ms for state, at_ms in derive_state_times(view, subtask).items()}
        start, end = subtask_start(view, subtask), subtask_end(view, subtask)
        stamps = {name: since.get(name, 0) for name in TASK_STATES}
        took = duration(start, end, view.now_ms)
        host, endpoint = get_host(workers, subtask), format_endpoint(workers, subtask)
        subtasks.append(SubtaskTimes(subtask.subtask, host, endpoint, took, stamps))
    return VertexTimes(vertex.vertex_id, vertex.name, view.now_ms, subtasks)


def vertex_taskmanagers(view: JobView, vertex: VertexView) -> VertexTaskManagers:
    """Return the subtasks of a vertex by worker."""
    workers, by_worker = index_workers(view), dict[str, list[SubtaskView]]()
    for subtask in vertex.subtasks:
        by_worker.setdefault(subtask.worker_id or "", []).append(subtask)
    return VertexTaskManagers(
        vertex.vertex_id,
        vertex.name,
        view.now_ms,
        [_on_worker(view, workers, worker_id, subtasks) for worker_id, subtasks in by_worker.items()],
    )


def _on_worker(
    view: JobView, workers: dict[str, WorkerView], worker_id: str, subtasks: Sequence[SubtaskView]
) -> VertexOnWorker:
    states = [derive_state(view, subtask) for subtask in subtasks]
    starts = [start for subtask in subtasks if (start := subtask_start(view, subtask)) >= 0]
    ends = [subtask_end(view, subtask) for subtask in subtasks]
    start, end = min(starts, default=-1), max(ends) if min(ends) >= 0 else -1
    return VertexOnWorker(
        host=get_host(workers, subtasks[0]),
        endpoint=format_endpoint(workers, subtasks[0]),
        status=state_of_all(states).name,
        start_time=start,
        end_time=end,
        duration=duration(start, end, view.now_ms),
        metrics=io_metrics(subtasks),
        status_counts=task_counts(states),
        taskmanager_id=taskmanager_id(view.job_id, worker_id) if worker_id else UNASSIGNED,
        aggregated=aggregated(view, subtasks),
    )
