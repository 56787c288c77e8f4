"""`JdbcSource` reads each row once, wherever it is stopped."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from typing import Any

import pytest
from tests.connectors.postgres.conftest import Database
from tests.servers.waiting import await_true

from penstock.base.errors import ConfigurationError, FormatError, MissingPathError, UnknownNameError
from penstock.common import Configuration, Time, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.async_data_stream import AsyncDataStream
from penstock.datastream.connectors.jdbc import (
    JdbcConnectionOptions,
    JdbcLookup,
    JdbcSource,
    JdbcSourceBuilder,
    LookupCache,
)
from penstock.datastream.function import AsyncFunction
from penstock.runtime.connector import InputStatus
from penstock.runtime.records import Batch
from penstock.testing.connectors import SourceRun

VALUES = """
    CREATE TABLE t (
        b bool, i int2, l int8, f float4, d float8, n numeric(10, 2), m numeric, s text, v varchar(5), x bytea,
        day date, at time, ts timestamp, tz timestamptz, j jsonb, u uuid, a int[], w text[]
    );
    INSERT INTO t VALUES (
        true, 1, 2, 1.5, 'NaN', 1.25, 3.5, E'a"b\\n,\\\\', 'abc', '\\x00ff', '2020-02-29', '12:30:01.5',
        '2020-01-01 00:00:00.000001', '2020-01-01 01:00:00+01', '{"a": 1}', '00000000-0000-0000-0000-000000000001',
        '{1,NULL,3}', ARRAY['a', 'NULL', NULL, 'x,"y']
    ), (NULL, NULL, NULL, NULL, NULL, NULL, NULL, '', NULL, '', NULL, NULL, NULL, NULL, NULL, NULL, '{}', NULL)
