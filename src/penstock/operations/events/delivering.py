"""Delivers events to listeners, in one thread per job with listeners. A job without listeners pays nothing."""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError
from penstock.base.options import EVENT_LISTENERS, EVENTS_FILE
from penstock.base.secrets import hide_json
from penstock.core.job.view import JobView
from penstock.drivers.job_handle import JobHandle
from penstock.drivers.named_objects import named_object
from penstock.operations.events.deriving import Deriver
from penstock.operations.events.model import EventListener, JobEvent

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


def subscribe_configured(events: JobEvents, handle: JobHandle, configuration: Configuration) -> None:
    """Subscribe the configured listeners to a job that has just begun.

    A listener that cannot be created is logged, because the job already runs.
    """
    path = configuration.read(EVENTS_FILE)
    makers: list[Callable[[], EventListener]] = [*listener_classes(configuration)]
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
