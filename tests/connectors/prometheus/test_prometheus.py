"""`PrometheusSink` and the connector `prometheus`, against a receiver that decodes by Protocol Buffers' own library.

The definitions of the messages are those of Remote Write 1.0, written down here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.connectors.postgres.test_tables import environment as create_tables
from tests.examples.pages import PAGES, run_page
from tests.servers.http import HttpServer, Received, Reply, accept_all, http_server

from penstock.base.errors import ConfigurationError, JobExecutionError, UnsupportedError
from penstock.common import Configuration
from penstock.connectors.prometheus import encode_labels, encode_sample
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.prometheus import (
    OnErrorBehavior,
    PrometheusSink,
    PrometheusSinkBuilder,
    PrometheusTimeSeries,
    PrometheusTimeSeriesLabelsAndMetricNameKeySelector,
    RetryConfiguration,
    SinkWriterErrorHandlingBehaviorConfiguration,
)
from penstock.sql.data.errors import ValidationError
from penstock.testing.connectors import SINK_CASES, SinkHost, SinkUnderTest, check_sink

snappy = pytest.importorskip("cramjam", reason="the extra prometheus-remote-write is not installed").snappy
descriptor_pb2: Any = pytest.importorskip("google.protobuf.descriptor_pb2", reason="protobuf is not installed")

Decoded = tuple[dict[str, str], list[tuple[float, int]]]


def _message_class() -> Any:
    """WriteRequest of prometheus/prompb: field numbers and types as the protocol's document has them."""
    from google.protobuf import descriptor_pool, message_factory

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="remote.proto", package="prometheus", syntax="proto3")
    for name, fields in {
        "Label": [("name", 1, field.TYPE_STRING, ""), ("value", 2, field.TYPE_STRING, "")],
        "Sample": [("value", 1, field.TYPE_DOUBLE, ""), ("timestamp", 2, field.TYPE_INT64, "")],
        "TimeSeries": [("labels", 1, field.TYPE_MESSAGE, "Label"), ("samples", 2, field.TYPE_MESSAGE, "Sample")],
        "WriteRequest": [("timeseries", 1, field.TYPE_MESSAGE, "TimeSeries")],
    }.items():
        message = file.message_type.add(name=name)
        for key, number, kind, of in fields:
            label = field.LABEL_REPEATED if of else field.LABEL_OPTIONAL
            more = {"type_name": f".prometheus.{of}"} if of else {}
            message.field.add(name=key, number=number, type=kind, label=label, **more)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("prometheus.WriteRequest"))


WRITE_REQUEST = _message_class()


def decode(request: Received) -> list[Decoded]:
    """The series of a request, with labels in the order in which they came."""
    message = WRITE_REQUEST.FromString(bytes(snappy.decompress_raw(request.body)))
    return [
        (
            {label.name: label.value for label in series.labels},
            [(sample.value, sample.timestamp) for sample in series.samples],
        )
        for series in message.timeseries
    ]


def samples(requests: Sequence[Received]) -> list[tuple[str, float, int]]:
    """The samples in the order of arrival, with the label `n`."""
    return [
        (labels["n"], value, time_ms)
        for request in requests
        for labels, pairs in decode(request)
        for value, time_ms in pairs
    ]


def series(number: int, *values: float, at: int = 1_000, name: str = "m") -> PrometheusTimeSeries:
    builder = PrometheusTimeSeries.builder().with_metric_name(name).add_label("n", str(number))
    for position, value in enumerate(values):
        builder.add_sample(value, at + position)
    return builder.build()


def build(server: HttpServer, retries: int = 3, **settings: int) -> PrometheusSinkBuilder:
    builder = PrometheusSink.builder().set_prometheus_remote_write_url(f"{server.url}/api/v1/write")
    builder.set_retry_configuration(RetryConfiguration(initial_retry_delay_ms=1, max_retry_count=retries))
    builder.set_max_time_in_buffer_ms(20)
    for name, number in settings.items():
        getattr(builder, f"set_{name}")(number)
    return builder


def write(sink: PrometheusSink, records: Sequence[PrometheusTimeSeries]) -> None:
    settings = Configuration.from_dict({"execution.target": "local"})
    env = StreamExecutionEnvironment.get_execution_environment(settings).set_parallelism(1)
    env.from_collection(list(records)).sink_to(sink)
    env.execute()


