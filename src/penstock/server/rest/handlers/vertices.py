"""Vertices and subtasks over REST: details, times, workers, watermarks, back-pressure, accumulators, flame graphs.

`BackPressure` of a vertex comes from its subtasks' recent reports.

`WatermarkHolds` are the inputs that hold back a job's watermarks; Flink has no such path.
"""

from __future__ import annotations

import threading
from typing import Any, Final, Literal

import msgspec

from penstock.base.errors import OperationError
from penstock.runtime.accumulators import accumulator_values
from penstock.runtime.job.sources import Origin, find_producer, trace_origin
from penstock.runtime.job.view import JobView, SubtaskView, VertexView
from penstock.runtime.protocol import InputWatermark, TaskFigures, WatermarkHold
from penstock.runtime.records import MIN_TIMESTAMP
from penstock.server.rest.calls.routing import Call, Parameter, Route, bad_request, not_found
from penstock.server.rest.handlers.jobs import Accumulator, to_safe_text
from penstock.server.rest.messages import vertices

#: The watermark before the first one: Java's smallest long.
_NO_WATERMARK: Final = -(2**63)


class Metric(msgspec.Struct, frozen=True, omit_defaults=True):
    """A metric, with its value as text."""

    id: str
    value: str | None = None


class VertexAccumulators(msgspec.Struct, frozen=True, rename="kebab"):
    """The accumulators of a vertex, merged over its subtasks."""

    id: str
    user_accumulators: list[Accumulator]


class SubtaskAccumulators(msgspec.Struct, frozen=True, rename="kebab"):
    """The accumulators of a subtask."""

    subtask: int
    attempt: int
    host: str
    endpoint: str
    user_accumulators: list[Accumulator]


class AttemptAccumulators(msgspec.Struct, frozen=True, rename="kebab"):
    """The accumulators of an attempt of a subtask."""

    subtask: int
    attempt: int
    id: str
    user_accumulators: list[Accumulator]


class SubtasksAccumulators(msgspec.Struct, frozen=True):
    """The accumulators of each subtask of a vertex."""

    id: str
    parallelism: int
    subtasks: list[SubtaskAccumulators]


