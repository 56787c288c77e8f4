"""The thread that reports the metrics and spans of all jobs of a process, and the JSON lines and StatsD reporters.

`JsonLinesReporter` writes metrics and spans as JSON lines in a file.

`StatsDReporter` sends over UDP: every number is a gauge, as in Flink.

`Reporting` is one thread that polls all jobs and reports. It also polls every few seconds when nothing is due, so that
rates and charts of the last hour are available on request.
"""

from __future__ import annotations

import atexit
import json
import logging
import math
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from penstock.base.config_options import BYTES_COUNT, INTEGER
from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError, OperationError
from penstock.server.dispatcher import Dispatcher
from penstock.server.metrics.metric_store import MetricStore
from penstock.server.metrics.scopes import Scoped, flat
from penstock.server.reporters.otel import OpenTelemetryReporter
from penstock.server.reporters.prometheus import PrometheusReporter
from penstock.server.reporters.reporter import (
    TRACES,
    Reporter,
    ReporterSettings,
    Span,
    SpanWatch,
    read_reporters,
    taken,
)

SIZE_BYTES: Final = 64 << 20


class JsonLinesReporter(Reporter):
    """Appends a line for each scope, or for each span.

    A file that has grown beyond `max-size` is renamed with the suffix `.1`, replacing the previous one.

    Args:
        settings: `path`, the file, which is created with its directories; `max-size` (64 mb).

    Raises:
        ConfigurationError: if the path is missing.
    """

    def __init__(self, settings: ReporterSettings) -> None:
        super().__init__(settings)
        path = settings.options.get("path")
        if path is None:
            raise ConfigurationError(f"{settings.key('path')} is not set: name the file to write to")
        self._path = Path(path)
        self._size_max = settings.read("max-size", BYTES_COUNT, SIZE_BYTES)

    def report(self, metrics: Iterable[Scoped], spans: Sequence[Span]) -> None:
        """Append metrics or spans to the file."""
        now = int(time.time() * 1000)
        if self.settings.what == TRACES:
            lines = [_of_span(span) for span in spans]
        else:
            lines = [_of_scope(now, scoped) for scoped in taken(self.settings, metrics)]
        if not lines:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(line, allow_nan=False)}\n" for line in lines)
            size = file.tell()
        if size > self._size_max:
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))


def _of_scope(now_ms: int, scoped: Scoped) -> dict[str, Any]:
    values = {name: _finite(value) for name, value in flat(scoped.values).items()}
    return {"time": now_ms, "scope": scoped.scope.value, "variables": dict(scoped.variables), "metrics": values}


def _finite(value: str | int | float) -> str | int | float:
    """Return NaN and infinity, which JSON lacks, as strings."""
    return value if not isinstance(value, float) or math.isfinite(value) else str(value)


def _of_span(span: Span) -> dict[str, Any]:
    times = {"time": span.began_ms, "ended": span.ended_ms}
    return {**times, "scope": span.scope, "span": span.name, "attributes": span.attributes}


#: The maximum size (bytes) of a datagram, which fits one Ethernet frame.
DATAGRAM_BYTES_MAX: Final = 1_432


class StatsDReporter(Reporter):
    """Sends `<scope>.<name>:<number>|g`, several lines to a datagram.

    Args:
        settings: `host` (localhost) and `port` (8125). `metrics.scope.*` sets the prefixes of names.
    """

    def __init__(self, settings: ReporterSettings) -> None:
        super().__init__(settings)
        self._address = settings.options.get("host", "localhost"), settings.read("port", INTEGER, 8125)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def report(self, metrics: Iterable[Scoped], spans: Sequence[Span]) -> None:
        """Send all numbers."""
        waiting = b""
        for line in self._lines(metrics):
            if waiting and len(waiting) + len(line) >= DATAGRAM_BYTES_MAX:
                self._socket.sendto(waiting, self._address)
                waiting = b""
            waiting += b"\n" * bool(waiting) + line
        if waiting:
            self._socket.sendto(waiting, self._address)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _lines(self, metrics: Iterable[Scoped]) -> Iterator[bytes]:
        settings = self.settings
        for scoped in taken(settings, metrics):
            for name, value in flat(scoped.values).items():
                number = {"true": 1, "false": 0}.get(value) if isinstance(value, str) else value
                if number is None or not math.isfinite(number):
                    continue
                # A colon or a bar would end the name, and a line break the metric.
                full_name = settings.formats.format_metric_name(scoped, name).translate(_CLEAN)
                if number < 0:  # StatsD reads a sign as a change of the gauge, so reset it to 0 first
                    yield f"{full_name}:0|g".encode()
                yield f"{full_name}:{number}|g".encode()


