"""The parallelism of a job: its bounds, and the history of its changes."""

from __future__ import annotations

from concurrent.futures import wait
from typing import Any, Final

import msgspec

from penstock.runtime.job.view import JobView
from penstock.server.rest.calls.routing import Call, Empty, Parameter, RestError, Route, bad_request, not_found
from penstock.server.rest.handlers.checkpoints import DisposalState, Triggered
from penstock.server.rest.messages import checkpoints as shapes

#: How long (s) a request waits for a refusal.
_REFUSAL_SECONDS: Final = 2.0


class ParallelismBounds(msgspec.Struct, frozen=True, rename="camel"):
    """The lowest and the highest parallelism; a lower bound of -1 leaves it unchanged."""

    upper_bound: int
    lower_bound: int = -1


class VertexRequirements(msgspec.Struct, frozen=True):
    """The required parallelism of a vertex."""

    parallelism: ParallelismBounds


def requirements(call: Call) -> dict[str, VertexRequirements]:
    """Return the bounds of each vertex's parallelism."""
    job = call.job()
    future = job.handle.get_bounds()
    known = future.result() if wait([future], 5.0).done and not future.cancelled() else {}
    by_vertex = {}
    for vertex in call.context.view(job).vertices:
        bounds = known.get(vertex.index)
        lower, upper = (vertex.parallelism,) * 2 if bounds is None else (bounds.lower, bounds.upper)
        by_vertex[vertex.vertex_id] = VertexRequirements(ParallelismBounds(upper, lower))
    return by_vertex


def require(call: Call) -> Empty:
    """Rescale the job to the upper bounds."""
    requested = call.json(dict[str, VertexRequirements])
    job = call.job()
    view = call.context.view(job)
    known = {vertex.vertex_id: vertex for vertex in view.vertices}
    for vertex_id, requirement in requested.items():
        vertex, upper, lower = (
            known.get(vertex_id),
            requirement.parallelism.upper_bound,
            requirement.parallelism.lower_bound,
        )
        if vertex is None:
            raise bad_request(f"The job has no vertex {vertex_id[:50]!r}")
        if not 1 <= upper <= vertex.max_parallelism or lower > upper or lower < -1:
            raise bad_request(
                f"{vertex.name}: bounds {lower} to {upper} must be in order, and from 1 to {vertex.max_parallelism}"
            )
    if set(requested) != set(known):
        raise bad_request("The requirements must name every vertex of the job, as GET does")
    changed = {
        vertex_id: entry.parallelism.upper_bound
        for vertex_id, entry in requested.items()
        if entry.parallelism.upper_bound != known[vertex_id].parallelism
    }
    if not changed:
        return Empty()
    outcome = job.handle.rescale(changed)
    if wait([outcome], _REFUSAL_SECONDS).done and (refused := outcome.exception()) is not None:
        raise RestError(409, str(refused))
    return Empty()


def history(call: Call) -> list[shapes.Rescale]:
    """Return the remembered changes, and requests that failed or are pending; newest first."""
    return shapes.rescales(_with_tasks(call))


def overview(call: Call) -> shapes.RescalesOverview:
    """Return the counts and the latest rescales."""
    return shapes.overview(_with_tasks(call))


def summary(call: Call) -> shapes.RescalesSummary:
    """Return the counts and the durations of rescales."""
    return shapes.summaries(_with_tasks(call))


def config(call: Call) -> shapes.RescalesConfig:
    """Return the settings that decide when the job is rescaled."""
    _with_tasks(call)
    return shapes.config(call.job().configuration)


def details(call: Call) -> shapes.Rescale:
    """Return one rescale."""
    for rescale in shapes.rescales(_with_tasks(call)):
        if rescale.rescale_uuid == call.path["rescaleuuid"]:
            return rescale
    raise not_found(f"Rescale {call.path['rescaleuuid']} not found")


def _with_tasks(call: Call) -> JobView:
    """Return the job's view; 404 if the job cannot be rescaled while it runs."""
    view = call.view()
    if view.mode != "STREAMING":
        raise not_found(f"Job {view.job_id} runs step by step and is not rescaled while it runs")
    return view


def rescaling(call: Call) -> Any:
    """Refuse Flink's former way to rescale, as Flink does."""
    raise RestError(503, "Rescaling is disabled here, as in Flink: PUT /jobs/:jobid/resource-requirements does it.")


_JOB = "/jobs/:jobid"
_PARALLELISM = Parameter("parallelism", "The new one.", kind="integer")
_REQUIREMENTS = dict[str, VertexRequirements]
ROUTES = [
    Route("GET", f"{_JOB}/resource-requirements", requirements, "The bounds of the parallelism.", _REQUIREMENTS),
    Route(
        "PUT",
        f"{_JOB}/resource-requirements",
        require,
        "Rescales a job.",
        Empty,
        access="changes",
        body=_REQUIREMENTS,
    ),
    Route(
        "GET",
        f"{_JOB}/rescales/history",
        history,
        "How its parallelism has changed.",
        list[shapes.Rescale],
        access="reveals",
    ),
    Route(
        "GET",
        f"{_JOB}/rescales/overview",
        overview,
        "Counts, and the latest.",
        shapes.RescalesOverview,
        access="reveals",
    ),
    Route("GET", f"{_JOB}/rescales/summary", summary, "Counts, and durations.", shapes.RescalesSummary),
    Route("GET", f"{_JOB}/rescales/config", config, "When it is rescaled.", shapes.RescalesConfig),
    Route(
        "PATCH", f"{_JOB}/rescaling", rescaling, "Disabled, as in Flink.", Triggered, 202, "changes", (_PARALLELISM,)
    ),
    Route("GET", f"{_JOB}/rescaling/:triggerid", rescaling, "Disabled, as in Flink.", DisposalState, access="reveals"),
    Route("GET", f"{_JOB}/rescales/details/:rescaleuuid", details, "One change.", shapes.Rescale, access="reveals"),
]