class FlameGraph(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Stack samples as a tree of `name`, `value` and `children`; empty until the first samples."""

    end_timestamp: int | None = None
    data: dict[str, Any] | None = None


def details(call: Call) -> Any:
    """Return a vertex with its subtasks."""
    return _of_vertex(call, "vertex", vertices.vertex_details)


def times(call: Call) -> Any:
    """Return when a vertex's subtasks entered each state."""
    return _of_vertex(call, "times", vertices.vertex_times)


def taskmanagers(call: Call) -> Any:
    """Return a vertex's subtasks by worker."""
    return _of_vertex(call, "taskmanagers", vertices.vertex_taskmanagers)


def _of_vertex(call: Call, name: str, make: Any) -> Any:
    return call.once_a_view(f"{name} {call.path['vertexid']}", lambda view: make(view, call.vertex(view)))


def watermarks(call: Call) -> list[Metric]:
    """Return the watermarks of the subtasks that have one."""
    vertex = call.vertex(call.view())
    return [
        Metric(f"{subtask.subtask}.currentInputWatermark", str(max(_NO_WATERMARK, subtask.metrics.watermark_ms)))
        for subtask in vertex.subtasks
        if subtask.metrics is not None
    ]


def subtask(call: Call) -> vertices.SubtaskDetails:
    """Return the current attempt of a subtask."""
    view, subtask = _subtask(call)
    return vertices.subtask_details(view, vertices.index_workers(view), subtask)


def attempt(call: Call) -> vertices.SubtaskDetails:
    """Return an attempt of a subtask by its number; 404 for earlier attempts, which are not kept."""
    view, subtask = _attempt(call)
    return vertices.subtask_details(view, vertices.index_workers(view), subtask)


def attempt_accumulators(call: Call) -> AttemptAccumulators:
    """Return the accumulators of the current attempt."""
    view, subtask = _attempt(call)
    return AttemptAccumulators(
        subtask.subtask, subtask.attempt, _attempt_id(view, call, subtask), _accumulators([subtask])
    )


def _attempt_id(view: JobView, call: Call, subtask: SubtaskView) -> str:
    return f"{view.job_id}_{call.path['vertexid']}_{subtask.subtask}_{subtask.attempt}"


def _subtask(call: Call) -> tuple[JobView, SubtaskView]:
    view = call.view()
    vertex = call.vertex(view)
    return view, vertex.subtasks[call.subtask(vertex)]


def _attempt(call: Call) -> tuple[JobView, SubtaskView]:
    view, subtask = _subtask(call)
    if subtask.attempt != int(call.path["attempt"]):
        raise not_found(
            f"Attempt {call.path['attempt']} of subtask {subtask.subtask} not found: only the current one is known, "
            f"which is {subtask.attempt}"
        )
    return view, subtask


def vertex_accumulators(call: Call) -> VertexAccumulators:
    """Return the accumulators of a vertex, merged over its subtasks."""
    vertex = call.vertex(call.view())
    return VertexAccumulators(vertex.vertex_id, _accumulators(vertex.subtasks))


def subtasks_accumulators(call: Call) -> SubtasksAccumulators:
    """Return the accumulators of each subtask."""
    view = call.view()
    vertex, workers = call.vertex(view), vertices.index_workers(view)
    subtasks = [
        SubtaskAccumulators(
            subtask.subtask,
            subtask.attempt,
            vertices.get_host(workers, subtask),
            vertices.format_endpoint(workers, subtask),
            _accumulators([subtask]),
        )
        for subtask in vertex.subtasks
    ]
    return SubtasksAccumulators(vertex.vertex_id, vertex.parallelism, subtasks)


def _accumulators(subtasks: Any) -> list[Accumulator]:
    pairs = [pair for subtask in subtasks if subtask.metrics is not None for pair in subtask.metrics.accumulators]
    values = accumulator_values(pairs)
    return [Accumulator(name, type(value).__name__, to_safe_text(value)) for name, value in values.items()]


def flame_graph(call: Call) -> Any:
    """Return a flame graph of the vertex's threads."""
    kind = call.query.get("type", "full").lower()
    if kind not in ("full", "on_cpu", "off_cpu"):
        raise bad_request(f"type must be one of full, on_cpu, off_cpu, not {kind[:50]!r}")
    requested = call.query.get("subtaskindex")
    if requested is not None and (not requested.isdecimal() or len(requested) > 9):
        raise bad_request(f"subtaskindex must be a number from 0 on, not {requested[:50]!r}")
    view = call.view()
    vertex: VertexView = call.vertex(view)
    index = None if requested is None else int(requested)
    if index is not None and index >= vertex.parallelism:
        raise not_found(f"Subtask {index} not found: vertex {vertex.vertex_id} has {vertex.parallelism}")
    try:
        graph = call.context.insight.flame_graph(call.job(), vertex.vertex_id, kind, index)
    except OperationError as error:
        raise not_found(str(error)) from error
    return FlameGraph() if graph is None else FlameGraph(graph.end_ms, graph.root.to_dict())


_VERTEX = "/jobs/:jobid/vertices/:vertexid"
_SUBTASK = f"{_VERTEX}/subtasks/:subtaskindex"
_TYPE = Parameter("type", "All stacks, or those of threads that compute, or wait.", ("full", "on_cpu", "off_cpu"))
_INDEX = Parameter("subtaskindex", "Of one subtask.", kind="integer")

VERTICES_ROUTES = [
    Route("GET", _VERTEX, details, "A vertex with its subtasks.", vertices.VertexDetails),
    Route("GET", f"{_VERTEX}/subtasktimes", times, "When its subtasks came to each state.", vertices.VertexTimes),
    Route("GET", f"{_VERTEX}/taskmanagers", taskmanagers, "Its subtasks by worker.", vertices.VertexTaskManagers),
    Route("GET", f"{_VERTEX}/watermarks", watermarks, "The watermarks of its subtasks.", list[Metric]),
    Route(
        "GET", f"{_VERTEX}/accumulators", vertex_accumulators, "Its accumulators.", VertexAccumulators, access="reveals"
    ),
    Route(
        "GET",
        f"{_VERTEX}/subtasks/accumulators",
        subtasks_accumulators,
        "The accumulators of each subtask.",
        SubtasksAccumulators,
        access="reveals",
    ),
    Route(
        "GET",
        f"{_VERTEX}/flamegraph",
        flame_graph,
        "Where its threads spend their time.",
        FlameGraph,
        access="reveals",
        query=(_TYPE, _INDEX),
    ),
    Route("GET", _SUBTASK, subtask, "A subtask.", vertices.SubtaskDetails),
    Route("GET", f"{_SUBTASK}/attempts/:attempt", attempt, "An attempt of a subtask.", vertices.SubtaskDetails),
    Route(
        "GET",
        f"{_SUBTASK}/attempts/:attempt/accumulators",
        attempt_accumulators,
        "The accumulators of an attempt.",
        AttemptAccumulators,
        access="reveals",
    ),
]


Level = Literal["ok", "low", "high"]

#: The ratios of back-pressured time above which a subtask counts as low and as high, as in Flink.
_LOW: Final = 0.1
_HIGH: Final = 0.5
#: The minimum span (ms) over which ratios are measured.
_SPAN_MS: Final = 1_000


class SubtaskBackPressure(msgspec.Struct, frozen=True, omit_defaults=True):
    """The ratios of time that a subtask is back-pressured, idle and busy, from 0 to 1."""

    subtask: int
    backpressure_level: Level = msgspec.field(name="backpressureLevel")
    ratio: float
    idle_ratio: float = msgspec.field(name="idleRatio")
    busy_ratio: float = msgspec.field(name="busyRatio")
    level: Level = msgspec.field(name="backpressure-level")
    attempt: int = msgspec.field(name="attempt-number")


class BackPressure(msgspec.Struct, frozen=True):
    """The back-pressure of a vertex: its worst subtask's level. The status is `deprecated` before the first reports."""

    status: Literal["deprecated", "ok"]
    backpressure_level: Level = msgspec.field(name="backpressureLevel")
    level: Level = msgspec.field(name="backpressure-level")
    end_timestamp: int = msgspec.field(name="end-timestamp")
    subtasks: list[SubtaskBackPressure]


Times = tuple[int, int, int]
_UNKNOWN: Final = BackPressure("deprecated", "ok", "ok", 0, [])


class _Looks:
    """Earlier samples of the subtasks' times; ratios are computed from the differences."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: by job and vertex: (ms, times by subtask and attempt) of the previous sample and of the last one
        self._looks: dict[tuple[str, str], tuple[_Look, _Look]] = {}

    def difference(self, view: JobView, vertex_id: str, now: dict[tuple[int, int], Times]) -> _Look:
        """Return the sample to subtract from the current times: one at least a second old, or an empty one."""
        key = (view.job_id, vertex_id)
        with self._lock:
            if len(self._looks) > _LOOKS_MAX:
                self._looks.clear()
            before, last = self._looks.get(key, (_NEVER, _NEVER))
            if view.now_ms >= last[0] + _SPAN_MS:
                before, last = last, (view.now_ms, now)
                self._looks[key] = (before, last)
            return before


_Look = tuple[int, dict[tuple[int, int], Times]]
_NEVER: Final[_Look] = (0, {})
_LOOKS_MAX: Final = 10_000
_looks = _Looks()


def back_pressure(call: Call) -> BackPressure:
    """Return the back-pressure of a vertex; an unknown vertex counts as not yet reported, as in Flink."""
    job = call.context.dispatcher.job(call.path["jobid"])
    if job is None:
        return _UNKNOWN
    view = call.context.view(job)
    vertex = next((vertex for vertex in view.vertices if vertex.vertex_id == call.path["vertexid"]), None)
    if vertex is None:
        return _UNKNOWN
    now = {(subtask.subtask, subtask.attempt): _times(subtask) for subtask in vertex.subtasks}
    _, before = _looks.difference(view, vertex.vertex_id, now)
    subtasks = [
        _of_subtask(subtask, before.get((subtask.subtask, subtask.attempt), (0, 0, 0))) for subtask in vertex.subtasks
    ]
    worst = max(subtasks, key=lambda subtask: subtask.ratio).level
    return BackPressure("ok", worst, worst, view.now_ms, subtasks)


def _times(subtask: SubtaskView) -> Times:
    figures = None if subtask.metrics is None else subtask.metrics.figures
    return (0, 0, 0) if figures is None else (figures.back_pressured_ms, figures.idle_ms, figures.busy_ms)


def _of_subtask(subtask: SubtaskView, before: Times) -> SubtaskBackPressure:
    spent = [max(0, now - then) for now, then in zip(_times(subtask), before, strict=True)]
    total = sum(spent)
    ratio, idle, busy = (part / total if total else 0.0 for part in spent)
    level: Level = "high" if ratio > _HIGH else "low" if ratio > _LOW else "ok"
    return SubtaskBackPressure(subtask.subtask, level, ratio, idle, busy, level, subtask.attempt)


BACK_PRESSURE_ROUTES = [
    Route(
        "GET",
        "/jobs/:jobid/vertices/:vertexid/backpressure",
        back_pressure,
        "Whether a vertex waits for those after it.",
        BackPressure,
    )
]


_WHY_NOT: Final = "a job in {mode} reads all of a step's records before time goes on: no input holds another back"


class HoldInput(msgspec.Struct, frozen=True, rename="kebab"):
    """An input of an operator: another vertex or, for a source, its splits.

    `watermark` is the lowest of its active channels, or null before the first. `count` of its `subtasks` or `splits`
    hold the operator back; the first of them are listed.
    """

    id: str
    name: str
    holds: bool
    idle: bool
    ended: bool
    watermark: int | None
    highest_watermark: int | None
    subtasks: list[int]
    splits: list[str]
    count: int


class HoldOrigin(msgspec.Struct, frozen=True, rename="kebab"):
    """The upstream vertex that causes the hold, without subtasks if they are unknown.

    `has_watermarks` is false for a source without a watermark strategy: operators that wait for it have no event time.
    """

    id: str
    name: str
    subtasks: list[int]
    splits: list[str]
    has_watermarks: bool


class Hold(msgspec.Struct, frozen=True, rename="kebab"):
    """A vertex whose watermark (ms; null before the first) has not moved since `since`, while other inputs are ahead.

    `others_moved` is when an input that is ahead last advanced.
    """

    id: str
    name: str
    operator: str
    subtasks: list[int]
    watermark: int | None
    since: int
    duration: int
    others_moved: int
    inputs: list[HoldInput]
    origin: HoldOrigin | None


class WatermarkHolds(msgspec.Struct, frozen=True):
    """All vertices that are held back, the longest hold first."""

    status: Literal["ok", "not-applicable"]
    reason: str | None
    now: int
    holds: list[Hold]


def watermark_hold(call: Call) -> Any:
    """Return the inputs that hold watermarks back, by the tasks' last reports."""
    return call.once_a_view("watermark-hold", watermark_holds)


def watermark_holds(view: JobView) -> WatermarkHolds:
    """Return the watermark holds in a job view."""
    if view.mode != "STREAMING":
        return WatermarkHolds("not-applicable", _WHY_NOT.format(mode=view.mode), view.now_ms, [])
    if view.status.is_terminal_state():
        return WatermarkHolds("ok", None, view.now_ms, [])
    of_vertices = [
        _hold_of_vertex(view, vertex, own)
        for vertex in view.vertices
        if (own := {subtask.subtask: hold for subtask in vertex.subtasks if (hold := _hold(subtask)) is not None})
    ]
    return WatermarkHolds("ok", None, view.now_ms, sorted(of_vertices, key=lambda entry: entry.since))


def _figures(subtask: SubtaskView) -> TaskFigures | None:
    has_ended = subtask.state is not None and subtask.state.is_terminal
    return None if subtask.metrics is None or has_ended else subtask.metrics.figures


def _hold(subtask: SubtaskView) -> WatermarkHold | None:
    figures = _figures(subtask)
    return None if figures is None else figures.hold


def _hold_of_vertex(view: JobView, vertex: VertexView, own: dict[int, WatermarkHold]) -> Hold:
    """Return the hold of a vertex, from the subtask that has waited longest."""

    def get_figures(index: int, part: int) -> TaskFigures | None:
        subtasks = view.vertices[index].subtasks
        return _figures(subtasks[part]) if part < len(subtasks) else None

    subtask = min(own, key=lambda index: own[index].since_ms)
    hold = own[subtask]
    origin = trace_origin(view.edges, get_figures, vertex.index, subtask)
    return Hold(
        vertex.vertex_id,
        vertex.name,
        vertex.operators[0],
        sorted(own),
        _time(hold.watermark_ms),
        hold.since_ms,
        max(0, view.now_ms - hold.since_ms),
        hold.moved_ms,
        [_input(view, vertex, watermark) for watermark in hold.inputs],
        None if origin is None else _origin(view, origin),
    )


def _input(view: JobView, vertex: VertexView, watermark: InputWatermark) -> HoldInput:
    index = find_producer(view.edges, watermark)
    producer = vertex if index is None else view.vertices[index]
    return HoldInput(
        producer.vertex_id,
        producer.name,
        watermark.holds,
        watermark.is_idle,
        watermark.has_ended,
        _time(watermark.lowest_ms),
        _time(watermark.highest_ms),
        [int(part) for part in watermark.parts] if watermark.edge is not None else [],
        list(watermark.parts) if watermark.edge is None else [],
        watermark.count,
    )


def _origin(view: JobView, origin: Origin) -> HoldOrigin:
    vertex, subtasks = view.vertices[origin.vertex], [int(subtask) for subtask in origin.subtasks]
    return HoldOrigin(vertex.vertex_id, vertex.name, subtasks, list(origin.splits), origin.has_watermarks)


def _time(watermark_ms: int) -> int | None:
    return None if watermark_ms == MIN_TIMESTAMP else watermark_ms


WATERMARK_HOLD_ROUTES = [
    Route(
        "GET",
        "/jobs/:jobid/watermark-hold",
        watermark_hold,
        "Which inputs hold watermarks back.",
        WatermarkHolds,
        access="reveals",  # splits of files are paths
    )
]


ROUTES = (*VERTICES_ROUTES, *BACK_PRESSURE_ROUTES, *WATERMARK_HOLD_ROUTES)
