"""Metrics: lists of names, values by name, and aggregates over jobs, workers or subtasks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from penstock.server.metrics.metric_store import DRIVER_ID
from penstock.server.rest.calls.context import Values
from penstock.server.rest.calls.routing import Call, Number, Parameter, Route, bad_request, number
from penstock.server.rest.handlers.cluster import workers
from penstock.server.rest.handlers.vertices import Metric


class AggregatedMetric(msgspec.Struct, frozen=True, omit_defaults=True):
    """A metric over several jobs, workers or subtasks."""

    id: str
    min: Number | None = None
    max: Number | None = None
    avg: Number | None = None
    sum: Number | None = None
    skew: Number | None = None


#: The maximum number of subtask ranges in a request; further ones are ignored.
_SUBTASKS_MAX: Final = 100_000


def _average(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _skew(values: Sequence[float]) -> float:
    """Return the mean absolute deviation in percent of the average, as in Flink."""
    average = _average(values)
    if average == 0 or math.isnan(average):
        return 0.0
    return sum(abs(value - average) for value in values) / len(values) / average * 100


_AGGREGATIONS: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "min": min,
    "max": max,
    "avg": _average,
    "sum": sum,
    "skew": _skew,
}


def format_plain_value(value: str | float) -> str:
    """Format a value as Flink's plain endpoints do."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return str(value)


def _listed(call: Call, values: Values) -> list[Metric]:
    requested = call.query.get("get")
    if requested is None:
        return [Metric(name) for name in sorted(values)]
    return [
        Metric(name, format_plain_value(values[name])) for name in dict.fromkeys(requested.split(",")) if name in values
    ]


def jobmanager(call: Call) -> list[Metric]:
    """Return the metrics of the job manager."""
    return _listed(call, call.context.metrics.jobmanager())


def taskmanager(call: Call) -> list[Metric]:
    """Return the metrics of a worker."""
    return _listed(call, _of_worker(call, call.path["taskmanagerid"]))


def _of_worker(call: Call, worker_id: str) -> Values:
    candidates = workers(call)
    if worker_id == DRIVER_ID:
        return call.context.metrics.taskmanager(DRIVER_ID)
    known = next((candidate for candidate in candidates if candidate.id == worker_id), None)
    return {} if known is None else call.context.metrics.taskmanager(known.worker.worker_id)


def job(call: Call) -> list[Metric]:
    """Return the metrics of a job; empty for an unknown one."""
    dispatched_job = call.context.dispatcher.job(call.path["jobid"])
    return [] if dispatched_job is None else _listed(call, call.context.metrics.job(dispatched_job.job_id))


def vertex(call: Call) -> list[Metric]:
    """Return the metrics of a vertex, each subtask's prefixed with its index."""
    match = _vertex(call)
    return [] if match is None else _listed(call, call.context.metrics.vertex(*match[:2]))


def jm_operator(call: Call) -> list[Metric]:
    """Return the metrics of a vertex's operator coordinators, which run beside the job master."""
    match = _vertex(call)
    return [] if match is None else _listed(call, call.context.metrics.jm_operator(*match[:2]))


def subtask(call: Call) -> list[Metric]:
    """Return the metrics of a subtask."""
    match, index = _vertex(call), int(call.path["subtaskindex"])
    if match is None or index >= match[2]:
        return []
    return _listed(call, call.context.metrics.subtask(match[0], match[1], index))


def _vertex(call: Call) -> tuple[str, str, int] | None:
    """Return the ids of job and vertex and the vertex's parallelism; None if either is unknown."""
    dispatched_job = call.context.dispatcher.job(call.path["jobid"])
    if dispatched_job is None:
        return None
    for vertex in call.context.view(dispatched_job).vertices:
        if vertex.vertex_id == call.path["vertexid"]:
            return dispatched_job.job_id, vertex.vertex_id, vertex.parallelism
    return None


def jobs(call: Call) -> list[AggregatedMetric]:
    """Aggregate metrics over all jobs, or over the named ones."""
    named = _names(call, "jobs")
    known = [job.job_id for job in call.context.dispatcher.jobs()]
    return _aggregated(call, [call.context.metrics.job(job_id) for job_id in known if named is None or job_id in named])