def test_a_request_is_what_the_protocol_says() -> None:
    record = (
        PrometheusTimeSeries.builder()
        .with_metric_name("temperature")
        .add_label("zone", "ü")
        .add_label("Area", "7")
        .add_label("empty", "")
        .add_sample(-0.0, -5)
        .add_sample(math.inf, (1 << 63) - 1)
        .add_sample(1e-300, 0)
        .build()
    )
    with http_server() as server:
        write(build(server).set_header("Authorization", "Bearer t").build(), [record])
        (request,) = server.requests
    ((labels, pairs),) = decode(request)
    assert list(labels.items()) == [("Area", "7"), ("__name__", "temperature"), ("zone", "ü")]
    assert [(math.copysign(1, value), value, time_ms) for value, time_ms in pairs] == [
        (-1, 0, -5),
        (1, math.inf, (1 << 63) - 1),
        (1, 1e-300, 0),
    ]
    assert request.target == "/api/v1/write"
    sent = {name: request.headers[name] for name in ("content-encoding", "content-type", "authorization")}
    assert sent == {
        "content-encoding": "snappy",
        "content-type": "application/x-protobuf",
        "authorization": "Bearer t",
    }
    assert request.headers["x-prometheus-remote-write-version"] == "0.1.0"


def test_nan_is_a_value() -> None:
    with http_server() as server:
        write(build(server).build(), [series(1, math.nan)])
        assert math.isnan(samples(server.requests)[0][1])


def test_long_texts_have_long_lengths() -> None:
    message = WRITE_REQUEST()
    message.timeseries.add().labels.add(name="__name__", value="x" * 300)
    message.timeseries[0].samples.add(value=1.5, timestamp=1 << 40)
    content = message.timeseries[0].SerializeToString()
    assert encode_labels("x" * 300, []) + encode_sample(1.5, 1 << 40) == content


def test_requests_have_no_more_samples_than_the_setting() -> None:
    records = [series(n, *range(3)) for n in range(10)]
    with http_server() as server:
        write(build(server, max_batch_size_in_samples=7, max_record_size_in_samples=3).build(), records)
        counts = [sum(len(pairs) for _, pairs in decode(request)) for request in server.requests]
        assert sorted(samples(server.requests)) == sorted((str(n), v, 1_000 + v) for n in range(10) for v in range(3))
    assert max(counts) == 6


def test_the_samples_of_a_series_arrive_in_order_though_requests_are_refused_for_now() -> None:
    answers: list[int] = []

    def answer(request: Received) -> Reply:
        answers.append(429 if len(answers) % 3 == 1 else 200)
        return answers[-1], b"", {}

    records = [series(n % 5, n, at=n) for n in range(200)]
    with http_server(answer) as server:
        write(build(server, 100, max_batch_size_in_samples=7, max_record_size_in_samples=7).build(), records)
        taken = [request for request, status in zip(server.requests, answers, strict=True) if status == 200]
        arrived = samples(taken)
    assert sorted(arrived) == sorted((str(n % 5), n, n) for n in range(200))
    for key in "01234":
        times = [time_ms for name, _, time_ms in arrived if name == key]
        assert times == sorted(times)


def refuse_sevens(request: Received) -> Reply:
    is_bad = any(labels["n"] == "7" for labels, _ in decode(request))
    return (400, b"out of order sample", {}) if is_bad else accept_all(request)


def write_by_hand(sink: PrometheusSink, records: Sequence[PrometheusTimeSeries]) -> dict[str, int]:
    """What a writer counts."""
    host = SinkHost()
    writer = sink.create_writer(host)
    try:
        for record in records:
            writer.write_batch([record], None)
        writer.prepare_commit()
    finally:
        writer.close()
    return dict(host.counts)


