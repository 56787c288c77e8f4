"""MySQL and MariaDB beside a bare PyMySQL: writing by key, appending, a statement, and reading a table.

`python -m benchmarks.mysql jdbc:mariadb://127.0.0.1:3307/test?user=root --rows 100000` writes rows through the writer
of the table connector and that of `JdbcSink`, and through `executemany`; and reads them through the source's reader,
and through an `SSCursor`. They take turns, in one process on one core. It prints the processor time of this process,
and how many times as fast as the bare client Penstock is.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pymysql
from pymysql.cursors import SSCursor

from penstock.codecs.column_data import ColumnData
from penstock.common import Types
from penstock.connectors.mysql import client, scan
from penstock.connectors.postgres.client import JdbcConnectionOptions, JdbcExecutionOptions
from penstock.connectors.postgres.scan import JdbcSource, ScanSplit
from penstock.connectors.postgres.sink import JdbcSink
from penstock.sql.connectors.jdbc import JdbcTableSink, Target
from penstock.sql.data.types import BigIntType, DoubleType, IntType, VarCharType

BATCH_ROWS = 4_096
SIZE = 5_000
NAMES = ("id", "customer", "quantity", "price", "note")
COLUMNS = "id BIGINT{key}, customer VARCHAR(100), quantity INT, price DOUBLE, note VARCHAR(100)"
INSERT = "INSERT INTO orders (id, customer, quantity, price, note) VALUES ({})"
UPDATE = " ON DUPLICATE KEY UPDATE " + ", ".join(f"{name} = VALUES({name})" for name in NAMES[1:])
KINDS = [pa.int64(), pa.string(), pa.int32(), pa.float64(), pa.string()]
SQL_TYPES = (BigIntType(), VarCharType(100), IntType(), DoubleType(), VarCharType(100))


class Context:
    """What a writer needs of its task."""

    subtask_index, parallelism, attempt = 0, 1, 0

    def now_ms(self) -> int:
        return int(time.time() * 1_000)


def rows(count: int) -> list[tuple[Any, ...]]:
    return [(n, f"customer {n % 997}", n % 13, n / 7, f"a note about order {n}, of some length") for n in range(count)]


class Bench:
    """The ways to write and to read a table."""

    def __init__(self, url: str, count: int) -> None:
        self.url, self.address = url, client.MySqlAddress.of_url(url)
        self.values = rows(count)

    def make(self, key: str) -> None:
        """Make the empty table."""
        connection = client.connect(self.address)
        client.execute(connection, "DROP TABLE IF EXISTS orders")
        client.execute(connection, f"CREATE TABLE orders ({COLUMNS.format(key=key)})")
        connection.close()

    def write_columns(self, key: tuple[int, ...]) -> None:
        target = Target(self.address, "orders", NAMES, SQL_TYPES, key)
        context: Any = Context()
        writer = JdbcTableSink(target, JdbcExecutionOptions(0, SIZE), None).create_writer(context)
        for start in range(0, len(self.values), BATCH_ROWS):
            columns = zip(*self.values[start : start + BATCH_ROWS], strict=True)
            arrays = [pa.array(column, kind) for column, kind in zip(columns, KINDS, strict=True)]
            writer.write_columns(ColumnData(pa.RecordBatch.from_arrays(arrays, list(NAMES))), None)
        writer.flush(True)
        writer.close()

    def write_records(self, sql: str) -> None:
        row = Types.TUPLE([Types.LONG(), Types.STRING(), Types.INT(), Types.DOUBLE(), Types.STRING()])
        sink = JdbcSink.sink(sql, row, JdbcConnectionOptions(self.url), JdbcExecutionOptions(0, SIZE))
        context: Any = Context()
        writer = sink.create_writer(context)
        for start in range(0, len(self.values), BATCH_ROWS):
            writer.write_batch(self.values[start : start + BATCH_ROWS], None)
        writer.flush(True)
        writer.close()

    def write_bare(self, sql: str) -> None:
        with pymysql.connect(**self.address.arguments()) as connection, connection.cursor() as cursor:
            for start in range(0, len(self.values), SIZE):
                cursor.executemany(sql, self.values[start : start + SIZE])
                connection.commit()

    def read_columns(self) -> None:
        scanned = JdbcSource.builder().set_db_url(self.url).set_table_name("orders").build().scanned
        fetch = scan.Fetch(scanned, ScanSplit(0, "", "orders", ("id",)))
        assert sum(part.columns.num_rows for part in fetch.rows()) == len(self.values)

    def read_bare(self) -> None:
        with pymysql.connect(**self.address.arguments()) as connection, connection.cursor(SSCursor) as cursor:
            cursor.execute("SELECT * FROM orders ORDER BY id")
            assert sum(1 for _ in cursor) == len(self.values)


def measure(way: Callable[[], None]) -> float:
    """Return the processor time of this process, in seconds."""
    begun_s = time.process_time()
    way()
    return time.process_time() - begun_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    bench = Bench(arguments.url, arguments.rows)
    bare, places = INSERT.format("%s, %s, %s, %s, %s"), INSERT.format("?, ?, ?, ?, ?")
    contests: dict[str, tuple[str | None, Callable[[], None], Callable[[], None]]] = {
        "table, append": ("", lambda: bench.write_columns(()), lambda: bench.write_bare(bare)),
        "table, by key": (" PRIMARY KEY", lambda: bench.write_columns((0,)), lambda: bench.write_bare(bare + UPDATE)),
        "JdbcSink": ("", lambda: bench.write_records(places), lambda: bench.write_bare(bare)),
        "JdbcSink, by key": (
            " PRIMARY KEY",
            lambda: bench.write_records(places + UPDATE),
            lambda: bench.write_bare(bare + UPDATE),
        ),
        "scan": (None, bench.read_columns, bench.read_bare),
    }
    for name, (key, ours, theirs) in contests.items():
        ratios, best_s = [], [float("inf")] * 2
        for _ in range(arguments.runs):
            taken_s = []
            for way in (ours, theirs):
                if key is not None:
                    bench.make(key)
                taken_s.append(measure(way))
            best_s = list(map(min, best_s, taken_s))
            ratios.append(taken_s[1] / taken_s[0])
        rates = [arguments.rows / taken for taken in best_s]
        print(
            f"{name}: {rates[0]:,.0f} rows/s, bare {rates[1]:,.0f} rows/s, {statistics.median(ratios):.2f} times "
            f"({min(ratios):.2f} to {max(ratios):.2f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
