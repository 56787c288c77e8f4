"""`'type' = 'jdbc'`: a PostgreSQL server as a catalog that is read."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from tests.servers.postgres import PostgresServer, postgres_server
from tests.table.catalog.crosswise import column, environment, rows

from penstock.base.errors import OperationError, UnsupportedError
from penstock.cli.trial.servers import USER
from penstock.sql.data.errors import ValidationError
from penstock.table import TableEnvironment

DDL = """
    CREATE TABLE wide (
        id bigint, part int, b bool, by bytea, i2 smallint, f4 real, f8 double precision, n numeric(10, 2),
        plain numeric, c char(3), v varchar(5), t text, ts timestamp(3), tz timestamptz, d date, ti time(0),
        arr int[], texts text[], serial serial, PRIMARY KEY (part, id)
    );
    COMMENT ON COLUMN wide.t IS 'words';
    INSERT INTO wide VALUES (
        1, 2, true, '\\x01', 3, 0.5, 0.25, 1.50, 2.125, 'abc', 'v', 'text', '2026-01-31 10:00:00.123',
        '2026-01-31 10:00:00+00', '2026-01-31', '10:00:00', '{1,2}', '{"a",NULL}'
    );
    CREATE SCHEMA "Other";
    CREATE TABLE "Other"."Mixed" (a int);
    INSERT INTO "Other"."Mixed" VALUES (7);
    CREATE VIEW seen AS SELECT a FROM "Other"."Mixed";
    CREATE TABLE odd (a int, p point)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as started:
        started.execute("CREATE DATABASE shop")
        started.execute(DDL, "shop")
        yield started


@pytest.fixture
def tables(server: PostgresServer) -> TableEnvironment:
    return environment_of(server)


def create(server: PostgresServer, **more: str) -> str:
    base = {"type": "jdbc", "base-url": f"jdbc:postgresql://127.0.0.1:{server.port}/", "default-database": "shop"}
    options = base | {"username": USER, "password": "letmein56"} | more
    told = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    return f"CREATE CATALOG pg WITH ({told})"


def test_databases_and_tables_are_those_of_the_server(tables: TableEnvironment) -> None:
    assert column(tables, "SHOW CURRENT DATABASE") == ["shop"]
    assert {"postgres", "shop"} <= set(column(tables, "SHOW DATABASES"))
    assert "template1" not in column(tables, "SHOW DATABASES")
    assert column(tables, "SHOW TABLES") == ["Other.Mixed", "public.odd", "public.seen", "public.wide"]
    assert column(tables, "SHOW VIEWS") == []
    with pytest.raises(ValidationError, match="does not exist"):
        tables.execute_sql("SHOW TABLES FROM nothing")


def test_every_type_is_read(tables: TableEnvironment) -> None:
    described = {row[0]: row[1:4] for row in rows(tables, "DESCRIBE wide")}
    assert [row[0] for row in described.values()] == [
        *("BIGINT", "INT", "BOOLEAN", "BYTES", "SMALLINT", "FLOAT", "DOUBLE", "DECIMAL(10, 2)", "DECIMAL(38, 18)"),
        *("CHAR(3)", "VARCHAR(5)", "STRING", "TIMESTAMP(3)", "TIMESTAMP_LTZ(6)", "DATE", "TIME(0)"),
        *("ARRAY<INT>", "ARRAY<STRING>", "INT"),
    ]
    assert described["id"][1:] == (False, "PRI(part, id)")
    (row,) = rows(tables, "SELECT id, n, plain, c, ts, d, arr, texts FROM `public.wide`")
    assert row[:4] == (1, Decimal("1.50"), Decimal("2.125"), "abc")
    moment = datetime.datetime(2026, 1, 31, 10, 0, 0, 123_000)
    assert row[4:] == (moment, moment.date(), [1, 2], ["a", None])
    assert rows(tables, "SELECT a FROM pg.shop.`Other.Mixed`") == [(7,)]
    assert rows(tables, "SELECT a FROM seen") == [(7,)]
    with pytest.raises(UnsupportedError, match=r"column 'p' of table shop\.odd .* is point"):
        tables.execute_sql("DESCRIBE odd")
    with pytest.raises(ValidationError, match=r"'public\.none'"):
        tables.execute_sql("SELECT * FROM `public.none`")


