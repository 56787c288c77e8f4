"""Every status that a job has had, with the times. Flink keeps only the last time of each."""

from __future__ import annotations

from itertools import pairwise

import msgspec

from penstock.core.job.history import MOVES_MAX
from penstock.core.job.view import JobView
from penstock.operations.rest.calls.routing import Call, Route
from penstock.operations.rest.shapes.times import job_end, job_start


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


ROUTES = [
    Route(
        "GET",
        "/jobs/:jobid/status-history",
        show,
        "Each status that a job came to, with the times.",
        StatusHistory,
    ),
]
