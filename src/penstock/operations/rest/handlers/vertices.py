"""Vertices and subtasks: details, times, workers, watermarks, back-pressure, accumulators, flame graphs."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from penstock.base.errors import OperationError
from penstock.core.accumulators import accumulator_values
from penstock.core.job.view import JobView, SubtaskView, VertexView
from penstock.operations.rest.calls.errors import bad_request, not_found
from penstock.operations.rest.calls.routing import Call, Parameter, Route
from penstock.operations.rest.handlers.jobs import Accumulator, to_safe_text
from penstock.operations.rest.shapes.vertices import (
    SubtaskDetails,
    VertexDetails,
    VertexTaskManagers,
    VertexTimes,
    format_endpoint,
    get_host,
    index_workers,
    subtask_details,
    vertex_details,
    vertex_taskmanagers,
    vertex_times,
)

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
    return _of_vertex(call, "vertex", vertex_details)


def times(call: Call) -> Any:
    """Return when a vertex's subtasks entered each state."""
    return _of_vertex(call, "times", vertex_times)


def taskmanagers(call: Call) -> Any:
    """Return a vertex's subtasks by worker."""
    return _of_vertex(call, "taskmanagers", vertex_taskmanagers)


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


def subtask(call: Call) -> SubtaskDetails:
    """Return the current attempt of a subtask."""
    view, subtask = _subtask(call)
    return subtask_details(view, index_workers(view), subtask)


def attempt(call: Call) -> SubtaskDetails:
    """Return an attempt of a subtask by its number; 404 for earlier attempts, which are not kept."""
    view, subtask = _attempt(call)
    return subtask_details(view, index_workers(view), subtask)


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
    vertex, workers = call.vertex(view), index_workers(view)
    subtasks = [
        SubtaskAccumulators(
            subtask.subtask,
            subtask.attempt,
            get_host(workers, subtask),
            format_endpoint(workers, subtask),
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

ROUTES = [
    Route("GET", _VERTEX, details, "A vertex with its subtasks.", VertexDetails),
    Route("GET", f"{_VERTEX}/subtasktimes", times, "When its subtasks came to each state.", VertexTimes),
    Route("GET", f"{_VERTEX}/taskmanagers", taskmanagers, "Its subtasks by worker.", VertexTaskManagers),
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
    Route("GET", _SUBTASK, subtask, "A subtask.", SubtaskDetails),
    Route("GET", f"{_SUBTASK}/attempts/:attempt", attempt, "An attempt of a subtask.", SubtaskDetails),
    Route(
        "GET",
        f"{_SUBTASK}/attempts/:attempt/accumulators",
        attempt_accumulators,
        "The accumulators of an attempt.",
        AttemptAccumulators,
        access="reveals",
    ),
]
