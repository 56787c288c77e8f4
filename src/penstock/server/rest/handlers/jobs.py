"""Jobs over REST: lists, details, plan, status, result, configuration, failures, accumulators.

**Applications**: each job is its own application with the job's id, as in Flink for programs with one job.

`StatusHistory` has every status that a job has had, with the times. Flink keeps only the last time of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import wait
from itertools import pairwise
from typing import Any, Final, Literal

import msgspec

from penstock.base.job import JobStatus
from penstock.base.options import PARALLELISM, RESTART_STRATEGY
from penstock.base.secrets import shown
from penstock.runtime.job.view import MOVES_MAX, JobView
from penstock.server.dispatcher import DispatchedJob
from penstock.server.rest.calls.routing import Call, Empty, Parameter, Route, bad_request, not_found
from penstock.server.rest.messages.jobs import (
    FailureCause,
    JobDetails,
    JobExceptions,
    JobIdAndStatus,
    JobIds,
    JobOverview,
    JobPlan,
    JobsOverview,
    describe_plan,
    duration,
    exception_name,
    failure_cause,
    job_details,
    job_end,
    job_exceptions,
    job_overview,
    job_start,
)

#: The number of failures in an answer, unless the request sets one.
EXCEPTIONS_MAX: Final = 20
#: How long (s) to wait for accumulators.
_PATIENCE_SECONDS: Final = 5.0


class Status(msgspec.Struct, frozen=True):
    """The status of a job."""

    status: str


class Accumulator(msgspec.Struct, frozen=True):
    """A user-defined accumulator, with its value as text."""

    name: str
    type: str
    value: str


class JobAccumulators(msgspec.Struct, frozen=True, rename="kebab"):
    """The accumulators of a job, merged over all subtasks."""

    job_accumulators: list[dict[str, str]]
    user_task_accumulators: list[Accumulator]
    serialized_user_task_accumulators: dict[str, str]


class QueueStatus(msgspec.Struct, frozen=True):
    """Whether the result is available."""

    id: Literal["IN_PROGRESS", "COMPLETED"]


class JobResult(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """The outcome of a job."""

    id: str
    name: str
    application_status: Literal["SUCCEEDED", "FAILED", "CANCELED", "UNKNOWN"]
    accumulator_results: dict[str, str]
    net_runtime: int
    application_id: str
    start_time: int
    end_time: int
    failure_cause: FailureCause | None = None


class ExecutionResult(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """The outcome of a job, once it has ended."""

    status: QueueStatus
    job_execution_result: JobResult | None = None


class ExecutionConfig(msgspec.Struct, frozen=True, rename="kebab"):
    """The execution settings of a job."""

    restart_strategy: str
    job_parallelism: int
    object_reuse_mode: bool
    user_config: dict[str, str]


class JobConfig(msgspec.Struct, frozen=True, rename="kebab"):
    """The configuration of a job, without secrets."""

    jid: str
    name: str
    execution_config: ExecutionConfig


def job_ids(call: Call) -> JobIds:
    """List the ids of all jobs."""
    return JobIds([JobIdAndStatus(view.job_id, view.status.name) for _, view in call.context.views()])


def jobs_overview(call: Call) -> JobsOverview:
    """List all jobs with their tasks."""
    return JobsOverview(overviews(call))


def overviews(call: Call) -> list[JobOverview]:
    """Return the overview entries of all jobs."""
    return [job_overview(view) for _, view in call.context.views()]


def details(call: Call) -> Any:
    """Return the details of a job."""
    return call.once_a_view("details", job_details)


def plan(call: Call) -> Any:
    """Return the plan of a job."""
    return call.once_a_view("plan", lambda view: JobPlan(describe_plan(view)))


def status(call: Call) -> Status:
    """Return the current status of a job, which may be newer than the view."""
    return Status(call.job().handle.status().name)


def config(call: Call) -> JobConfig:
    """Return the configuration of a job."""
    job = call.job()
    settings = job.configuration
    strategy = settings.read(RESTART_STRATEGY) or "Cluster level default restart strategy"
    execution = ExecutionConfig(strategy, settings.read(PARALLELISM), False, shown(settings.to_dict()))
    return JobConfig(job.job_id, job.name, execution)


def exceptions(call: Call) -> JobExceptions:
    """Return the failures of a job."""
    limit = call.query.get("maxExceptions", str(EXCEPTIONS_MAX))
    if not limit.isdecimal() or len(limit) > 9:
        raise bad_request(f"maxExceptions must be a number from 0 on, not {limit[:50]!r}")
    labels = {}
    for pair in filter(None, call.query.get("failureLabelFilter", "").split(",")):
        key, separator, value = pair.partition(":")
        if not separator:
            raise bad_request(f"failureLabelFilter takes key:value, not {pair[:50]!r}")
        labels[key] = value
    return job_exceptions(call.view(), int(limit), labels)


def accumulators(call: Call) -> JobAccumulators:
    """Return the user-defined accumulators of a job."""
    known = fetch_accumulators(call.job())
    listed = [Accumulator(name, type(value).__name__, to_safe_text(value)) for name, value in known.items()]
    return JobAccumulators([], listed, {})


def fetch_accumulators(job: DispatchedJob) -> Mapping[str, Any]:
    """Return a job's accumulators by name; empty if the job does not answer."""
    future = job.handle.get_accumulators()
    if not wait([future], _PATIENCE_SECONDS).done or future.cancelled() or future.exception() is not None:
        return {}
    return future.result()


