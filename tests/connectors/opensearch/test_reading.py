"""The scan and the look-ups of tables, and the source of documents, on a real server of OpenSearch."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.connectors.opensearch.test_server import VALUES, run
from tests.connectors.opensearch.test_tables import ddl
from tests.connectors.postgres.test_tables import collected
from tests.servers.opensearch import Opensearch, opensearch_server

from penstock.base.errors import ConfigurationError, JobExecutionError, OperationError, UnsupportedError
from penstock.connectors.conditions import Condition
from penstock.connectors.opensearch import Service
from penstock.connectors.opensearch_source import SearchClient, resolve_condition
from penstock.datastream.connectors.elasticsearch import Document, OpensearchSource
from penstock.table import EnvironmentSettings, TableEnvironment
from penstock.testing.connectors import SOURCE_CASES, SourceUnderTest, check_source
from penstock.testing.connectors.source_run import SourceRun

WIDE = "12345678901234567890.123456789012345678"
#: the fields of a mapping, and what a condition becomes; None if the index cannot answer it
MAPPING = {
    "n": {"type": "integer"},
    "d": {"type": "double"},
    "k": {"type": "keyword"},
    "t": {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 4}}},
    "plain": {"type": "text"},
    "at": {"type": "date"},
    "b": {"type": "boolean", "null_value": False},
    "off": {"type": "integer", "index": False},
    "bad": {"type": "integer", "ignore_malformed": True},
}


def tables(mode: str = "STREAMING") -> TableEnvironment:
    settings = EnvironmentSettings.in_streaming_mode()
    environment = TableEnvironment.create(settings)
    environment.get_config().set("execution.target", "local")
    environment.get_config().set("table.exec.sink.upsert-materialize", "NONE")
    environment.get_config().set("table.local-time-zone", "UTC")
    environment.get_config().set("execution.runtime-mode", mode)
    return environment


def fill(server: Opensearch, index: str, documents: dict[str, Any], **body: Any) -> None:
    """An index with these documents; texts are taken as JSON."""
    server.call("PUT", f"/{index}", {"settings": {"number_of_replicas": 0, "number_of_shards": 1}, **body})
    for id, document in documents.items():
        content = document if isinstance(document, str) else json.dumps(document)
        put(server, index, id, content)
    server.call("POST", f"/{index}/_refresh")


def put(server: Opensearch, index: str, id: str, content: str) -> None:
    import urllib.request

    request = urllib.request.Request(
        f"{server.url}/{index}/_doc/{id}", content.encode(), {"Content-Type": "application/json"}, method="PUT"
    )
    urllib.request.urlopen(request, timeout=30).close()


def select(statement: str, query: str, mode: str = "STREAMING") -> list[Any]:
    environment = tables(mode)
    environment.execute_sql(statement)
    return sorted(collected(environment, query), key=repr)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (Condition("in", (), "n", (1, 2), type="integer"), {"terms": {"n": [1, 2]}}),
        (Condition("in", (), "n", (1 << 40,), type="integer"), None),
        (Condition("not in", (), "n", (1,), type="integer"), {"bool": {"must_not": [{"terms": {"n": [1]}}]}}),
        (Condition("range", (), "n", (1,), "gt", "integer"), {"range": {"n": {"gt": 1}}}),
        (Condition("range", (), "d", (0.0,), "gte", "double"), None),  # the index tells -0.0 from 0.0
        (Condition("in", (), "k", ("x",), type="text"), {"terms": {"k": ["x"]}}),
        (Condition("in", (), "t", ("abcd",), type="text"), {"terms": {"t.keyword": ["abcd"]}}),
        (Condition("in", (), "t", ("abcde",), type="text"), None),  # too long for the index
        (Condition("in", (), "t", ("\U0001f375" * 3,), type="text"), None),  # counted as UTF-16
        (Condition("in", (), "plain", ("x",), type="text"), None),
        (Condition("exists", (), "k", type="text"), {"exists": {"field": "k"}}),
        (Condition("exists", (), "t", type="text"), None),
        (Condition("missing", (), "n", type="integer"), {"bool": {"must_not": [{"exists": {"field": "n"}}]}}),
        (Condition("missing", (), "b", type="boolean"), None),
        (
            Condition("range", (), "at", (1_500_000,), "gt", "time"),
            {"range": {"at": {"gte": 1, "format": "epoch_millis"}}},
        ),
        (
            Condition("range", (), "at", (1_500_000,), "lt", "time"),
            {"range": {"at": {"lte": 2, "format": "epoch_millis"}}},
        ),
        (Condition("in", (), "off", (1,), type="integer"), None),
        (Condition("in", (), "bad", (1,), type="integer"), None),
        (Condition("in", (), "unknown", (1,), type="integer"), None),
    ],
)
def test_conditions_become_queries_where_the_index_answers_alike(condition: Condition, expected: Any) -> None:
    assert resolve_condition(condition, MAPPING) == expected
    known = Condition("in", (), "n", (1,), type="integer")
    query = {"terms": {"n": [1]}}
    both = {"bool": {"filter": [query, *([expected] if expected else [])]}}
    assert resolve_condition(Condition("and", (known, condition)), MAPPING) == both
    either = {"bool": {"should": [query, expected]}} if expected else None
    assert resolve_condition(Condition("or", (known, condition)), MAPPING) == either


@pytest.mark.slow
def test_what_is_written_is_read(server: Opensearch) -> None:
    """Every type, with its extremes and NULL; a decimal keeps the digits that a double does not have."""
    index = "read"
    columns = ", ".join(f"c{number} {kind}" for number, (kind, _, _) in enumerate(VALUES))
    values = ", ".join(expression for _, expression, _ in VALUES)
    nulls = ", ".join(f"CAST(NULL AS {kind})" for kind, _, _ in VALUES)
    server.call("PUT", f"/{index}", {"mappings": {"dynamic": False}})
    statement = ddl(f"id INT, {columns}, PRIMARY KEY (id) NOT ENFORCED", server.url, index=index)
    run(statement, f"INSERT INTO t VALUES (1, {values}), (2, {nulls})")
    server.call("POST", f"/{index}/_refresh")
    first, second = select(statement, "SELECT * FROM t")
    environment = tables()
    (expected,) = collected(environment, f"SELECT 1, {values}")
    assert first == expected
    assert second == (2, *[None] * len(VALUES))


@pytest.mark.slow
def test_digits_are_kept_where_the_service_would_cut_them(server: Opensearch) -> None:
    fill(server, "digits", {"1": f'{{"d": {WIDE}, "s": 1.10, "n": 7}}'})
    client = SearchClient(Service((server.url,)), "the test")
    (cut,) = json.loads(client.ask("POST", "/digits/_search", {"_source": ["d"]}), parse_float=str)["hits"]["hits"]
    client.close()
    assert cut["_source"] == {"d": "1.2345678901234567E19"}  # the surprise that this guards against
    columns = "d DECIMAL(38, 18), s STRING, n BIGINT"
    assert select(ddl(columns, server.url, index="digits"), "SELECT d FROM t") == [(Decimal(WIDE),)]
    assert select(ddl(columns, server.url, index="digits"), "SELECT s FROM t") == [("1.10",)]
    assert select(ddl(columns, server.url, index="digits"), "SELECT n FROM t") == [(7,)]


@pytest.mark.slow
def test_conditions_columns_and_limits_reach_the_service(server: Opensearch) -> None:
    documents = {str(n): {"n": n, "s": f"x{n % 3}", "at": f"2020-11-{n + 10:02}T00:00:00Z"} for n in range(20)}
    fill(server, "some", documents)
    columns = "n BIGINT, s STRING, `at` TIMESTAMP_LTZ(3), absent STRING, _id STRING METADATA VIRTUAL"
    statement = ddl(columns, server.url, index="some", json__timestamp_format__standard="ISO-8601")
    queries = {
        "n > 3 AND s = 'x1'": [n for n in range(20) if n > 3 and n % 3 == 1],
        "n IN (1, 5, 77) OR s = 'x2'": [n for n in range(20) if n in (1, 5) or n % 3 == 2],
        "n <> 4 AND absent IS NULL": [n for n in range(20) if n != 4],
        "`at` >= TO_TIMESTAMP_LTZ(1606608000000, 3)": [19],
        "n = 3 AND _id = '3'": [3],
        "n = 3 AND _id = '4'": [],
        "CHAR_LENGTH(s) = 2 AND 18 <= n": [18, 19],
    }
    for condition, expected in queries.items():
        rows = select(statement, f"SELECT n FROM t WHERE {condition}")
        assert sorted(n for (n,) in rows) == expected, condition
    environment = tables()
    environment.execute_sql(statement)
    plan = environment.explain_sql("SELECT n FROM t WHERE n > 3 AND CHAR_LENGTH(s) = 2")
    assert "filter" in plan
    assert len(select(statement, "SELECT n FROM t LIMIT 3")) == 3
    assert select(statement, "SELECT COUNT(*) FROM t", "BATCH") == [(20,)]


@pytest.mark.slow
def test_patterns_aliases_and_shards(server: Opensearch) -> None:
    for name, numbers in {"logs-a": range(30), "logs-b": range(30, 40)}.items():
        fill(
            server,
            name,
            {str(n): {"n": n} for n in numbers},
            settings={"number_of_shards": 3, "number_of_replicas": 0},
        )
    alias = {"index": "logs-*", "alias": "few", "filter": {"range": {"n": {"gte": 25}}}}
    server.call("POST", "/_aliases", {"actions": [{"add": alias}]})
    columns = "n BIGINT, _index STRING METADATA VIRTUAL"
    rows = select(ddl(columns, server.url, index="logs-*", scan__partition__documents="4"), "SELECT * FROM t")
    assert [n for n, _ in sorted(rows)] == list(range(40))
    assert {index for _, index in rows} == {"logs-a", "logs-b"}
    assert len(select(ddl(columns, server.url, index="few"), "SELECT * FROM t")) == 15
    server.call("PUT", "/nothing")
    assert select(ddl(columns, server.url, index="nothing"), "SELECT * FROM t") == []
    with pytest.raises(JobExecutionError, match=r"index 'gone': the service refuses .*status 404"):
        select(ddl(columns, server.url, index="gone"), "SELECT * FROM t")


def kit_source(server: Opensearch) -> OpensearchSource:
    return OpensearchSource(server.url, index="kit", fetch_size=3, deserialize=lambda document: document.read()["n"])


@pytest.mark.slow
@pytest.mark.parametrize("case", SOURCE_CASES)
def test_the_source_keeps_the_rules(server: Opensearch, case: str) -> None:
    shards = {"number_of_shards": 2, "number_of_replicas": 0}
    server.call("DELETE", "/kit?ignore_unavailable=true")
    fill(server, "kit", {str(n): {"n": n} for n in range(11)}, settings=shards)

    def prepare() -> SourceUnderTest:
        return SourceUnderTest(kit_source(server), list(range(11)), real_time=True)

    check_source(prepare, case, batch_sizes=[2], places=3)


def advance_to(run: SourceRun, count: int) -> None:
    for _ in range(20_000):
        if len(run.arrived) >= count:
            return
        run.advance(2)
    raise AssertionError(f"there are only {run.all_values}")


@pytest.mark.slow
def test_a_scan_sees_one_moment_and_goes_on_when_that_is_forgotten(server: Opensearch) -> None:
    fill(server, "moment", {f"{n}": {"n": n} for n in range(20)})
    source = OpensearchSource(server.url, index="moment", fetch_size=4, deserialize=lambda each: each.read()["n"])
    run_ = SourceRun(source, 1, real_time=True)
    advance_to(run_, 4)
    put(server, "moment", "15", '{"n": 115}')
    put(server, "moment", "new", '{"n": 100}')
    server.call("POST", "/moment/_refresh")
    snapshot = run_.snapshot()
    advance_to(run_, 20)
    assert run_.all_values == list(range(20))  # as of its start
    server.call("DELETE", "/_search/point_in_time/_all")
    run_.restart(snapshot)
    advance_to(run_, 21)
    assert run_.all_values == [*range(15), *range(16, 20), 115, 100]
    run_.close()


@pytest.mark.slow
def test_a_scan_goes_on_when_the_service_restarts(tmp_path: Path) -> None:
    with opensearch_server(tmp_path) as own:
        fill(own, "restart", {f"{n}": {"n": n} for n in range(40)})
        source = OpensearchSource(own.url, index="restart", fetch_size=2, deserialize=lambda each: each.read()["n"])
        run_ = SourceRun(source, 1, real_time=True)
        advance_to(run_, 4)
        snapshot = run_.snapshot()
        run_.close()
        own.kill()
        own.start()
        own.await_up()
        run_.restart(snapshot)
        advance_to(run_, 40)
        assert run_.all_values == list(range(40))
        run_.close()


@pytest.fixture
def shop(server: Opensearch) -> Opensearch:
    server.call("DELETE", "/cups?ignore_unavailable=true")
    mapping = {"properties": {"name": {"type": "text"}, "price": {"type": "double"}}}
    cups = {f"{n}_{n % 2 == 0}".lower(): f'{{"n": {n}, "even": {str(n % 2 == 0).lower()}, "kind": "k{n % 3}", '
            f'"name": "A cup", "price": {n}.10}}' for n in range(6)}  # fmt: skip
    fill(server, "cups", cups, mappings=mapping)
    return server


FULL = {"lookup__cache": "FULL", "lookup__full-cache__periodic-reload__interval": "1 h"}
CUPS = "n BIGINT, even BOOLEAN, kind STRING, name STRING, price DECIMAL(10, 2)"


def look_up(server: Opensearch, columns: str, on: str, more: dict[str, str] | None = None) -> list[Any]:
    environment = tables()
    environment.execute_sql(
        "CREATE TABLE probes (a BIGINT, e BOOLEAN, s STRING, m STRING, p AS PROCTIME()) WITH ("
        "'connector' = 'filesystem', 'path' = '/nowhere', 'format' = 'json')"
    )
    environment.execute_sql(ddl(columns, server.url, index="cups", **(more or {})))
    probes = (
        "(SELECT *, PROCTIME() AS p FROM (VALUES (1, FALSE, 'k1', 'A cup'), (2, TRUE, 'k2', 'x'), (9, TRUE, 'k9', 'x'),"
        " (CAST(NULL AS INT), TRUE, CAST(NULL AS STRING), 'x'), (1, FALSE, 'k1', 'A cup')) AS v (a, e, s, m))"
    )
    query = f"SELECT a, t.n, t.price FROM {probes} AS q LEFT JOIN t FOR SYSTEM_TIME AS OF q.p ON {on}"
    return sorted(collected(environment, query), key=repr)


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["NONE", "PARTIAL", "FULL"])
def test_look_ups_by_ids(shop: Opensearch, cache: str) -> None:
    more = {"NONE": {}, "PARTIAL": {"lookup__cache": "PARTIAL", "lookup__partial-cache__max-rows": "10"}, "FULL": FULL}
    if cache == "NONE":  # a document is found by its id before the index has refreshed
        shop.call("PUT", "/cups/_settings", {"index": {"refresh_interval": "-1"}})
        put(shop, "cups", "9_true", '{"n": 9, "even": true, "price": 9.10}')
    expected = [(None, None, None), (1, 1, Decimal("1.10")), (1, 1, Decimal("1.10")), (2, 2, Decimal("2.10"))]
    last = (9, 9, Decimal("9.10")) if cache == "NONE" else (9, None, None)
    key = f"{CUPS}, PRIMARY KEY (n, even) NOT ENFORCED"
    assert look_up(shop, key, "t.n = q.a AND t.even = q.e", more[cache]) == sorted([*expected, last], key=repr)


@pytest.mark.slow
def test_look_ups_by_fields(shop: Opensearch) -> None:
    def rows(*numbers: int) -> list[Any]:
        return [(n, Decimal(f"{n}.10")) for n in numbers]

    found = look_up(shop, CUPS, "t.kind = q.s")
    assert [row[1:] for row in found if row[0] == 1] == [*rows(1), *rows(1), *rows(4), *rows(4)]
    assert [row[1:] for row in found if row[0] == 2] == rows(2, 5)
    found = look_up(shop, CUPS, "t.kind = q.s AND t.even = q.e")
    assert [row[1:] for row in found if row[0] == 1] == [*rows(1), *rows(1)]
    assert [row[1:] for row in found if row[0] == 9] == [(None, None)]
    with pytest.raises(JobExecutionError, match="field 'name' of index 'cups' finds no STRING exactly"):
        look_up(shop, CUPS, "t.name = q.m")
    found = look_up(shop, CUPS, "t.name = q.m", FULL)
    assert len([row for row in found if row[0] == 1]) == 12


def test_tables_that_cannot_be_read(tmp_path: Path) -> None:
    url = "http://127.0.0.1:9"
    by_day = ddl("d DATE, n INT", url, index="days-{d|yyyy}")
    with pytest.raises(UnsupportedError, match=r"declare another table with the indexes to read, such as 'days-\*'"):
        select(by_day, "SELECT * FROM t")
    environment = tables()
    environment.execute_sql(ddl("n INT, d DECIMAL(5, 2)", url, index="i"))
    probes = "(SELECT 1.5 AS d, PROCTIME() AS p) AS q"
    with pytest.raises(
        UnsupportedError, match=r"column 'd' of table .* is DECIMAL\(5, 2\), by which the service finds"
    ):
        collected(environment, f"SELECT * FROM {probes} JOIN t FOR SYSTEM_TIME AS OF q.p ON t.d = q.d")
    with pytest.raises(ConfigurationError, match="an answer has at most 10000"):
        OpensearchSource(url, index="i", fetch_size=20_000)
    with pytest.raises(ConfigurationError, match="the name of an index"):
        OpensearchSource(url, index="")
    client = SearchClient(Service((url,), "u", "secret-9"), "the test", retries=1, pause_ms=1)
    with pytest.raises(OperationError, match="does not answer") as raised:
        client.ask("GET", "/")
    client.close()
    assert "secret-9" not in str(raised.value)


def test_documents_without_their_content_are_an_error() -> None:
    assert Document("i", "1", b'{"a":[0.10,{"b":1e400}]}').read() == {"a": [Decimal("0.10"), {"b": Decimal("1e400")}]}