_CLEAN: Final = str.maketrans(":|\n\r@#", "-_    ")


#: Polling interval (s) of jobs when nothing else is due.
LOOK_SECONDS: Final = 5.0
#: How long (s) the end of the process waits for the last report.
LAST_REPORT_SECONDS: Final = 5.0

_log = logging.getLogger("penstock.metrics")

_PUSH: Final[dict[str, Callable[[ReporterSettings], Reporter]]] = {
    "json": JsonLinesReporter,
    "statsd": StatsDReporter,
    "otel": OpenTelemetryReporter,
}


class _Due:
    """A reporter, and when it is due."""

    def __init__(self, reporter: Reporter, now: float) -> None:
        self.reporter = reporter
        self.settings = reporter.settings
        self.at = now + self.settings.interval_s
        #: by the store's clock: jobs that ended later are reported once more
        self.reported_at = now
        self.spans: list[Span] = []
        self.has_failed = False


class Reporting:
    """See the module docstring. `close` sends a last report.

    Args:
        store: the metrics of all jobs.
        now: a monotonic clock (s), the store's.
    """

    def __init__(self, store: MetricStore, now: Callable[[], float] = time.monotonic) -> None:
        self.store = store
        self._now = now
        self._lock = threading.RLock()
        self._wake = threading.Condition(self._lock)
        self._pushed: dict[tuple[str, str], _Due] = {}
        self._pulled: dict[tuple[str, str], PrometheusReporter] = {}
        #: reporters whose ports were not free
        self._waiting: dict[tuple[str, str], ReporterSettings] = {}
        self._watch = SpanWatch()
        self._scraped_at = now()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def add(self, reporters: list[ReporterSettings]) -> None:
        """Start these reporters, except ones whose names are in use.

        Raises:
            ConfigurationError: if an option is wrong, or a library is missing.
            UnsupportedError: if one requests something that Penstock lacks.
        """
        with self._lock:
            for settings in reporters:
                key = settings.what, settings.name
                if key in self._pushed or key in self._pulled or key in self._waiting:
                    continue
                if settings.type == "prometheus":
                    if (refusal := self._open(settings)) is not None:
                        self._waiting[key] = settings
                        _log.warning("%s. It is tried again, and no more is said until one is", refusal)
                else:
                    self._pushed[key] = _Due(_PUSH[settings.type](settings), self._now())
            self._wake.notify_all()

    def _open(self, settings: ReporterSettings) -> OperationError | None:
        """Start answering scrapes. Returns the error if this is not possible now."""
        try:
            reporter = PrometheusReporter(settings, self._scraped)
        except OperationError as error:
            return error
        self._pulled[settings.what, settings.name] = reporter
        _log.info("metrics for Prometheus: http://%s:%d/metrics", reporter.host, reporter.port)
        return None

    def start(self) -> None:
        """Start the thread, unless it runs."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="penstock-metrics", daemon=True)
                self._thread.start()

    def pulled(self, name: str) -> PrometheusReporter | None:
        """Return the scraped reporter with this name."""
        return self._pulled.get(("metrics", name))

    def close(self) -> None:
        """Send a last report, and stop."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._wake.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(LAST_REPORT_SECONDS)
        for reporter in self._pulled.values():
            reporter.close()

    def turn(self, *, is_last: bool = False) -> float:
        """Poll the jobs, and run the reporters that are due, or all. Returns how long (s) nothing is due."""
        now = self._now()
        self._look()
        with self._lock:
            pushed = list(self._pushed.values())
            for key, settings in list(self._waiting.items()):
                if self._open(settings) is None:
                    del self._waiting[key]
        for due in pushed:
            if is_last or now >= due.at:
                interval_s = due.settings.interval_s
                due.at = due.at + interval_s if now < due.at + interval_s else now + interval_s
                self._report(due)
        next_at = min((due.at for due in pushed), default=now + LOOK_SECONDS)
        return max(0.0, min(next_at - self._now(), LOOK_SECONDS))

    def _run(self) -> None:
        while True:
            pause = self.turn()
            with self._lock:
                if not self._is_closed:
                    self._wake.wait(pause)
                if self._is_closed:
                    break
        self.turn(is_last=True)
        for due in self._pushed.values():
            due.reporter.close()

    def _look(self) -> None:
        try:
            self.store.look()
            traced = [due for due in self._pushed.values() if due.settings.what == TRACES]
            spans = self._watch.spans(self.store.views()) if traced else []
            for due in traced:
                due.spans += spans
        except Exception:  # noqa: BLE001 - what nobody foresaw must not end the reports of all jobs
            _log.warning("the jobs cannot be looked at for their metrics", exc_info=True)

    def _scraped(self) -> list[Scoped]:
        since, self._scraped_at = self._scraped_at, self._now()
        return list(self.store.scoped(since))

    def _report(self, due: _Due) -> None:
        since, due.reported_at = due.reported_at, self._now()
        spans, due.spans = due.spans, []
        name = f"{due.settings.what}.reporter.{due.settings.name}"
        try:
            due.reporter.report(self.store.scoped(since) if due.settings.what != TRACES else (), spans)
        except Exception as error:  # noqa: BLE001 - no reporter's failure is a job's
            due.spans = [*spans, *due.spans][-1_000:]
            if not due.has_failed:
                due.has_failed = True
                _log.warning("%s cannot report: %s. It tries again, and says no more until it can", name, error)
            return
        if due.has_failed:
            due.has_failed = False
            _log.info("%s reports again", name)


