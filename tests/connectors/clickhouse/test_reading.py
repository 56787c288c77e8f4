"""The scan and the look-ups of tables, and the source of rows, on ClickHouse's engine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pyarrow as pa
import pytest
from tests.connectors.clickhouse.test_tables import COLUMNS, NULLS, TYPES, VALUES, ddl
from tests.connectors.postgres.test_tables import collected
from tests.connectors.redis.test_redis import environment as local_environment
from tests.connectors.redis.test_tables import environment
from tests.servers.clickhouse import ClickHouse, clickhouse_server

from penstock.base.errors import ConfigurationError, JobExecutionError, OperationError, UnsupportedError
from penstock.common import WatermarkStrategy
from penstock.connectors import clickhouse_source
from penstock.connectors.clickhouse import ClickHouseTable, ServerType
from penstock.connectors.clickhouse_source import (
    KeyLookup,
    Query,
    TableScan,
    choose_type,
    resolve_condition,
    select,
    to_columns,
)
from penstock.connectors.conditions import Condition, Partitions
from penstock.datastream.connectors.clickhouse import ClickHouseSource
from penstock.table import TableEnvironment
from penstock.testing.connectors import SOURCE_CASES, SourceUnderTest, check_source
from penstock.testing.connectors.source_run import SourceRun


@pytest.fixture(scope="module", name="running")
def fixture_running() -> Iterator[ClickHouse]:
    with clickhouse_server() as started:
        yield started


@pytest.fixture
def server(running: ClickHouse) -> ClickHouse:
    running.call("DROP TABLE IF EXISTS t")
    return running


def tables() -> TableEnvironment:
    created = environment()
    created.get_config().set("table.local-time-zone", "UTC")
    return created


def select_rows(statement: str, query: str) -> list[Any]:
    created = tables()
    created.execute_sql(statement)
    return sorted(collected(created, query), key=repr)


KINDS = {name: ServerType.parse(text) for name, text in {
    "n": "Nullable(Int32)", "u": "UInt64", "d": "Float64", "f": "Float32", "s": "LowCardinality(Nullable(String))",
    "e": "Enum8('a' = 1)", "b": "Bool", "at": "DateTime", "fine": "DateTime64(3, 'UTC')", "m": "Map(String, Int32)",
}.items()}  # fmt: skip


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (Condition("in", (), "n", (1, 2), type="integer"), "`n` IN (1, 2)"),
        (Condition("in", (), "n", (1 << 40,), type="integer"), None),
        (Condition("in", (), "u", (-1,), type="integer"), None),
        (Condition("not in", (), "s", ("it's",), type="text"), "`s` NOT IN ('it\\'s')"),
        (Condition("range", (), "s", ("x",), "gt", "text"), None),
        (Condition("range", (), "d", (1.5,), "gte", "double"), "(`d` >= 1.5 OR isNaN(`d`))"),
        (Condition("range", (), "f", (1.5,), "gte", "double"), None),
        (Condition("in", (), "e", ("x",), type="text"), None),  # the server fails for a name that it does not know
        (Condition("in", (), "b", (True,), type="boolean"), "`b` IN (true)"),
        (Condition("missing", (), "n", type="integer"), "`n` IS NULL"),
        (
            Condition("range", (), "at", (1_500_000_001,), "lt", "time"),
            "(`at` < toDateTime64('1970-01-01 00:00:01.500000001', 9, 'UTC'))",
        ),
        (Condition("range", (), "fine", (1 << 63,), "lt", "time"), None),
        (Condition("in", (), "unknown", (1,), type="integer"), None),
    ],
)
def test_conditions_are_given_to_the_server_where_it_answers_alike(condition: Condition, expected: Any) -> None:
    assert resolve_condition(condition, KINDS) == expected
    known = Condition("in", (), "n", (1,), type="integer")
    both = f"(`n` IN (1) AND {expected})" if expected else "(`n` IN (1))"
    assert resolve_condition(Condition("and", (known, condition)), KINDS) == both
    either = f"(`n` IN (1) OR {expected})" if expected else None
    assert resolve_condition(Condition("or", (known, condition)), KINDS) == either


@pytest.mark.parametrize(
    ("kind", "type", "expected"),
    [
        ("Int32", pa.int64(), "c"),
        ("Int32", pa.string(), "toString(c)"),
        ("String", pa.string(), "c"),
        ("FixedString(3)", pa.binary(), "c"),
        ("UUID", pa.string(), "toString(c)"),
        ("UUID", pa.binary(), None),
        ("Float64", pa.float32(), None),
        ("Float64", pa.int64(), None),
        ("UInt8", pa.bool_(), "c"),
        ("UInt32", pa.bool_(), None),
        ("DateTime('Europe/Berlin')", pa.timestamp("ms"), "toDateTime64(c, 0, 'UTC')"),
        ("DateTime64(6, 'Asia/Tokyo')", pa.timestamp("us", "UTC"), "toDateTime64(c, 6, 'UTC')"),
        ("DateTime", pa.date32(), None),
        ("Array(Array(DateTime))", pa.list_(pa.list_(pa.timestamp("ms"))),
         "arrayMap(x -> arrayMap(x -> toDateTime64(x, 0, 'UTC'), x), c)"),
        ("Array(Int8)", pa.list_(pa.int16()), "c"),
        ("Map(String, Int8)", pa.map_(pa.string(), pa.int8()), None),
    ],
)  # fmt: skip
def test_how_columns_are_selected(kind: str, type: pa.DataType, expected: str | None) -> None:
    assert select("c", ServerType.parse(kind), type) == expected
    assert select("c", ServerType.parse(kind), choose_type(ServerType.parse(kind))) is not None


def test_all_types_come_back(server: ClickHouse) -> None:
    server.call(f"CREATE TABLE t ({COLUMNS}) ENGINE = MergeTree ORDER BY id")
    created = tables()
    created.execute_sql(ddl(server.url, TYPES))
    created.execute_sql(f"INSERT INTO t VALUES {VALUES}, {NULLS}").wait()
    rows = sorted(collected(created, "SELECT * FROM t"))
    assert rows == sorted(collected(created, f"SELECT * FROM (VALUES {VALUES}, {NULLS}) AS v"), key=lambda row: row[0])


def test_types_of_the_server_alone(server: ClickHouse) -> None:
    """What the connector does not write: as text, and in the nearest type where no value is changed."""
    server.call(
        "CREATE TABLE t (u UInt64, e Enum8('a' = 1), fs FixedString(4), id UUID, big Int256, a Array(UInt8), "
        "m Map(String, Int8), z DateTime('Europe/Berlin'), v UInt8, al UInt64 ALIAS u) ENGINE = MergeTree ORDER BY u"
    )
    server.call(
        "INSERT INTO t SELECT 18446744073709551615, 'a', 'ab', '00000000-0000-0000-0000-000000000001', "
        "toInt256('-57896044618658097711785492504343953926634992332820282019728792003956564819968'), [1, 2], "
        "map('k', 1), "
        "toDateTime('2020-10-25 01:30:00', 'UTC'), 2"
    )
    columns = "u DECIMAL(20, 0), e STRING, id STRING, big STRING, a STRING, m STRING, z TIMESTAMP_LTZ(0), al STRING"
    (row,) = select_rows(ddl(server.url, columns), "SELECT u, e, id, big, a, m, CAST(z AS STRING), al FROM t")
    assert [str(value) for value in row] == [
        "18446744073709551615", "a", "00000000-0000-0000-0000-000000000001", f"-{1 << 255}", "[1,2]", "{'k':1}",
        "2020-10-25 01:30:00", "18446744073709551615",
    ]  # fmt: skip
    for wrong, message in {
        "u BIGINT": "column 'u' of UInt64 has a value that int64 has not",
        "v BOOLEAN": "2 is neither true nor false",
        "e INT": r"column 'e' of Enum8\('a' = 1\) on the server cannot be read as int32",
        "missing INT": "has no column 'missing'",
    }.items():
        with pytest.raises(JobExecutionError, match=message):
            select_rows(ddl(server.url, wrong), "SELECT * FROM t")


def fill(server: ClickHouse, rows: int = 1_000) -> None:
    server.call("CREATE TABLE t (n Int64, s String, at DateTime64(3, 'UTC')) ENGINE = MergeTree ORDER BY intDiv(n, 7)")
    for part in range(2):
        server.call(
            f"INSERT INTO t SELECT number * 2 + {part}, concat('x', toString(number % 3)), "
            f"toDateTime64(number, 3, 'UTC') FROM numbers({rows // 2})"
        )


PARTS = ", ".join(["", *(f"'scan.partition.{name}' = '{value}'" for name, value in {
    "column": "n", "num": "3", "lower-bound": "100", "upper-bound": "800",
}.items())])  # fmt: skip


def test_conditions_columns_and_limits_reach_the_server(server: ClickHouse) -> None:
    fill(server)
    statement = ddl(server.url, "n BIGINT, s STRING, `at` TIMESTAMP(3)", f"{PARTS}, 'scan.fetch-size' = '50'")
    everything = {n: f"x{n // 2 % 3}" for n in range(1_000)}
    queries = {
        "n > 990 AND s = 'x1'": [n for n, s in everything.items() if n > 990 and s == "x1"],
        "n IN (1, 5, 7777) OR s <> 'x0' AND n < 5": [1, 2, 3, 4, 5],
        "`at` >= TIMESTAMP '1970-01-01 00:08:19'": [998, 999],
        "CHAR_LENGTH(s) = 2 AND 998 <= n": [998, 999],
        "TRUE": list(everything),
    }
    for condition, expected in queries.items():
        rows = select_rows(statement, f"SELECT n FROM t WHERE {condition}")
        assert sorted(n for (n,) in rows) == expected, condition
    assert len(select_rows(statement, "SELECT n FROM t LIMIT 3")) == 3
    assert max(select_rows(statement, "SELECT COUNT(*) FROM t")) == (1_000,)


def test_replaced_rows_are_left_out_with_final(server: ClickHouse) -> None:
    server.call(
        "CREATE TABLE t (k Int32, v String, version UInt64, gone UInt8) ENGINE = ReplacingMergeTree(version, gone) "
        "ORDER BY k"
    )
    for version, row in enumerate(["1, 'old', 1, 0", "1, 'new', 2, 0", "2, 'x', 1, 0", "2, 'x', 2, 1"]):
        server.call(f"INSERT INTO t VALUES ({row})")
        assert version < 4
    assert select_rows(ddl(server.url, "k INT, v STRING", ", 'scan.final' = 'true'"), "SELECT * FROM t") == [(1, "new")]


def test_rows_that_are_equal_come_as_often_as_they_are_there(server: ClickHouse) -> None:
    server.call("CREATE TABLE t (n Int32, s String) ENGINE = MergeTree ORDER BY tuple()")
    server.call("INSERT INTO t SELECT number % 3, 'x' FROM numbers(30)")
    source = ClickHouseSource(table_of(server), "s", deserialize=lambda row: row["s"])
    run = SourceRun(source, 1, real_time=True)
    advance_to(run, 14)
    run.restart(run.snapshot())
    advance_to(run, 30)
    assert run.all_values == ["x"] * 30
    run.close()


def advance_to(run: SourceRun, count: int) -> None:
    for _ in range(20_000):
        if len(run.arrived) >= count:
            return
        run.advance(7)
    raise AssertionError(f"there are only {len(run.arrived)} rows")


def table_of(server: ClickHouse) -> ClickHouseTable:
    return ClickHouseTable(server.url, "default", "t")


@pytest.mark.slow
@pytest.mark.parametrize("case", SOURCE_CASES)
def test_the_source_keeps_the_rules(running: ClickHouse, case: str) -> None:
    running.call("DROP TABLE IF EXISTS t")
    fill(running, 20)
    partitions = Partitions("n", 0, 19, 2)

    def prepare() -> SourceUnderTest:
        source = ClickHouseSource(table_of(running), "n", partitions=partitions, deserialize=lambda row: row["n"])
        return SourceUnderTest(source, list(range(20)), real_time=True)

    check_source(prepare, case, batch_sizes=[3], places=3)


def test_a_source_of_streams(server: ClickHouse) -> None:
    fill(server, 10)
    source = ClickHouseSource(table_of(server), "n", "s", where="n % 2 = 1")
    rows = local_environment().from_source(source, WatermarkStrategy.no_watermarks(), "rows").collect()
    assert sorted(row["n"] for row in rows) == [1, 3, 5, 7, 9]
    assert set(rows[0]) == {"n", "s"}


def test_a_query_is_repeated_at_its_position_when_the_server_restarts() -> None:
    with clickhouse_server() as own:
        fill(own, 300)
        source = ClickHouseSource(table_of(own), "n", deserialize=lambda row: row["n"])
        source.scan = replace(source.scan, fetch_size=10)
        run = SourceRun(source, 1, real_time=True)
        advance_to(run, 20)
        snapshot = run.snapshot()
        run.close()
        own.kill()
        starting = threading.Timer(0.3, own.start)
        starting.start()
        run.restart(snapshot)
        advance_to(run, 300)
        starting.join()
        assert sorted(run.all_values) == list(range(300))
        run.close()


class _Cut(BaseHTTPRequestHandler):
    """Answers with what the server has, which lacks its end."""

    body = b""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *arguments: object) -> None:
        pass


def test_an_answer_that_is_broken_off_is_no_whole_answer() -> None:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, pa.schema([("n", pa.int64())])) as stream:
        stream.write_batch(pa.record_batch([pa.array([1, 2])], names=["n"]))
    whole = out.getvalue().to_pybytes()
    with HTTPServer(("127.0.0.1", 0), _Cut) as service:
        thread = threading.Thread(target=service.serve_forever, daemon=True)
        thread.start()
        table = ClickHouseTable(f"http://127.0.0.1:{service.server_port}", "default", "t")
        _Cut.body = whole
        assert sum(batch.num_rows for batch in Query(table, 10).batches("SELECT 1")) == 2
        for body in (whole[:-8], whole[:-8] + b"Code: 241. DB::Exception: memory", whole[:-20]):
            _Cut.body = body
            with pytest.raises(ConnectionError, match="broke off its answer"):
                list(Query(table, 10).batches("SELECT 1"))
        service.shutdown()


FULL = ", 'lookup.cache' = 'FULL', 'lookup.full-cache.periodic-reload.interval' = '1 h'"


@pytest.mark.parametrize(
    "cache", ["", ", 'lookup.cache' = 'PARTIAL', 'lookup.partial-cache.max-rows' = '10'", FULL], ids=str
)
def test_look_ups(server: ClickHouse, cache: str) -> None:
    fill(server, 12)
    created = tables()
    created.execute_sql(ddl(server.url, "n BIGINT, s STRING", cache))
    probes = (
        "(SELECT *, PROCTIME() AS p FROM (VALUES (1, 'x0'), (2, 'x1'), (99, 'x'), (CAST(NULL AS INT), 'x'), (1, 'x0')) "
        "AS v (a, s)) AS q"
    )
    query = f"SELECT a, t.s FROM {probes} LEFT JOIN t FOR SYSTEM_TIME AS OF q.p ON t.n = q.a AND t.s = q.s"
    assert sorted(collected(created, query), key=repr) == [(1, "x0"), (1, "x0"), (2, "x1"), (99, None), (None, None)]
    by_text = f"SELECT a, t.n FROM {probes} JOIN t FOR SYSTEM_TIME AS OF q.p ON t.s = q.s WHERE a = 2"
    assert sorted(collected(created, by_text)) == [(2, 2), (2, 3), (2, 8), (2, 9)]


def test_many_keys_are_asked_for_in_several_queries(server: ClickHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(server, 100)
    monkeypatch.setattr(clickhouse_source, "_KEYS_CHARS", 20)
    scan = TableScan(table_of(server), (("c0", "n", pa.int64()),), to_columns)
    lookup = KeyLookup(scan, ["n"], ["integer"])
    found = lookup.find([(n,) for n in range(50, 150)])
    assert sorted(found.column("c0").to_pylist()) == list(range(50, 100))
    lookup.close()


def test_tables_that_cannot_be_read(server: ClickHouse) -> None:
    server.call("CREATE TABLE t (n Int64, d Float64, f FixedString(2)) ENGINE = MergeTree ORDER BY n")
    created = tables()
    created.execute_sql(ddl(server.url, "n BIGINT, d DOUBLE, f STRING"))
    probes = "(SELECT CAST(1 AS DOUBLE) AS d, 'x' AS f, PROCTIME() AS p) AS q"
    with pytest.raises(UnsupportedError, match=r"column 'd' of table .* is DOUBLE, by which rows are not looked up"):
        collected(created, f"SELECT * FROM {probes} JOIN t FOR SYSTEM_TIME AS OF q.p ON t.d = q.d")
    with pytest.raises(JobExecutionError, match=r"column 'f' of FixedString\(2\) on the server is not compared"):
        collected(created, f"SELECT * FROM {probes} JOIN t FOR SYSTEM_TIME AS OF q.p ON t.f = q.f")
    with pytest.raises(UnsupportedError, match="which is not read from ClickHouse: declare it as STRING"):
        select_rows(ddl(server.url, "m MAP<STRING, INT>"), "SELECT * FROM t")
    wrong = TableScan(table_of(server), (), to_columns, partitions=Partitions("d", 0, 9, 2))
    with pytest.raises(ConfigurationError, match="cut by a column of integers, and 'd' is Float64"):
        wrong.find_splits()
    away = replace(wrong, table=ClickHouseTable("http://127.0.0.1:9", "d", "t", "u", "secret-9"), retries=0)
    with pytest.raises(OperationError, match=r"does not answer for d\.t") as raised:
        away.find_splits()
    assert "secret-9" not in str(raised.value)
