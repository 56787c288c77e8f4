"""The connector `jdbc` on MySQL and MariaDB: what tables read, look up and write."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.connectors.mysql.conftest import Database

from penstock.base.errors import OperationError, PenstockError, UnsupportedError
from penstock.connectors.mysql.sink import MySqlTarget, TableWriting
from penstock.sql.data.errors import ValidationError
from penstock.table import EnvironmentSettings, TableEnvironment

NUMBERS = (
    "CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'fields.n.kind' = 'sequence', "
    "'fields.n.start' = '0', 'fields.n.end' = '999', 'rows-per-second' = '100000')"
)


def environment() -> TableEnvironment:
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("execution.target", "local").set("parallelism.default", "2")
    tables.get_config().set("restart-strategy.type", "none")
    return tables


def ddl(database: Database, columns: str, table: str = "t", more: str = "", name: str = "t") -> str:
    options = f"'connector' = 'jdbc', 'url' = '{database.url}', 'table-name' = '{table}'"
    return f"CREATE TABLE {name} ({columns}) WITH ({options}{more})"


def collected(tables: TableEnvironment, query: str) -> list[tuple[Any, ...]]:
    with tables.execute_sql(query).collect() as rows:
        return sorted(map(tuple, rows), key=repr)


TYPES = (
    "id BIGINT, b BOOLEAN, ti TINYINT, si SMALLINT, u DECIMAL(20, 0), f FLOAT, d DOUBLE, de DECIMAL(20, 5), s STRING, "
    "v VARCHAR(20), y BYTES, da DATE, tm TIME(0), ts TIMESTAMP(6), lt TIMESTAMP_LTZ(3), j STRING, e STRING"
)
SQL_TYPES = (
    "id BIGINT PRIMARY KEY, b BOOLEAN, ti TINYINT, si SMALLINT, u BIGINT UNSIGNED, f FLOAT, d DOUBLE, "
    "de DECIMAL(20, 5), s LONGTEXT, v VARCHAR(20) CHARACTER SET latin1, y LONGBLOB, da DATE, tm TIME, ts DATETIME(6), "
    "lt TIMESTAMP(3) NULL, j JSON, e ENUM('a', 'ü')"
)


def test_all_types_come_back(database: Database) -> None:
    database.execute(f"CREATE TABLE src ({SQL_TYPES}) CHARACTER SET utf8mb4", "CREATE TABLE dst LIKE src")
    database.execute(
        "INSERT INTO src VALUES (1, true, -128, 32767, 18446744073709551615, 1.5, 1e308, 0.00001, "
        "'a\"\\\\,\\n''😀', 'é', x'00ff27', '2020-02-29', '12:30:01', "
        "'2020-01-01 00:00:00.000001', '2020-01-01 00:00:00.001', '[1]', 'ü'), "
        f"(2{', NULL' * 16})"
    )
    tables = environment()
    tables.execute_sql(ddl(database, TYPES, "src", name="src"))
    tables.execute_sql(ddl(database, f"{TYPES}, PRIMARY KEY (id) NOT ENFORCED", "dst", name="dst"))
    tables.execute_sql("INSERT INTO dst SELECT * FROM src ON CONFLICT DO DEDUPLICATE").wait()
    assert database.execute("SELECT * FROM src ORDER BY id") == database.execute("SELECT * FROM dst ORDER BY id")
    assert collected(tables, "SELECT * FROM dst") == collected(tables, "SELECT * FROM src")


def test_only_what_a_query_needs_is_read(database: Database) -> None:
    rows = ", ".join(f"({n}, {n % 3}, 'n{n}', {n}/2, {n if n % 4 else 'NULL'}, {n % 2})" for n in range(1, 101))
    database.execute(
        "CREATE TABLE base (id INT PRIMARY KEY, k INT, s VARCHAR(9), d DOUBLE, o INT, b BOOLEAN)",
        f"INSERT INTO base VALUES {rows}",
        "CREATE VIEW t AS SELECT * FROM base",
    )
    parts = (
        ", 'scan.partition.column' = 'id', 'scan.partition.num' = '3', 'scan.partition.lower-bound' = '1', "
        "'scan.partition.upper-bound' = '100', 'scan.fetch-size' = '10'"
    )
    tables = environment()
    columns = "id INT, k INT, s STRING, d DOUBLE, o INT, b BOOLEAN"
    tables.execute_sql(ddl(database, columns, "base", parts))
    tables.execute_sql(ddl(database, columns, "t", parts, "v"))
    query = "SELECT s FROM t WHERE id > 10 AND (k = 1 OR o IS NULL) AND s IN ('n12', 'n13', 'N16') AND NOT id = 99"
    assert "filter=[" in tables.explain_sql(query)
    assert collected(tables, query) == [("n12",), ("n13",)]
    assert collected(tables, query.replace("FROM t", "FROM v")) == [("n12",), ("n13",)]
    assert collected(tables, "SELECT id FROM t WHERE d < 2 AND id <> 2 AND b") == [(1,), (3,)]
    assert (100, 5050) in collected(tables, "SELECT COUNT(*), SUM(id) FROM v")
    assert len(collected(tables, "SELECT id FROM t LIMIT 7")) == 7


def test_conditions_are_the_same_here_and_on_the_server(database: Database) -> None:
    """Columns hold more than their declared types: the server must not leave out rows that a query keeps."""
    database.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, ts DATETIME(6), b TINYINT(1), f FLOAT, s VARCHAR(9))",
        "INSERT INTO t VALUES (1, '2020-01-01 00:00:00.123456', 2, 0.1, 'a'), (2, '2020-01-01', 0, 2, 'A'), "
        "(3, NULL, NULL, NULL, NULL)",
    )
    tables = environment()
    tables.execute_sql(ddl(database, "id INT, ts TIMESTAMP(3), b BOOLEAN, f FLOAT, s STRING"))
    for condition, ids in (
        ("ts = TIMESTAMP '2020-01-01 00:00:00.123'", [1]),
        ("ts > TIMESTAMP '2020-01-01 00:00:00.123'", []),
        ("ts >= TIMESTAMP '2020-01-01 00:00:00.123'", [1]),
        ("ts <= TIMESTAMP '2020-01-01 00:00:00.123'", [1, 2]),
        ("ts < TIMESTAMP '2020-01-01 00:00:00.124'", [1, 2]),
        ("b = TRUE", [1]),
        ("b", [1]),
        ("NOT b", [2]),
        ("b IS NULL", [3]),
        ("f = CAST(0.1 AS FLOAT)", [1]),
        ("s = 'a'", [1]),
        ("s = 'A'", [2]),
    ):
        assert collected(tables, f"SELECT id FROM t WHERE {condition}") == [(each,) for each in ids], condition


PARTIAL = ", 'lookup.cache' = 'PARTIAL', 'lookup.partial-cache.max-rows' = '50'"


@pytest.mark.parametrize("cache", ["", PARTIAL])
def test_look_up_join(database: Database, cache: str) -> None:
    rows = ", ".join(f"({n}, 'p{n}')" for n in range(10))
    database.execute("CREATE TABLE people (id INT, name VARCHAR(9))", f"INSERT INTO people VALUES {rows}")
    tables = environment()
    tables.execute_sql(ddl(database, "id INT, name STRING", "people", cache, "people"))
    tables.execute_sql(
        "CREATE TABLE orders (n BIGINT, who AS CAST(n AS INT) / 3, pt AS PROCTIME()) WITH ('connector' = 'datagen', "
        "'fields.n.kind' = 'sequence', 'fields.n.start' = '0', 'fields.n.end' = '40', 'rows-per-second' = '100000')"
    )
    join = "JOIN people FOR SYSTEM_TIME AS OF o.pt AS p ON p.id = o.who"
    joined = collected(tables, f"SELECT o.n, p.name FROM orders o LEFT {join}")
    assert joined == sorted([(n, f"p{n // 3}" if n < 30 else None) for n in range(41)], key=repr)
    assert len(collected(tables, f"SELECT o.n FROM orders o {join} AND p.name <> 'p1'")) == 27


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_updates_and_deletions_by_key(database: Database, guarantee: str) -> None:
    database.execute(
        "CREATE TABLE t (k INT, j VARCHAR(9), total BIGINT, PRIMARY KEY (k, j))", "INSERT INTO t VALUES (7, '', 1)"
    )
    tables = environment()
    options = f", 'sink.delivery-guarantee' = '{guarantee}', 'sink.buffer-flush.max-rows' = '10'"
    tables.execute_sql(ddl(database, "k INT, j STRING, total BIGINT, PRIMARY KEY (k, j) NOT ENFORCED", more=options))
    tables.execute_sql(NUMBERS)
    # A sum goes away as soon as it is above 50,000.
    tables.execute_sql(
        "INSERT INTO t SELECT CAST(k AS INT), 'x', SUM(n) FROM (SELECT n, n % 10 AS k FROM numbers) "
        "GROUP BY k HAVING SUM(n) <= 50000 - 10 * k"
    ).wait()
    sums = {k: sum(range(k, 1_000, 10)) for k in range(10)}
    there = [(k, "x", total) for k, total in sums.items() if total <= 50_000 - 10 * k]
    assert database.execute("SELECT * FROM t ORDER BY k, j") == sorted([*there, (7, "", 1)])


def test_rows_are_appended_and_removed(database: Database) -> None:
    database.execute("CREATE TABLE t (a INT, b VARCHAR(5) DEFAULT 'x')")
    tables = environment()
    tables.execute_sql(ddl(database, "a INT"))
    tables.execute_sql("INSERT INTO t VALUES (1), (2), (2)").wait()
    assert database.execute("SELECT * FROM t ORDER BY a") == [(1, "x"), (2, "x"), (2, "x")]
    with pytest.raises(ValidationError, match="doesn't support consuming update"):
        tables.execute_sql("INSERT INTO t SELECT CAST(SUM(a) AS INT) FROM t").wait()


def written(database: Database, columns: str, values: str, more: str = "") -> None:
    tables = environment()
    tables.execute_sql(ddl(database, columns, more=more))
    conflict = " ON CONFLICT DO DEDUPLICATE" if "PRIMARY KEY" in columns else ""
    tables.execute_sql(f"INSERT INTO t VALUES {values}{conflict}").wait()


@pytest.mark.parametrize(
    ("kind", "declared", "literal", "text"),
    [
        ("TINYINT UNSIGNED", "INT", "256", "Out of range value for column 'a'"),
        ("INT UNSIGNED", "INT", "-1", "Out of range value for column 'a'"),
        ("DECIMAL(4,2)", "DECIMAL(10,2)", "100.00", "Out of range value for column 'a'"),
        ("VARCHAR(2)", "STRING", "'abc'", "Data too long for column 'a'"),
        ("TIMESTAMP NULL", "TIMESTAMP(0)", "TIMESTAMP '1969-12-31 00:00:00'", "Incorrect datetime value"),
        ("ENUM('x')", "STRING", "'y'", "Data truncated for column 'a'"),
        ("DOUBLE", "DOUBLE", "CAST('Infinity' AS DOUBLE)", "column 'a' has NaN or infinity"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(
    database: Database, kind: str, declared: str, literal: str, text: str
) -> None:
    database.execute(f"CREATE TABLE t (a {kind})")
    with pytest.raises(PenstockError, match=text):
        written(database, f"a {declared}", f"({literal})")
    assert database.execute("SELECT COUNT(*) FROM t") == [(0,)]


def test_fractions_of_a_second_are_cut_off_not_rounded(database: Database) -> None:
    database.execute("CREATE TABLE t (a DATETIME(0), b TIME(3))")
    written(database, "a TIMESTAMP(6), b TIME(0)", "(TIMESTAMP '2020-12-31 23:59:59.999999', TIME '23:59:59')")
    assert database.execute("SELECT CAST(a AS CHAR), CAST(b AS CHAR) FROM t") == [
        ("2020-12-31 23:59:59", "23:59:59.000")
    ]


def test_rows_are_replaced_by_the_key_alone(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, email VARCHAR(9) UNIQUE, n INT)", "INSERT INTO t VALUES (1, 'a', 1)"
    )
    columns = "id INT, email STRING, n INT, PRIMARY KEY (id) NOT ENFORCED"
    written(database, columns, "(1, 'b', 2)")
    assert database.execute("SELECT * FROM t") == [(1, "b", 2)]
    with pytest.raises(PenstockError, match="in a unique index besides that of id"):
        written(database, columns, "(2, 'b', 3)")
    assert database.execute("SELECT * FROM t") == [(1, "b", 2)]


def test_keys_that_are_equal_in_the_database_are_changed_in_order(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (k VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY, n INT)", "INSERT INTO t VALUES ('x', 0)"
    )
    writing = TableWriting(MySqlTarget("t", ("k", "n"), (0,)))
    connection = database.server.connect(database.name)
    writing.prepare(connection)
    keys = pa.array(["a", "A", "X", "x", "b", "B"])
    assert not writing.has_exact_keys([keys.type])
    writing.run(connection, [keys, pa.array(range(6))], np.array([False, False, True, False, False, True]))
    connection.close()
    assert database.execute("SELECT * FROM t ORDER BY k") == [("a", 1), ("x", 3)]


def test_mistakes_are_named(database: Database) -> None:
    engine = "Aria" if database.server.dialect == "mariadb" else "MyISAM"
    database.execute(
        "CREATE TABLE t (a INT, b INT GENERATED ALWAYS AS (a) STORED)",
        f"CREATE TABLE flat (a INT PRIMARY KEY) ENGINE = {engine}",
    )

    def fails(columns: str, more: str, kind: type[Exception], text: str, table: str = "t") -> None:
        tables = environment()
        tables.execute_sql(ddl(database, columns, table, more))
        conflict = " ON CONFLICT DO DEDUPLICATE" if "PRIMARY KEY" in columns else ""
        values = "ARRAY[1]" if "ARRAY" in columns else "1"
        with pytest.raises(kind, match=text):
            tables.execute_sql(f"INSERT INTO t VALUES ({values}){conflict}").wait()

    fails("a INT, PRIMARY KEY (a) NOT ENFORCED", "", PenstockError, "has no unique index of a")
    fails("b INT", "", PenstockError, "column 'b' .* is computed by the server")
    fails("c INT", "", PenstockError, "has no column 'c'; it has a, b")
    fails("a INT", "", PenstockError, "there is no table", "absent")
    fails("a ARRAY<INT>", "", UnsupportedError, "column 'a' .* MySQL and MariaDB: declare it as STRING")
    fails("a INT", ", 'driver' = 'org.postgresql.Driver'", ValidationError, "leave it out")
    exactly = ", 'sink.delivery-guarantee' = 'exactly-once'"
    fails("a INT, PRIMARY KEY (a) NOT ENFORCED", exactly, PenstockError, "which has no transactions", "flat")


def test_a_catalog_finds_the_tables_of_the_server(database: Database) -> None:
    database.execute(
        "CREATE TABLE `a.b` (id BIGINT UNSIGNED PRIMARY KEY, v VARCHAR(9) NOT NULL COMMENT 'words', e ENUM('x'), "
        "y YEAR, m TIMESTAMP(3) NULL, d DATETIME(6), o BIT(1), z DECIMAL(9, 2))",
        "INSERT INTO `a.b` VALUES (18446744073709551615, 'v', 'x', 2020, '2020-01-01 00:00:00.125', NULL, 1, 1.5)",
        "CREATE VIEW seen AS SELECT v FROM `a.b`",
        "CREATE TABLE odd (p POINT)",
    )
    tables = environment()
    url = f"jdbc:{database.server.dialect}://127.0.0.1:{database.server.port}/"
    options = f"'type' = 'jdbc', 'default-database' = '{database.name}', 'username' = 'root', 'password' = ''"
    with pytest.raises(ValidationError, match="needs the options password"):
        tables.execute_sql(f"CREATE CATALOG my WITH ({options}, 'base-url' = '{url}')")
    database.execute("CREATE USER IF NOT EXISTS reader@localhost IDENTIFIED BY 'letmein56'")
    database.execute(f"GRANT ALL ON {database.name}.* TO reader@localhost")
    options = options.replace("'root'", "'reader'").replace("''", "'letmein56'")
    tables.execute_sql(f"CREATE CATALOG my WITH ({options}, 'base-url' = '{url}')")
    tables.execute_sql("USE CATALOG my")
    assert (database.name,) in collected(tables, "SHOW DATABASES")
    assert collected(tables, "SHOW TABLES") == [("a.b",), ("odd",), ("seen",)]
    described = {row[0]: row[1] for row in collected(tables, "DESCRIBE `a.b`")}
    assert described == {
        "id": "DECIMAL(20, 0)",
        "v": "VARCHAR(9)",
        "e": "STRING",
        "y": "INT",
        "m": "TIMESTAMP_LTZ(3)",
        "d": "TIMESTAMP(6)",
        "o": "BOOLEAN",
        "z": "DECIMAL(9, 2)",
    }
    assert collected(tables, "SELECT id, v, e, y, o, z FROM `a.b`") == [
        (Decimal(2**64 - 1), "v", "x", 2020, True, Decimal("1.50"))
    ]
    assert collected(tables, "SELECT v FROM seen") == [("v",)]
    with pytest.raises(UnsupportedError, match=r"column 'p' .* is point"):
        tables.execute_sql("SELECT * FROM odd")
    with pytest.raises(UnsupportedError, match="is read-only"):
        tables.execute_sql("DROP TABLE seen")
    shown = str(collected(tables, "SHOW CREATE TABLE seen"))
    assert "letmein" not in shown
    with pytest.raises(OperationError, match=r"catalog bad: .*refuses.*Access denied") as caught:
        tables.execute_sql(f"CREATE CATALOG bad WITH ({options.replace('56', '57')}, 'base-url' = '{url}')")
    assert "letmein" not in str(caught.value)