def test_a_request_that_is_refused_for_good_is_discarded_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    with http_server(refuse_sevens) as server:
        sink = build(server, max_batch_size_in_samples=1, max_record_size_in_samples=1).build()
        counts = write_by_hand(sink, [series(n, 1) for n in range(10)])
        taken = [request for request in server.requests if refuse_sevens(request)[0] == 200]
        assert sorted(samples(taken)) == [(str(n), 1, 1_000) for n in range(10) if n != 7]
        assert len(server.requests) == 10
    assert counts["numSamplesOut"] == 9
    assert counts["numSamplesDropped"] == counts["numSamplesNonRetryableDropped"] == 1
    assert counts["numWriteRequestsPermanentlyFailed"] == 1
    assert "a request with 1 samples is discarded: status 400 Bad Request: out of order sample" in caplog.text


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_service_that_cannot_be_written_fails_the_job(status: int) -> None:
    with http_server(lambda _: (status, b"no", {})) as server:
        with pytest.raises(JobExecutionError, match=f"refuses to be written to: status {status}"):
            write(build(server).build(), [series(1, 1)])
        assert len(server.requests) == 1


def test_after_the_last_attempt_the_job_fails_or_goes_on() -> None:
    with http_server(lambda _: (503, b"later", {})) as server:
        with pytest.raises(JobExecutionError, match="was sent 3 times"):
            write(build(server, 2).build(), [series(1, 1)])
        assert len(server.requests) == 3
        server.requests.clear()
        errors = SinkWriterErrorHandlingBehaviorConfiguration(
            on_max_retry_exceeded=OnErrorBehavior.DISCARD_AND_CONTINUE
        )
        sink = build(server, 2).set_error_handling_behavior_configuration(errors).build()
        counts = write_by_hand(sink, [series(1, 1, 2)])
        assert len(server.requests) == 3
    assert (counts["numSamplesRetryLimitDropped"], counts["numWriteRequestsRetries"]) == (2, 2)


def test_a_signer_adds_headers() -> None:
    def sign(headers: dict[str, str], body: bytes) -> None:
        assert headers["Content-Encoding"] == "snappy"
        headers["X-Signature"] = str(len(body))

    with http_server() as server:
        write(build(server).set_request_signer(sign).build(), [series(1, 1)])
        (request,) = server.requests
    assert request.headers["x-signature"] == str(len(request.body))


def test_settings_and_records_that_are_wrong_are_named() -> None:
    builder = PrometheusTimeSeries.builder
    for wrong, message in (
        (lambda: builder().add_sample(1, 1).build(), "needs a metric name"),
        (lambda: builder().with_metric_name("m").build(), "has no sample"),
        (
            lambda: builder().with_metric_name("m").add_label("a", "").add_label("a", "").add_sample(1, 1).build(),
            "label twice",
        ),
        (lambda: builder().with_metric_name("m").add_label("__name__", "x").add_sample(1, 1).build(), "label twice"),
    ):
        with pytest.raises(ValueError, match=message):
            wrong()
    with pytest.raises(ConfigurationError, match="set the URL"):
        PrometheusSink.builder().build()
    with pytest.raises(UnsupportedError, match="only be DISCARD_AND_CONTINUE"):
        SinkWriterErrorHandlingBehaviorConfiguration(on_prometheus_non_retriable_error=OnErrorBehavior.FAIL)
    with http_server() as server:
        with pytest.raises(ValueError, match="from 1 to max_batch_size_in_samples"):
            build(server, max_record_size_in_samples=501).build()
        with pytest.raises(JobExecutionError, match="max_record_size_in_samples is 2"):
            write(build(server, max_record_size_in_samples=2).build(), [series(1, 1, 2, 3)])


def test_the_key_of_a_series_does_not_depend_on_the_order_of_labels() -> None:
    key = PrometheusTimeSeriesLabelsAndMetricNameKeySelector()
    pairs = [("a", "1"), ("b", "2")]
    keys = set()
    for ordered in (pairs, pairs[::-1]):
        builder = PrometheusTimeSeries.builder().with_metric_name("m").add_sample(1, 1)
        for pair in ordered:
            builder.add_label(*pair)
        keys.add(key(builder.build()))
    assert keys == {("m", "a", "1", "b", "2")}


@pytest.mark.slow
@pytest.mark.parametrize("case", SINK_CASES)
def test_the_sink_keeps_the_rules(case: str) -> None:
    records = [series(n % 4, n, at=n) for n in range(12)]
    with http_server() as server:

        def prepare() -> SinkUnderTest:
            server.requests.clear()
            sink = build(server, max_time_in_buffer_ms=60_000).build()
            return SinkUnderTest(sink, records, read, lambda found: sorted(set(found), key=repr), lambda it: it.labels)

        def read() -> list[PrometheusTimeSeries]:
            return [series(int(name), value, at=at) for name, value, at in samples(server.requests)]

        check_sink(prepare, case, places=4)


