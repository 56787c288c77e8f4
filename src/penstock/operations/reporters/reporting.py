"""One thread that polls all jobs of a process and reports their metrics and spans.

It also polls every few seconds when nothing is due, so that rates and charts of the last hour are available on request.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from penstock.base.configuration import Configuration
from penstock.base.errors import OperationError
from penstock.operations.dispatcher import Dispatcher
from penstock.operations.metrics.listing import MetricStore
from penstock.operations.metrics.scopes import Scoped
from penstock.operations.reporters.json_lines import JsonLinesReporter
from penstock.operations.reporters.otel import OpenTelemetryReporter
from penstock.operations.reporters.prometheus import PrometheusReporter
from penstock.operations.reporters.reporter import Reporter, Span
from penstock.operations.reporters.settings import TRACES, ReporterSettings, read_reporters
from penstock.operations.reporters.spans import SpanWatch
from penstock.operations.reporters.statsd import StatsDReporter

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
