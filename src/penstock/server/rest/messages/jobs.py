"""A job in the form of Flink's API: times, metrics, plan, overview, details and failures.

**Times** say when a job and its subtasks entered each state.

`IOMetrics` are the I/O and time metrics of one subtask, or of several together.

`Plan` is the graph of a job in the shape of Flink's plans.

`JobOverview` is a job's entry in lists, and `JobDetails` all details of one job.

`JobExceptions` are the failures of a job, newest first.

`FailureCause` is an error as the result of an operation, in the form that Flink's clients read.

`serialized_throwable` makes the error for Flink's own client: a `SerializedThrowable` object in Java's serialization
format. Without this object, the client does not recognize a failure and polls forever. The object holds only displayed
data: no cause, no Java stack, and no other error inside it.
"""

from __future__ import annotations

import hashlib
import html
import re
import struct
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from penstock.base.configuration import Configuration
from penstock.base.job import JobStatus
from penstock.base.options import MAX_PARALLELISM
from penstock.base.secrets import hide
from penstock.runtime.graph import BACK_FILL, FORWARD, ExecutionState, JobEdge, JobGraph, OperatorInfo
from penstock.runtime.job.slots import is_adaptive
from penstock.runtime.job.view import FailureRecord, JobView, SubtaskView, VertexView
from penstock.server.rest.calls.routing import Number, Spread, spread

#: Flink's names of task states; Penstock's jobs never enter RECONCILING.
TASK_STATES: Final = (*(state.name for state in ExecutionState), "RECONCILING")
_E = ExecutionState
#: The state of the engine's tasks, by the status of their job.
_OF_THE_ENGINE: Final = {
    JobStatus.RUNNING: _E.RUNNING,
    JobStatus.FINISHED: _E.FINISHED,
    JobStatus.FAILED: _E.FAILED,
    JobStatus.FAILING: _E.FAILED,
    JobStatus.CANCELLING: _E.CANCELING,
    JobStatus.CANCELED: _E.CANCELED,
}
#: The states before the end, whose durations subtasks report.
SPENT: Final = (_E.CREATED, _E.SCHEDULED, _E.DEPLOYING, _E.INITIALIZING, _E.RUNNING)


def job_start(view: JobView) -> int:
    """Return when the job began (ms)."""
    return min(view.since_ms.values(), default=view.now_ms)


def job_end(view: JobView) -> int:
    """Return when the job ended (ms); -1 before that."""
    return view.since_ms.get(view.status, view.now_ms) if view.status.is_terminal_state() else -1


def job_timestamps(view: JobView) -> dict[str, int]:
    """Return when the job last entered each status; 0 if it never did."""
    stamps = {status.name: view.since_ms.get(status, 0) for status in JobStatus}
    return stamps | {"INITIALIZING": stamps["INITIALIZING"] or job_start(view)}


def derive_state(view: JobView, subtask: SubtaskView) -> ExecutionState:
    """Return the state of a subtask; for the engine's tasks, derive it from the job."""
    return subtask.state or _OF_THE_ENGINE.get(view.status, _E.CREATED)


def derive_state_times(view: JobView, subtask: SubtaskView) -> Mapping[ExecutionState, int]:
    """Return when a subtask entered each state; for the engine's tasks, derive it from the job."""
    if subtask.state is not None:
        return dict(subtask.since_ms)
    state = derive_state(view, subtask)
    begun = view.since_ms.get(JobStatus.RUNNING)
    since = {_E.CREATED: job_start(view)}
    if begun is not None:
        since[_E.RUNNING] = begun
    if state.is_terminal:
        since[state] = view.since_ms.get(view.status, view.now_ms)
    return since


def subtask_start(view: JobView, subtask: SubtaskView) -> int:
    """Return when a subtask was deployed (ms), or else when it began to run; -1 before that."""
    since = derive_state_times(view, subtask)
    for state in (_E.DEPLOYING, _E.RUNNING):
        if state in since:
            return since[state]
    return -1


