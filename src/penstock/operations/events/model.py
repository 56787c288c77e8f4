"""Events: what has happened to a job, each as one value, under Flink's names where Flink has them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class JobEvent:
    """Something has happened to a job.

    Attributes:
        at_ms: when (ms since the epoch).
        job_id: the job, as 32 hexadecimal digits.
        job_name: its name.
    """

    at_ms: int
    job_id: str
    job_name: str


@dataclass(frozen=True, kw_only=True)
class JobStatusChangeEvent(JobEvent):
    """The job has come to another status.

    Attributes:
        old_status: such as RUNNING; None for the first.
        new_status: such as FAILING.
        reason: why; None when that needs no words.
    """

    old_status: str | None
    new_status: str
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class CheckpointEvent(JobEvent):
    """A checkpoint or savepoint was triggered, has completed or has failed.

    Attributes:
        checkpoint_id: its id.
        status: IN_PROGRESS, COMPLETED or FAILED.
        is_savepoint: whether a user has asked for it.
        duration_ms: from its trigger to its end; 0 while it is in progress.
        full_size: the bytes that its files hold (Flink's `fullSize`).
        checkpointed_size: the bytes that were written for it.
        path: where it is, if that is known.
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
    """Something has failed.

    Attributes:
        number: counts the failures of the job, from 1.
        text: what has happened, for people.
        task: the task that failed, such as `Map (2/4)`; None when it was none.
        worker_id: where it ran, or the worker that was lost.
        labels: what failure enrichers say of it by then.
    """

    number: int
    text: str
    task: str | None = None
    worker_id: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class JobRestartEvent(JobEvent):
    """The job, or a part of it, has begun again after a failure.

    Attributes:
        restarts: how often by now.
    """

    restarts: int


@dataclass(frozen=True, kw_only=True)
class RescaleEvent(JobEvent):
    """The job has another parallelism.

    Attributes:
        cause: Flink's name of the cause.
        changed: the parallelism before and after, by the names of vertices.
        checkpoint_id: the checkpoint from which the tasks began.
    """

    cause: str
    changed: Mapping[str, tuple[int, int]]
    checkpoint_id: int | None = None


@dataclass(frozen=True, kw_only=True)
class WorkerRegisteredEvent(JobEvent):
    """A worker has come.

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
    """A worker that lives will be taken away.

    Attributes:
        reason: who takes it away, and from where.
    """

    reason: str


@dataclass(frozen=True, kw_only=True)
class WorkerLostEvent(JobEvent):
    """A worker is gone that had tasks.

    Attributes:
        worker_id: its name in the job.
        host: where it ran.
        process_id: its process.
        lost: the tasks whose work was lost.
        reason: what is known of it.
    """

    worker_id: str
    host: str | None
    process_id: int | None
    lost: tuple[str, ...]
    reason: str


@dataclass(frozen=True, kw_only=True)
class EventsMissedEvent(JobEvent):
    """More has happened between two looks than the job remembers: these events are told by their number alone.

    Attributes:
        what: `checkpoints`, `failures` or `moves`.
        count: how many.
    """

    what: str
    count: int


class EventListener(ABC):
    """Hears of what happens to a job; `penstock.event-listeners` names classes.

    Methods are called in a thread of the listeners' own. What they raise is logged, and the job goes on. They should
    not take long: when the job has ended, the program waits five seconds for them at most.
    """

    @abstractmethod
    def on_event(self, event: JobEvent) -> None:
        """Something has happened."""

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """No more events come."""