def to_safe_text(value: object) -> str:
    """Convert a user value to text, even if its `__str__` fails."""
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001 - user code
        return f"{type(value).__name__}, which cannot be shown: {type(error).__name__}: {error}"


def execution_result(call: Call) -> ExecutionResult:
    """Return the outcome of a job."""
    job = call.job()
    outcome = job.handle.get_job_execution_result()
    if not outcome.done():
        return ExecutionResult(QueueStatus("IN_PROGRESS"))
    return ExecutionResult(QueueStatus("COMPLETED"), _result(job, call.view(), outcome))


def _result(job: DispatchedJob, view: JobView, outcome: Any) -> JobResult:
    failure = outcome.exception()
    accumulators = {} if failure is not None else outcome.result().get_all_accumulator_results()
    status = job.handle.status()
    named: dict[JobStatus, Literal["SUCCEEDED", "FAILED", "CANCELED"]] = {
        JobStatus.FINISHED: "SUCCEEDED",
        JobStatus.FAILED: "FAILED",
        JobStatus.CANCELED: "CANCELED",
    }
    start, end = job_start(view), job_end(view)
    return JobResult(
        id=job.job_id,
        name=job.name,
        application_status=named.get(status, "UNKNOWN"),
        accumulator_results={name: to_safe_text(value) for name, value in accumulators.items()},
        net_runtime=duration(start, end, view.now_ms),
        application_id=job.job_id,
        start_time=start,
        end_time=end,
        failure_cause=None if failure is None or status is JobStatus.CANCELED else failure_cause(failure),
    )


def cancel(call: Call) -> Empty:
    """Cancel a job."""
    mode = call.query.get("mode", "cancel")
    if mode == "stop":
        raise bad_request(
            "The termination mode 'stop' has been removed. For an ungraceful shutdown, please use 'cancel' instead. "
            "For a graceful shutdown, please use 'jobs/:jobid/stop'."
        )
    if mode != "cancel":
        raise bad_request(f"mode must be cancel, not {mode[:50]!r}")
    call.job().handle.cancel()
    return Empty()


class Heartbeat(msgspec.Struct, frozen=True, rename="camel"):
    """The time (ms since the epoch) until which the client counts as alive."""

    expired_timestamp: int


def client_heartbeat(call: Call) -> Empty:
    """Accept a heartbeat and ignore it: a job lives in its client's process, and ends with it."""
    call.json(Heartbeat)
    call.job()
    return Empty()


_JOB = "/jobs/:jobid"
_MAX_EXCEPTIONS = Parameter("maxExceptions", "How many at most.", kind="integer")
_LABELS = Parameter("failureLabelFilter", "Only those with all these labels: key:value, key:value.")
_MODE = Parameter("mode", "How to end it.", ("cancel", "stop"))