def subtask_end(view: JobView, subtask: SubtaskView) -> int:
    """Return when a subtask ended (ms); -1 before that."""
    state = derive_state(view, subtask)
    return derive_state_times(view, subtask).get(state, view.now_ms) if state.is_terminal else -1


def duration(start_ms: int, end_ms: int, now_ms: int) -> int:
    """Return the duration from the start to the end, or to now; -1 without a start."""
    return -1 if start_ms < 0 else max(0, (end_ms if end_ms >= 0 else now_ms) - start_ms)


def status_durations(view: JobView, subtask: SubtaskView) -> dict[str, int]:
    """Return how long a subtask spent in each state before its end; -1 for states that it has not entered."""
    since = sorted(derive_state_times(view, subtask).items(), key=lambda item: item[1])
    spent = {state.name: -1 for state in SPENT}
    for index, (state, at_ms) in enumerate(since):
        if state.name in spent:
            until = since[index + 1][1] if index + 1 < len(since) else view.now_ms
            spent[state.name] = max(0, until - at_ms)
    return spent


def task_counts(states: Iterable[ExecutionState]) -> dict[str, int]:
    """Count the tasks in each state."""
    counts = Counter(state.name for state in states)
    return {name: counts[name] for name in TASK_STATES}


def state_of_all(states: list[ExecutionState]) -> ExecutionState:
    """Derive the state of a vertex from its subtasks' states, as Flink does."""
    present = set(states)
    for state in (_E.FAILED, _E.CANCELING, _E.CANCELED, _E.INITIALIZING, _E.RUNNING):
        if state in present:
            return state
    if present == {_E.FINISHED}:
        return _E.FINISHED
    if _E.FINISHED in present:
        return _E.RUNNING
    return next((state for state in (_E.DEPLOYING, _E.SCHEDULED) if state in present), _E.CREATED)


class IOMetrics(msgspec.Struct, frozen=True, rename="kebab"):
    """Totals of the current attempt; a value is complete once all its tasks have reported it."""

    read_bytes: int
    read_bytes_complete: bool
    write_bytes: int
    write_bytes_complete: bool
    read_records: int
    read_records_complete: bool
    write_records: int
    write_records_complete: bool
    accumulated_backpressured_time: int
    accumulated_idle_time: int
    accumulated_busy_time: Number


class Aggregated(msgspec.Struct, frozen=True, rename="kebab"):
    """The same metrics as distributions over subtasks."""

    metrics: dict[str, Spread]
    status_duration: dict[str, Spread]


Total = tuple[int, int, int, int, int, int, int]
_NAMES: Final = (
    "read-bytes",
    "write-bytes",
    "read-records",
    "write-records",
    "accumulated-backpressured-time",
    "accumulated-idle-time",
    "accumulated-busy-time",
)


def totals(subtask: SubtaskView) -> Total:
    """Return the metrics of a subtask, in the order of `_NAMES`; zeros before its first report."""
    metrics = subtask.metrics
    if metrics is None:
        return (0, 0, 0, 0, 0, 0, 0)
    of_time = metrics.figures
    if of_time is None:
        return (0, 0, metrics.records_in, metrics.records_out, 0, 0, 0)
    return (
        of_time.bytes_in,
        of_time.bytes_out,
        metrics.records_in,
        metrics.records_out,
        of_time.back_pressured_ms,
        of_time.idle_ms,
        of_time.busy_ms,
    )


def io_metrics(subtasks: Sequence[SubtaskView]) -> IOMetrics:
    """Return the sums of some subtasks' metrics."""
    bytes_in, bytes_out, records_in, records_out, back_pressured, idle, busy = (
        sum(column) for column in zip(*map(totals, subtasks), strict=True)
    )
    counted = all(subtask.metrics is not None for subtask in subtasks)
    measured = all(subtask.metrics is not None and subtask.metrics.figures is not None for subtask in subtasks)
    return IOMetrics(
        bytes_in,
        measured,
        bytes_out,
        measured,
        records_in,
        counted,
        records_out,
        counted,
        back_pressured,
        idle,
        busy if measured else "NaN",
    )


