"""Changes of MySQL, MariaDB and PostgreSQL beside bare clients that decode the same rows.

`python -m benchmarks.change_logs mysql mariadb postgres` starts each server, as the tests do (SERVER_CACHE), and writes
rows with seven columns: 5,000 in a statement (bulk), which are inserted, updated and deleted, or each in a transaction
of its own (single). The readers of the CDC sources then read the log, as events and as the columns of a table, and so
do bare loops: for MySQL over the `BinLogStreamReader` of mysql-replication, for PostgreSQL over psycopg's connection,
with a decoder of pgoutput (`decode_row`) that makes values of the same types. For MySQL the snapshot stands beside an
`SSCursor`. All take turns, in one process. It prints the processor time of this process, and how many times as fast as
the bare client Penstock is.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import struct
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from itertools import islice
from typing import Any

import psycopg
import pyarrow as pa
import pymysql
from pymysql.cursors import SSCursor
from pymysqlreplication import BinLogStreamReader, row_event
from tests.servers.mysql import MySqlServer, mysql_server
from tests.servers.postgres import PostgresServer, postgres_server

from penstock.connectors.mysql.cdc.columns import ColumnOutput, OutputColumn
from penstock.connectors.mysql.cdc.database import CdcSettings
from penstock.connectors.mysql.cdc.source import MySqlEventSource
from penstock.connectors.mysql.cdc.tables import TypeMapping
from penstock.connectors.mysql.cdc.values import ValueSettings
from penstock.connectors.postgres.cdc.source import PostgresEventSource, PostgresSourceBuilder
from penstock.runtime.records import Batch
from penstock.testing.connectors import SourceRun

AT_ONCE = 4_096
STATEMENT = 5_000
COLUMNS = {
    "id": pa.int64(),
    "customer": pa.string(),
    "quantity": pa.int32(),
    "price": pa.float64(),
    "amount": pa.decimal128(12, 2),
    "created": pa.timestamp("us"),
    "note": pa.string(),
}
CHANGES = ("UPDATE orders SET quantity = quantity + 1 WHERE id < {}", "DELETE FROM orders WHERE id < {}")

Way = Callable[[], None]


def rows(count: int) -> list[str]:
    return [
        f"({n}, 'customer {n % 997}', {n % 13}, {n / 7}, {n % 100_000}.25, "
        f"'2026-01-31 12:{n % 60:02}:00.{n % 1000:03}', 'a note about order {n}, of some length')"
        for n in range(count)
    ]


def statements(count: int, is_bulk: bool) -> Iterator[str]:
    """Yield statements that make as many changes, a transaction each."""
    values = rows(count // 3 if is_bulk else count)
    size = STATEMENT if is_bulk else 1
    for start in range(0, len(values), size):
        yield f"INSERT INTO orders VALUES {', '.join(values[start : start + size])}"
    if is_bulk:
        yield from (change.format(len(values)) for change in CHANGES)


def batched(lines: Iterator[str], size: int) -> Iterator[list[str]]:
    while some := list(islice(lines, size)):
        yield some


def read(run: SourceRun, count: int) -> None:
    """Read as many changes: an update is one as an event, and two rows in columns."""
    reader = run.readers[0]
    while count > 0:
        batch = reader.poll_next(AT_ONCE)
        if isinstance(batch, Batch):
            count -= len(batch) if batch.kinds is None else len(batch) - batch.kinds.count(1)
        else:
            time.sleep(0.001)


# --- MySQL and MariaDB -----------------------------------------------------------------------------------------------


class MySqlLog:
    """The log of a server, which has the changes."""

    def __init__(self, server: MySqlServer, count: int, is_bulk: bool) -> None:
        self.address, is_mariadb = server.address(), server.dialect == "mariadb"
        server.execute("DROP TABLE IF EXISTS orders")
        server.execute("RESET MASTER" if is_mariadb else "RESET BINARY LOGS AND GTIDS")
        server.execute(
            "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer VARCHAR(100), quantity INT, price DOUBLE, "
            "amount DECIMAL(12, 2), created DATETIME(3), note VARCHAR(100))"
        )
        self.count = count // 3 * 3 if is_bulk else count
        with pymysql.connect(**self.address.arguments(), autocommit=True) as connection, connection.cursor() as cursor:
            for statement in statements(count, is_bulk):
                cursor.execute(statement)
        self.file = server.execute("SHOW BINARY LOGS")[0][0]

    def read_source(self, has_columns: bool) -> None:
        outputs = [OutputColumn(name, name, kind) for name, kind in COLUMNS.items()]
        text = frozenset(output.name for output in outputs if output.is_text)
        values = ValueSettings(TypeMapping(), "fail", text) if has_columns else ValueSettings()
        settings = CdcSettings(self.address, (r"test\.orders",), startup="earliest-offset", values=values)
        run = SourceRun(MySqlEventSource(settings, ColumnOutput.factory(outputs, values) if has_columns else None))
        while not run.readers[0]._main:  # type: ignore[attr-defined]
            run.advance(1)
        read(run, self.count + (0 if has_columns else 1))  # and the event that creates the table
        run.close()

    def read_bare(self) -> None:
        stream = BinLogStreamReader(
            connection_settings=self.address.arguments(),
            server_id=77,
            log_file=self.file,
            log_pos=4,
            resume_stream=True,
            only_events=[row_event.WriteRowsEvent, row_event.UpdateRowsEvent, row_event.DeleteRowsEvent],
        )
        changes = [row for event in stream for row in event.rows]
        stream.close()
        assert len(changes) == self.count, len(changes)


class MySqlTable:
    """A table of a server."""

    def __init__(self, server: MySqlServer, count: int) -> None:
        self.address, self.count = server.address(), count
        server.execute("DROP TABLE IF EXISTS orders")
        server.execute(
            "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer VARCHAR(100), quantity INT, price DOUBLE, "
            "amount DECIMAL(12, 2), created DATETIME(3), note VARCHAR(100))"
        )
        values = rows(count)
        with pymysql.connect(**self.address.arguments(), autocommit=True) as connection, connection.cursor() as cursor:
            for start in range(0, count, STATEMENT):
                cursor.execute(f"INSERT INTO orders VALUES {', '.join(values[start : start + STATEMENT])}")

    def read_source(self, has_columns: bool) -> None:
        outputs = [OutputColumn(name, name, kind) for name, kind in COLUMNS.items()]
        text = frozenset(output.name for output in outputs if output.is_text)
        values = ValueSettings(TypeMapping(), "fail", text) if has_columns else ValueSettings()
        settings = CdcSettings(self.address, (r"test\.orders",), startup="snapshot", values=values)
        run = SourceRun(MySqlEventSource(settings, ColumnOutput.factory(outputs, values) if has_columns else None))
        left, reader = self.count + (0 if has_columns else 1), run.readers[0]
        while left > 0:
            run.master.run_background()
            while run.master.assigned or run.master.finished:
                run._deliver_one()
            for _ in range(run.hosts[0].requests):
                run.enumerator.handle_split_request(0)
            run.hosts[0].requests = 0
            batch = reader.poll_next(AT_ONCE)
            if isinstance(batch, Batch):
                left -= len(batch)
        run.close()

    def read_bare(self) -> None:
        with pymysql.connect(**self.address.arguments()) as connection, connection.cursor(SSCursor) as cursor:
            cursor.execute("SELECT * FROM orders ORDER BY id")
            assert sum(1 for _ in cursor) == self.count


# --- PostgreSQL ------------------------------------------------------------------------------------------------------

#: what makes values of texts, by the OIDs of types
VALUES: dict[int, Callable[[bytes], Any]] = {
    20: int,
    23: int,
    25: bytes.decode,
    701: float,
    1114: lambda text: datetime.fromisoformat(text.decode()),
    1700: lambda text: Decimal(text.decode()),
}
_SHORT, _LONG = struct.Struct(">H").unpack_from, struct.Struct(">I").unpack_from


def decode_row(data: bytes, at: int, makers: list[Callable[[bytes], Any]]) -> tuple[tuple[Any, ...], int]:
    """Return the row of a message at an offset, and the offset behind it."""
    row = []
    at += 2
    for make in makers:
        kind = data[at]
        at += 1
        if kind == 0x74:
            end = at + 4 + _LONG(data, at)[0]
            row.append(make(data[at + 4 : end]))
            at = end
        else:
            row.append(None)
    return tuple(row), at


def read_makers(data: bytes) -> list[Callable[[bytes], Any]]:
    """Return what makes the values of a table, by a message that describes it."""
    at = data.index(b"\0", data.index(b"\0", 5) + 1) + 2
    (count,), at = _SHORT(data, at), at + 2
    makers = []
    for _ in range(count):
        at = data.index(b"\0", at + 1) + 1
        makers.append(VALUES[_LONG(data, at)[0]])
        at += 8
    return makers


class PostgresLog:
    """The log of a server for two slots: that of the source, and that of the bare loop."""

    def __init__(self, server: PostgresServer, count: int, is_bulk: bool, has_columns: bool) -> None:
        self.url = server.url()
        server.execute(
            "DROP TABLE IF EXISTS orders; DROP PUBLICATION IF EXISTS changes_publication; "
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots; "
            "CREATE TABLE orders (id bigint PRIMARY KEY, customer text, quantity int, price float8, "
            "amount numeric(12, 2), created timestamp(3), note text); ALTER TABLE orders REPLICA IDENTITY FULL"
        )
        builder = PostgresSourceBuilder().hostname("127.0.0.1").port(server.port).database("postgres")
        builder = builder.username("postgres").table_list("public.orders").slot_name("changes")
        source: Any = builder.startup_mode("latest-offset").build()
        if not has_columns:
            source = PostgresEventSource(source.settings)
        self.run = SourceRun(source)
        while not self.run.readers[0]._stream:  # type: ignore[attr-defined]
            self.run.advance(1)
        server.execute("SELECT pg_create_logical_replication_slot('bare', 'pgoutput')")
        self.count = count // 3 * 3 if is_bulk else count
        with server.connect() as connection:
            for some in batched(statements(count, is_bulk), 1 if is_bulk else 500):
                connection.execute("".join(f"BEGIN; {statement}; COMMIT; " for statement in some).encode())

    def read_source(self) -> None:
        read(self.run, self.count)
        self.run.close()

    def read_bare(self) -> None:
        connection = psycopg.pq.PGconn.connect(f"{self.url}?replication=database".encode())
        connection.exec_(
            b"START_REPLICATION SLOT bare LOGICAL 0/0 (proto_version '1', publication_names 'changes_publication')"
        )
        changes: list[Any] = []
        makers: list[Callable[[bytes], Any]] = []
        head, begin, committed = struct.Struct(">xQQq").unpack_from, struct.Struct(">xQqI").unpack_from, 0
        while len(changes) < self.count:
            _, data = connection.get_copy_data(0)
            if data[0] != 0x77:
                continue
            lsn, _, _ = head(data)
            message = bytes(data[25:])
            kind = message[0]
            if kind == 0x49:
                changes.append((kind, lsn, committed, None, decode_row(message, 6, makers)[0]))
            elif kind == 0x55:
                before, at = decode_row(message, 6, makers)
                changes.append((kind, lsn, committed, before, decode_row(message, at + 1, makers)[0]))
            elif kind == 0x44:
                changes.append((kind, lsn, committed, decode_row(message, 6, makers)[0], None))
            elif kind == 0x42:
                _, committed, _ = begin(message)
            elif kind == 0x52:
                makers = read_makers(message)
        connection.finish()


# --- turns -----------------------------------------------------------------------------------------------------------


def measure(way: Way) -> float:
    """Return the processor time of this process, in seconds."""
    begun_s = time.process_time()
    way()
    return time.process_time() - begun_s


def compare(name: str, count: int, runs: int, make: Callable[[], tuple[Way, Way]]) -> None:
    """Let two ways take turns, and print what they take; `make` prepares them for each turn."""
    ratios, best_s = [], [float("inf")] * 2
    gc.collect()
    gc.freeze()  # as workers do: what is loaded is never looked at again
    for _ in range(runs):
        taken_s = [measure(way) for way in make()]
        best_s = list(map(min, best_s, taken_s))
        ratios.append(taken_s[1] / taken_s[0])
    rates = [count / taken for taken in best_s]
    print(
        f"{name}: {rates[0]:,.0f} changes/s, bare {rates[1]:,.0f} changes/s, {statistics.median(ratios):.2f} times "
        f"({min(ratios):.2f} to {max(ratios):.2f})",
        flush=True,
    )


def compare_mysql(server: MySqlServer, count: int, runs: int) -> None:
    for kind, is_bulk in (("bulk", True), ("single", False)):
        log = MySqlLog(server, count if is_bulk else count // 5, is_bulk)
        for form, has_columns in (("events", False), ("columns", True)):
            ways: tuple[Way, Way] = (lambda log=log, has=has_columns: log.read_source(has), log.read_bare)  # type: ignore[misc]
            compare(f"{server.dialect}, {kind}, {form}", log.count, runs, lambda ways=ways: ways)  # type: ignore[misc]
    table = MySqlTable(server, count)
    for form, has_columns in (("events", False), ("columns", True)):
        ways = (lambda has=has_columns: table.read_source(has), table.read_bare)  # type: ignore[misc]
        compare(f"{server.dialect}, snapshot, {form}", count, runs, lambda ways=ways: ways)  # type: ignore[misc]


def compare_postgres(server: PostgresServer, count: int, runs: int) -> None:
    for kind, is_bulk in (("bulk", True), ("single", False)):
        for form, has_columns in (("events", False), ("columns", True)):
            size = count if is_bulk else count // 5

            def make(size: int = size, is_bulk: bool = is_bulk, has_columns: bool = has_columns) -> tuple[Way, Way]:
                log = PostgresLog(server, size, is_bulk, has_columns)
                return log.read_source, log.read_bare

            compare(f"postgres, {kind}, {form}", size, runs, make)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("servers", nargs="+", choices=("mysql", "mariadb", "postgres"))
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    for name in arguments.servers:
        if name == "postgres":
            with postgres_server(max_wal_size="2GB") as postgres:
                compare_postgres(postgres, arguments.rows, arguments.runs)
        else:
            with mysql_server(name) as server:
                compare_mysql(server, arguments.rows, arguments.runs)


if __name__ == "__main__":
    main()
