"""The connector `postgres-cdc`: changes of a table go through queries, and into another table."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.connectors.postgres.conftest import Database

from penstock.base.errors import UnsupportedError
from penstock.sql.data.errors import ValidationError
from penstock.table import EnvironmentSettings, TableEnvironment

TABLES = (
    "CREATE TABLE orders (id int PRIMARY KEY, who int, price numeric(10, 2)); "
    "CREATE TABLE people (id int PRIMARY KEY, name text); "
    "CREATE TABLE joined (id int PRIMARY KEY, name text, price numeric(10, 2)); "
    "ALTER TABLE orders REPLICA IDENTITY FULL; ALTER TABLE people REPLICA IDENTITY FULL; "
    "INSERT INTO people SELECT n, 'p' || n FROM generate_series(1, 5) n; "
    "INSERT INTO orders SELECT n, 1 + n % 5, n FROM generate_series(1, 100) n"
)
SHOULD_BE = "SELECT o.id, p.name, o.price FROM orders o JOIN people p ON p.id = o.who ORDER BY o.id"


def environment() -> TableEnvironment:
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    config = tables.get_config().set("execution.target", "local").set("parallelism.default", "2")
    config.set("execution.checkpointing.interval", "50 ms")
    return tables


def changes(database: Database, table: str, columns: str, mode: str = "all", more: str = "") -> str:
    return (
        f"CREATE TABLE {table} ({columns}) WITH ('connector' = 'postgres-cdc', 'hostname' = '127.0.0.1', "
        f"'port' = '{database.server.port}', 'username' = 'postgres', 'database-name' = '{database.name}', "
        f"'schema-name' = 'public', 'table-name' = '{table}', 'slot.name' = '{table}_{database.name}', "
        f"'changelog-mode' = '{mode}'{more})"
    )


def becomes(database: Database, query: str, wanted: list[tuple[Any, ...]], within_s: float = 60) -> None:
    deadline = time.monotonic() + within_s
    while (found := database.execute(query)) != wanted:
        assert time.monotonic() < deadline, (found, wanted)
        time.sleep(0.05)


@pytest.mark.parametrize("mode", ["all", "upsert"])
def test_a_join_of_two_tables_follows_them(database: Database, mode: str) -> None:
    database.execute(TABLES)
    tables = environment()
    key = "id INT, PRIMARY KEY (id) NOT ENFORCED"
    tables.execute_sql(changes(database, "orders", f"{key}, who INT, price DECIMAL(10, 2)", mode))
    tables.execute_sql(changes(database, "people", f"{key}, name STRING", mode))
    tables.execute_sql(
        f"CREATE TABLE joined ({key}, name STRING, price DECIMAL(10, 2)) WITH ('connector' = 'jdbc', "
        f"'url' = '{database.url}', 'table-name' = 'joined', 'sink.buffer-flush.interval' = '20 ms')"
    )
    job = tables.execute_sql(
        "INSERT INTO joined SELECT o.id, p.name, o.price FROM orders o JOIN people p ON p.id = o.who "
        "ON CONFLICT DO DEDUPLICATE"
    ).get_job_client()
    assert job is not None
    result = "SELECT * FROM joined ORDER BY id"
    becomes(database, result, database.execute(SHOULD_BE))
    database.execute(
        "UPDATE people SET name = 'new' WHERE id = 2; DELETE FROM people WHERE id = 3; "
        "UPDATE orders SET who = 4 WHERE id < 20; DELETE FROM orders WHERE id > 90; "
        "INSERT INTO orders VALUES (200, 1, 7)"
    )
    becomes(database, result, database.execute(SHOULD_BE))
    job.cancel().result()


def test_metadata_and_the_table_alone(database: Database) -> None:
    database.execute(TABLES)
    tables = environment()
    columns = (
        "id INT, t STRING METADATA FROM 'table_name' VIRTUAL, d STRING METADATA FROM 'database_name' VIRTUAL, "
        "s STRING METADATA FROM 'schema_name' VIRTUAL, o TIMESTAMP_LTZ(3) METADATA FROM 'op_ts' VIRTUAL"
    )
    more = ", 'scan.startup.mode' = 'snapshot'"
    tables.execute_sql(changes(database, "people", columns, more=more))
    with tables.execute_sql("SELECT id, t, d, s, CAST(o AS STRING) FROM people").collect() as rows:
        found = sorted(map(tuple, rows))
    assert [row[:4] for row in found] == [(n, "people", database.name, "public") for n in range(1, 6)]
    assert {row[4][:4] for row in found} == {"1970"}


def test_tables_that_match_are_one_table(database: Database) -> None:
    database.execute(
        "CREATE TABLE tea_1 (id int PRIMARY KEY, n int); CREATE TABLE tea_2 (id int PRIMARY KEY, n int, more text); "
        "CREATE TABLE seen (id int PRIMARY KEY, t text, n int, kind text); INSERT INTO tea_1 VALUES (1, 10); "
        "INSERT INTO tea_2 VALUES (2, 20), (3, 21)"
    )
    tables = environment()
    key = "id INT, PRIMARY KEY (id) NOT ENFORCED"
    columns = f"{key}, t STRING METADATA FROM 'table_name' VIRTUAL, n INT, kind STRING METADATA FROM 'row_kind' VIRTUAL"
    named = changes(database, "tea", columns, "upsert").replace("'table-name' = 'tea'", "'table-name' = 'tea_[0-9]'")
    tables.execute_sql(named)
    tables.execute_sql(
        f"CREATE TABLE seen ({key}, t STRING, n INT, kind STRING) WITH ('connector' = 'jdbc', "
        f"'url' = '{database.url}', 'table-name' = 'seen', 'sink.buffer-flush.interval' = '20 ms')"
    )
    job = tables.execute_sql("INSERT INTO seen SELECT id, t, n, kind FROM tea").get_job_client()
    assert job is not None
    result = "SELECT * FROM seen ORDER BY id"
    becomes(database, result, [(1, "tea_1", 10, "+I"), (2, "tea_2", 20, "+I"), (3, "tea_2", 21, "+I")])
    database.execute("UPDATE tea_2 SET n = 22 WHERE id = 3; DELETE FROM tea_1")
    becomes(database, result, [(2, "tea_2", 20, "+I"), (3, "tea_2", 22, "+U")])
    job.cancel().result()


def test_mistakes_are_named(database: Database) -> None:
    tables = environment()

    def fails(columns: str, mode: str, more: str, kind: type[Exception], text: str) -> None:
        tables.execute_sql("DROP TABLE IF EXISTS people")
        tables.execute_sql(changes(database, "people", columns, mode, more))
        with pytest.raises(kind, match=text):
            tables.execute_sql("SELECT * FROM people").collect()

    fails("id INT", "upsert", "", ValidationError, "declares no PRIMARY KEY")
    fails("id INT", "retract", "", ValidationError, "the changelog mode is all or upsert, not 'retract'")
    fails("id INT", "all", ", 'scan.startup.mode' = 'never'", ValidationError, "startup mode is initial or")
    fails("id INT", "all", ", 'debezium.slot.drop.on.stop' = 'true'", UnsupportedError, "no Debezium")
    fails("id INT", "all", ", 'decoding.plugin.name' = 'wal2json'", ValidationError, "by pgoutput, not by 'wal2json'")
