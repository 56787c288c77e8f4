"""Applications: each job is its own application with the job's id, as in Flink for programs with one job."""

from __future__ import annotations

import msgspec

from penstock.base.job_status import JobStatus
from penstock.core.job.view import JobView
from penstock.operations.dispatcher import DispatchedJob
from penstock.operations.rest.calls.answers import Empty
from penstock.operations.rest.calls.errors import not_found
from penstock.operations.rest.calls.routing import Call, Route
from penstock.operations.rest.shapes.exceptions import exception_name
from penstock.operations.rest.shapes.jobs import JobOverview, job_overview
from penstock.operations.rest.shapes.times import duration, job_end, job_start

#: Flink's application statuses by job status; any other status counts as running.
_STATUS = {
    JobStatus.CREATED: "CREATED",
    JobStatus.INITIALIZING: "CREATED",
    JobStatus.FAILING: "FAILING",
    JobStatus.FAILED: "FAILED",
    JobStatus.CANCELLING: "CANCELING",
    JobStatus.CANCELED: "CANCELED",
    JobStatus.FINISHED: "FINISHED",
}
_STAMPS = {
    "CREATED": JobStatus.CREATED,
    "RUNNING": JobStatus.RUNNING,
    "FAILING": JobStatus.FAILING,
    "FAILED": JobStatus.FAILED,
    "CANCELING": JobStatus.CANCELLING,
    "CANCELED": JobStatus.CANCELED,
    "FINISHED": JobStatus.FINISHED,
}


class ApplicationOverview(msgspec.Struct, frozen=True):
    """An application in the overview."""

    id: str
    name: str
    start_time: int = msgspec.field(name="start-time")
    end_time: int = msgspec.field(name="end-time")
    duration: int
    status: str
    jobs: dict[str, int]


class Applications(msgspec.Struct, frozen=True):
    """All applications."""

    applications: list[ApplicationOverview]


class ApplicationDetails(msgspec.Struct, frozen=True):
    """An application with its job."""

    id: str
    name: str
    status: str
    start_time: int = msgspec.field(name="start-time")
    end_time: int = msgspec.field(name="end-time")
    duration: int
    timestamps: dict[str, int]
    jobs: list[JobOverview]


class ApplicationException(msgspec.Struct, frozen=True, rename="camel"):
    """A failure of an application."""

    exception_name: str
    stacktrace: str
    timestamp: int
    job_id: str | None


class ApplicationExceptionHistory(msgspec.Struct, frozen=True):
    """The failures of an application, newest first."""

    entries: list[ApplicationException]


class ApplicationExceptions(msgspec.Struct, frozen=True, rename="camel"):
    """The failure history of an application."""

    exception_history: ApplicationExceptionHistory


def application(call: Call) -> DispatchedJob:
    """Return the job of the application that the path names; 404 if it is unknown."""
    job = call.context.dispatcher.job(call.path["applicationid"])
    if job is None:
        raise not_found(f"Application {call.path['applicationid']} not found")
    return job


def applications_overview(call: Call) -> Applications:
    """List all applications."""
    return Applications([_overview(view) for _, view in call.context.views()])


def _overview(view: JobView) -> ApplicationOverview:
    start, end = job_start(view), job_end(view)
    return ApplicationOverview(
        view.job_id,
        view.name,
        start,
        end,
        duration(start, end, view.now_ms),
        _STATUS.get(view.status, "RUNNING"),
        {view.status.name: 1},
    )


def details(call: Call) -> ApplicationDetails:
    """Return one application with its job."""
    view = call.context.view(application(call))
    start, end = job_start(view), job_end(view)
    stamps = {name: view.since_ms.get(status, 0) for name, status in _STAMPS.items()}
    return ApplicationDetails(
        view.job_id,
        view.name,
        _STATUS.get(view.status, "RUNNING"),
        start,
        end,
        duration(start, end, view.now_ms),
        stamps | {"CREATED": stamps["CREATED"] or start},
        [job_overview(view)],
    )


def exceptions(call: Call) -> ApplicationExceptions:
    """Return the failure that ended the application's job, if any."""
    view = call.context.view(application(call))
    newest = view.failures[:1] if view.status is JobStatus.FAILED else ()
    entries = [
        ApplicationException(exception_name(failure.text), failure.text, failure.at_ms, view.job_id)
        for failure in newest
    ]
    return ApplicationExceptions(ApplicationExceptionHistory(entries))


def cancel(call: Call) -> Empty:
    """Cancel the application's job."""
    application(call).handle.cancel()
    return Empty()


_ONE = "/applications/:applicationid"
ROUTES = [
    Route("GET", "/applications/overview", applications_overview, "All applications.", Applications),
    Route("GET", _ONE, details, "An application with its job.", ApplicationDetails),
    Route("POST", f"{_ONE}/cancel", cancel, "Cancels an application.", Empty, 202, "changes"),
    Route(
        "GET",
        f"{_ONE}/exceptions",
        exceptions,
        "What an application has failed for.",
        ApplicationExceptions,
        access="reveals",
    ),
]
