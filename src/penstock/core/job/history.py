"""What has become of a job so far: when it came to each status, how often it began again, what it failed for."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.base.job_status import JobStatus

#: How many failures are kept (Flink's `web.exception-history-size`).
FAILURES_MAX: Final = 16
#: How many of those that came while the job dealt with a failure are kept with it.
CONCURRENT_MAX: Final = 16
#: How many changes of the parallelism are kept (Flink's `web.adaptive-scheduler.rescale-history.size`).
RESCALES_MAX: Final = 16
#: How many moves from one status to another are kept: enough for some hundred restarts.
MOVES_MAX: Final = 512
#: How many workers that left are kept.
DEPARTURES_MAX: Final = 16


@dataclass(frozen=True)
class FailureRecord:
    """A failure of an attempt.

    Attributes:
        at_ms: when it was heard of (ms since the epoch).
        attempt: the attempt that failed, from 0.
        text: what happened, for people; with the traceback of a user's function where there is one.
        task: the task that failed, such as `Map (2/4)`; None when it was none.
        worker_id: where the task ran, or the worker that was lost.
        host: where that worker ran.
        process_id: its process.
        lost: the tasks whose work was lost with a worker.
        part: what began again, such as `3 of 8 tasks`; None when that was the whole job.
        concurrent: what failed while the job dealt with this failure, in order (Flink's `concurrentExceptions`).
        labels: what failure enrichers say of it (Flink's `failureLabels`).
        number: counts the failures of the job, from 1.
    """

    at_ms: int
    attempt: int
    text: str
    task: str | None = None
    worker_id: str | None = None
    host: str | None = None
    process_id: int | None = None
    lost: tuple[str, ...] = ()
    part: str | None = None
    concurrent: tuple[FailureRecord, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    number: int = 0


class RescaleCause(enum.Enum):
    """Why a job has another parallelism; Flink's names, and WORKER_LEAVING: Spark takes a worker away."""

    INITIAL_SCHEDULE = "INITIAL_SCHEDULE"
    UPDATE_REQUIREMENT = "UPDATE_REQUIREMENT"
    NEW_RESOURCE_AVAILABLE = "NEW_RESOURCE_AVAILABLE"
    RECOVERABLE_FAILOVER = "RECOVERABLE_FAILOVER"
    WORKER_LEAVING = "WORKER_LEAVING"


@dataclass(frozen=True)
class RescaleRecord:
    """A change of a job's parallelism.

    Attributes:
        at_ms: when its tasks were deployed (ms since the epoch).
        attempt: the attempt that they began.
        cause: why it came.
        changed: the parallelism before and after, by the name of the vertex.
        checkpoint_id: the checkpoint that they began from; None when it was none.
    """

    at_ms: int
    attempt: int
    cause: RescaleCause
    changed: Mapping[str, tuple[int, int]]
    checkpoint_id: int | None = None


class RescaleEnd(enum.Enum):
    """Why a request for another parallelism is over without it; Flink's names."""

    EXCEPTION_OCCURRED = "EXCEPTION_OCCURRED"
    RESOURCE_REQUIREMENTS_UPDATED = "RESOURCE_REQUIREMENTS_UPDATED"
    NO_RESOURCES_OR_PARALLELISMS_CHANGE = "NO_RESOURCES_OR_PARALLELISMS_CHANGE"
    JOB_FINISHED = "JOB_FINISHED"
    JOB_FAILED = "JOB_FAILED"
    JOB_CANCELED = "JOB_CANCELED"


@dataclass(frozen=True)
class RescaleRequest:
    """Somebody has asked for another parallelism, and the job does not have it: not yet, or it never came to that.

    Attributes:
        at_ms: when it was asked for (ms since the epoch).
        attempt: the attempt that ran then.
        wanted: the parallelism then and the one that was asked for, by the name of the vertex.
        ended_ms: when it was over (ms since the epoch); None while the job waits for slots or a checkpoint.
        end: why it was over.
        reason: the same for people.
    """

    at_ms: int
    attempt: int
    wanted: Mapping[str, tuple[int, int]]
    ended_ms: int | None = None
    end: RescaleEnd | None = None
    reason: str = ""


@dataclass(frozen=True)
class DepartureRecord:
    """A worker that was announced as leaving while it lived.

    Attributes:
        at_ms: when it was announced (ms since the epoch).
        worker_id: the worker.
        host: where it runs.
        process_id: its process.
        reason: who takes it away, and from where.
        tasks: those with something at stake on it then, such as `Map (2/4)`.
        moved_ms: when these were deployed on other workers; None when that is still to come, when there were none, or
            when the worker was gone first.
        checkpoint_id: the checkpoint that they began from there.
    """

    at_ms: int
    worker_id: str
    host: str
    process_id: int
    reason: str
    tasks: tuple[str, ...] = ()
    moved_ms: int | None = None
    checkpoint_id: int | None = None


class JobHistory:
    """Of one job, in every tempo."""

    def __init__(self) -> None:
        #: when the job last came to each status
        self.since_ms: dict[JobStatus, int] = {}
        #: each status that it came to, and when; oldest first
        self.moves: tuple[tuple[JobStatus, int], ...] = ()
        self._failures: tuple[FailureRecord, ...] = ()
        self._failures_count = 0
        #: by the number of the failure
        self._labels: Mapping[int, Mapping[str, str]] = {}
        #: newest first
        self.rescales: tuple[RescaleRecord, ...] = ()
        #: newest first; one that the job has followed is none of them any more
        self.rescale_requests: tuple[RescaleRequest, ...] = ()
        #: newest first
        self.departures: tuple[DepartureRecord, ...] = ()
        #: after failures
        self.restarts = 0

    def moved(self, status: JobStatus, now_ms: int) -> None:
        """The job has come to a status. It initializes once, with the first: a restart comes to the others again."""
        self.since_ms = {JobStatus.INITIALIZING: now_ms, **self.since_ms, status: now_ms}
        first = () if self.moves or status is JobStatus.INITIALIZING else ((JobStatus.INITIALIZING, now_ms),)
        self.moves = (*self.moves, *first, (status, now_ms))[-MOVES_MAX:]

    def rescaled(self, rescale: RescaleRecord) -> None:
        """The job has another parallelism."""
        self.rescales = (rescale, *self.rescales)[:RESCALES_MAX]

    def rescale_asked(self, request: RescaleRequest) -> None:
        """Somebody asks for another parallelism."""
        self.rescale_requests = (request, *self.rescale_requests)[:RESCALES_MAX]

    def rescale_ended(self, now_ms: int, end: RescaleEnd | None, reason: str = "") -> None:
        """What was asked for last is over: the job has it (None), or not."""
        last, *others = self.rescale_requests
        if end is not None:
            others.insert(0, replace(last, ended_ms=now_ms, end=end, reason=reason))
        self.rescale_requests = tuple(others)

    def departs(self, departure: DepartureRecord) -> None:
        """A worker is leaving."""
        self.departures = (departure, *self.departures)[:DEPARTURES_MAX]

    def departed(self, worker_id: str, now_ms: int, checkpoint_id: int | None) -> None:
        """The tasks of a worker that leaves run on others, from that checkpoint."""
        self.departures = tuple(
            replace(one, moved_ms=now_ms, checkpoint_id=checkpoint_id) if one.worker_id == worker_id else one
            for one in self.departures
        )

    @property
    def failures(self) -> tuple[FailureRecord, ...]:
        """Newest first, with the labels that are known by now."""
        return tuple(self._with_labels(failure) for failure in self._failures)

    def _with_labels(self, failure: FailureRecord) -> FailureRecord:
        concurrent = tuple(self._with_labels(other) for other in failure.concurrent)
        return replace(failure, labels=self._labels.get(failure.number, {}), concurrent=concurrent)

    def failed(self, failure: FailureRecord) -> int:
        """An attempt has failed; the number of the failure."""
        self._failures_count += 1
        self._failures = (replace(failure, number=self._failures_count), *self._failures)[:FAILURES_MAX]
        return self._failures_count

    def failed_too(self, failure: FailureRecord) -> int:
        """Something else has failed while the job deals with the newest failure; its number."""
        self._failures_count += 1
        newest, *others = self._failures
        concurrent = (*newest.concurrent, replace(failure, number=self._failures_count))[:CONCURRENT_MAX]
        self._failures = (replace(newest, concurrent=concurrent), *others)
        return self._failures_count

    def labelled(self, number: int, labels: Mapping[str, str]) -> None:
        """Labels of a failure have come. One thread calls this, and it need not be the one in which the job fails."""
        kept = {one.number for failure in self._failures for one in (failure, *failure.concurrent)}
        known = {known: labels for known, labels in self._labels.items() if known in kept}
        self._labels = known | {number: {**known.get(number, {}), **labels}}