def test_tables_are_written(tables: TableEnvironment, server: PostgresServer) -> None:
    tables.execute_sql("INSERT INTO `Other.Mixed` VALUES (8)").wait()
    assert server.execute('SELECT a FROM "Other"."Mixed" ORDER BY a', "shop") == [(7,), (8,)]
    server.execute('DELETE FROM "Other"."Mixed" WHERE a = 8', "shop")


REFUSED = [
    "CREATE DATABASE d",
    "DROP DATABASE postgres",
    "CREATE TABLE t (a INT)",
    "CREATE TABLE t AS SELECT 1 AS a",
    "ALTER TABLE `public.wide` ADD x INT",
    "ALTER TABLE `public.wide` RENAME TO other",
    "DROP TABLE `public.wide`",
    "CREATE VIEW v AS SELECT 1 AS a",
    "CREATE FUNCTION f AS 'a.b' LANGUAGE PYTHON",
]


@pytest.mark.parametrize("sql", REFUSED)
def test_nothing_is_changed(tables: TableEnvironment, sql: str) -> None:
    with pytest.raises(UnsupportedError, match="is read-only, as in Flink"):
        tables.execute_sql(sql)
    tables.execute_sql("CREATE TABLE IF NOT EXISTS `public.wide` (a INT)")


def test_the_password_is_shown_nowhere(tables: TableEnvironment) -> None:
    for sql in ("SHOW CREATE CATALOG pg", "DESCRIBE CATALOG EXTENDED pg", "SHOW CREATE TABLE `public.wide`"):
        assert "letmein" not in str(rows(tables, sql)), sql
    assert "******" in column(tables, "SHOW CREATE CATALOG pg")[0]


WRONG: list[tuple[dict[str, str], type[Exception], str]] = [
    ({"password": ""}, ValidationError, "needs the options password"),
    ({"colour": "red"}, ValidationError, "Unsupported options found for catalog 'pg': colour"),
    ({"base-url": "jdbc:oracle://db:1521/"}, UnsupportedError, "no dialect of Oracle"),
    ({"base-url": "jdbc:postgresql://db:5432/shop"}, ValidationError, "ends before the name of a database"),
    ({"default-database": "nothing"}, OperationError, "does not answer: .*nothing"),
]


@pytest.mark.parametrize(("more", "error", "message"), WRONG)
def test_wrong_options_are_told(server: PostgresServer, more: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        environment().execute_sql(create(server, **more))


def test_the_server_removes_rows(server: PostgresServer) -> None:
    """DELETE and TRUNCATE run on the server, if it evaluates the condition as a query would."""
    server.execute(
        "CREATE TABLE gone (id bigint, t text); INSERT INTO gone VALUES (1, 'a'), (2, 'b'), (3, NULL)", "shop"
    )
    tables = environment(batch=True)
    tables.execute_sql(create(server))
    assert rows(tables, "DELETE FROM pg.shop.gone WHERE id = 1 OR t IS NULL") == [(2,)]
    with pytest.raises(UnsupportedError, match="DELETE, UPDATE and MERGE are not supported by connector 'jdbc'"):
        tables.execute_sql("DELETE FROM pg.shop.gone WHERE t = 'b'")  # a collation may find more text equal
    server.execute("CREATE VIEW joined AS SELECT DISTINCT id FROM gone", "shop")
    with pytest.raises(OperationError, match="could not be removed"):
        tables.execute_sql("DELETE FROM pg.shop.joined WHERE id = 2")  # a view that the server does not change
    assert rows(tables, "TRUNCATE TABLE pg.shop.gone") == [("OK",)]
    assert column(environment_of(server), "SELECT id FROM gone") == []


def environment_of(server: PostgresServer) -> TableEnvironment:
    made = environment()
    made.execute_sql(create(server))
    made.execute_sql("USE CATALOG pg")
    return made
