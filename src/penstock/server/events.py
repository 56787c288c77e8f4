"""Job events, each as one value, and their delivery to subscribers.

Events have Flink's names where these exist.

`Deriver` derives events from the history that a job keeps, poll by poll. Status changes, checkpoints, failures and
everything else are numbered or dated where they happen, and the job keeps the latest of each. So polling twice a second
finds all of them, unless more has happened in between than is kept; that is an event as well.

`JobEvents` delivers events to listeners, in one thread per job with listeners. A job without listeners pays nothing.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError
from penstock.base.options import EVENT_LISTENERS, EVENTS_FILE
from penstock.base.secrets import hide_json
from penstock.drivers.failure_enrichers import named_object
from penstock.drivers.running_job import JobHandle, Move
from penstock.runtime.checkpoint.statistics import CheckpointRecord, CheckpointStatistics, CheckpointStatus
from penstock.runtime.job.view import FailureRecord, JobView


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


class Deriver:
    """Creates the events of one job. It remembers only which events it has reported."""

    def __init__(self, job_id: str, job_name: str) -> None:
        self._base: dict[str, Any] = {"job_id": job_id, "job_name": job_name}
        self._move = 0
        self._status: str | None = None
        self._triggered: set[int] = set()
        self._settled: set[int] = set()
        self._statistics = CheckpointStatistics()
        self._failure = 0
        self._restarts = 0
        self._rescaled: set[tuple[int, int]] = set()
        self._workers: set[str] = set()
        self._leaving: set[str] = set()

    @property
    def last_move(self) -> int:
        """The number of the last reported status change."""
        return self._move

    def take(self, moves: Sequence[Move], view: JobView | None) -> list[JobEvent]:
        """Return the events since the last call, in the order of time.

        Args:
            moves: the status changes after `last_move`.
            view: the current view of the job; None if it is unknown.
        """
        events = list(self._moves(moves))
        if view is not None:
            events += self._derive_worker_events(view)
            events += self._checkpoints(view)
            events += self._failures(view)
            events += self._others(view)
        return sorted(events, key=lambda event: event.at_ms)

    def _moves(self, moves: Sequence[Move]) -> Iterator[JobEvent]:
        for move in moves:
            if move.number > self._move + 1:
                yield self._missed(move.at_ms, "moves", move.number - self._move - 1)
            self._move = move.number
            old, self._status = self._status, move.status
            yield JobStatusChangeEvent(
                at_ms=move.at_ms, old_status=old, new_status=move.status, reason=move.reason, **self._base
            )

    def _checkpoints(self, view: JobView) -> Iterator[JobEvent]:
        now, before = view.checkpoints, self._statistics
        self._statistics = now
        completed = failed = 0
        for record in reversed(now.history):
            yield from self._trigger(record)
            if record.checkpoint_id in self._settled:
                continue
            self._settled.add(record.checkpoint_id)
            completed += record.status is CheckpointStatus.COMPLETED
            failed += record.status is CheckpointStatus.FAILED
            yield self._checkpoint(record, record.triggered_ms + record.duration_ms)
        for record in view.in_progress:
            yield from self._trigger(record)
        missed = now.completed + now.savepoints - before.completed - before.savepoints - completed
        given_up = now.failed + now.given_up - before.failed - before.given_up
        missed = max(0, missed) + max(0, given_up - failed)
        if missed:
            yield self._missed(view.now_ms, "checkpoints", missed)
        checkpoint_ids = {record.checkpoint_id for record in (*now.history, *view.in_progress)}
        self._triggered &= checkpoint_ids
        self._settled &= checkpoint_ids

    def _trigger(self, record: CheckpointRecord) -> Iterator[JobEvent]:
        if record.checkpoint_id not in self._triggered:
            self._triggered.add(record.checkpoint_id)
            yield CheckpointEvent(
                at_ms=record.triggered_ms,
                checkpoint_id=record.checkpoint_id,
                status=CheckpointStatus.IN_PROGRESS.value,
                is_savepoint=record.is_savepoint,
                **self._base,
            )

    def _checkpoint(self, record: CheckpointRecord, at_ms: int) -> JobEvent:
        return CheckpointEvent(
            at_ms=at_ms,
            checkpoint_id=record.checkpoint_id,
            status=record.status.value,
            is_savepoint=record.is_savepoint,
            duration_ms=record.duration_ms,
            full_size=record.state_bytes,
            checkpointed_size=record.stored_bytes,
            path=record.path,
            reason=record.failure,
            **self._base,
        )

    def _failures(self, view: JobView) -> Iterator[JobEvent]:
        failures = [entry for failure in view.failures for entry in (failure, *failure.concurrent)]
        new = sorted((entry for entry in failures if entry.number > self._failure), key=lambda entry: entry.number)
        for failure in new:
            if failure.number > self._failure + 1:
                yield self._missed(failure.at_ms, "failures", failure.number - self._failure - 1)
            self._failure = failure.number
            yield from self._failure_events(failure)

    def _failure_events(self, failure: FailureRecord) -> Iterator[JobEvent]:
        if failure.lost and failure.worker_id is not None:
            yield WorkerLostEvent(
                at_ms=failure.at_ms,
                worker_id=failure.worker_id,
                host=failure.host,
                process_id=failure.process_id,
                lost=failure.lost,
                reason=failure.text,
                **self._base,
            )
        yield JobFailureEvent(
            at_ms=failure.at_ms,
            number=failure.number,
            text=failure.text,
            task=failure.task,
            worker_id=failure.worker_id,
            labels=failure.labels,
            **self._base,
        )

    def _derive_worker_events(self, view: JobView) -> Iterator[JobEvent]:
        for worker in view.workers:
            if worker.worker_id not in self._workers:
                yield WorkerRegisteredEvent(
                    at_ms=view.now_ms,
                    worker_id=worker.worker_id,
                    host=worker.host,
                    process_id=worker.process_id,
                    **self._base,
                )
        self._workers = {worker.worker_id for worker in view.workers}
        for leaving in reversed(view.departures):
            if leaving.worker_id not in self._leaving:
                yield WorkerLeavingEvent(
                    at_ms=leaving.at_ms,
                    worker_id=leaving.worker_id,
                    host=leaving.host,
                    process_id=leaving.process_id,
                    reason=leaving.reason,
                    **self._base,
                )
        self._leaving = {leaving.worker_id for leaving in view.departures}

    def _others(self, view: JobView) -> Iterator[JobEvent]:
        for restarts in range(self._restarts + 1, view.restarts + 1):
            yield JobRestartEvent(at_ms=view.now_ms, restarts=restarts, **self._base)
        self._restarts = max(self._restarts, view.restarts)
        for rescale in reversed(view.rescales):
            if (rescale.at_ms, rescale.attempt) not in self._rescaled:
                yield RescaleEvent(
                    at_ms=rescale.at_ms,
                    cause=rescale.cause.value,
                    changed=rescale.changed,
                    checkpoint_id=rescale.checkpoint_id,
                    **self._base,
                )
        self._rescaled = {(rescale.at_ms, rescale.attempt) for rescale in view.rescales}

    def _missed(self, at_ms: int, what: str, count: int) -> JobEvent:
        return EventsMissedEvent(at_ms=at_ms, what=what, count=count, **self._base)


_log = logging.getLogger("penstock.events")

#: Polling interval (s) of a job with listeners.
INTERVAL_SECONDS: Final = 0.5
#: How long (s) the end of a job waits for its listeners.
END_SECONDS: Final = 5.0
#: How many errors of one listener are logged.
ERRORS_LOGGED_MAX: Final = 10


class JobEvents:
    """The events of one job.

    Args:
        handle: the job.
        job_name: its name.
        view: returns the current view of the job, or a recent one.
    """

    def __init__(self, handle: JobHandle, job_name: str, view: Callable[[], JobView | None]) -> None:
        self._handle = handle
        self._view = view
        self._name = job_name
        self._lock = threading.Lock()
        self._listeners: list[EventListener] = []
        self._errors: dict[EventListener, int] = {}
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._deriver: Deriver | None = None

    def subscribe(self, listener: EventListener) -> None:
        """Deliver further events to a listener. The first one also gets the events that the job still remembers."""
        with self._lock:
            self._listeners.append(listener)
            if self._thread is None:
                self._deriver = Deriver(str(self._handle.get_job_id()), self._name)
                name = f"penstock-events-{self._name}"
                self._thread = threading.Thread(target=self._run, args=(self._deriver,), name=name, daemon=True)
                self._thread.start()

    def unsubscribe(self, listener: EventListener) -> None:
        """Stop delivering events to a listener."""
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def finish(self) -> None:
        """Deliver the end of the job to all listeners, and wait a while for them."""
        self._over.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(END_SECONDS)
            if self._thread.is_alive():
                _log.warning("%s: its event listeners have not returned in %d s", self._name, END_SECONDS)

    def _run(self, deriver: Deriver) -> None:
        while not self._over.wait(INTERVAL_SECONDS) and not self._handle.get_job_execution_result().done():
            self._look(deriver, self._view)
        self._look(deriver, self._handle.last_view)
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            self._call(listener, listener.close)

    def _look(self, deriver: Deriver, look: Callable[[], JobView | None]) -> None:
        try:
            view = look()
            moves = self._handle.moves
            events = deriver.take([] if moves is None else moves.after(deriver.last_move), view)
        except Exception:  # noqa: BLE001 - the next look may find them
            _log.warning("%s: its events could not be told", self._name, exc_info=True)
            return
        for event in events:
            with self._lock:
                listeners = list(self._listeners)
            for listener in listeners:
                self._call(listener, lambda to=listener, event=event: to.on_event(event))  # type: ignore[misc]

    def _call(self, listener: EventListener, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - the user's; the job and the other listeners go on
            self._errors[listener] = count = self._errors.get(listener, 0) + 1
            if count <= ERRORS_LOGGED_MAX:
                kind = type(listener).__qualname__
                _log.warning("%s: event listener %s raised %r", self._name, kind, error, exc_info=True)


class EventFile(EventListener):
    """Appends one JSON object per line: `event`, the class name without `Event`, and the attributes."""

    def __init__(self, path: str) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._file = Path(path).open("a", encoding="utf-8")  # noqa: SIM115 - `close` closes it

    def on_event(self, event: JobEvent) -> None:
        """Append the event."""
        self._file.write(hide_json(json.dumps(as_dict(event), ensure_ascii=False)) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def as_dict(event: JobEvent) -> dict[str, Any]:
    """Return an event as plain values."""
    return {"event": type(event).__name__.removesuffix("Event"), **dataclasses.asdict(event)}


def listener_classes(configuration: Configuration) -> list[type[EventListener]]:
    """Return the classes named in `penstock.event-listeners`.

    Raises:
        ConfigurationError: if a class cannot be imported or is not an `EventListener`.
    """
    key = EVENT_LISTENERS.key()
    classes = []
    for path in filter(None, (path.strip() for path in (configuration.read(EVENT_LISTENERS) or "").split(","))):
        module_name, _, name = path.partition(":")
        try:
            cls = named_object(module_name, name)
        except Exception as error:
            problem = f"{path!r} cannot be imported: {type(error).__name__}: {error}"
            raise ConfigurationError(f"{key}: {problem}; write module:Class") from error
        if not (isinstance(cls, type) and issubclass(cls, EventListener)):
            raise ConfigurationError(f"{key}: {path!r} is no EventListener")
        classes.append(cls)
    return classes


def subscribe_configured(
    events: JobEvents,
    handle: JobHandle,
    configuration: Configuration,
    more: Sequence[Callable[[], EventListener]] = (),
) -> None:
    """Subscribe the configured listeners, and more, to a job that has just begun.

    A listener that cannot be created is logged, because the job already runs.
    """
    path = configuration.read(EVENTS_FILE)
    makers: list[Callable[[], EventListener]] = [*listener_classes(configuration), *more]
    if path is not None:
        makers.append(lambda: EventFile(path))
    listening = False
    for make in makers:
        try:
            events.subscribe(make())
            listening = True
        except Exception as error:  # noqa: BLE001 - the user's class, or a file that cannot be written
            _log.warning("an event listener cannot be made: %s: %s", type(error).__name__, error, exc_info=True)
    if listening:
        handle.before_result(lambda _: events.finish())


__all__ = [
    "CheckpointEvent",
    "EventFile",
    "EventListener",
    "EventsMissedEvent",
    "JobEvent",
    "JobEvents",
    "JobFailureEvent",
    "JobRestartEvent",
    "JobStatusChangeEvent",
    "RescaleEvent",
    "WorkerLeavingEvent",
    "WorkerLostEvent",
    "WorkerRegisteredEvent",
    "as_dict",
]