def aggregated(view: JobView, subtasks: Sequence[SubtaskView]) -> Aggregated:
    """Return the distribution of each metric over some subtasks."""
    columns = zip(*map(totals, subtasks), strict=True)
    durations = [status_durations(view, subtask) for subtask in subtasks]
    spent: Callable[[str], Spread] = lambda name: spread([max(0, by_state[name]) for by_state in durations])  # noqa: E731
    return Aggregated(
        {name: spread(column) for name, column in zip(_NAMES, columns, strict=True)},
        {state.name: spent(state.name) for state in SPENT},
    )


class PlanInput(msgspec.Struct, frozen=True):
    """An edge into a node."""

    num: int
    id: str
    ship_strategy: str
    exchange: str


class PlanNode(msgspec.Struct, frozen=True):
    """A vertex. Flink's submit page shows a description only if a `job_vertex_id` is present."""

    id: str
    parallelism: int
    operator: str
    operator_strategy: str
    description: str
    optimizer_properties: dict[str, str]
    inputs: list[PlanInput]
    job_vertex_id: str | msgspec.UnsetType = msgspec.UNSET


class Plan(msgspec.Struct, frozen=True):
    """A job's graph."""

    jid: str
    name: str
    type: str
    nodes: list[PlanNode]


class JobPlan(msgspec.Struct, frozen=True):
    """The plan alone."""

    plan: Plan


def describe_plan(view: JobView) -> Plan:
    """Return the plan of a job: nodes upstream before downstream, each with its input edges."""
    vertices = [(vertex.infos, vertex.parallelism, vertex.name) for vertex in view.vertices]
    return _plan(view.job_id, view.name, view.mode, vertices, view.edges)


def plan_of_graph(graph: JobGraph) -> Plan:
    """Return the plan of a job that does not run, and so has no id yet."""
    vertices = [(vertex.operators, vertex.parallelism, vertex.name) for vertex in graph.vertices]
    plan = _plan("0" * 32, graph.name, graph.mode, vertices, graph.edges)
    nodes = [msgspec.structs.replace(node, job_vertex_id=node.id) for node in plan.nodes]
    return msgspec.structs.replace(plan, nodes=nodes)


def _plan(
    job_id: str,
    name: str,
    mode: str,
    vertices: Sequence[tuple[Sequence[OperatorInfo], int, str]],
    edges: Iterable[JobEdge],
) -> Plan:
    """Build a plan from vertices given by operators, parallelism and name."""
    is_bounded = mode not in ("STREAMING", "MICRO_BATCH")
    edges, ids = tuple(edges), [infos[0].operator_id for infos, _, _ in vertices]
    nodes = []
    for index, (infos, parallelism, vertex_name) in enumerate(vertices):
        inputs = [
            PlanInput(
                number,
                ids[edge.source],
                edge.partitioning,
                "blocking" if is_bounded and edge.partitioning != FORWARD else "pipelined_bounded",
            )
            for number, edge in enumerate(edge for edge in edges if edge.target == index)
        ]
        description = "".join(_described(position, info) for position, info in enumerate(infos)) or vertex_name
        nodes.append(PlanNode(ids[index], parallelism, "", "", description, {}, inputs))
    return Plan(job_id, name, "BATCH" if is_bounded else "STREAMING", nodes)


def _described(position: int, info: OperatorInfo) -> str:
    """Return an operator's line as HTML. Dashboards render it, so the program's text is escaped."""
    text = html.escape(info.description or info.name)
    return f"{text}<br/>" if position == 0 else f"+- {text}<br/>"


SchedulerType = Literal["Default", "Adaptive", "AdaptiveBatch"]


