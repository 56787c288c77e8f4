"""A job as outside observers see it: one read-only value, the same in every execution mode, at one moment."""

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
        host: the host it runs on.
        process_id: its process id.
        slow: why the worker counts as stuck or slow; None when it works normally.
        slow_since_ms: when that began (ms since the epoch).
        heard_ms: when it was last heard from (ms since the epoch).
        data_address: the address at which its peers reach it.
        process: the resource usage of its process; None before its first report.
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
    """A subtask in its current attempt.

    Attributes:
        subtask: its index, from 0.
        attempt: the number of its attempt, from 0.
        state: the attempt's execution state; None when the engine runs the tasks, as in batches.
        worker_id: the worker it runs on; None while it runs nowhere.
        since_ms: when (ms) it entered each state.
        metrics: its latest report; None before the first one.
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
        index: its position, upstream before downstream.
        name: the names of its operators.
        is_source: whether it reads external data.
        max_parallelism: the number of key groups.
        operators: the names of its operators, head first.
        subtasks: its subtasks, by index.
        infos: details of each operator.
        slot_sharing_group: its slot sharing group.
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
        """The id of its head operator, 32 hexadecimal digits, the same in every run of the program."""
        return self.infos[0].operator_id

    @property
    def parallelism(self) -> int:
        """The number of its subtasks."""
        return len(self.subtasks)


@dataclass(frozen=True)
class JobView:
    """A job at one moment.

    Attributes:
        job_id: its id, as 32 hexadecimal digits.
        name: its name.
        status: its current status.
        since_ms: when (ms) it last entered each status.
        restarts: how often it has restarted.
        vertices: its vertices, upstream before downstream.
        checkpoints: counts and history.
        in_progress: the checkpoints in progress, oldest first.
        failures: the latest failures, newest first.
        workers: its current workers.
        rescales: the latest changes of its parallelism, newest first.
        departures: the latest workers that were announced as leaving, newest first.
        mode: its execution mode: STREAMING, MICRO_BATCH, BATCH or BACK_FILL.
        edges: the edges between vertices, by vertex index.
        now_ms: when the view was made (ms since the epoch).
        configuration: the job's options as set. They may hold secrets.
        workers_awaited: how many requested workers have not arrived yet.
        rescale_requests: the latest requests for another parallelism that the job has not followed, newest first.
        moves: the latest status changes, each with its time (ms since the epoch), oldest first.
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
    """Return the views of all subtasks of an execution graph, by the index of their vertex."""
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
    """Build the view of a job from the views of its subtasks by vertex index, and other facts."""
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
