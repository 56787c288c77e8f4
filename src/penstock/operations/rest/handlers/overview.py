"""The process as a whole: its overview, the settings of a web page, and the shutdown."""

from __future__ import annotations

import time

import msgspec

from penstock import __version__
from penstock.base.job_status import JobStatus
from penstock.operations.rest.calls.answers import Empty
from penstock.operations.rest.calls.routing import Call, Route
from penstock.operations.rest.shapes.workers import known_workers

#: The Flink version whose API this is; dashboards and clients compare it.
FLINK_VERSION = "2.3.0"


class Overview(msgspec.Struct, frozen=True, rename="kebab"):
    """Counts of workers, slots and jobs."""

    taskmanagers: int
    slots_total: int
    slots_available: int
    jobs_running: int
    jobs_finished: int
    jobs_cancelled: int
    jobs_failed: int
    flink_version: str
    flink_commit: str


class Features(msgspec.Struct, frozen=True, rename="kebab"):
    """The features that a web page offers."""

    web_submit: bool = False
    web_cancel: bool = True
    web_rescale: bool = True
    web_history: bool = False


class DashboardConfig(msgspec.Struct, frozen=True, rename="kebab"):
    """The settings of a web page."""

    refresh_interval: int
    timezone_name: str
    timezone_offset: int
    flink_version: str
    flink_revision: str
    features: Features


def overview(call: Call) -> Overview:
    """Counts."""
    views = [view for _, view in call.context.views()]
    workers = known_workers(views)
    statuses = [view.status for view in views]
    return Overview(
        taskmanagers=len(workers),
        slots_total=len(workers),
        slots_available=sum(not worker.tasks for worker in workers),
        jobs_running=sum(not status.is_terminal_state() for status in statuses),
        jobs_finished=statuses.count(JobStatus.FINISHED),
        jobs_cancelled=statuses.count(JobStatus.CANCELED),
        jobs_failed=statuses.count(JobStatus.FAILED),
        flink_version=FLINK_VERSION,
        flink_commit=f"penstock-{__version__}",
    )


def config(call: Call) -> DashboardConfig:
    """Return the settings that a web page requests first."""
    local = time.localtime()
    return DashboardConfig(
        refresh_interval=3000,
        timezone_name=local.tm_zone,
        timezone_offset=local.tm_gmtoff * 1000,
        flink_version=FLINK_VERSION,
        flink_revision=f"penstock-{__version__}",
        features=Features(web_submit=call.context.programs is not None),
    )


def shut_down(call: Call) -> Empty:
    """Cancel all jobs and end the server."""
    call.context.shut_down()
    return Empty()


ROUTES = [
    Route("GET", "/overview", overview, "Counts of workers, slots and jobs.", Overview),
    Route("GET", "/config", config, "What a page needs to know first.", DashboardConfig),
    Route("DELETE", "/cluster", shut_down, "Cancels all jobs and ends the server.", Empty, access="changes"),
]
