"""The connector `http` of tables: what requests it makes of keys, and what it makes of answers."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from tests.connectors.postgres.test_tables import collected, environment
from tests.servers.http import HttpServer, Received, Reply, http_server

from penstock.base.errors import ConfigurationError, JobExecutionError, UnsupportedError
from penstock.base.secrets import hide
from penstock.connectors.http import RetryStrategy, parse_codes
from penstock.sql.data.errors import ValidationError
from penstock.table import TableEnvironment


def prepare(server: HttpServer, columns: str, more: str = "", connector: str = "http") -> TableEnvironment:
    tables = environment(parallelism_default="1")
    tables.execute_sql(
        f"CREATE TABLE people ({columns}) WITH ('connector' = '{connector}', 'url' = '{server.url}/people', "
        f"'format' = 'json'{more})"
    )
    tables.execute_sql(
        "CREATE TABLE numbers (id INT, pt AS PROCTIME()) WITH ('connector' = 'datagen', 'fields.id.kind' = "
        "'sequence', 'fields.id.start' = '1', 'fields.id.end' = '4', 'rows-per-second' = '100000')"
    )
    tables.execute_sql(
        "CREATE VIEW orders AS SELECT id, CASE id WHEN 1 THEN 'a/b' WHEN 3 THEN CAST(NULL AS STRING) ELSE 'ü' END AS "
        "name, CAST(id AS DECIMAL(5, 2)) AS price, id > 1 AS flag, pt FROM numbers"
    )
    return tables


def join(tables: TableEnvironment, columns: str, on: str = "p.id = o.id", kind: str = "") -> list[tuple[Any, ...]]:
    return collected(
        tables, f"SELECT o.id, {columns} FROM orders o {kind} JOIN people FOR SYSTEM_TIME AS OF o.pt AS p ON {on}"
    )


def echo(request: Received) -> Reply:
    """A row that says what was asked."""
    return 200, json.dumps({"asked": f"{request.method} {request.target} {request.body.decode()}"}).encode(), {}


@pytest.mark.parametrize("polling", ["false", "true"])
def test_keys_are_parameters_of_a_get(polling: str) -> None:
    with http_server(echo) as server:
        tables = prepare(server, "id INT, name STRING, asked STRING", f", 'asyncPolling' = '{polling}'")
        found = join(tables, "p.id, p.name, p.asked", "p.id = o.id AND p.name = o.name")
        accepts = {request.headers["accept"] for request in server.requests}
    assert found == [
        (1, 1, "a/b", "GET /people?id=1&name=a%2Fb "),
        (2, 2, "ü", "GET /people?id=2&name=%C3%BC "),
        (4, 4, "ü", "GET /people?id=4&name=%C3%BC "),
    ]
    assert accepts == {"application/json"}


def test_keys_are_an_object_in_the_body_of_a_post() -> None:
    with http_server(echo) as server:
        tables = prepare(
            server,
            "price DECIMAL(5, 2), flag BOOLEAN, asked STRING",
            ", 'lookup-method' = 'POST', 'http.source.lookup.header.X-Trace' = 'on'",
        )
        found = join(tables, "p.asked", "p.price = o.price AND p.flag = o.flag AND o.id = 1")
        assert server.requests[0].headers["x-trace"] == "on"
        assert server.requests[0].headers["content-type"] == "application/json"
    assert found == [(1, 'POST /people {"price":1,"flag":false}')]


def test_keys_have_their_place_in_path_query_and_body() -> None:
    more = (
        ", 'lookup-method' = 'PUT', 'http.request.url-map' = 'name:who', 'http.request.query-param-fields' = 'id', "
        '\'http.request.body-template\' = \'{"user": {"id": {{id}}, "names": [{{name}}]}, "v": "1"}\''
    )
    with http_server(echo) as server:
        more = more + ", 'http.source.lookup.request.timeout' = '5'"
        tables = prepare(server, "id INT, name STRING, asked STRING", more)
        tables.execute_sql(f"ALTER TABLE people SET ('url' = '{server.url}/people/{{who}}?k=1')")
        found = join(tables, "p.asked", "p.id = o.id AND p.name = o.name AND o.id = 1")
    assert found == [(1, 'PUT /people/a%2Fb?k=1&id=1 {"user": {"id": 1, "names": ["a/b"]}, "v": "1"}')]


def test_equal_requests_of_a_batch_are_sent_once() -> None:
    with http_server(echo) as server:
        tables = prepare(server, "name STRING, asked STRING")
        assert len(join(tables, "p.asked", "p.name = 'x' AND o.id > 0")) == 4
        assert len(server.requests) == 1


def test_an_answer_may_have_several_rows_or_none() -> None:
    def answer(request: Received) -> Reply:
        number = int(dict(parse_qsl(urlsplit(request.target).query))["id"])
        return 200, json.dumps([{"v": part} for part in range(number - 1)]).encode(), {}

    with http_server(answer) as server:
        tables = prepare(server, "id INT, v INT", ", 'http.source.lookup.result-type' = 'array'")
        assert join(tables, "p.v") == [(2, 0), (3, 0), (3, 1), (4, 0), (4, 1), (4, 2)]
        assert join(tables, "p.v", kind="LEFT")[0] == (1, None)


def by_id(answers: dict[int, Reply]) -> Any:
    def answer(request: Received) -> Reply:
        return answers.get(int(dict(parse_qsl(urlsplit(request.target).query))["id"]), (200, b'{"v": 7}', {}))

    return answer


STATES = (
    "id INT, v INT, error STRING METADATA FROM 'error-string' VIRTUAL, status INT METADATA FROM 'http-status-code' "
    "VIRTUAL, headers MAP<STRING, ARRAY<STRING>> METADATA FROM 'http-headers-map' VIRTUAL, state STRING METADATA FROM "
    "'http-completion-state' VIRTUAL"
)


def test_failures_are_told_in_metadata_columns_when_the_job_is_to_go_on() -> None:
    answers = {1: (404, b"", {}), 2: (418, b"a teapot", {"X-Why": "tea"}), 3: (200, b"{no", {})}
    more = ", 'http.source.lookup.continue-on-error' = 'true', 'http.source.lookup.ignored-response-codes' = '404'"
    with http_server(by_id(answers)) as server:
        tables = prepare(server, STATES, more)
        found = join(tables, "p.v, p.error, p.status, p.headers['x-why'], p.state")
    assert found == [
        (1, None, None, 404, None, "IGNORE_STATUS_CODE"),
        (2, None, "status 418 I'm a Teapot: a teapot", 418, ["tea"], "HTTP_ERROR_STATUS"),
        (3, None, "{no", 200, None, "UNABLE_TO_DESERIALIZE_RESPONSE"),
        (4, 7, None, 200, None, "SUCCESS"),
    ]


def test_a_service_that_is_away_is_told_when_the_job_is_to_go_on() -> None:
    with http_server() as server:
        pass
    more = ", 'http.source.lookup.continue-on-error' = 'true', 'lookup.max-retries' = '0'"
    found = join(prepare(server, STATES, more), "p.status, p.state, p.error")
    assert [(row[1], row[2]) for row in found] == [(None, "EXCEPTION")] * 4
    assert "ConnectionRefusedError" in found[0][3]


def test_an_ignored_answer_is_no_row_without_metadata_columns() -> None:
    with http_server(by_id({1: (404, b"{}", {})})) as server:
        tables = prepare(server, "id INT, v INT", ", 'http.source.lookup.ignored-response-codes' = '404'")
        assert join(tables, "p.v") == [(2, 7), (3, 7), (4, 7)]


@pytest.mark.parametrize(
    ("answer", "message"),
    [((418, b"a teapot", {}), "failed after 1 attempts: status 418"), ((200, b"{no", {}), "an answer cannot be read")],
)
def test_other_answers_fail_the_job(answer: Reply, message: str) -> None:
    with http_server(by_id({2: answer})) as server, pytest.raises(JobExecutionError) as error:
        join(prepare(server, "id INT, v INT"), "p.v")
    causes: list[str] = []
    cause: BaseException | None = error.value
    while cause is not None:
        causes.append(str(cause))
        cause = cause.__cause__
    assert any(message in text for text in causes), causes


@pytest.mark.parametrize(("connector", "prefix"), [("http", ""), ("rest-lookup", "gid.connector.")])
def test_answers_for_now_are_asked_for_again(connector: str, prefix: str) -> None:
    seen: list[str] = []

    def answer(request: Received) -> Reply:
        seen.append(request.target)
        return (501, b"", {}) if seen.count(request.target) < 3 else (200, b'{"v": 7}', {})

    about = f"'{prefix}http.source.lookup"
    more = f", {about}.retry-codes' = '5XX', {about}.retry-strategy.fixed-delay.delay' = '1 ms'"
    with http_server(answer) as server:
        assert join(prepare(server, "id INT, v INT", more, connector), "p.v") == [(n, 7) for n in (1, 2, 3, 4)]
    assert len(seen) == 12


def test_requests_are_repeated_as_often_as_the_option_says_and_no_more() -> None:
    more = ", 'lookup.max-retries' = '2', 'http.source.lookup.retry-strategy.fixed-delay.delay' = '1 ms'"
    with http_server(lambda _: (503, b"", {})) as server:
        with pytest.raises(JobExecutionError):
            join(prepare(server, "id INT, v INT", more), "p.v", "p.id = o.id AND o.id = 1")
        assert len(server.requests) == 3


def test_rows_are_cached() -> None:
    more = ", 'lookup.cache' = 'PARTIAL', 'lookup.partial-cache.max-rows' = '10'"
    with http_server(echo) as server:
        tables = prepare(server, "id INT, asked STRING", more)
        tables.execute_sql("ALTER TABLE numbers SET ('fields.id.end' = '3000')")
        assert len(join(tables, "p.asked", "p.id = o.id / 1000")) == 3_000
        assert len(server.requests) == 4


def test_a_token_comes_from_the_endpoint_of_tokens() -> None:
    def answer(request: Received) -> Reply:
        if request.target == "/token":
            return 200, b'{"access_token": "t0ken-of-the-test", "expires_in": 300}', {}
        return (200, b'{"v": 7}', {}) if request.headers.get("authorization") else (401, b"", {})

    with http_server(answer) as server:
        more = (
            f", 'http.security.oidc.token.endpoint.url' = '{server.url}/token', 'http.security.oidc.token.request' = "
            "'grant_type=client_credentials&client_secret=s3cret-of-the-test'"
        )
        assert len(join(prepare(server, "id INT, v INT", more), "p.v")) == 4
        asked = [request for request in server.requests if request.target == "/token"]
        assert {request.headers.get("authorization") for request in server.requests} == {
            None,
            "Bearer t0ken-of-the-test",
        }
    assert 1 <= len(asked) <= 4
    assert b"client_secret=s3cret-of-the-test" in asked[0].body
    assert "t0ken" not in hide("t0ken-of-the-test s3cret-of-the-test")


def test_a_login_is_a_basic_login_and_hidden() -> None:
    with http_server(echo) as server:
        tables = prepare(
            server, "id INT, asked STRING", ", 'http.source.lookup.header.Authorization' = 'ann:pass-of-ann'"
        )
        join(tables, "p.asked")
        assert server.requests[0].headers["authorization"] == "Basic YW5uOnBhc3Mtb2YtYW5u"
    assert "pass-of-ann" not in hide("it was pass-of-ann")


@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        (", 'http.request.url-map' = 'id:x'", ValidationError, "there is no {x} in the URL"),
        (", 'http.request.query-param-fields' = 'v'", ValidationError, "not among those that the join compares: id"),
        (", 'http.request.body-template' = '{{id}}'", ValidationError, "a request by GET has no body"),
        (", 'http.source.lookup.success-codes' = '!2XX'", ValidationError, "'!2XX' is no status code"),
        (", 'http.source.lookup.proxy.host' = 'p'", UnsupportedError, "there is no way through a proxy"),
        (", 'http.source.lookup.http-version' = 'HTTP_2'", UnsupportedError, "only HTTP_1_1"),
        (", 'http.security.cert.server' = '/no/such.pem'", ValidationError, "certificates"),
        (", 'http.source.lookup.query-creators' = 'x'", ValidationError, "Unsupported options"),
    ],
)
def test_options_that_are_wrong_are_named(more: str, error: type[Exception], message: str) -> None:
    with http_server() as server, pytest.raises(error, match=message):
        join(prepare(server, "id INT, v INT", more), "p.v")


def test_a_table_of_a_service_is_neither_read_as_a_whole_nor_written() -> None:
    with http_server() as server:
        tables = prepare(server, "id INT, v INT")
        with pytest.raises(ValidationError, match="cannot be read as a whole: join it FOR SYSTEM_TIME"):
            tables.execute_sql("SELECT * FROM people")
        with pytest.raises(ValidationError, match="written with 'connector' = 'http-async-sink'"):
            tables.execute_sql("INSERT INTO people VALUES (1, 2)")


def test_lists_of_status_codes() -> None:
    assert parse_codes("2XX, 404,!203") == {*range(200, 300), 404} - {203}
    assert parse_codes("") == set()
    for text in ("600", "20", "!2XX", "abc"):
        with pytest.raises(ConfigurationError, match="is no status code"):
            parse_codes(text)


def test_delays_grow_up_to_the_longest() -> None:
    strategy = RetryStrategy(5, 100, 300, 1.5)
    assert [strategy.delay(attempt) for attempt in (1, 2, 3, 4)] == [100, 150, 225, 300]
