"""Metrics and spans as an OpenTelemetry collector takes them (A1)."""

from __future__ import annotations

import gzip
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.said import said
from tests.server.reporters.settings import parse_reporter

from penstock.base.errors import OperationError, UnsupportedError
from penstock.server.metrics.scopes import Scope, Scoped, Summary, Value
from penstock.server.reporters.otel import OpenTelemetryReporter
from penstock.server.reporters.reporter import Span


@contextmanager
def collector(status: int = 200) -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """Its address, and what it was sent: paths and bodies."""
    received: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            is_packed = self.headers.get("content-encoding") == "gzip"
            received.append((self.path, gzip.decompress(body) if is_packed else body))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_metrics_have_their_kinds_and_variables() -> None:
    values: dict[str, Value] = {
        "numRecordsIn": 3,
        "large": 2,
        "isBackPressured": True,
        "name": "n/a",
        "sizes": Summary(2, 4, 1, 3),
    }
    scoped = Scoped(Scope.TASK, {"task_name": "Map"}, values, frozenset({"large"}))
    with collector() as (url, received):
        reporter = OpenTelemetryReporter(
            parse_reporter("otel", exporter__endpoint=url, service__name="shop", service__version="7")
        )
        reporter.report([scoped], [])
        reporter.close()
    ((path, body),) = received
    assert path == "/v1/metrics"
    (resource,) = ExportMetricsServiceRequest.FromString(body).resource_metrics
    about = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert about.items() >= {"service.name": "shop", "service.version": "7"}.items()
    metrics = {
        metric.name.removeprefix("flink.taskmanager.job.task."): metric for metric in resource.scope_metrics[0].metrics
    }
    assert metrics["numRecordsIn"].sum.is_monotonic
    assert metrics["numRecordsIn"].sum.data_points[0].as_int == 3
    assert [one.value.string_value for one in metrics["numRecordsIn"].sum.data_points[0].attributes] == ["Map"]
    assert not metrics["large"].sum.is_monotonic  # a user's counter may go down
    assert metrics["isBackPressured"].gauge.data_points[0].as_int == 1
    assert (
        metrics["sizes_max"].gauge.data_points[0].as_double == 3
        or metrics["sizes_max"].gauge.data_points[0].as_int == 3
    )
    assert "name" not in metrics


def test_spans_have_their_times() -> None:
    with collector() as (url, received):
        reporter = OpenTelemetryReporter(parse_reporter("otel", "traces", exporter__endpoint=url))
        reporter.report([], [])
        reporter.report([], [Span("tracker", "Checkpoint", 5, 8, {"checkpointId": 3})])
        reporter.close()
    ((path, body),) = received
    assert path == "/v1/traces"
    (scoped,) = ExportTraceServiceRequest.FromString(body).resource_spans[0].scope_spans
    (span,) = scoped.spans
    assert (scoped.scope.name, span.name) == ("tracker", "Checkpoint")
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (5_000_000, 8_000_000)
    assert len(span.trace_id) == 16
    assert any(span.trace_id)


def test_a_collector_that_refuses_is_an_error_and_logs_nothing_itself(caplog: pytest.LogCaptureFixture) -> None:
    with collector(status=400) as (url, _), caplog.at_level(logging.DEBUG, "opentelemetry"):
        reporter = OpenTelemetryReporter(parse_reporter("otel", exporter__endpoint=url))
        with pytest.raises(OperationError, match=r"the collector did not take it: .*400"):
            reporter.report([Scoped(Scope.TASK, {}, {"a": 1})], [])
        reporter.close()
    assert said(caplog) + said(caplog, logger="opentelemetry") == []


def test_other_protocols_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"metrics\.reporter\.mine\.exporter\.protocol is 'gRPC'"):
        OpenTelemetryReporter(parse_reporter("otel", exporter__protocol="gRPC"))
