"""`JdbcSink` on MySQL and MariaDB: what it writes, once or by key, and what it refuses."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from tests.connectors.mysql.conftest import Database

from penstock.base.errors import PenstockError
from penstock.common import Types
from penstock.connectors.mysql.sink import StatementWriting, parse_statement, to_literal_rows
from penstock.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSink, JdbcSource
from penstock.testing.connectors import (
    SINK_CASES,
    SOURCE_CASES,
    SinkHost,
    SinkUnderTest,
    SourceUnderTest,
    check_sink,
    check_source,
    last_of_each,
)

PAIR = Types.ROW([Types.INT(), Types.STRING()])
INSERT = "INSERT INTO t (id, name) VALUES (?, ?)"
UPSERT = INSERT + " ON DUPLICATE KEY UPDATE name = VALUES(name)"


def connection_options(database: Database) -> JdbcConnectionOptions:
    return JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(database.url).build()


def write(sink: JdbcSink, rows: Sequence[Any]) -> None:
    writer = pickle.loads(pickle.dumps(sink)).create_writer(SinkHost())
    try:
        writer.write_batch(list(rows), None)
        writer.flush(True)
    finally:
        writer.close()


MOMENT = dt.datetime(2020, 1, 1, 12, 0, 0, 5, dt.timezone(dt.timedelta(hours=2)))


@pytest.mark.parametrize(
    "rows",
    [
        [(1, "a", Decimal("1.10"), MOMENT, b"\\\x00'", True), (2, None, None, None, None, None)],
        # No Arrow array has these together: they are executed row by row.
        [(1, "a", Decimal("1.10"), MOMENT, b"\\\x00'", True), ("2", None, 5, "2020-01-01 10:00:00.000005", "b", 0.0)],
    ],
)
def test_values_of_records_are_written(database: Database, rows: list[tuple[Any, ...]]) -> None:
    database.execute("CREATE TABLE t (i INT, s VARCHAR(9), d DECIMAL(9, 2), m DATETIME(6), y BLOB, b BOOLEAN)")
    write(JdbcSink.sink("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", None, connection_options(database)), rows)
    first, second = database.execute("SELECT * FROM t ORDER BY i")
    in_utc = dt.datetime(2020, 1, 1, 10, 0, 0, 5)
    assert first == (1, "a", Decimal("1.10"), in_utc, b"\\\x00'", 1)
    assert second in [(2, None, None, None, None, None), (2, None, Decimal(5), in_utc, b"b", 0)]


@pytest.mark.parametrize(
    ("sql", "is_plain"),
    [
        (INSERT, True),
        (UPSERT + ";", True),
        ("REPLACE INTO t VALUES (?, ?)", True),
        ("INSERT INTO t VALUES (?, ?) AS new ON DUPLICATE KEY UPDATE name = new.name", True),
        ("INSERT INTO t VALUES (?, ?), (3, 'c')", False),
        ("INSERT INTO t VALUES (?, UPPER(?))", False),
        ("INSERT INTO t VALUES (?, ?) ON DUPLICATE KEY UPDATE name = ?", False),
        ("INSERT INTO t SELECT ?, ?", False),
        ("UPDATE t SET name = ? WHERE id = ?", False),
    ],
)
def test_inserts_of_one_row_are_sent_together(sql: str, is_plain: bool) -> None:
    assert (StatementWriting(parse_statement(sql))._ends is not None) == is_plain


def test_values_without_a_common_type_have_no_literals() -> None:
    assert to_literal_rows([(1,), ("a",)]) is None
    assert to_literal_rows([([1],)]) is None
    literals = to_literal_rows([(None, 2**63 - 1), (None, None)])
    assert literals is not None
    assert literals.to_pylist() == ["(NULL,9223372036854775807)", "(NULL,NULL)"]
    with pytest.raises(PenstockError, match="NaN or infinity"):
        to_literal_rows([(float("nan"),)])


def test_what_the_server_refuses_is_told_and_nothing_of_the_batch_is_there(database: Database) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(3))")
    sink = JdbcSink.sink(INSERT, PAIR, connection_options(database))
    for rows, text in (
        ([(1, "a"), (2, "long")], "Data too long for column 'name'"),
        ([(1, "a"), (1, "b")], "Duplicate entry '1'"),
        ([(1, "a"), (2**40, "b")], "Out of range value for column 'id'"),
        ([(1, "a"), (2, {"x": 1})], "write it as text, such as JSON"),
    ):
        with pytest.raises(PenstockError, match=text):
            write(sink, rows)
        assert database.execute("SELECT * FROM t") == []


def test_a_row_that_is_longer_than_a_packet_is_named(database: Database) -> None:
    database.execute("CREATE TABLE t (id INT, name LONGTEXT)", "SET GLOBAL max_allowed_packet = 1048576")
    try:
        sink = JdbcSink.sink(INSERT, PAIR, connection_options(database))
        write(sink, [(1, "x" * 600_000), (2, "y" * 600_000)])
        with pytest.raises(PenstockError, match="raise its variable max_allowed_packet"):
            write(sink, [(3, "x" * 1_100_000)])
    finally:
        database.execute("SET GLOBAL max_allowed_packet = 16777216")
    assert database.execute("SELECT id, LENGTH(name) FROM t ORDER BY id") == [(1, 600_000), (2, 600_000)]


@pytest.mark.slow
@pytest.mark.parametrize("case", SOURCE_CASES)
def test_a_scan_keeps_the_rules(database: Database, case: str) -> None:
    database.execute(
        "CREATE TABLE t (n INT PRIMARY KEY)", f"INSERT INTO t VALUES {', '.join(f'({n})' for n in range(16))}"
    )

    def prepare() -> SourceUnderTest:
        builder = JdbcSource.builder().set_db_url(database.url).set_table_name("t")
        source = builder.set_partitions("n", 1, 16, 3).set_fetch_size(3).build()
        return SourceUnderTest(
            source, range(16), result=lambda rows: [row.n for row in rows], real_time=True, silence_max=5_000
        )

    check_source(prepare, case, parallelisms=[1, 2], batch_sizes=[3], places=4)


@pytest.mark.slow
@pytest.mark.parametrize("case", SINK_CASES)
@pytest.mark.parametrize("kind", ["exactly once", "at least once", "upserts"])
def test_sinks_keep_the_rules(database: Database, kind: str, case: str) -> None:
    def prepare() -> SinkUnderTest:
        key = " PRIMARY KEY" if kind == "upserts" else ""
        database.execute("DROP TABLE IF EXISTS t, penstock_commits", f"CREATE TABLE t (id INT{key}, name VARCHAR(9))")
        sql, options = UPSERT if kind == "upserts" else INSERT, connection_options(database)
        made = JdbcSink.exactly_once_sink if kind == "exactly once" else JdbcSink.sink
        sink = made(sql, PAIR, options)

        def read() -> list[Any]:
            return database.execute("SELECT * FROM t")

        if kind == "upserts":
            rows = [(n % 5, f"{n}") for n in range(16)]
            return SinkUnderTest(sink, rows, read, shown=last_of_each(first), key=first)
        return SinkUnderTest(sink, [(n, f"{n}") for n in range(16)], read)

    check_sink(prepare, case, parallelisms=[1, 2], places=3)


def first(row: tuple[Any, ...]) -> Any:
    return row[0]
