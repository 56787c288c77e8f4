"""A job as outside observers see it: one read-only value, the same in every execution mode, at one moment.

`JobHistory` is the history of a job: its status transitions, restarts, failures and changes of parallelism.

`JobView` is the job with its workers, vertices and subtasks.

`JobProgress` holds the figures of a running job, for progress lines and pages.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.base.configuration import Configuration
from penstock.base.job import JobStatus
from penstock.runtime.checkpoint.statistics import CheckpointRecord, CheckpointStatistics
from penstock.runtime.graph import ExecutionGraph, ExecutionState, JobEdge, JobGraph, OperatorInfo
from penstock.runtime.protocol import ProcessFigures, TaskMetrics
from penstock.runtime.records import MIN_TIMESTAMP

#: The number of failures kept (Flink's `web.exception-history-size`).
FAILURES_MAX: Final = 16
#: The number of failures kept that occurred while the job handled another failure.
CONCURRENT_MAX: Final = 16
#: The number of changes of parallelism kept (Flink's `web.adaptive-scheduler.rescale-history.size`).
RESCALES_MAX: Final = 16
#: The number of status transitions kept: enough for some hundred restarts.
MOVES_MAX: Final = 512
#: The number of departed workers kept.
DEPARTURES_MAX: Final = 16


@dataclass(frozen=True)
class FailureRecord:
    """A failure of an attempt.

    Attributes:
        at_ms: when it was reported (ms since the epoch).
        attempt: the attempt that failed, from 0.
        text: a description for people, with the traceback of a user-defined function if there is one.
        task: the task that failed, such as `Map (2/4)`; None if it was not a task.
        worker_id: the worker that ran the task, or the lost worker.
        host: the host of that worker.
        process_id: its process.
        lost: the tasks whose work was lost with a worker.
        part: the part that restarted, such as `3 of 8 tasks`; None if the whole job did.
        concurrent: failures while the job handled this one, in order (Flink's `concurrentExceptions`).
        labels: labels from failure enrichers (Flink's `failureLabels`).
        number: the number of the failure in the job, from 1.
    """

    at_ms: int
    attempt: int
    text: str
    task: str | None = None
    worker_id: str | None = None
    host: str | None = None
    process_id: int | None = None
    lost: tuple[str, ...] = ()
    part: str | None = None
    concurrent: tuple[FailureRecord, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    number: int = 0


class RescaleCause(enum.Enum):
    """Why a job's parallelism changed: Flink's names, and WORKER_LEAVING, when Spark takes a worker away."""

    INITIAL_SCHEDULE = "INITIAL_SCHEDULE"
    UPDATE_REQUIREMENT = "UPDATE_REQUIREMENT"
    NEW_RESOURCE_AVAILABLE = "NEW_RESOURCE_AVAILABLE"
    RECOVERABLE_FAILOVER = "RECOVERABLE_FAILOVER"
    WORKER_LEAVING = "WORKER_LEAVING"


@dataclass(frozen=True)
class RescaleRecord:
    """A change of a job's parallelism.

    Attributes:
        at_ms: when the tasks were deployed (ms since the epoch).
        attempt: the attempt that this began.
        cause: the cause.
        changed: the parallelism before and after, by vertex name.
        checkpoint_id: the checkpoint that the tasks were restored from, if any.
    """

    at_ms: int
    attempt: int
    cause: RescaleCause
    changed: Mapping[str, tuple[int, int]]
    checkpoint_id: int | None = None


class RescaleEnd(enum.Enum):
    """Why a request for another parallelism ended without it; Flink's names."""

    EXCEPTION_OCCURRED = "EXCEPTION_OCCURRED"
    RESOURCE_REQUIREMENTS_UPDATED = "RESOURCE_REQUIREMENTS_UPDATED"
    NO_RESOURCES_OR_PARALLELISMS_CHANGE = "NO_RESOURCES_OR_PARALLELISMS_CHANGE"
    JOB_FINISHED = "JOB_FINISHED"
    JOB_FAILED = "JOB_FAILED"
    JOB_CANCELED = "JOB_CANCELED"


@dataclass(frozen=True)
class RescaleRequest:
    """A request for another parallelism that is pending, or that ended without it.

    Attributes:
        at_ms: when it was made (ms since the epoch).
        attempt: the attempt that ran at that time.
        wanted: the parallelism at that time and the requested one, by vertex name.
        ended_ms: when it ended (ms since the epoch); None while the job waits for slots or a checkpoint.
        end: why it ended.
        reason: the same for people.
    """

    at_ms: int
    attempt: int
    wanted: Mapping[str, tuple[int, int]]
    ended_ms: int | None = None
    end: RescaleEnd | None = None
    reason: str = ""


@dataclass(frozen=True)
class DepartureRecord:
    """A worker that was announced as leaving while it was alive.

    Attributes:
        at_ms: when it was announced (ms since the epoch).
        worker_id: the worker.
        host: its host.
        process_id: its process.
        reason: who takes it away, and from where.
        tasks: its tasks with something at stake at that time, such as `Map (2/4)`.
        moved_ms: when these were deployed on other workers; None if that is still to come, if there were none, or if
            the worker was lost first.
        checkpoint_id: the checkpoint that they were restored from on those workers.
    """

    at_ms: int
    worker_id: str
    host: str
    process_id: int
    reason: str
    tasks: tuple[str, ...] = ()
    moved_ms: int | None = None
    checkpoint_id: int | None = None


class JobHistory:
    """The history of one job, in any execution mode."""

    def __init__(self) -> None:
        #: when the job last entered each status
        self.since_ms: dict[JobStatus, int] = {}
        #: each status that it entered, and when; oldest first
        self.moves: tuple[tuple[JobStatus, int], ...] = ()
        self._failures: tuple[FailureRecord, ...] = ()
        self._failures_count = 0
        #: by failure number
        self._labels: Mapping[int, Mapping[str, str]] = {}
        #: newest first
        self.rescales: tuple[RescaleRecord, ...] = ()
        #: newest first, without the requests that were fulfilled
        self.rescale_requests: tuple[RescaleRequest, ...] = ()
        #: newest first
        self.departures: tuple[DepartureRecord, ...] = ()
        #: restarts after failures
        self.restarts = 0

    def moved(self, status: JobStatus, now_ms: int) -> None:
        """Record a new status. The job initializes once, with the first status; a restart enters the others again."""
        self.since_ms = {JobStatus.INITIALIZING: now_ms, **self.since_ms, status: now_ms}
        first = () if self.moves or status is JobStatus.INITIALIZING else ((JobStatus.INITIALIZING, now_ms),)
        self.moves = (*self.moves, *first, (status, now_ms))[-MOVES_MAX:]

    def rescaled(self, rescale: RescaleRecord) -> None:
        """Record a change of parallelism."""
        self.rescales = (rescale, *self.rescales)[:RESCALES_MAX]

    def rescale_asked(self, request: RescaleRequest) -> None:
        """Record a request for another parallelism."""
        self.rescale_requests = (request, *self.rescale_requests)[:RESCALES_MAX]

    def rescale_ended(self, now_ms: int, end: RescaleEnd | None, reason: str = "") -> None:
        """Record the end of the latest request; an `end` of None means that it was fulfilled."""
        last, *earlier = self.rescale_requests
        if end is not None:
            earlier.insert(0, replace(last, ended_ms=now_ms, end=end, reason=reason))
        self.rescale_requests = tuple(earlier)

    def departs(self, departure: DepartureRecord) -> None:
        """Record a leaving worker."""
        self.departures = (departure, *self.departures)[:DEPARTURES_MAX]

    def departed(self, worker_id: str, now_ms: int, checkpoint_id: int | None) -> None:
        """Record that a leaving worker's tasks were restored on other workers, from that checkpoint."""
        self.departures = tuple(
            replace(departure, moved_ms=now_ms, checkpoint_id=checkpoint_id)
            if departure.worker_id == worker_id
            else departure
            for departure in self.departures
        )

    @property
    def failures(self) -> tuple[FailureRecord, ...]:
        """The failures, newest first, with the labels known so far."""
        return tuple(self._with_labels(failure) for failure in self._failures)

    def _with_labels(self, failure: FailureRecord) -> FailureRecord:
        concurrent = tuple(self._with_labels(other) for other in failure.concurrent)
        return replace(failure, labels=self._labels.get(failure.number, {}), concurrent=concurrent)

    def failed(self, failure: FailureRecord) -> int:
        """Record a failed attempt, and return the failure's number."""
        self._failures_count += 1
        self._failures = (replace(failure, number=self._failures_count), *self._failures)[:FAILURES_MAX]
        return self._failures_count

    def failed_too(self, failure: FailureRecord) -> int:
        """Record another failure while the job handles the newest one, and return its number."""
        self._failures_count += 1
        newest, *earlier = self._failures
        concurrent = (*newest.concurrent, replace(failure, number=self._failures_count))[:CONCURRENT_MAX]
        self._failures = (replace(newest, concurrent=concurrent), *earlier)
        return self._failures_count

    def labelled(self, number: int, labels: Mapping[str, str]) -> None:
        """Add labels to a failure. Called by one thread, which need not be the one that records failures."""
        numbers = {record.number for failure in self._failures for record in (failure, *failure.concurrent)}
        known = {known: labels for known, labels in self._labels.items() if known in numbers}
        self._labels = known | {number: {**known.get(number, {}), **labels}}


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


@dataclass(frozen=True)
class VertexProgress:
    """One vertex: totals over the current attempts of its subtasks; the watermark is the lowest (ms)."""

    name: str
    is_source: bool
    records_in: int
    records_out: int
    watermark_ms: int


@dataclass(frozen=True)
class JobProgress:
    """A job at one moment."""

    status: str
    vertices: tuple[VertexProgress, ...] = ()
    checkpoints_completed: int = 0
    last_checkpoint_id: int = 0
    last_checkpoint_ms: int = 0
    last_checkpoint_bytes: int = 0
    restarts: int = 0
    workers: tuple[tuple[str, str, int], ...] = ()
    #: totals over all subtasks
    counters: dict[str, int] = field(default_factory=dict)
    #: by `<vertex>.<subtask from 0>.<name>`
    gauges: dict[str, float] = field(default_factory=dict)
    #: count, sum, minimum and maximum over all subtasks
    distributions: dict[str, tuple[int, float, float, float]] = field(default_factory=dict)

    @property
    def source_records(self) -> int:
        """The number of records that all sources have emitted in the current attempt."""
        return sum(v.records_in for v in self.vertices if v.is_source)

    @property
    def watermark_ms(self) -> int:
        """The lowest watermark of all vertices, or `MIN_TIMESTAMP` without a watermark."""
        return min((v.watermark_ms for v in self.vertices), default=MIN_TIMESTAMP)


def job_progress(view: JobView) -> JobProgress:
    """Return the figures of a job."""
    vertices, counters = [], dict[str, int]()
    gauges = dict[str, float]()
    distributions = dict[str, tuple[int, float, float, float]]()
    for vertex in view.vertices:
        known = [subtask.metrics for subtask in vertex.subtasks if subtask.metrics is not None]
        complete = len(known) == vertex.parallelism
        vertices.append(
            VertexProgress(
                vertex.name,
                vertex.is_source,
                sum(m.records_in for m in known),
                sum(m.records_out for m in known),
                min(m.watermark_ms for m in known) if complete else MIN_TIMESTAMP,
            )
        )
        for m in known:
            for name, value in m.counters.items():
                counters[name] = counters.get(name, 0) + value
            for name, gauge in m.gauges.items():
                gauges[f"{vertex.name}.{m.execution.subtask}.{name}"] = gauge
            for name, summary in m.distributions.items():
                distributions[name] = merged_distributions(distributions.get(name), summary)
    checkpoints, last = view.checkpoints, view.checkpoints.last
    return JobProgress(
        view.status.name,
        tuple(vertices),
        checkpoints.completed,
        0 if last is None else last.checkpoint_id,
        0 if last is None else last.duration_ms,
        0 if last is None else last.state_bytes,
        view.restarts,
        tuple((worker.worker_id, worker.host, worker.process_id) for worker in view.workers),
        counters,
        gauges,
        distributions,
    )


def merged_distributions(
    distribution: tuple[int, float, float, float] | None, other: tuple[int, float, float, float]
) -> tuple[int, float, float, float]:
    """Merge two distributions (count, sum, minimum, maximum)."""
    if distribution is None or not distribution[0]:
        return other
    if not other[0]:
        return distribution
    return (
        distribution[0] + other[0],
        distribution[1] + other[1],
        min(distribution[2], other[2]),
        max(distribution[3], other[3]),
    )
