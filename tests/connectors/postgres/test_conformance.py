"""The sources and sinks of PostgreSQL keep the rules of connectors, on a real server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from tests.connectors.postgres.conftest import Database
from tests.connectors.postgres.test_cdc import builder as cdc_builder
from tests.connectors.postgres.test_scan import builder as scan_builder
from tests.connectors.postgres.test_sink import INSERT, PAIR, UPSERT, connection_options
from tests.servers.waiting import await_true

from penstock.common import RowKind
from penstock.datastream.connectors.jdbc import JdbcExactlyOnceOptions, JdbcSink
from penstock.testing.connectors import (
    SINK_CASES,
    SOURCE_CASES,
    SinkUnderTest,
    SourceUnderTest,
    check_sink,
    check_source,
    last_of_each,
)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("case", SOURCE_CASES)
def test_a_scan(database: Database, case: str) -> None:
    database.execute("CREATE TABLE t AS SELECT n FROM generate_series(1, 16) n")

    def prepare() -> SourceUnderTest:
        source = scan_builder(database).set_partitions("n", 1, 16, 3).set_fetch_size(3).build()
        return SourceUnderTest(
            source,
            range(1, 17),
            result=lambda rows: [row.n for row in rows],
            real_time=True,
            silence_max=5_000,
        )

    check_source(prepare, case, parallelisms=[1, 2], batch_sizes=[3], places=4)


def fold_changes(changes: Sequence[Any]) -> list[Any]:
    """The rows that changes come to; one that is taken away and is not there is shown with its kind."""
    rows: Counter[Any] = Counter()
    for change in changes:
        kind = change.get_row_kind()
        rows[tuple(change)] += 1 if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER) else -1
    return [row if count > 0 else ("gone", *row) for row, count in rows.items() for _ in range(abs(count))]


@pytest.mark.parametrize("case", [case for case in SOURCE_CASES if case != "dealt-ahead"])
def test_rows_and_their_changes(database: Database, case: str) -> None:
    runs = iter(range(1_000))

    def prepare() -> SourceUnderTest:
        table, slot = f"t{next(runs)}", f"slot_{database.name}"
        database.execute(
            f"CREATE TABLE {table} (id int PRIMARY KEY, name text); ALTER TABLE {table} REPLICA IDENTITY FULL; "
            f"INSERT INTO {table} SELECT n, 'a' FROM generate_series(1, 6) n"
        )

        def change() -> None:
            database.execute(f"UPDATE {table} SET name = 'b' WHERE id < 3; DELETE FROM {table} WHERE id = 3")

        def add() -> None:
            database.execute(f"INSERT INTO {table} VALUES (7, 'c')")

        def clean() -> None:
            mine = f"FROM pg_replication_slots WHERE slot_name = '{slot}'"
            # The server takes a moment to notice that the reader is gone.
            await_true(lambda: not database.execute(f"SELECT 1 {mine} AND active"), f"{slot} stays in use")
            database.execute(f"SELECT pg_drop_replication_slot(slot_name) {mine}")
            database.execute(f"DROP PUBLICATION IF EXISTS {slot}_publication; DROP TABLE {table}")

        return SourceUnderTest(
            cdc_builder(database, table).split_size(4).build(),
            [(1, "b"), (2, "b"), (4, "a"), (5, "a"), (6, "a"), (7, "c")],
            extend=[change, add],
            result=fold_changes,
            real_time=True,
            silence_max=5_000,
            close=clean,
        )

    check_source(prepare, case, parallelisms=[1], batch_sizes=[2], places=2)


@pytest.mark.parametrize("case", SINK_CASES)
@pytest.mark.parametrize("kind", ["exactly once", "at least once", "upserts"])
def test_sinks(database: Database, kind: str, case: str) -> None:
    def prepare() -> SinkUnderTest:
        key = " PRIMARY KEY" if kind == "upserts" else ""
        database.execute(f"DROP TABLE IF EXISTS t, penstock_commits; CREATE TABLE t (id int{key}, name text)")
        sql, options = UPSERT if kind == "upserts" else INSERT, connection_options(database)
        if kind == "exactly once":
            sink = JdbcSink.exactly_once_sink(sql, PAIR, options, JdbcExactlyOnceOptions("penstock_commits", 3))
        else:
            sink = JdbcSink.sink(sql, PAIR, options)

        def read() -> list[Any]:
            return database.execute("SELECT * FROM t")

        if kind == "upserts":
            rows = [(n % 5, f"{n}") for n in range(16)]
            return SinkUnderTest(sink, rows, read, shown=last_of_each(first), key=first)
        return SinkUnderTest(sink, [(n, f"{n}") for n in range(16)], read)

    check_sink(prepare, case, parallelisms=[1, 2], places=3)


def first(row: tuple[Any, ...]) -> Any:
    return row[0]