class JobIdAndStatus(msgspec.Struct, frozen=True):
    """A job's id and status."""

    id: str
    status: str


class JobIds(msgspec.Struct, frozen=True):
    """The ids and statuses of all jobs."""

    jobs: list[JobIdAndStatus]


class JobOverview(msgspec.Struct, frozen=True):
    """A job in the overview. Flink has neither `restarts` nor `last-failure` (ms since the epoch; -1 without one)."""

    jid: str
    name: str
    start_time: int = msgspec.field(name="start-time")
    end_time: int = msgspec.field(name="end-time")
    duration: int
    state: str
    last_modification: int = msgspec.field(name="last-modification")
    tasks: dict[str, int]
    job_type: str = msgspec.field(name="jobType")
    scheduler_type: SchedulerType = msgspec.field(name="schedulerType")
    pending_operators: int = msgspec.field(name="pending-operators", default=0)
    restarts: int = 0
    last_failure: int = msgspec.field(name="last-failure", default=-1)


class JobsOverview(msgspec.Struct, frozen=True):
    """All jobs, with their tasks."""

    jobs: list[JobOverview]


class JobVertexDetails(msgspec.Struct, frozen=True):
    """A vertex in the details of its job."""

    id: str
    slot_sharing_group_id: str = msgspec.field(name="slotSharingGroupId")
    name: str
    max_parallelism: int = msgspec.field(name="maxParallelism")
    parallelism: int
    status: str
    start_time: int = msgspec.field(name="start-time")
    end_time: int = msgspec.field(name="end-time")
    duration: int
    tasks: dict[str, int]
    metrics: IOMetrics


class JobDetails(msgspec.Struct, frozen=True):
    """All details of a job. `restarts` and `last-failure` are as in the overview."""

    jid: str
    application_id: str = msgspec.field(name="application-id")
    name: str
    is_stoppable: bool = msgspec.field(name="isStoppable")
    state: str
    job_type: str = msgspec.field(name="job-type")
    scheduler_type: SchedulerType = msgspec.field(name="schedulerType")
    start_time: int = msgspec.field(name="start-time")
    end_time: int = msgspec.field(name="end-time")
    duration: int
    max_parallelism: int = msgspec.field(name="maxParallelism")
    now: int
    timestamps: dict[str, int]
    vertices: list[JobVertexDetails]
    status_counts: dict[str, int] = msgspec.field(name="status-counts")
    plan: Plan
    pending_operators: int = msgspec.field(name="pending-operators", default=0)
    restarts: int = 0
    last_failure: int = msgspec.field(name="last-failure", default=-1)


def job_type(view: JobView) -> str:
    """Return one of Flink's two job types; a micro-batch job counts as streaming."""
    return "BATCH" if view.mode in ("BATCH", BACK_FILL) else "STREAMING"


def scheduler_type(view: JobView) -> SchedulerType:
    """Return how the job gets its slots."""
    adaptive = view.mode == "STREAMING" and is_adaptive(Configuration.from_dict(dict(view.configuration)))
    return "Adaptive" if adaptive else "Default"


def group_id(name: str) -> str:
    """Return the id of a slot sharing group, derived from its name."""
    return hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()


def job_overview(view: JobView) -> JobOverview:
    """Return a job's entry in the overview."""
    start, end = job_start(view), job_end(view)
    counts = task_counts(derive_state(view, subtask) for vertex in view.vertices for subtask in vertex.subtasks)
    return JobOverview(
        jid=view.job_id,
        name=view.name,
        start_time=start,
        end_time=end,
        duration=duration(start, end, view.now_ms),
        state=view.status.name,
        last_modification=max(view.since_ms.values(), default=view.now_ms),
        tasks={"total": sum(counts.values())} | {name.lower(): count for name, count in counts.items()},
        job_type=job_type(view),
        scheduler_type=scheduler_type(view),
        restarts=view.restarts,
        last_failure=last_failure(view),
    )


