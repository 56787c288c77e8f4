"""`HttpSink` and the connector `http-async-sink`: what arrives at a service, in which order, and what it may refuse."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from tests.connectors.postgres.test_tables import environment as create_tables
from tests.servers.http import HttpServer, Received, Reply, accept_all, http_server

from penstock.base.errors import ConfigurationError, JobExecutionError
from penstock.common import Configuration
from penstock.connectors.async_sink.request_buffer import AsyncSinkSettings
from penstock.connectors.http import HttpService, HttpSinkOptions, parse_codes
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.http import HttpSink, HttpSinkBuilder, HttpSinkRequestEntry
from penstock.sql.data.errors import ValidationError
from penstock.testing.connectors import SINK_CASES, SinkUnderTest, check_sink

SINGLE = {"http.sink.writer.request.mode": "single"}


def to_entry(record: tuple[int, int]) -> HttpSinkRequestEntry:
    return HttpSinkRequestEntry("POST", json.dumps(record).encode(), record[0])


def build(server: HttpServer, properties: dict[str, str] | None = None, **settings: int) -> HttpSink[Any]:
    builder: HttpSinkBuilder = HttpSink.builder().set_endpoint_url(f"{server.url}/rows?k=1")
    builder = builder.set_element_converter(to_entry).set_max_time_in_buffer_ms(20)
    for name, value in (properties or {}).items():
        builder.set_property(name, value)
    for name, number in settings.items():
        getattr(builder, f"set_{name}")(number)
    return builder.build()


def write(sink: HttpSink[Any], records: Iterable[Any]) -> None:
    settings = Configuration.from_dict({"execution.target": "local"})
    env = StreamExecutionEnvironment.get_execution_environment(settings).set_parallelism(1)
    env.from_collection(list(records)).sink_to(sink)
    env.execute()


def received(server: HttpServer) -> list[Any]:
    """The records, in the order of arrival."""
    return [tuple(record) for request in server.requests for record in json.loads(request.body)]


def test_a_request_has_an_array_of_records() -> None:
    records = [(n, n) for n in range(10)]
    with http_server() as server:
        write(build(server, {"http.sink.header.X-Of": "me"}, max_batch_size=4), records)
        assert sorted(received(server)) == records
        assert max(len(json.loads(request.body)) for request in server.requests) <= 4
        assert {(r.method, r.target, r.headers["x-of"], r.headers["content-type"]) for r in server.requests} == {
            ("POST", "/rows?k=1", "me", "application/json")
        }


def test_a_request_has_one_record_in_mode_single() -> None:
    with http_server() as server:
        write(build(server, SINGLE), [(n, n) for n in range(10)])
        assert sorted(json.loads(request.body) for request in server.requests) == [[n, n] for n in range(10)]


def test_records_of_other_methods_have_requests_of_their_own() -> None:
    entries = [HttpSinkRequestEntry(method, b"%d" % n) for n, method in enumerate(["POST", "POST", "PUT", "POST"])]
    with http_server() as server:
        sink: HttpSink[Any] = HttpSink(HttpService(server.url), settings=AsyncSinkSettings(max_time_in_buffer_ms=9_999))
        write(sink, entries)
        assert [(r.method, r.body) for r in server.requests] == [("POST", b"[0,1]"), ("PUT", b"[2]"), ("POST", b"[3]")]


def test_the_records_of_a_key_arrive_in_order_though_requests_are_refused_for_now() -> None:
    refused = Counter[str]()

    def answer(request: Received) -> Reply:
        refused["all"] += 1
        return (503, b"later", {}) if refused["all"] % 3 == 0 else accept_all(request)

    with http_server(answer) as server:
        sink = build(server, max_batch_size=5, max_in_flight_requests=4, max_attempts=100)
        write(sink, [(n % 4, n) for n in range(200)])
        taken = [
            tuple(record)
            for number, request in enumerate(server.requests, 1)
            if number % 3
            for record in json.loads(request.body)
        ]
    assert sorted(taken) == sorted((n % 4, n) for n in range(200))
    for key in range(4):
        values = [value for of_key, value in taken if of_key == key]
        assert values == sorted(values)


def reject_sevens(request: Received) -> Reply:
    return (422, b"no sevens", {}) if any(value == 7 for _, value in json.loads(request.body)) else accept_all(request)


def test_a_record_that_is_rejected_takes_no_others_with_it() -> None:
    with http_server(reject_sevens) as server:
        write(build(server, {"http.sink.failure-handler": "ignore"}), [(n, n) for n in range(20)])
        accepted = [tuple(r) for q in server.requests if reject_sevens(q)[0] == 200 for r in json.loads(q.body)]
    assert sorted(accepted) == [(n, n) for n in range(20) if n != 7]


def test_a_record_that_is_rejected_fails_the_job_otherwise_and_is_named() -> None:
    with http_server(reject_sevens) as server, pytest.raises(JobExecutionError) as error:
        write(build(server), [(n, n) for n in range(20)])
    text = str(error.value)
    assert "rejects" in text
    assert "[7, 7]" in text
    assert "status 422" in text
    assert "no sevens" in text


def test_a_service_without_access_is_asked_once() -> None:
    """Halves of the request would be refused as well."""
    with http_server(lambda _: (403, b"no", {})) as server:
        with pytest.raises(JobExecutionError):
            write(build(server), [(n, n) for n in range(20)])
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("properties", "status"),
    [
        ({"http.sink.error.code": "5XX"}, 404),
        ({"http.sink.error.code.exclude": "404"}, 404),
        ({"http.sink.error.code": "404", "http.sink.error.code.exclude": "4XX"}, 404),
    ],
)
def test_which_statuses_are_errors_is_an_option(properties: dict[str, str], status: int) -> None:
    with http_server(lambda _: (status, b"", {})) as server:
        write(build(server, properties), [(1, 1)])
        assert received(server) == [(1, 1)]


def test_a_service_that_is_away_fails_the_job_after_all_attempts() -> None:
    with http_server() as server:
        pass
    with pytest.raises(JobExecutionError) as error:
        write(build(server, max_attempts=2), [(1, 1)])
    assert "was sent 2 times (max_attempts): ConnectionRefusedError" in str(error.value)


def test_the_sink_travels_without_telling_its_headers() -> None:
    with http_server() as server:
        sink = build(server, {"http.sink.header.Authorization": "ann:pass-of-ann"})
    assert dict(sink.service.headers)["Authorization"].startswith("Basic ")
    assert "pass-of-ann" not in repr(sink.service)
    service = pickle.loads(pickle.dumps(sink.service))
    assert service == sink.service


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("http.sink.writer.request.mode", "many", "'batch' or 'single'"),
        ("http.sink.failure-handler", "retry", "'fail' or 'ignore'"),
        ("http.sink.error.code", "40", "is no status code"),
        ("http.sink.request.batch.size", "0", "a positive number"),
        ("http.security.oidc.token.request", "a=b", "set both"),
        ("sink.header.Accept", "x", "begin with http.sink."),
    ],
)
def test_properties_that_are_wrong_are_named(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        HttpSink.builder().set_endpoint_url("http://h").set_property(name, value).build()


def test_a_url_has_no_password() -> None:
    with pytest.raises(ConfigurationError, match="without user and password") as error:
        HttpSink.builder().set_endpoint_url("http://ann:pass-of-ann@h/x").build()
    assert "pass-of-ann" not in str(error.value)


def test_the_defaults_are_those_of_the_document() -> None:
    options = HttpSinkOptions.of({})
    assert (options.is_batch, options.errors, options.ignores_rejected) == (True, parse_codes("4XX,5XX"), False)
    assert options == HttpSinkOptions()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["batch", "single"])
@pytest.mark.parametrize("case", SINK_CASES)
def test_the_sink_keeps_the_rules(case: str, mode: str) -> None:
    records = [(n % 4, n) for n in range(12)]
    with http_server() as server:

        def prepare() -> SinkUnderTest:
            server.requests.clear()
            sink = build(server, {"http.sink.writer.request.mode": mode}, max_time_in_buffer_ms=60_000)
            return SinkUnderTest(sink, records, read, set_of, lambda record: record[0])

        def read() -> list[Any]:
            parts = [json.loads(request.body) for request in server.requests]
            return [tuple(record) for part in parts for record in (part if mode == "batch" else [part])]

        def set_of(found: Iterable[Any]) -> list[Any]:
            return sorted(set(found))

        check_sink(prepare, case, places=4)


# --- tables ---------------------------------------------------------------------------------------------------------


def insert(
    server: HttpServer,
    columns: str,
    query: str,
    more: str = "",
    connector: str = "http-async-sink",
    table_format: str = "json",
) -> None:
    tables = create_tables(parallelism_default="1")
    tables.execute_sql(
        f"CREATE TABLE t ({columns}) WITH ('connector' = '{connector}', 'url' = '{server.url}/rows', "
        f"'sink.flush-buffer.timeout' = '20', 'format' = '{table_format}'{more})"
    )
    tables.execute_sql(f"INSERT INTO t {query}").wait()


ROWS = "VALUES (1, 'tea', 1.5), (2, CAST(NULL AS STRING), 2)"


@pytest.mark.parametrize(("connector", "prefix"), [("http-async-sink", ""), ("http-sink", "gid.connector.")])
def test_rows_are_objects_of_an_array(connector: str, prefix: str) -> None:
    more = f", '{prefix}http.sink.header.X-Of' = 'me', 'insert-method' = 'PUT'"
    with http_server() as server:
        insert(server, "id INT, name STRING, price DECIMAL(5, 2)", ROWS, more, connector)
        rows = [row for request in server.requests for row in json.loads(request.body)]
        assert {(request.method, request.headers["x-of"]) for request in server.requests} == {("PUT", "me")}
    assert rows == [{"id": 1, "name": "tea", "price": 1.5}, {"id": 2, "name": None, "price": 2}]


KEYED = "k INT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED"


def test_a_table_with_a_key_sends_the_new_rows_of_updates_in_order() -> None:
    query = "SELECT k, COUNT(*) FROM (VALUES (1), (2), (1), (1)) AS s (k) GROUP BY k"
    with http_server() as server:
        insert(server, KEYED, query, ", 'delete-method' = 'DELETE'")
        rows = [tuple(row.values()) for request in server.requests for row in json.loads(request.body)]
    assert {row for row in rows if row[0] == 2} == {(2, 1)}
    assert [n for k, n in rows if k == 1][-1] == 3


GONE = "SELECT k, n FROM (SELECT k, COUNT(*) AS n FROM (VALUES (1), (1)) AS s (k) GROUP BY k) WHERE n < 2"


def test_updates_and_deletes_need_a_method_or_a_format_that_has_them() -> None:
    with http_server() as server, pytest.raises(ValidationError, match="doesn't support consuming update"):
        insert(server, KEYED, GONE)
    with http_server() as server:
        insert(server, KEYED, GONE, ", 'delete-method' = 'DELETE', 'http.sink.writer.request.mode' = 'single'")
        last = server.requests[-1]
        assert (last.method, json.loads(last.body)) == ("DELETE", {"k": 1, "n": 1})
    with http_server() as server:
        insert(server, "k INT, n BIGINT", GONE, table_format="debezium-json")
        rows = [row for request in server.requests for row in json.loads(request.body)]
    assert [row["op"] for row in rows] == ["c", "d"]
    for columns, table_format, message in (
        ("k INT, n BIGINT", "json", "primary key"),
        (KEYED, "debezium-json", "itself"),
    ):
        with http_server() as server, pytest.raises(ValidationError, match=message):
            insert(server, columns, GONE, ", 'delete-method' = 'PUT'", table_format=table_format)


def test_other_formats_have_single_requests() -> None:
    with http_server() as server:
        columns, rows = "id INT, name STRING", "VALUES (1, 'tea')"
        with pytest.raises(ValidationError, match="format 'csv' is no JSON, so set it to single"):
            insert(server, columns, rows, table_format="csv")
        insert(server, columns, rows, ", 'http.sink.writer.request.mode' = 'single'", table_format="csv")
        assert [request.body for request in server.requests] == [b"1,tea"]
