"""PostgreSQL → join → PostgreSQL, as a job: what its tables must come to, and a writer that changes them.

Orders and people are joined by their changes into the table `joined`, by key and exactly once: written at least once it
would keep rows that the join gave before a failure and not after it, because the changes of two tables come in another
order the next time. Each version of an order is also inserted
into `seen`, exactly once: it has no key, so a version that is written twice is there twice. Versions that were replaced
before the table was read are never seen, and so only those count that are written when all of it has been.

Run as a program, it is the job's driver: `python -m tests.connectors.postgres.pipeline '{"port": …}'`.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Mapping
from typing import Any

import psycopg

from penstock.common import Configuration, Row, RowKind, Types, WatermarkStrategy
from penstock.connectors.postgres.cdc.source import PostgresSourceBuilder
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSink
from penstock.table import StreamTableEnvironment

NAME = "postgres to postgres"
TABLES = (
    "CREATE TABLE orders (id int PRIMARY KEY, who int, version int); "
    "CREATE TABLE people (id int PRIMARY KEY, name text); "
    "CREATE TABLE joined (id int PRIMARY KEY, name text, version int); "
    "CREATE TABLE seen (id int, version int); CREATE TABLE written (id int, version int); "
    "CREATE SEQUENCE versions; ALTER TABLE orders REPLICA IDENTITY FULL; "
    "INSERT INTO people SELECT n, 'p' || n FROM generate_series(1, 20) n"
)
#: The two are equal in the end.
JOINED = "SELECT id, name, version FROM joined ORDER BY id"
JOINED_SHOULD_BE = "SELECT o.id, p.name, o.version FROM orders o JOIN people p ON p.id = o.who ORDER BY o.id"
#: Versions that were not seen, or not written, or seen twice.
WRONG = (
    "SELECT id, version, count(*), 'seen twice' FROM seen GROUP BY id, version HAVING count(*) > 1 "
    "UNION ALL (SELECT id, version, 0, 'lost' FROM written WHERE version > {since} EXCEPT "
    "SELECT id, version, 0, 'lost' FROM seen) "
    "UNION ALL (SELECT id, version, 1, 'never written' FROM seen EXCEPT "
    "SELECT id, version, 1, 'never written' FROM written)"
)


def build(env: StreamExecutionEnvironment, port: int, database: str) -> None:
    """Add the pipeline to a program."""
    tables = StreamTableEnvironment.create(env)
    cdc = (
        f"'connector' = 'postgres-cdc', 'hostname' = '127.0.0.1', 'port' = '{port}', 'username' = 'postgres', "
        f"'database-name' = '{database}', 'schema-name' = 'public', 'scan.incremental.snapshot.chunk.size' = '50'"
    )
    key = "id INT, PRIMARY KEY (id) NOT ENFORCED"
    url = f"postgresql://postgres@127.0.0.1:{port}/{database}"
    tables.execute_sql(
        f"CREATE TABLE orders ({key}, who INT, version INT) WITH ({cdc}, 'table-name' = 'orders', "
        "'slot.name' = 'orders')"
    )
    tables.execute_sql(
        f"CREATE TABLE people ({key}, name STRING) WITH ({cdc}, 'table-name' = 'people', 'slot.name' = 'people', "
        "'changelog-mode' = 'upsert')"
    )
    tables.execute_sql(
        f"CREATE TABLE joined ({key}, name STRING, version INT) WITH ('connector' = 'jdbc', 'url' = '{url}', "
        "'table-name' = 'joined', 'sink.delivery-guarantee' = 'exactly-once', 'sink.max-retries' = '6')"
    )
    statements = tables.create_statement_set()
    statements.add_insert_sql(
        "INSERT INTO joined SELECT o.id, p.name, o.version FROM orders o JOIN people p ON p.id = o.who "
        "ON CONFLICT DO DEDUPLICATE"
    )
    statements.attach_as_datastream()
    changes = PostgresSourceBuilder().hostname("127.0.0.1").port(port).database(database).username("postgres")
    source = changes.table_list("public.orders").slot_name("versions").build()
    orders = env.from_source(source, WatermarkStrategy.no_watermarks(), "versions").uid("versions")
    seen = JdbcSink.exactly_once_sink("INSERT INTO seen (id, version) VALUES (?, ?)", None, JdbcConnectionOptions(url))
    orders.filter(_is_there).map(_pair, Types.TUPLE([Types.INT(), Types.INT()])).rebalance().sink_to(seen).uid("seen")


def _is_there(row: Row) -> bool:
    return row.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER)


def _pair(row: Row) -> tuple[int, int]:
    return row.id, row.version


class Writer:
    """Changes orders and people, several in a transaction; some transactions are taken back."""

    def __init__(self, url: str, seed: int) -> None:
        self._url = url
        self._chance = random.Random(seed)

    def write(self) -> None:
        """One transaction. Raises `psycopg.OperationalError` where the server is away."""
        with psycopg.connect(self._url) as connection:
            for _ in range(self._chance.randrange(1, 6)):
                self._change(connection)
            if self._chance.random() < 0.2:
                connection.rollback()

    def _change(self, connection: psycopg.Connection[Any]) -> None:
        chance = self._chance
        order, person, draw = chance.randrange(300), chance.randrange(1, 25), chance.random()
        if draw < 0.1:
            connection.execute("UPDATE people SET name = name || '.' WHERE id = %s", (person,))
        elif draw < 0.15:
            connection.execute(
                "INSERT INTO people VALUES (%s, 'new') ON CONFLICT (id) DO UPDATE SET name = 'again'", (person,)
            )
        elif draw < 0.2:
            connection.execute("DELETE FROM people WHERE id = %s", (person,))
        elif draw < 0.3:
            connection.execute("DELETE FROM orders WHERE id = %s", (order,))
        else:
            connection.execute(
                "WITH changed AS (INSERT INTO orders VALUES (%s, %s, nextval('versions')) ON CONFLICT (id) DO UPDATE "
                "SET who = EXCLUDED.who, version = EXCLUDED.version RETURNING id, version) "
                "INSERT INTO written SELECT id, version FROM changed",
                (order, person),
            )


def main(told: Mapping[str, Any]) -> None:
    configuration = Configuration.from_dict({key: str(value) for key, value in told["options"].items()})
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    build(env, told["port"], told["database"])
    env.execute(NAME)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
