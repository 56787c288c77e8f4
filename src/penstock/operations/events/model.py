"""Job events, each as one value, under Flink's names where these exist."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class JobEvent:
    """Something happened to a job.

    Attributes:
        at_ms: when it happened (ms since the epoch).
        job_id: the job, as 32 hexadecimal digits.
        job_name: its name.
    """

    at_ms: int
    job_id: str
    job_name: str


@dataclass(frozen=True, kw_only=True)
class JobStatusChangeEvent(JobEvent):
    """The status of the job changed.

    Attributes:
        old_status: the previous status, such as RUNNING; None for the first event.
        new_status: the new status, such as FAILING.
        reason: why; None if no explanation is needed.
    """

    old_status: str | None
    new_status: str
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class CheckpointEvent(JobEvent):
    """A checkpoint or savepoint was triggered, completed or failed.

    Attributes:
        checkpoint_id: its id.
        status: IN_PROGRESS, COMPLETED or FAILED.
        is_savepoint: whether a user requested it.
        duration_ms: from its trigger to its end; 0 while it is in progress.
        full_size: the bytes in its files (Flink's `fullSize`).
        checkpointed_size: the bytes written for it.
        path: its path, if known.
        reason: why it failed.
    """

    checkpoint_id: int
    status: str
    is_savepoint: bool = False
    duration_ms: int = 0
    full_size: int = 0
    checkpointed_size: int = 0
    path: str | None = None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class JobFailureEvent(JobEvent):
    """Something failed.

    Attributes:
        number: counts the failures of the job, from 1.
        text: a description for people.
        task: the task that failed, such as `Map (2/4)`; None if no task failed.
        worker_id: where it ran, or the worker that was lost.
        labels: the labels that failure enrichers have added so far.
    """

    number: int
    text: str
    task: str | None = None
    worker_id: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class JobRestartEvent(JobEvent):
    """The job, or a part of it, restarted after a failure.

    Attributes:
        restarts: the number of restarts so far.
    """

    restarts: int


@dataclass(frozen=True, kw_only=True)
class RescaleEvent(JobEvent):
    """The parallelism of the job changed.

    Attributes:
        cause: Flink's name of the cause.
        changed: the parallelism before and after, by vertex name.
        checkpoint_id: the checkpoint that the tasks started from.
    """

    cause: str
    changed: Mapping[str, tuple[int, int]]
    checkpoint_id: int | None = None


@dataclass(frozen=True, kw_only=True)
class WorkerRegisteredEvent(JobEvent):
    """A worker registered.

    Attributes:
        worker_id: its name in the job.
        host: where it runs.
        process_id: its process.
    """

    worker_id: str
    host: str
    process_id: int


@dataclass(frozen=True, kw_only=True)
class WorkerLeavingEvent(WorkerRegisteredEvent):
    """A live worker is about to be removed.

    Attributes:
        reason: who removes it, and from where.
    """

    reason: str


@dataclass(frozen=True, kw_only=True)
class WorkerLostEvent(JobEvent):
    """A worker with tasks was lost.

    Attributes:
        worker_id: its name in the job.
        host: where it ran.
        process_id: its process.
        lost: the tasks whose work was lost.
        reason: the known cause.
    """

    worker_id: str
    host: str | None
    process_id: int | None
    lost: tuple[str, ...]
    reason: str


@dataclass(frozen=True, kw_only=True)
class EventsMissedEvent(JobEvent):
    """More happened between two polls than the job remembers. These events are reported by their number alone.

    Attributes:
        what: `checkpoints`, `failures` or `moves`.
        count: the number of events.
    """

    what: str
    count: int


class EventListener(ABC):
    """Receives the events of a job; `penstock.event-listeners` names classes.

    Methods are called in a separate thread for listeners. Exceptions are logged, and the job continues. Methods should
    return quickly: after the end of the job, the program waits for them for at most five seconds.
    """

    @abstractmethod
    def on_event(self, event: JobEvent) -> None:
        """Handle an event."""

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Close the listener. No more events follow."""
