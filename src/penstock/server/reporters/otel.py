"""Metrics and spans for OpenTelemetry, by OTLP over HTTP.

The SDK's exporters are called directly with its data types. No provider is set up, so a program's own use of
OpenTelemetry is unaffected.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from penstock.base.config_options import DURATION_MS, MAPPING
from penstock.base.errors import OperationError, UnsupportedError
from penstock.server.metrics.scopes import COUNTER, Scoped, Summary, Value, classify_metric, grows_only
from penstock.server.reporters.reporter import TRACES, Reporter, ReporterSettings, Span, require, taken

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import Metric, MetricsData, NumberDataPoint
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan

ENDPOINT: Final = "http://localhost:4318"
TIMEOUT_MS: Final = 5_000
_LOGGER: Final = "opentelemetry.exporter.otlp.proto.http"
_NANOS: Final = 1_000_000


class OpenTelemetryReporter(Reporter):
    """Exports metrics as `flink.<scope>.<name>` with the scope's variables as attributes, or spans.

    Args:
        settings: `exporter.endpoint` (http://localhost:4318), to which `/v1/metrics` or `/v1/traces` is added unless it
            has a path; `exporter.timeout` (5 s); `exporter.headers` (a map); `service.name` (penstock);
            `service.version`.

    Raises:
        ConfigurationError: if the library is missing.
        UnsupportedError: if the configured protocol is not HTTP.
    """

    def __init__(self, settings: ReporterSettings) -> None:
        super().__init__(settings)
        require("opentelemetry.exporter.otlp.proto.http", settings, "otel")
        protocol = settings.options.get("exporter.protocol", "HTTP")
        if protocol.upper() not in ("HTTP", "HTTP/PROTOBUF"):
            key = settings.key("exporter.protocol")
            raise UnsupportedError(f"{key} is {protocol!r}: Penstock sends OTLP by HTTP only")
        self._began_ns = time.time_ns()
        self._resource = _resource(settings)
        self._exporter = self._made(settings)

    def report(self, metrics: Iterable[Scoped], spans: Sequence[Span]) -> None:
        """Export the metrics or spans.

        Raises:
            OperationError: if the collector rejected them.
        """
        if self.settings.what == TRACES:
            payload: Any = [_span(span, self._resource) for span in spans]
            if not payload:
                return
        else:
            payload = self._data(taken(self.settings, metrics))
        reasons: list[str] = []
        with _silenced(reasons.append):
            result = self._exporter.export(payload)
        if result.name != "SUCCESS":
            raise OperationError(f"the collector did not take it: {'; '.join(reasons) or 'no reason is known'}")

    def close(self) -> None:
        """Close the connection."""
        self._exporter.shutdown()

    def _made(self, settings: ReporterSettings) -> Any:
        endpoint = settings.options.get("exporter.endpoint", ENDPOINT).rstrip("/")
        if endpoint.count("/") < 3:
            endpoint += "/v1/traces" if settings.what == TRACES else "/v1/metrics"
        headers = settings.read("exporter.headers", MAPPING, {})
        timeout = settings.read("exporter.timeout", DURATION_MS, TIMEOUT_MS) / 1000
        if settings.what == TRACES:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            return OTLPSpanExporter(endpoint, headers=headers, timeout=timeout)
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        return OTLPMetricExporter(endpoint, headers=headers, timeout=timeout)

    def _data(self, metrics: Iterable[Scoped]) -> MetricsData:
        from opentelemetry.sdk.metrics.export import MetricsData, NumberDataPoint, ResourceMetrics, ScopeMetrics
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        now, points = time.time_ns(), dict[tuple[str, str], list[NumberDataPoint]]()
        for scoped in metrics:
            for name, kind, number in _numbers(scoped):
                point = NumberDataPoint(dict(scoped.variables), self._began_ns, now, number)
                points.setdefault((f"flink.{scoped.scope.value}.{name}", kind), []).append(point)
        otel_metrics = [_metric(name, kind, of) for (name, kind), of in points.items()]
        scope = ScopeMetrics(InstrumentationScope("penstock"), otel_metrics, "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])


def _numbers(scoped: Scoped) -> Iterator[tuple[str, str, int | float]]:
    """Yield name, kind and number of each metric, except strings."""
    for name, value in scoped.values.items():
        if isinstance(value, Summary):
            yield from ((own, "gauge", number) for own, number in value.flattened(name).items())
        elif (number := _number(value)) is not None:
            yield name, classify_metric(scoped, name, value), number


def _number(value: Value) -> int | float | None:
    return int(value) if isinstance(value, bool) else value if isinstance(value, int | float) else None


def _metric(name: str, kind: str, points: list[NumberDataPoint]) -> Metric:
    from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, Metric, Sum

    if kind != COUNTER:
        return Metric(name, "", "", Gauge(points))
    is_monotonic = grows_only(name.rpartition(".")[2])
    return Metric(name, "", "", Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic))


def _span(span: Span, resource: Resource) -> ReadableSpan:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, TraceFlags

    ids = random.SystemRandom()
    context = SpanContext(ids.getrandbits(128) | 1, ids.getrandbits(64) | 1, False, TraceFlags(TraceFlags.SAMPLED))
    return ReadableSpan(
        span.name,
        context,
        resource=resource,
        attributes=span.attributes,
        start_time=span.began_ms * _NANOS,
        end_time=span.ended_ms * _NANOS,
        instrumentation_scope=InstrumentationScope(span.scope),
    )


def _resource(settings: ReporterSettings) -> Resource:
    from opentelemetry.sdk.resources import Resource

    attributes = {"service.name": settings.options.get("service.name", "penstock")}
    if "service.version" in settings.options:
        attributes["service.version"] = settings.options["service.version"]
    return Resource(attributes)


@contextmanager
def _silenced(say: Callable[[str], None]) -> Iterator[None]:
    """Capture the exporter's log messages of this thread: Penstock logs a failure once, not at every interval."""
    thread = threading.get_ident()

    def keeps(record: logging.LogRecord) -> bool:
        if record.thread != thread:
            return True
        say(record.getMessage())
        return False

    loggers = [logging.getLogger(f"{_LOGGER}.{name}") for name in ("metric_exporter", "trace_exporter")]
    for logger in loggers:
        logger.addFilter(keeps)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(keeps)
