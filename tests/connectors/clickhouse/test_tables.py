"""The connector `clickhouse` of tables and its sink of streams, on ClickHouse's engine; and the program of its page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.connectors.redis.test_tables import environment
from tests.examples.pages import PAGES, run_page
from tests.servers.clickhouse import ClickHouse, clickhouse_server

from penstock.base.errors import ConfigurationError, JobExecutionError, UnsupportedError
from penstock.common import Configuration
from penstock.connectors.clickhouse import ClickHouseServer, ClickHouseSink, ClickHouseTable
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.sql.connectors.clickhouse import Versions
from penstock.sql.data.errors import ValidationError

WINDOW = "SETTINGS non_replicated_deduplication_window = 1000"


@pytest.fixture(scope="module", name="running")
def fixture_running() -> Iterator[ClickHouse]:
    with clickhouse_server() as started:
        yield started


@pytest.fixture
def server(running: ClickHouse) -> ClickHouse:
    running.call("DROP TABLE IF EXISTS t")
    return running


def ddl(url: str, columns: str, more: str = "") -> str:
    options = f"'connector' = 'clickhouse', 'url' = '{url}', 'table-name' = 't'"
    return f"CREATE TABLE t ({columns}) WITH ({options}{more})"


TYPES = (
    "id BIGINT, b BOOLEAN, ti TINYINT, f FLOAT, d DOUBLE, de DECIMAL(20, 5), s STRING, y BYTES, da DATE, "
    "ts TIMESTAMP(6), lt TIMESTAMP_LTZ(3), a ARRAY<INT>"
)
COLUMNS = (
    "id Int64, b Nullable(Bool), ti Nullable(UInt8), f Nullable(Float32), d Nullable(Float64), "
    "de Nullable(Decimal(20, 5)), s LowCardinality(Nullable(String)), y Nullable(String), da Nullable(Date32), "
    "ts Nullable(DateTime64(6, 'UTC')), lt Nullable(DateTime64(3, 'UTC')), a Array(Nullable(Int32))"
)
VALUES = (
    "(-9223372036854775807, TRUE, CAST(127 AS TINYINT), CAST(1.5 AS FLOAT), CAST(0.1 AS DOUBLE), 3.25, 'a\"ü', x'41', "
    "DATE '1900-01-01', TIMESTAMP '2299-12-31 23:59:59.999999', TO_TIMESTAMP_LTZ(1, 3), ARRAY[1, CAST(NULL AS INT)])"
)
KINDS = ("BOOLEAN", "TINYINT", "FLOAT", "DOUBLE", "DECIMAL(20, 5)", "STRING", "BYTES", "DATE", "TIMESTAMP(6)",
         "TIMESTAMP_LTZ(3)")  # fmt: skip
NULLS = f"(7, {', '.join(f'CAST(NULL AS {kind})' for kind in KINDS)}, ARRAY[5])"


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_all_types(server: ClickHouse, guarantee: str) -> None:
    server.call(f"CREATE TABLE t ({COLUMNS}, more String DEFAULT 'x') ENGINE = MergeTree ORDER BY id {WINDOW}")
    tables = environment()
    tables.execute_sql(ddl(server.url, TYPES, f", 'sink.delivery-guarantee' = '{guarantee}'"))
    tables.execute_sql(f"INSERT INTO t VALUES {VALUES}, {NULLS}").wait()
    first, second = server.call("SELECT * REPLACE (toString(id) AS id, toString(de) AS de) FROM t ORDER BY t.id")
    assert first == {
        "id": "-9223372036854775807", "b": True, "ti": 127, "f": 1.5, "d": 0.1, "de": "3.25", "s": 'a"ü', "y": "A",
        "da": "1900-01-01", "ts": "2299-12-31 23:59:59.999999", "lt": "1970-01-01 00:00:00.001", "a": [1, None],
        "more": "x"}  # fmt: skip
    assert [value for value in second.values() if value is not None] == ["7", [5], "x"]


def test_changes_by_version(server: ClickHouse) -> None:
    """Later rows of a key replace earlier ones, and deleted ones go; the numbers of versions are made here."""
    server.call(
        "CREATE TABLE t (k Int32, n Int64, version UInt64, is_deleted UInt8) "
        f"ENGINE = ReplacingMergeTree(version, is_deleted) ORDER BY k {WINDOW}"
    )
    tables = environment()
    more = ", 'sink.version-column' = 'version', 'sink.is-deleted-column' = 'is_deleted', 'settings.max_threads' = '1'"
    tables.execute_sql(ddl(server.url, "k INT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED", more))
    tables.execute_sql(
        "INSERT INTO t SELECT k, n FROM (SELECT k, COUNT(*) AS n FROM (VALUES (1), (2), (1), (1), (2)) AS s (k) "
        "GROUP BY k) WHERE n < 3"
    ).wait()
    assert server.call("SELECT k, toInt32(n) AS n FROM t FINAL") == [{"k": 2, "n": 2}]
    tables.execute_sql("INSERT INTO t VALUES (1, 8)").wait()
    assert server.call("SELECT k, toInt32(n) AS n FROM t FINAL ORDER BY k") == [{"k": 1, "n": 8}, {"k": 2, "n": 2}]


def test_a_batch_that_is_inserted_again_is_dropped(server: ClickHouse) -> None:
    server.call(f"CREATE TABLE t (n Int64) ENGINE = MergeTree ORDER BY n {WINDOW}")
    sink = ClickHouseSink(ClickHouseTable(server.url, "default", "t"), DeliveryGuarantee.EXACTLY_ONCE)
    from penstock.testing.connectors import SinkHost

    writer = sink.create_writer(SinkHost())
    writer.write_batch([{"n": n} for n in range(5)], None)
    prepared = writer.prepare_commit()
    writer.write_batch([{"n": n} for n in range(5)], None)  # the same rows on purpose
    second = writer.prepare_commit()
    for committables in (prepared, prepared, second, prepared, second):
        committer = sink.create_committer(SinkHost())
        assert committer is not None
        committer.commit(committables)
        committer.close()
    assert server.call("SELECT toInt32(count()) AS c FROM t") == [{"c": 10}]


def test_tables_that_remember_no_tokens_are_refused(server: ClickHouse) -> None:
    server.call("CREATE TABLE t (n Int64) ENGINE = MergeTree ORDER BY n")
    about = ClickHouseServer(ClickHouseTable(server.url, "default", "t"))
    with pytest.raises(ConfigurationError, match="MODIFY SETTING non_replicated_deduplication_window = 1000"):
        about.check_remembers_tokens()
    tables = environment()
    tables.execute_sql(ddl(server.url, "n BIGINT", ", 'sink.delivery-guarantee' = 'exactly-once'"))
    with pytest.raises(JobExecutionError, match="does not remember the tokens of batches"):
        tables.execute_sql("INSERT INTO t VALUES (1)").wait()
    server.call("ALTER TABLE t MODIFY SETTING non_replicated_deduplication_window = 10")
    about.check_remembers_tokens()
    about.close()
    tables.execute_sql("INSERT INTO t VALUES (1)").wait()
    assert server.call("SELECT toInt32(n) AS n FROM t") == [{"n": 1}]


def test_values_that_do_not_fit_are_errors(server: ClickHouse) -> None:
    server.call("CREATE TABLE t (n Int8, d Date) ENGINE = MergeTree ORDER BY n")
    tables = environment()
    tables.execute_sql(ddl(server.url, "n INT, d DATE"))
    for values, message in [
        ("(300, DATE '2020-01-01')", "column 'default.t.n' does not fit Int8 on the server"),
        ("(1, DATE '1960-01-01')", "column 'default.t.d' has '1960-01-01', which does not fit Date on the server"),
        ("(CAST(NULL AS INT), DATE '2020-01-01')", "column 'default.t.n' has NULL, and Int8 on the server has not"),
    ]:
        with pytest.raises(JobExecutionError) as raised:
            tables.execute_sql(f"INSERT INTO t VALUES {values}").wait()
        assert message in str(raised.value)
    assert server.call("SELECT n FROM t") == []


def test_streams(server: ClickHouse) -> None:
    server.call(f"CREATE TABLE t (n Int64) ENGINE = MergeTree ORDER BY n {WINDOW}")
    settings = Configuration()
    settings.set_string("execution.target", "local")
    for guarantee in (DeliveryGuarantee.AT_LEAST_ONCE, DeliveryGuarantee.EXACTLY_ONCE):
        env = StreamExecutionEnvironment.get_execution_environment(settings).set_parallelism(2)
        sink = ClickHouseSink(ClickHouseTable(server.url, "default", "t"), guarantee)
        env.from_collection([{"n": n} for n in range(1_000)]).sink_to(sink)
        env.execute()
    assert server.call("SELECT toInt32(count()) AS c, toInt32(uniq(n)) AS u FROM t") == [{"c": 2_000, "u": 1_000}]


def test_the_program_of_the_page_runs(server: ClickHouse, tmp_path: Path) -> None:
    page = "docs/clickhouse.md"
    server.call(
        "CREATE TABLE t (person String, seconds Int64, version UInt64, is_deleted UInt8) "
        f"ENGINE = ReplacingMergeTree(version, is_deleted) ORDER BY person {WINDOW}"
    )
    server.call("CREATE TABLE IF NOT EXISTS visits (person String, page String, seconds Int32) "
                f"ENGINE = MergeTree ORDER BY person {WINDOW}")  # fmt: skip
    PAGES[page].check(run_page(page, "local", tmp_path, variables={"CLICKHOUSE_URL": server.url}))
    rows = server.call("SELECT person, toInt32(seconds) AS seconds FROM t FINAL ORDER BY person")
    assert rows == [{"person": "ann", "seconds": 11}, {"person": "bob", "seconds": 5}]


REFUSED: list[tuple[str, str, type[Exception], str]] = [
    ("m MAP<INT, INT>", "", UnsupportedError, "column 'm' of table .* is MAP<INT, INT>, which is not written"),
    ("n INT, PRIMARY KEY (n) NOT ENFORCED", "", ValidationError, "set 'sink.version-column'"),
    ("n INT", ", 'sink.version-column' = 'v'", ValidationError, "only a table with a primary key has changes"),
    ("n INT", ", 'sink.max-retries' = '-1'", ValidationError, "max_retries is -1"),
    ("n INT", ", 'sink.delivery-guarantee' = 'none'", ValidationError, "exactly-once"),
    (
        "n INT",
        ", 'username' = 'me', 'password' = 'letmein12', 'setting.x' = '1'",
        ValidationError,
        "Unsupported options",
    ),
]


@pytest.mark.parametrize(("columns", "more", "error", "message"), REFUSED, ids=lambda value: str(value)[:30])
def test_tables_that_are_refused(columns: str, more: str, error: type[Exception], message: str) -> None:
    tables = environment()
    tables.execute_sql(ddl("http://db:8123", columns, more))
    with pytest.raises(error, match=message):
        tables.execute_sql(
            "INSERT INTO t SELECT * FROM (VALUES (1)) AS s (n)"
            if "m MAP" not in columns
            else "INSERT INTO t VALUES (MAP[1, 2])"
        )


def test_urls_with_a_login_are_refused() -> None:
    tables = environment()
    tables.execute_sql(ddl("http://me:letmein12@db:8123", "n INT"))
    with pytest.raises(ValidationError, match="without user and password") as raised:
        tables.execute_sql("INSERT INTO t VALUES (1)")
    assert "letmein12" not in str(raised.value)


def test_versions_grow_also_when_the_clock_goes_back() -> None:
    times = [5_000_000, 5_001_000, 1_000, 9_000_000]
    versions = Versions(lambda: times.pop(0))
    assert [versions.take(3).tolist() for _ in range(4)] == [
        [5000, 5001, 5002], [5003, 5004, 5005], [5006, 5007, 5008], [9000, 9001, 9002]]  # fmt: skip