def vertex_details(view: JobView, vertex: VertexView) -> JobVertexDetails:
    """Return a vertex of a job."""
    states = [derive_state(view, subtask) for subtask in vertex.subtasks]
    starts = [start for subtask in vertex.subtasks if (start := subtask_start(view, subtask)) >= 0]
    ends = [subtask_end(view, subtask) for subtask in vertex.subtasks]
    start, end = min(starts, default=-1), max(ends) if min(ends) >= 0 else -1
    return JobVertexDetails(
        id=vertex.vertex_id,
        slot_sharing_group_id=group_id(vertex.slot_sharing_group),
        name=vertex.name,
        max_parallelism=vertex.max_parallelism,
        parallelism=vertex.parallelism,
        status=state_of_all(states).name,
        start_time=start,
        end_time=end,
        duration=duration(start, end, view.now_ms),
        tasks=task_counts(states),
        metrics=io_metrics(vertex.subtasks),
    )


def job_details(view: JobView) -> JobDetails:
    """Return all details of a job."""
    start, end = job_start(view), job_end(view)
    vertices = [vertex_details(view, vertex) for vertex in view.vertices]
    counts: dict[str, int] = dict.fromkeys(task_counts(()), 0)
    for vertex in vertices:
        counts[vertex.status] += 1
    return JobDetails(
        jid=view.job_id,
        application_id=view.job_id,
        name=view.name,
        is_stoppable=False,
        state=view.status.name,
        job_type=job_type(view),
        scheduler_type=scheduler_type(view),
        start_time=start,
        end_time=end,
        duration=duration(start, end, view.now_ms),
        max_parallelism=max_parallelism(view),
        now=view.now_ms,
        timestamps=job_timestamps(view),
        vertices=vertices,
        status_counts=counts,
        plan=describe_plan(view),
        restarts=view.restarts,
        last_failure=last_failure(view),
    )


def last_failure(view: JobView) -> int:
    """Return when the job last failed (ms); -1 if it never did."""
    return view.failures[0].at_ms if view.failures else -1


def max_parallelism(view: JobView) -> int:
    """Return the configured maximum parallelism, or its default."""
    value: Any = view.configuration.get(MAX_PARALLELISM.key())
    return MAX_PARALLELISM.default_value() if value is None else MAX_PARALLELISM.convert(value)


#: An error's class, in the last line of a traceback or at the beginning of an error's text.
_NAMED: Final = re.compile(r"^\s*((?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt|Warning))(?::|\s*$)", re.MULTILINE)
_UNNAMED: Final = "JobExecutionError"


class ExceptionEntry(msgspec.Struct, frozen=True, rename="camel"):
    """A failure that occurred while the job handled another one."""

    exception_name: str
    stacktrace: str
    timestamp: int
    failure_labels: Mapping[str, str]
    task_name: str | None
    endpoint: str | None
    task_manager_id: str | None


class RootException(ExceptionEntry, frozen=True, rename="camel", kw_only=True):
    """A failure of the job."""

    concurrent_exceptions: list[ExceptionEntry]


class ExceptionHistory(msgspec.Struct, frozen=True):
    """The failures of a job, newest first."""

    entries: list[RootException]
    truncated: bool


class JobExceptions(msgspec.Struct, frozen=True):
    """Flink's exception history, and the top-level fields that it deprecates."""

    exception_history: ExceptionHistory = msgspec.field(name="exceptionHistory")
    root_exception: str | None = msgspec.field(name="root-exception", default=None)
    timestamp: int | None = None
    all_exceptions: list[Any] = msgspec.field(name="all-exceptions", default_factory=list)
    truncated: bool = False


def exception_name(text: str) -> str:
    """Return the class of the error in a failure's text: the last error class that begins a line."""
    names = _NAMED.findall(text)
    return str(names[-1]) if names else _UNNAMED


