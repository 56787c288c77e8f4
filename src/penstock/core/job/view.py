"""A job as those outside see it: one read-only value, the same in every tempo, at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.base.configuration import Configuration
from penstock.base.job_status import JobStatus
from penstock.core.checkpoint.statistics import CheckpointRecord, CheckpointStatistics
from penstock.core.graph.execution_graph import ExecutionGraph
from penstock.core.graph.job_graph import JobEdge, JobGraph, OperatorInfo
from penstock.core.graph.states import ExecutionState
from penstock.core.job.history import DepartureRecord, FailureRecord, JobHistory, RescaleRecord, RescaleRequest
from penstock.core.protocol import ProcessFigures, TaskMetrics


@dataclass(frozen=True)
class WorkerView:
    """A worker of the job.

    Attributes:
        worker_id: its name in the job.
        host: where it runs.
        process_id: its process.
        slow: why the worker counts as stuck or slow; None when it works as it should.
        slow_since_ms: since when (ms since the epoch).
        heard_ms: when it was last heard of (ms since the epoch).
        data_address: where its peers reach it.
        process: what its process uses; None before it has said so.
    """

    worker_id: str
    host: str
    process_id: int
    slow: str | None = None
    slow_since_ms: int | None = None
    heard_ms: int = 0
    data_address: str = ""
    process: ProcessFigures | None = None


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
    """A vertex of the job graph.

    Attributes:
        index: its place, upstream before downstream.
        name: the names of its operators.
        is_source: whether it reads from outside.
        max_parallelism: the number of key groups.
        operators: the names of its operators, head first.
        subtasks: its subtasks, by index.
        infos: what is known of each operator.
        slot_sharing_group: its group.
    """

    index: int
    name: str
    is_source: bool
    max_parallelism: int
    operators: tuple[str, ...]
    subtasks: tuple[SubtaskView, ...]
    infos: tuple[OperatorInfo, ...] = ()
    slot_sharing_group: str = "default"

    @property
    def vertex_id(self) -> str:
        """Its id: that of its head, 32 hexadecimal digits, the same in every run of the program."""
        return self.infos[0].operator_id

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
        mode: its tempo: STREAMING, MICRO_BATCH, BATCH or BACK_FILL.
        edges: between vertices, by their indexes.
        now_ms: when the view was made (ms since the epoch).
        configuration: the options of the job as they were set. They may hold secrets.
        workers_awaited: how many workers are asked for and not there yet.
        rescale_requests: the last requests for another parallelism that the job has not followed, newest first.
        moves: each status that it came to with the time (ms since the epoch), oldest first, the last of them.
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
    mode: str = "STREAMING"
    edges: tuple[JobEdge, ...] = ()
    now_ms: int = 0
    configuration: Mapping[str, str] = field(default_factory=dict)
    workers_awaited: int = 0
    rescale_requests: tuple[RescaleRequest, ...] = ()
    moves: tuple[tuple[JobStatus, int], ...] = ()


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
    *,
    now_ms: int,
    configuration: Configuration,
    workers_awaited: int = 0,
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
            vertex.operators,
            vertex.slot_sharing_group,
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
        job_graph.mode,
        job_graph.edges,
        now_ms,
        configuration.to_dict(),
        workers_awaited,
        history.rescale_requests,
        history.moves,
    )
