"""The connector `jdbc` of tables: what it reads, looks up and writes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.connectors.postgres.conftest import Database

from penstock.base.errors import UnsupportedError
from penstock.sql.data.errors import ValidationError
from penstock.table import EnvironmentSettings, TableEnvironment


def environment(**options: str) -> TableEnvironment:
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("execution.target", "local").set("parallelism.default", "2")
    for key, value in options.items():
        tables.get_config().set(key.replace("_", "."), value)
    return tables


def ddl(database: Database, columns: str, table: str = "t", more: str = "", name: str = "t") -> str:
    options = f"'connector' = 'jdbc', 'url' = '{database.jdbc_url}', 'username' = 'postgres', 'table-name' = '{table}'"
    return f"CREATE TABLE {name} ({columns}) WITH ({options}{more})"


def collected(tables: TableEnvironment, query: str) -> list[tuple[Any, ...]]:
    with tables.execute_sql(query).collect() as rows:
        return sorted(map(tuple, rows), key=repr)


TYPES = (
    "id BIGINT, b BOOLEAN, ti SMALLINT, f FLOAT, d DOUBLE, de DECIMAL(20, 5), s STRING, v VARCHAR(20), y BYTES, "
    "da DATE, tm TIME(0), ts TIMESTAMP(6), lt TIMESTAMP_LTZ(3), ar ARRAY<INT>, st ARRAY<STRING>"
)
SQL_TYPES = (
    "id int8, b bool, ti int2, f float4, d float8, de numeric(20, 5), s text, v varchar(20), y bytea, "
    "da date, tm time, ts timestamp, lt timestamptz, ar int[], st text[]"
)


def test_all_types_come_back(database: Database) -> None:
    database.execute(f"CREATE TABLE src ({SQL_TYPES}); CREATE TABLE dst ({SQL_TYPES})")
    database.execute(
        "INSERT INTO src VALUES (1, true, 2, 1.5, 'Infinity', 3.25, E'a\"\\\\,\\n', '', '\\x00', '2020-02-29', "
        "'12:30:01', '2020-01-01 00:00:00.000001', '2020-01-01 00:00:00.001+00', '{1,NULL}', "
        "ARRAY['a,b', NULL, '', '\"']), "
        "(2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{}')"
    )
    tables = environment()
    tables.execute_sql(ddl(database, TYPES, "src", name="src"))
    tables.execute_sql(ddl(database, TYPES, "dst", name="dst"))
    tables.execute_sql("INSERT INTO dst SELECT * FROM src").wait()
    assert database.execute("SELECT * FROM src ORDER BY id") == database.execute("SELECT * FROM dst ORDER BY id")
    assert collected(tables, "SELECT * FROM dst") == collected(tables, "SELECT * FROM src")


def test_only_what_a_query_needs_is_read(database: Database) -> None:
    database.execute(
        "CREATE TABLE t AS SELECT n AS id, n % 3 AS k, 'n' || n AS s, n / 2.0::float8 AS d, "
        "CASE WHEN n % 4 > 0 THEN n END AS o FROM generate_series(1, 100) n"
    )
    tables = environment()
    parts = (
        ", 'scan.partition.column' = 'id', 'scan.partition.num' = '3', 'scan.partition.lower-bound' = '1', "
        "'scan.partition.upper-bound' = '100', 'scan.fetch-size' = '10'"
    )
    tables.execute_sql(ddl(database, "id INT, k INT, s STRING, d DOUBLE, o INT", more=parts))
    query = "SELECT s FROM t WHERE id > 10 AND (k = 1 OR o IS NULL) AND s IN ('n12', 'n13', 'n14') AND NOT id = 99"
    plan = tables.explain_sql(query)
    assert "filter=[" in plan
    assert "project=[" in plan or "fields=[s" in plan
    assert collected(tables, query) == [("n12",), ("n13",)]
    assert collected(tables, "SELECT id FROM t WHERE d < 2 AND id <> 2") == [(1,), (3,)]
    assert (100, 5050) in collected(tables, "SELECT COUNT(*), SUM(id) FROM t")
    assert len(collected(tables, "SELECT id FROM t LIMIT 7")) == 7


def test_limits_and_conditions_reach_the_server(database: Database) -> None:
    """The server is asked for no more than that: the view would fail for other rows."""
    database.execute("CREATE VIEW t AS SELECT n AS id, 1 / (100 - n) AS x FROM generate_series(1, 1000) n")
    tables = environment()
    tables.execute_sql(ddl(database, "id INT, x INT"))
    assert len(collected(tables, "SELECT id, x FROM t WHERE id < 100")) == 99
    assert len(collected(tables, "SELECT id FROM t")) == 1_000
    with pytest.raises(Exception, match="division by zero"):
        collected(tables, "SELECT id, x FROM t")


PARTIAL = ", 'lookup.cache' = 'PARTIAL', 'lookup.partial-cache.max-rows' = '50'"
FULL = ", 'lookup.cache' = 'FULL', 'lookup.full-cache.periodic-reload.interval' = '1 h'"


@pytest.mark.parametrize("cache", ["", PARTIAL, FULL])
def test_look_up_join(database: Database, cache: str) -> None:
    database.execute(
        "CREATE TABLE people (id int PRIMARY KEY, name text); "
        "INSERT INTO people SELECT n, 'p' || n FROM generate_series(0, 9) n"
    )
    tables = environment()
    tables.execute_sql(ddl(database, "id INT, name STRING", "people", cache, "people"))
    tables.execute_sql(
        "CREATE TABLE orders (n BIGINT, who AS CAST(n AS INT) / 3, pt AS PROCTIME()) WITH ('connector' = 'datagen', "
        "'fields.n.kind' = 'sequence', 'fields.n.start' = '0', 'fields.n.end' = '40', 'rows-per-second' = '100000')"
    )
    join = "JOIN people FOR SYSTEM_TIME AS OF o.pt AS p ON p.id = o.who"
    found = collected(tables, f"SELECT o.n, p.name FROM orders o LEFT {join}")
    assert found == sorted([(n, f"p{n // 3}" if n < 30 else None) for n in range(41)], key=repr)
    assert len(collected(tables, f"SELECT o.n FROM orders o {join} AND p.name <> 'p1'")) == 27


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_updates_and_deletions_by_key(database: Database, guarantee: str) -> None:
    database.execute(
        "CREATE TABLE t (k int, j text, total bigint, PRIMARY KEY (k, j)); INSERT INTO t VALUES (7, '', 1)"
    )
    tables = environment()
    options = f", 'sink.delivery-guarantee' = '{guarantee}', 'sink.buffer-flush.max-rows' = '10'"
    columns = "k INT, j STRING, total BIGINT, PRIMARY KEY (k, j) NOT ENFORCED"
    tables.execute_sql(ddl(database, columns, more=options))
    tables.execute_sql(
        "CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'fields.n.kind' = 'sequence', "
        "'fields.n.start' = '0', 'fields.n.end' = '999', 'rows-per-second' = '100000')"
    )
    # A sum goes away as soon as it is above 50,000.
    tables.execute_sql(
        "INSERT INTO t SELECT CAST(k AS INT), 'x', SUM(n) FROM (SELECT n, n % 10 AS k FROM numbers) "
        "GROUP BY k HAVING SUM(n) <= 50000 - 10 * k"
    ).wait()
    sums = {k: sum(range(k, 1_000, 10)) for k in range(10)}
    there = [(k, "x", total) for k, total in sums.items() if total <= 50_000 - 10 * k]
    assert database.execute("SELECT * FROM t ORDER BY k, j") == sorted([*there, (7, "", 1)])


def test_append(database: Database) -> None:
    database.execute("CREATE TABLE t (a int, b text DEFAULT 'x'); CREATE VIEW v AS SELECT a FROM t")
    tables = environment()
    tables.execute_sql(ddl(database, "a INT"))
    tables.execute_sql(ddl(database, "a INT", "v", name="v"))
    tables.execute_sql("INSERT INTO t VALUES (1), (2)").wait()
    tables.execute_sql("INSERT INTO v VALUES (3)").wait()
    assert database.execute("SELECT * FROM t ORDER BY a") == [(1, "x"), (2, "x"), (3, "x")]
    with pytest.raises(ValidationError, match="doesn't support consuming update"):
        tables.execute_sql("INSERT INTO t SELECT CAST(COUNT(*) AS INT) FROM v").wait()


def test_mistakes_are_named(database: Database) -> None:
    tables = environment()

    def fails(columns: str, more: str, kind: type[Exception], text: str) -> None:
        tables.execute_sql("DROP TABLE IF EXISTS t")
        tables.execute_sql(ddl(database, columns, more=more))
        with pytest.raises(kind, match=text):
            tables.execute_sql("SELECT * FROM t").collect()

    fails("a INT", ", 'scan.partition.num' = '3'", ValidationError, "either all of scan.partition.column")
    fails("a INT", ", 'scan.auto-commit' = 'false'", UnsupportedError, "one transaction")
    fails("a INT", ", 'driver' = 'com.mysql.Driver'", ValidationError, r"org.postgresql.Driver")
    fails("a MAP<INT, INT>", "", UnsupportedError, "column 'a' of table .* declare it as STRING")
    fails("a INT", ", 'scan.fetch-size' = '0'", ValidationError, "1 or above")
    tables.execute_sql(
        "CREATE TABLE m (a INT) WITH ('connector' = 'jdbc', 'url' = 'jdbc:oracle://h/d', 'table-name' = 't')"
    )
    with pytest.raises(ValidationError, match=r"PostgreSQL, MySQL and MariaDB.*no dialect of Oracle"):
        tables.execute_sql("SELECT * FROM m").collect()