_running: dict[Dispatcher, Reporting] = {}
_starting = threading.Lock()


def start_reporters(dispatcher: Dispatcher, configuration: Configuration) -> Reporting | None:
    """Start the reporters named in a job's configuration. They report on all jobs of the dispatcher.

    Reporters that an earlier job started stay unchanged. They stop with the process, after a last report.

    A port that is not free is tried again, like all other failures.

    Raises:
        ConfigurationError: naming the key, if an option is wrong, or a library is missing.
        UnsupportedError: if one requests something that Penstock lacks.
    """
    reporters = read_reporters(configuration)
    return _reporting(dispatcher, reporters) if reporters else None


def keep_looking(dispatcher: Dispatcher) -> None:
    """Poll the jobs every few seconds, so that charts cover the time before the first request."""
    _reporting(dispatcher, [])


def _reporting(dispatcher: Dispatcher, reporters: list[ReporterSettings]) -> Reporting:
    with _starting:
        reporting = _running.get(dispatcher)
        if reporting is None:
            reporting = Reporting(MetricStore.of(dispatcher))
        reporting.add(reporters)
        if dispatcher not in _running:
            _running[dispatcher] = reporting
            atexit.register(reporting.close)
            reporting.start()
        return reporting


def stop_reporters(dispatcher: Dispatcher) -> None:
    """Send a last report, and stop all reporters of a dispatcher."""
    with _starting:
        reporting = _running.pop(dispatcher, None)
    if reporting is not None:
        atexit.unregister(reporting.close)
        reporting.close()