def job_exceptions(view: JobView, count_max: int, labels: Mapping[str, str]) -> JobExceptions:
    """Return the newest failures with these labels, at most `count_max`."""
    failures = [failure for failure in view.failures if labels.items() <= failure.labels.items()]
    entries = [
        RootException(
            **_fields(failure),
            concurrent_exceptions=[ExceptionEntry(**_fields(concurrent)) for concurrent in failure.concurrent],
        )
        for failure in failures[:count_max]
    ]
    truncated = len(failures) > count_max
    if not view.failures:
        return JobExceptions(ExceptionHistory(entries, truncated))
    newest = view.failures[0]
    return JobExceptions(ExceptionHistory(entries, truncated), newest.text, newest.at_ms, [], truncated)


def _fields(failure: FailureRecord) -> dict[str, Any]:
    endpoint = None if failure.host is None else f"{failure.host}:{failure.process_id}"
    return {
        "exception_name": exception_name(failure.text),
        "stacktrace": failure.text,
        "timestamp": failure.at_ms,
        "failure_labels": failure.labels,
        "task_name": failure.task,
        "endpoint": endpoint,
        "task_manager_id": failure.worker_id,
    }


#: The maximum number of characters of a text; such a Java string has at most 65,535 bytes.
CHARS_MAX: Final = 10_000

_STREAM: Final = b"\xac\xed\x00\x05"
_NULL, _OBJECT, _STRING, _CLASS, _END = b"p", b"s", b"t", b"r", b"x"
#: Class flags: the fields follow in order; or the class has a method that writes them, followed by an end mark.
_PLAIN, _OWN_METHOD = b"\x02", b"\x03"
_TEXT: Final = "Ljava/lang/String;"


def serialized_throwable(class_name: str, text: str) -> bytes:
    """Serialize an error, with its text as its stack trace."""
    fields = [("fullStringifiedStackTrace", _TEXT), ("originalErrorClassName", _TEXT)]
    classes = [
        _class("org.apache.flink.util.SerializedThrowable", 0x65169DF51FA713F3, _PLAIN, fields),
        _class("java.lang.Exception", 0xD0FD1F3E1A3B1CC4, _PLAIN, []),
        _class("java.lang.Throwable", 0xD5C635273977B8CB, _OWN_METHOD, [("detailMessage", _TEXT)]),
    ]
    of_throwable, of_flink = _string(text) + _END, _string(text) + _string(class_name)
    return b"".join([_STREAM, _OBJECT, *classes, _NULL, of_throwable, of_flink])


def _class(name: str, version: int, flags: bytes, fields: list[tuple[str, str]]) -> bytes:
    described = b"".join(b"L" + _utf(field) + _string(kind) for field, kind in fields)
    head = _CLASS + _utf(name) + struct.pack(">Q", version) + flags + struct.pack(">H", len(fields))
    return head + described + _END


def _string(text: str) -> bytes:
    return _STRING + _utf(text[:CHARS_MAX])


def _utf(text: str) -> bytes:
    """Encode Java's modified UTF-8: NUL takes two bytes, and supplementary characters become two surrogates."""
    units = text.encode("utf-16-be", "surrogatepass")
    characters = "".join(chr(unit) for (unit,) in struct.iter_unpack(">H", units))
    encoded = characters.encode("utf-8", "surrogatepass").replace(b"\x00", b"\xc0\x80")
    return struct.pack(">H", len(encoded)) + encoded


class FailureCause(msgspec.Struct, frozen=True, rename="kebab"):
    """The class of an error, its text, and both as a Java object (base64) for Flink's client."""

    class_: str = msgspec.field(name="class")
    stack_trace: str
    serialized_throwable: bytes


def failure_cause(error: BaseException) -> FailureCause:
    """Convert an error to its class and text; Python's own traceback is left out."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    text = hide("".join(traceback.format_exception_only(error)).strip())
    return FailureCause(name, text, serialized_throwable(name, text))