"""


def builder(database: Database, table: str = "t") -> JdbcSourceBuilder:
    return JdbcSource.builder().set_db_url(database.jdbc_url).set_username("postgres").set_table_name(table)


def read(source: JdbcSource, parallelism: int = 1, at_once: int = 1_000, hostile: bool = False) -> SourceRun:
    """As the harness does, with time for the server to answer; a restart after every batch."""
    cluster = SourceRun(source, parallelism)
    try:
        turn = 0
        deadline = time.monotonic() + 60
        while len(cluster.ended) < parallelism:
            assert time.monotonic() < deadline
            found = cluster.poll(turn % parallelism, at_once)
            turn += 1
            if isinstance(found, Batch) and hostile:
                cluster.restart()
            elif found is InputStatus.NOTHING_AVAILABLE and not cluster.deliver():
                time.sleep(0.0005)
        return cluster
    finally:
        cluster.close()


def test_values_of_all_types(database: Database) -> None:
    database.execute(VALUES)
    rows = sorted(map(tuple, read(builder(database).build()).all_values), key=lambda row: row[7])
    assert rows[0] == (*[None] * 7, "", None, b"", *[None] * 6, [], None)
    assert str(rows[1][4]) == "nan"
    assert rows[1][:4] + rows[1][5:] == (
        *(True, 1, 2, 1.5, Decimal("1.25"), Decimal("3.5"), 'a"b\n,\\', "abc", b"\x00\xff"),
        *(date(2020, 2, 29), time_of_day(12, 30, 1, 500_000), datetime(2020, 1, 1, 0, 0, 0, 1)),
        *(datetime(2020, 1, 1, tzinfo=UTC), '{"a": 1}', "00000000-0000-0000-0000-000000000001"),
        *([1, None, 3], ["a", "NULL", None, 'x,"y']),
    )


@pytest.mark.parametrize("hostile", [False, True])
@pytest.mark.parametrize("table", ["keyed", "keyless", "seen"])
def test_each_row_comes_once(database: Database, table: str, hostile: bool) -> None:
    """G8: a reader goes on where it was, in tables with a key and without one, and in views."""
    database.execute(
        'CREATE TABLE keyed (a text COLLATE "C", b int, n int, PRIMARY KEY (a, b));'
        "INSERT INTO keyed SELECT chr(65 + n % 5), n, n FROM generate_series(1, 300) n;"
        "CREATE TABLE keyless AS"
        " SELECT n % 7 AS same, NULL::text AS nothing, n / 2 AS n FROM generate_series(1, 300) n;"
        "CREATE VIEW seen AS SELECT * FROM keyless"
    )
    source = builder(database, table).set_columns("n").set_partitions("n", 10, 200, 4).set_fetch_size(16).build()
    cluster = read(source, parallelism=2, at_once=7, hostile=hostile)
    expected = [n if table == "keyed" else n // 2 for n in range(1, 301)]
    assert sorted(row.n for row in cluster.all_values) == expected


def test_partitions_and_conditions(database: Database) -> None:
    database.execute("CREATE TABLE t AS SELECT nullif(n, 5) AS n FROM generate_series(-10, 20) n")
    source = builder(database).set_partitions("n", 0, 9, 3).build()
    conditions = source.scanned.partitions.conditions('"n"')  # type: ignore[union-attr]
    assert conditions == ['("n" < 3 OR "n" IS NULL)', '"n" >= 3 AND "n" < 6', '"n" >= 6']
    assert len(read(source, parallelism=2).all_values) == 31
    assert len(read(builder(database).set_condition("n > 18").build()).all_values) == 2
    assert len(builder(database).set_partitions("n", 0, 1, 8).build().scanned.partitions.conditions('"n"')) == 2  # type: ignore[union-attr]


def test_all_splits_are_of_one_moment(database: Database) -> None:
    """Rows that move between parts while they are read come once; the snapshot is let go in the end."""
    database.execute("CREATE TABLE t AS SELECT n FROM generate_series(0, 99) n")
    cluster = SourceRun(builder(database).set_partitions("n", 0, 99, 10).set_fetch_size(1).build())
    while not cluster.all_values:
        cluster.poll(0, 1)
        cluster.deliver()
    database.execute("UPDATE t SET n = 99 - n; DELETE FROM t WHERE n < 50")
    while not cluster.ended:
        cluster.poll(0, 100)
        cluster.deliver()
    assert sorted(row.n for row in cluster.all_values) == list(range(100))
    held = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'"
    # The server notices a moment later.
    await_true(lambda: database.execute(held) == [(0,)], "a connection still holds the snapshot")
    cluster.close()


def test_a_snapshot_that_comes_too_late_is_let_go(database: Database) -> None:
    database.execute("CREATE TABLE t AS SELECT 1 AS n")
    cluster = SourceRun(builder(database).build())
    cluster.close()
    cluster.deliver()  # the background work ends when the job has
    held = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'"
    # The server ends a session a moment after its client has closed it.
    await_true(lambda: database.execute(held) == [(0,)], "a transaction is left open")
    cluster.close()


def test_a_reader_that_reads_has_more_now(database: Database) -> None:
    """So an epoch of MICRO_BATCH waits for the rows of its parts, and the job reads them all."""
    database.execute("CREATE TABLE t AS SELECT n FROM generate_series(0, 99) n")
    source = builder(database).build()
    run = SourceRun(source)
    while not run.readers[0].snapshot_state(1):
        run.poll(0, 1)
        run.deliver()
    run.poll(0, 1)
    assert run.readers[0].retry_after_ms() == 0
    run.close()
    told = {"execution.target": "local", "execution.runtime-mode": "MICRO_BATCH"}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(told)).set_parallelism(1)
    rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "t").execute_and_collect()
    assert sorted(row.n for row in rows) == list(range(100))


def test_mistakes_are_named(database: Database) -> None:
    database.execute("CREATE TABLE t (n numeric); INSERT INTO t VALUES ('NaN')")
    with pytest.raises(ConfigurationError, match="needs set_db_url"):
        JdbcSource.builder().build()
    with pytest.raises(MissingPathError, match='has no table "nothing"'):
        builder(database, "nothing").build()
    with pytest.raises(UnknownNameError, match="no column 'm'; it has n"):
        builder(database).set_columns("m").build()
    with pytest.raises(ConfigurationError, match="lower is not above"):
        builder(database).set_partitions("n", 5, 1, 2)
    with pytest.raises(FormatError, match="column 'n'"):
        read(builder(database).build())


class Enrich(AsyncFunction):
    def __init__(self, people: JdbcLookup) -> None:
        self.people = people

    def close(self) -> None:
        self.people.close()

    async def async_invoke(self, value: Any) -> list[Any]:
        return [(value, row.name) for row in await self.people.rows(value)] or [(value, None)]


def people(database: Database, cache: LookupCache | None) -> JdbcLookup:
    return JdbcLookup(JdbcConnectionOptions(database.url), "people", ["id"], ["name"], cache)


def test_a_stream_is_enriched(database: Database) -> None:
    database.execute("CREATE TABLE people AS SELECT n::int AS id, 'p' || n AS name FROM generate_series(0, 9) n")
    configuration = Configuration.from_dict({"execution.target": "local"})
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(1)
    numbers = env.from_collection([n % 12 for n in range(100)])
    enrich = Enrich(people(database, LookupCache(keys_max=100)))
    names = list(AsyncDataStream.unordered_wait(numbers, enrich, Time.seconds(20), 50).execute_and_collect())
    assert sorted(names) == sorted((n % 12, f"p{n % 12}" if n % 12 < 10 else None) for n in range(100))


def test_cache(database: Database) -> None:
    asyncio.run(check_lookup_cache(database))


async def check_lookup_cache(database: Database) -> None:
    database.execute("CREATE TABLE people (id int, name text); INSERT INTO people VALUES (1, 'ann'), (1, 'bob')")
    lookup = people(database, LookupCache(keys_max=2))
    assert await lookup.rows(None) == []
    assert sorted(row.name for row in await lookup.rows(1)) == ["ann", "bob"]
    assert await lookup.rows(2) == []
    assert (len(await lookup.rows(1)), await lookup.rows(2)) == (2, [])
    assert (lookup.hits, lookup.asked) == (2, 2)
    await lookup.rows(3)
    await lookup.rows(1)
    assert (lookup.hits, lookup.asked) == (2, 4)
    lookup.close()
