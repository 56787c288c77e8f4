"""The history of a job: its status transitions, restarts, failures and changes of parallelism."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.base.job_status import JobStatus

#: The number of failures kept (Flink's `web.exception-history-size`).
FAILURES_MAX: Final = 16
#: The number of failures kept that occurred while the job handled another failure.
CONCURRENT_MAX: Final = 16
#: The number of changes of parallelism kept (Flink's `web.adaptive-scheduler.rescale-history.size`).
RESCALES_MAX: Final = 16
#: The number of status transitions kept: enough for some hundred restarts.
MOVES_MAX: Final = 512
#: The number of departed workers kept.
DEPARTURES_MAX: Final = 16


@dataclass(frozen=True)
class FailureRecord:
    """A failure of an attempt.

    Attributes:
        at_ms: when it was reported (ms since the epoch).
        attempt: the attempt that failed, from 0.
        text: a description for people, with the traceback of a user-defined function if there is one.
        task: the task that failed, such as `Map (2/4)`; None if it was not a task.
        worker_id: the worker that ran the task, or the lost worker.
        host: the host of that worker.
        process_id: its process.
        lost: the tasks whose work was lost with a worker.
        part: the part that restarted, such as `3 of 8 tasks`; None if the whole job did.
        concurrent: failures while the job handled this one, in order (Flink's `concurrentExceptions`).
        labels: labels from failure enrichers (Flink's `failureLabels`).
        number: the number of the failure in the job, from 1.
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
    """Why a job's parallelism changed: Flink's names, and WORKER_LEAVING, when Spark takes a worker away."""

    INITIAL_SCHEDULE = "INITIAL_SCHEDULE"
    UPDATE_REQUIREMENT = "UPDATE_REQUIREMENT"
    NEW_RESOURCE_AVAILABLE = "NEW_RESOURCE_AVAILABLE"
    RECOVERABLE_FAILOVER = "RECOVERABLE_FAILOVER"
    WORKER_LEAVING = "WORKER_LEAVING"


@dataclass(frozen=True)
class RescaleRecord:
    """A change of a job's parallelism.

    Attributes:
        at_ms: when the tasks were deployed (ms since the epoch).
        attempt: the attempt that this began.
        cause: the cause.
        changed: the parallelism before and after, by vertex name.
        checkpoint_id: the checkpoint that the tasks were restored from, if any.
    """

    at_ms: int
    attempt: int
    cause: RescaleCause
    changed: Mapping[str, tuple[int, int]]
    checkpoint_id: int | None = None


class RescaleEnd(enum.Enum):
    """Why a request for another parallelism ended without it; Flink's names."""

    EXCEPTION_OCCURRED = "EXCEPTION_OCCURRED"
    RESOURCE_REQUIREMENTS_UPDATED = "RESOURCE_REQUIREMENTS_UPDATED"
    NO_RESOURCES_OR_PARALLELISMS_CHANGE = "NO_RESOURCES_OR_PARALLELISMS_CHANGE"
    JOB_FINISHED = "JOB_FINISHED"
    JOB_FAILED = "JOB_FAILED"
    JOB_CANCELED = "JOB_CANCELED"


@dataclass(frozen=True)
class RescaleRequest:
    """A request for another parallelism that is pending, or that ended without it.

    Attributes:
        at_ms: when it was made (ms since the epoch).
        attempt: the attempt that ran at that time.
        wanted: the parallelism at that time and the requested one, by vertex name.
        ended_ms: when it ended (ms since the epoch); None while the job waits for slots or a checkpoint.
        end: why it ended.
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
    """A worker that was announced as leaving while it was alive.

    Attributes:
        at_ms: when it was announced (ms since the epoch).
        worker_id: the worker.
        host: its host.
        process_id: its process.
        reason: who takes it away, and from where.
        tasks: its tasks with something at stake at that time, such as `Map (2/4)`.
        moved_ms: when these were deployed on other workers; None if that is still to come, if there were none, or if
            the worker was lost first.
        checkpoint_id: the checkpoint that they were restored from on those workers.
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
    """The history of one job, in any execution mode."""

    def __init__(self) -> None:
        #: when the job last entered each status
        self.since_ms: dict[JobStatus, int] = {}
        #: each status that it entered, and when; oldest first
        self.moves: tuple[tuple[JobStatus, int], ...] = ()
        self._failures: tuple[FailureRecord, ...] = ()
        self._failures_count = 0
        #: by failure number
        self._labels: Mapping[int, Mapping[str, str]] = {}
        #: newest first
        self.rescales: tuple[RescaleRecord, ...] = ()
        #: newest first, without the requests that were fulfilled
        self.rescale_requests: tuple[RescaleRequest, ...] = ()
        #: newest first
        self.departures: tuple[DepartureRecord, ...] = ()
        #: restarts after failures
        self.restarts = 0

    def moved(self, status: JobStatus, now_ms: int) -> None:
        """Record a new status. The job initializes once, with the first status; a restart enters the others again."""
        self.since_ms = {JobStatus.INITIALIZING: now_ms, **self.since_ms, status: now_ms}
        first = () if self.moves or status is JobStatus.INITIALIZING else ((JobStatus.INITIALIZING, now_ms),)
        self.moves = (*self.moves, *first, (status, now_ms))[-MOVES_MAX:]

    def rescaled(self, rescale: RescaleRecord) -> None:
        """Record a change of parallelism."""
        self.rescales = (rescale, *self.rescales)[:RESCALES_MAX]

    def rescale_asked(self, request: RescaleRequest) -> None:
        """Record a request for another parallelism."""
        self.rescale_requests = (request, *self.rescale_requests)[:RESCALES_MAX]

    def rescale_ended(self, now_ms: int, end: RescaleEnd | None, reason: str = "") -> None:
        """Record the end of the latest request; an `end` of None means that it was fulfilled."""
        last, *earlier = self.rescale_requests
        if end is not None:
            earlier.insert(0, replace(last, ended_ms=now_ms, end=end, reason=reason))
        self.rescale_requests = tuple(earlier)

    def departs(self, departure: DepartureRecord) -> None:
        """Record a leaving worker."""
        self.departures = (departure, *self.departures)[:DEPARTURES_MAX]

    def departed(self, worker_id: str, now_ms: int, checkpoint_id: int | None) -> None:
        """Record that a leaving worker's tasks were restored on other workers, from that checkpoint."""
        self.departures = tuple(
            replace(departure, moved_ms=now_ms, checkpoint_id=checkpoint_id)
            if departure.worker_id == worker_id
            else departure
            for departure in self.departures
        )

    @property
    def failures(self) -> tuple[FailureRecord, ...]:
        """The failures, newest first, with the labels known so far."""
        return tuple(self._with_labels(failure) for failure in self._failures)

    def _with_labels(self, failure: FailureRecord) -> FailureRecord:
        concurrent = tuple(self._with_labels(other) for other in failure.concurrent)
        return replace(failure, labels=self._labels.get(failure.number, {}), concurrent=concurrent)

    def failed(self, failure: FailureRecord) -> int:
        """Record a failed attempt, and return the failure's number."""
        self._failures_count += 1
        self._failures = (replace(failure, number=self._failures_count), *self._failures)[:FAILURES_MAX]
        return self._failures_count

    def failed_too(self, failure: FailureRecord) -> int:
        """Record another failure while the job handles the newest one, and return its number."""
        self._failures_count += 1
        newest, *earlier = self._failures
        concurrent = (*newest.concurrent, replace(failure, number=self._failures_count))[:CONCURRENT_MAX]
        self._failures = (replace(newest, concurrent=concurrent), *earlier)
        return self._failures_count

    def labelled(self, number: int, labels: Mapping[str, str]) -> None:
        """Add labels to a failure. Called by one thread, which need not be the one that records failures."""
        numbers = {record.number for failure in self._failures for record in (failure, *failure.concurrent)}
        known = {known: labels for known, labels in self._labels.items() if known in numbers}
        self._labels = known | {number: {**known.get(number, {}), **labels}}
