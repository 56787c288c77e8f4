"""Reads a table in chunks in key order, each chunk with the snapshot it was read in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.connectors.postgres.cdc.pgoutput import parse_lsn
from penstock.connectors.postgres.cdc.position import Key, Snapshot
from penstock.connectors.postgres.cdc.table import CdcTable, KeyColumn
from penstock.connectors.postgres.client import connect, naming
from penstock.connectors.postgres.text_columns import SESSION, parse_batch, texts_of_csv


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows, their keys, and their snapshot. `is_last`: whether no rows follow."""

    columns: pa.RecordBatch
    keys: tuple[pa.Array, ...]
    key: tuple[KeyColumn, ...]
    snapshot: Snapshot
    is_last: bool

    def get_row_key(self, index: int) -> Key:
        """Return the key of a row."""
        return tuple(column.value(texts[index].as_py()) for column, texts in zip(self.key, self.keys, strict=True))


class ChunkReading:
    """Reads the rows after a key; `chunks` runs in a thread, and `interrupt` stops it.

    If an index has the order of the key, each chunk is a query in its own transaction. Otherwise each query would sort
    the whole table, so a single query in a single snapshot yields all chunks.
    """

    def __init__(self, table: CdcTable, after: Key | None, size: int) -> None:
        self._table = table
        self._after = after
        self._size = size
        self._connection: Any = None
        self._is_stopped = False

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows after the key, up to the end of the table."""
        table = self._table
        with connect(table.address) as connection:
            self._connection = connection
            connection.execute(SESSION)
            connection.execute("SET idle_in_transaction_session_timeout = 0")
            after = self._after
            is_indexed = all(column.is_native for column in table.key)
            while not self._is_stopped:
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                chunk = None
                for chunk in self._of_one_snapshot(connection, after, self._size if is_indexed else None):
                    yield chunk
                connection.execute("COMMIT")
                if chunk is None or chunk.is_last:
                    return
                after = chunk.get_row_key(chunk.columns.num_rows - 1)

    def _of_one_snapshot(self, connection: Any, after: Key | None, limit: int | None) -> Iterator[Chunk]:
        now = connection.execute("SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text")
        text, lsn = now.fetchone()
        snapshot = Snapshot.parse(text, parse_lsn(lsn))
        query = self._query(after, limit)
        lines: list[bytes] = []
        with (
            naming(f"cannot read the rows of {self._table.path}"),
            connection.cursor() as cursor,
            cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT csv)") as copy,
        ):
            for line in copy:
                if len(lines) >= self._size:  # one more line has arrived: this is not the last chunk
                    yield self._chunk(lines, snapshot, False)
                    lines = []
                lines.append(bytes(line))
        yield self._chunk(lines, snapshot, limit is None or len(lines) < limit)

    def _query(self, after: Key | None, limit: int | None) -> str:
        table = self._table
        orders = [column.order for column in table.key]
        where = "" if after is None else f" WHERE ({', '.join(orders)}) > ({', '.join(table.literals(after))})"
        end = "" if limit is None else f" LIMIT {limit}"
        # End with a column that is never NULL: COPY writes a single NULL as an empty line, which CSV readers skip.
        expressions = [
            *(f"t.{name}" for name in table.quoted_names),
            *(f"{column.name}::text" for column in table.key),
            "1",
        ]
        return f"SELECT {', '.join(expressions)} FROM {table.path} AS t{where} ORDER BY {', '.join(orders)}{end}"

    def _chunk(self, lines: Sequence[bytes], snapshot: Snapshot, is_last: bool) -> Chunk:
        table = self._table
        count = len(table.names)
        total = count + len(table.key) + 1
        texts = texts_of_csv(b"".join(lines), total) if lines else [pa.array([], pa.string())] * total
        columns = parse_batch(texts[:count], table.types, table.names, table.unrepresentable)
        return Chunk(columns, tuple(texts[count:-1]), table.key, snapshot, is_last)

    def interrupt(self) -> None:
        """Stop reading and cancel the running query."""
        self._is_stopped = True
        connection = self._connection
        if connection is not None and not connection.closed:
            connection.cancel_safe(timeout=5)