# --- tables ---------------------------------------------------------------------------------------------------------


def insert(server: HttpServer, columns: str, rows: str, more: str = "", labels: str = "[n,flag]") -> None:
    tables = create_tables(parallelism_default="1", table_local_time_zone="UTC")
    tables.get_config().set("table.local-time-zone", "UTC")
    tables.execute_sql(
        f"CREATE TABLE t ({columns}) WITH ('connector' = 'prometheus', 'metric.name' = 'name', 'metric.label.keys' = "
        f"'{labels}', 'metric.sample.key' = 'v', 'metric.sample.timestamp' = 'ts', 'sink.flush-buffer.timeout' = "
        f"'20 ms', 'metric.endpoint-url' = '{server.url}/api/v1/write'{more})"
    )
    tables.execute_sql(f"INSERT INTO t {rows}").wait()


@pytest.mark.parametrize(
    ("kind", "time"),
    [
        ("TIMESTAMP(3)", "TIMESTAMP '1970-01-01 00:00:01.500'"),
        ("TIMESTAMP_LTZ(6)", "TO_TIMESTAMP_LTZ(1500, 3)"),
        ("BIGINT", "CAST(1500 AS BIGINT)"),
    ],
)
def test_rows_are_samples(kind: str, time: str) -> None:
    with http_server() as server:
        insert(
            server,
            f"name STRING, n INT, flag BOOLEAN, v DECIMAL(5, 2), ts {kind}",
            f"VALUES ('m', 7, TRUE, 1.5, {time}), ('m', 8, CAST(NULL AS BOOLEAN), 2, {time})",
            ", 'metric.token' = 't0ken'",
        )
        found = [part for request in server.requests for part in decode(request)]
        assert server.requests[0].headers["authorization"] == "Bearer t0ken"
    assert found == [
        ({"__name__": "m", "flag": "true", "n": "7"}, [(1.5, 1_500)]),
        ({"__name__": "m", "n": "8"}, [(2, 1_500)]),
    ]


@pytest.mark.parametrize(
    ("columns", "more", "labels", "message"),
    [
        ("name STRING, v DOUBLE, ts BIGINT", "", "[n]", "there is no column 'n'"),
        ("name STRING, n DOUBLE, v DOUBLE, ts BIGINT", "", "[n]", "column 'n' is DOUBLE, and not text"),
        ("name STRING, n INT, v STRING, ts BIGINT", "", "[n]", "column 'v' is STRING, and not a number"),
        ("name STRING, n INT, v DOUBLE, ts INT", "", "[n]", "column 'ts' is INT, and not TIMESTAMP"),
        ("name STRING, n INT, v DOUBLE, ts BIGINT", "", "[]", "column 'n' .* is no part of samples"),
        ("name STRING, n INT, v DOUBLE, ts BIGINT", ", 'metric.request-signer' = 'x'", "[n]", "set_request_signer"),
    ],
)
def test_tables_that_are_no_samples_are_refused(columns: str, more: str, labels: str, message: str) -> None:
    nulls = ", ".join(f"CAST(NULL AS {column.split()[1]})" for column in columns.split(", "))
    with http_server() as server, pytest.raises((ValidationError, UnsupportedError), match=message):
        insert(server, columns, f"VALUES ({nulls})", more, labels)


def test_a_sample_without_a_value_fails_the_job_and_names_the_column() -> None:
    with http_server() as server, pytest.raises(JobExecutionError, match="no value in column 'v'"):
        insert(
            server, "name STRING, v DOUBLE, ts BIGINT", "VALUES ('m', CAST(NULL AS DOUBLE), CAST(1 AS BIGINT))", "", ""
        )


def test_the_program_of_the_page_runs(tmp_path: Path) -> None:
    page = "docs/prometheus-sink.md"
    with http_server() as server:
        PAGES[page].check(run_page(page, "local", tmp_path, variables={"PROMETHEUS_URL": server.url}))
        found = [part for request in server.requests for part in decode(request)]
    rooms = [pair for labels, pairs in found if labels.get("room") == "7" for pair in pairs]
    assert rooms == [(21.5, 1_000), (22.0, 2_000)]
    assert ({"__name__": "load", "host": "a"}, [(0.5, 1_767_225_600_000)]) in found