def taskmanagers(call: Call) -> list[AggregatedMetric]:
    """Aggregate metrics over all workers, or over the named ones."""
    named = _names(call, "taskmanagers")
    known = [worker.id for worker in workers(call)] or [DRIVER_ID]
    return _aggregated(
        call, [_of_worker(call, worker_id) for worker_id in known if named is None or worker_id in named]
    )


def subtasks(call: Call) -> list[AggregatedMetric]:
    """Aggregate metrics over all subtasks of a vertex, or over those in the given ranges."""
    ranges = _ranges(call.query.get("subtasks"))
    match = _vertex(call)
    if match is None:
        return []
    indexes = [index for index in range(match[2]) if ranges is None or any(index in interval for interval in ranges)]
    metrics = call.context.metrics
    return _aggregated(call, [metrics.subtask(match[0], match[1], index) for index in indexes])


def _names(call: Call, name: str) -> set[str] | None:
    requested = call.query.get(name)
    return None if requested is None else set(requested.split(","))


def _ranges(text: str | None) -> list[range] | None:
    if text is None:
        return None
    ranges = []
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        if not (low.isdecimal() and (high or low).isdecimal() and len(part) < 40):
            raise bad_request(f"subtasks takes numbers and ranges such as 1,3,5-9, not {part[:50]!r}")
        ranges.append(range(int(low), int(high or low) + 1))
    return ranges[:_SUBTASKS_MAX]


def _aggregated(call: Call, sources: Iterable[Values]) -> list[AggregatedMetric]:
    requested, ways = call.query.get("get"), call.query.get("agg") or ""
    aggregations = [way.strip().lower() for way in ways.split(",") if way.strip()] or list(_AGGREGATIONS)
    for way in aggregations:
        if way not in _AGGREGATIONS:
            raise bad_request(f"agg takes {', '.join(_AGGREGATIONS)}, not {way[:50]!r}")
    if requested is None:
        return [AggregatedMetric(name) for name in sorted({name for values in sources for name in values})]
    aggregated, known = [], list(sources)
    for name in dict.fromkeys(requested.split(",")):
        values = [float(value) for source in known if isinstance(value := source.get(name), int | float)]
        if values:
            parts: dict[str, Any] = {way: number(_AGGREGATIONS[way](values)) for way in aggregations}
            aggregated.append(AggregatedMetric(name, **parts))
    return aggregated


_GET = Parameter("get", "The metrics whose values are asked for, by their ids; without it, all ids.")
_AGG = Parameter("agg", "How values are put together: min, max, avg, sum, skew, with commas; all where it is empty.")
_ONE = (_GET,)
_VERTEX = "/jobs/:jobid/vertices/:vertexid"

ROUTES = [
    Route("GET", "/jobmanager/metrics", jobmanager, "Of the job manager.", list[Metric], query=_ONE),
    Route("GET", "/taskmanagers/:taskmanagerid/metrics", taskmanager, "Of a worker.", list[Metric], query=_ONE),
    Route("GET", "/jobs/:jobid/metrics", job, "Of a job.", list[Metric], query=_ONE),
    Route("GET", f"{_VERTEX}/metrics", vertex, "Of a vertex.", list[Metric], query=_ONE),
    Route("GET", f"{_VERTEX}/jm-operator-metrics", jm_operator, "Of coordinators.", list[Metric], query=_ONE),
    Route("GET", f"{_VERTEX}/subtasks/:subtaskindex/metrics", subtask, "Of a subtask.", list[Metric], query=_ONE),
    Route(
        "GET",
        "/jobs/metrics",
        jobs,
        "Over jobs.",
        list[AggregatedMetric],
        query=(_GET, _AGG, Parameter("jobs", "Only these jobs, by their ids.")),
    ),
    Route(
        "GET",
        "/taskmanagers/metrics",
        taskmanagers,
        "Over workers.",
        list[AggregatedMetric],
        query=(_GET, _AGG, Parameter("taskmanagers", "Only these workers, by their ids.")),
    ),
    Route(
        "GET",
        f"{_VERTEX}/subtasks/metrics",
        subtasks,
        "Over the subtasks of a vertex.",
        list[AggregatedMetric],
        query=(_GET, _AGG, Parameter("subtasks", "Only these subtasks, such as 1,3,5-9.")),
    ),
]