JOBS_ROUTES = [
    Route("GET", "/jobs", job_ids, "All jobs.", JobIds),
    Route("GET", "/jobs/overview", jobs_overview, "All jobs with their tasks.", JobsOverview),
    Route("GET", _JOB, details, "A job with its vertices and its plan.", JobDetails),
    Route("PATCH", _JOB, cancel, "Cancels a job.", Empty, 202, "changes", (_MODE,)),
    Route("GET", f"{_JOB}/yarn-cancel", cancel, "Cancels a job, as Flink's page does.", Empty, 202, "changes"),
    Route("GET", f"{_JOB}/plan", plan, "The graph of a job.", JobPlan),
    Route("GET", f"{_JOB}/status", status, "Where a job is in its life.", Status),
    Route("GET", f"{_JOB}/config", config, "The configuration of a job.", JobConfig, access="reveals"),
    Route(
        "GET",
        f"{_JOB}/exceptions",
        exceptions,
        "What a job has failed for.",
        JobExceptions,
        access="reveals",
        query=(_MAX_EXCEPTIONS, _LABELS),
    ),
    Route("GET", f"{_JOB}/accumulators", accumulators, "The accumulators of a job.", JobAccumulators, access="reveals"),
    Route(
        "GET", f"{_JOB}/execution-result", execution_result, "How a job has ended.", ExecutionResult, access="reveals"
    ),
    Route(
        "PATCH",
        f"{_JOB}/clientHeartbeat",
        client_heartbeat,
        "Says that a client lives.",
        Empty,
        202,
        "changes",
        body=Heartbeat,
    ),
]


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


def application_details(call: Call) -> ApplicationDetails:
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


def application_exceptions(call: Call) -> ApplicationExceptions:
    """Return the failure that ended the application's job, if any."""
    view = call.context.view(application(call))
    newest = view.failures[:1] if view.status is JobStatus.FAILED else ()
    entries = [
        ApplicationException(exception_name(failure.text), failure.text, failure.at_ms, view.job_id)
        for failure in newest
    ]
    return ApplicationExceptions(ApplicationExceptionHistory(entries))


def cancel_application(call: Call) -> Empty:
    """Cancel the application's job."""
    application(call).handle.cancel()
    return Empty()


_ONE = "/applications/:applicationid"
APPLICATIONS_ROUTES = [
    Route("GET", "/applications/overview", applications_overview, "All applications.", Applications),
    Route("GET", _ONE, application_details, "An application with its job.", ApplicationDetails),
    Route("POST", f"{_ONE}/cancel", cancel_application, "Cancels an application.", Empty, 202, "changes"),
    Route(
        "GET",
        f"{_ONE}/exceptions",
        application_exceptions,
        "What an application has failed for.",
        ApplicationExceptions,
        access="reveals",
    ),
]


class StatusPeriod(msgspec.Struct, frozen=True, rename="kebab"):
    """A period (ms since the epoch) that the job spent in one status; `end-time` is -1 for the current status."""

    status: str
    start_time: int
    end_time: int


class StatusHistory(msgspec.Struct, frozen=True, rename="kebab"):
    """The periods, oldest first; `truncated` is set if older ones may be missing. `now` is the job's clock."""

    now: int
    periods: list[StatusPeriod]
    truncated: bool


def status_history(view: JobView) -> StatusHistory:
    """Return the status periods of a job. If it has ended, the last one has no length."""
    moves = view.moves or ((view.status, job_start(view)),)
    periods = [StatusPeriod(status.name, since, until) for (status, since), (_, until) in pairwise(moves)]
    status, since = moves[-1]
    periods.append(StatusPeriod(status.name, since, job_end(view)))
    return StatusHistory(view.now_ms, periods, len(moves) >= MOVES_MAX)


def show(call: Call) -> StatusHistory:
    """Return the status periods of the requested job."""
    return status_history(call.view())


STATUS_HISTORY_ROUTES = [
    Route(
        "GET",
        "/jobs/:jobid/status-history",
        show,
        "Each status that a job came to, with the times.",
        StatusHistory,
    ),
]


ROUTES = (*JOBS_ROUTES, *APPLICATIONS_ROUTES, *STATUS_HISTORY_ROUTES)
