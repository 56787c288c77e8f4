"""The inputs that hold back a job's watermarks; Flink has no such path."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from penstock.core.job.view import JobView, SubtaskView, VertexView
from penstock.core.job.watermark_holds import Origin, find_producer, trace_origin
from penstock.core.protocol import InputWatermark, TaskFigures, WatermarkHold
from penstock.core.records import MIN_TIMESTAMP
from penstock.operations.rest.calls.routing import Call, Route

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
        _of_vertex(view, vertex, own)
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


def _of_vertex(view: JobView, vertex: VertexView, own: dict[int, WatermarkHold]) -> Hold:
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


ROUTES = [
    Route(
        "GET",
        "/jobs/:jobid/watermark-hold",
        watermark_hold,
        "Which inputs hold watermarks back.",
        WatermarkHolds,
        access="reveals",  # splits of files are paths
    )
]
