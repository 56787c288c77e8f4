"""A job as those outside see it: one read-only value, the same in every tempo, at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.base.job_status import JobStatus
from penstock.core.checkpoint.statistics import CheckpointRecord, CheckpointStatistics
from penstock.core.graph.execution_graph import ExecutionGraph
from penstock.core.graph.job_graph import JobGraph
from penstock.core.graph.states import ExecutionState
from penstock.core.job.history import DepartureRecord, FailureRecord, JobHistory, RescaleRecord
from penstock.core.protocol import TaskMetrics


@dataclass(frozen=True)
class WorkerView:
    """A worker of the job.

    Attributes:
        worker_id: its name in the job.
        host: where it runs.
        process_id: its process.
        slow: why the worker counts as stuck or slow; None when it works as it should.
        slow_since_ms: since when (ms since the epoch).
    """

    worker_id: str
    host: str
    process_id: int
    slow: str | None = None
    slow_since_ms: int | None = None


@dataclass(frozen=True)
class SubtaskView:
    """A subtask, as of its current attempt.

    Attributes:
        subtask: its index, from 0.
        attempt: the number of its attempt, from 0.
        state: where the attempt is in its life; None where tasks are the engine's, as in batches.
        worker_id: where it runs; None while it runs nowhere.
        since_ms: when (ms) it came to each state.
        metrics: what it has reported last; None before its first report.
    """

    subtask: int
    attempt: int
    state: ExecutionState | None = None
    worker_id: str | None = None
    since_ms: tuple[tuple[ExecutionState, int], ...] = ()
    metrics: TaskMetrics | None = None


@dataclass(frozen=True)
class VertexView:
    """A vertex of the job graph."""

    index: int
    name: str
    is_source: bool
    max_parallelism: int
    operators: tuple[str, ...]
    subtasks: tuple[SubtaskView, ...]

    @property
    def parallelism(self) -> int:
        """How many subtasks it has."""
        return len(self.subtasks)


@dataclass(frozen=True)
class JobView:
    """A job at one moment.

    Attributes:
        job_id: its id, as 32 hexadecimal digits.
        name: its name.
        status: where it is in its life.
        since_ms: when (ms) it last came to each status.
        restarts: how often it began again.
        vertices: upstream before downstream.
        checkpoints: counts and history.
        in_progress: the checkpoints in the making, oldest first.
        failures: the last failures, newest first.
        workers: those that are there.
        rescales: the last changes of its parallelism, newest first.
        departures: the last workers that were announced as leaving, newest first.
    """

    job_id: str
    name: str
    status: JobStatus
    since_ms: Mapping[JobStatus, int]
    restarts: int
    vertices: tuple[VertexView, ...]
    checkpoints: CheckpointStatistics
    in_progress: tuple[CheckpointRecord, ...] = ()
    failures: tuple[FailureRecord, ...] = ()
    workers: tuple[WorkerView, ...] = ()
    rescales: tuple[RescaleRecord, ...] = ()
    departures: tuple[DepartureRecord, ...] = ()


def subtask_views(
    graph: ExecutionGraph, metrics: Mapping[tuple[int, int], TaskMetrics]
) -> dict[int, list[SubtaskView]]:
    """All subtasks of an execution graph, by the index of their vertex."""
    views: dict[int, list[SubtaskView]] = {}
    for vertex in graph:
        now = vertex.current
        reported = metrics.get((now.id.vertex, now.id.subtask))
        since_ms = tuple(now.since_ms.items())
        view = SubtaskView(vertex.subtask, now.id.attempt, now.state, now.worker_id, since_ms, reported)
        views.setdefault(vertex.vertex.index, []).append(view)
    return views


def job_view(
    job_id: str,
    job_graph: JobGraph,
    status: JobStatus,
    history: JobHistory,
    subtasks: Mapping[int, Iterable[SubtaskView]],
    checkpoints: CheckpointStatistics,
    in_progress: Iterable[CheckpointRecord] = (),
    workers: Iterable[WorkerView] = (),
) -> JobView:
    """The view of a job whose subtasks, by the index of their vertex, look like this."""
    vertices = tuple(
        VertexView(
            vertex.index,
            vertex.name,
            bool(vertex.sources),
            vertex.max_parallelism,
            tuple(operator.name for operator in vertex.operators),
            tuple(subtasks[vertex.index]),
        )
        for vertex in job_graph.vertices
    )
    return JobView(
        job_id,
        job_graph.name,
        status,
        dict(history.since_ms),
        history.restarts,
        vertices,
        checkpoints,
        tuple(in_progress),
        history.failures,
        tuple(workers),
        history.rescales,
        history.departures,
    )
