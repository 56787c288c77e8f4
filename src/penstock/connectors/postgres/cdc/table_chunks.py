"""Reads the rows of a table in chunks, in the order of its key, each with the snapshot that it was read in.

`ChunkReading` reads a range of keys; `find_cuts` returns keys that cut a table into ranges of about the same size.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.connectors.postgres.cdc import schemas
from penstock.connectors.postgres.cdc.position import CdcTable, Key, KeyColumn, Snapshot
from penstock.connectors.postgres.cdc.replication import parse_lsn
from penstock.connectors.postgres.client import connect, naming
from penstock.connectors.postgres.text_columns import SESSION, parse_batch, texts_of_csv

if TYPE_CHECKING:
    import psycopg

#: How long to wait until a transaction of the log is visible to others.
_VISIBLE_S: Final = 0.005
#: Integer keys are dense if a range of as many keys as a chunk has rows has at least this part of these rows; then
#: even cuts need no query.
_DENSE: Final = 0.5


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows, their keys, and their snapshot. `is_last`: whether no rows follow in the range that is read."""

    columns: pa.RecordBatch
    keys: tuple[pa.Array, ...]
    key: tuple[KeyColumn, ...]
    snapshot: Snapshot
    is_last: bool

    def get_row_key(self, index: int) -> Key:
        """Return the key of a row."""
        return tuple(column.value(texts[index].as_py()) for column, texts in zip(self.key, self.keys, strict=True))


@dataclass(frozen=True, slots=True)
class Altered:
    """In place of a chunk: the table has other columns than expected."""

    schema: schemas.LoggedSchema


@dataclass(frozen=True, slots=True)
class Unseen:
    """In place of a chunk: a transaction of the log is not visible to others yet."""


class ChunkReading:
    """Reads the rows of a range of keys; `chunks` runs in a thread, and `interrupt` stops it.

    If an index has the order of the key, each chunk is a query in its own transaction. Otherwise each query would sort
    the whole table, so a single query in a single snapshot yields all chunks.

    A transaction locks the table before it takes its snapshot, so that no ALTER TABLE and no TRUNCATE comes between.

    Args:
        table: the table.
        after: the key before the range; None for the beginning of the table.
        last: the last key of the range; None for the end of the table.
        size: the number of rows in a chunk.
        expected: the schema that the table must still have; None if any will do.
        passed: transactions that each snapshot must see.
        is_single: whether to read only one chunk.
        idle: a pool of connections; the reader takes one and returns it.
    """

    def __init__(
        self,
        table: CdcTable,
        after: Key | None,
        last: Key | None,
        size: int,
        expected: schemas.LoggedSchema | None = None,
        passed: Collection[int] = (),
        is_single: bool = False,
        idle: list[Any] | None = None,
    ) -> None:
        self._table = table
        self._after = after
        self._last = last
        self._size = size
        self._expected = expected
        self._passed = frozenset(passed)
        self._is_single = is_single
        self._idle = [] if idle is None else idle
        self._is_reused = idle is not None
        self._connection: Any = None
        self._is_stopped = False

    def chunks(self) -> Iterator[Chunk | Altered | Unseen]:
        """Yield the rows of the range; `Altered` at last if the table has other columns than expected.

        A single chunk does not wait: `Unseen` is the only item if the snapshot is too old.
        """
        connection = self._idle.pop() if self._idle else self._connect()
        self._connection = connection
        is_whole = False
        try:
            yield from self._read(connection)
            is_whole = True
        finally:
            if is_whole and self._is_reused and not self._is_stopped:
                self._idle.append(connection)
            else:
                connection.close()

    def _connect(self) -> Any:
        connection = connect(self._table.address)
        try:
            connection.execute(SESSION)
            connection.execute("SET idle_in_transaction_session_timeout = 0")
        except BaseException:
            connection.close()
            raise
        return connection

    def _read(self, connection: Any) -> Iterator[Chunk | Altered | Unseen]:
        table = self._table
        after = self._after
        is_indexed = all(column.is_native for column in table.key)
        while not self._is_stopped:
            with naming(f"cannot read the rows of {table.path}"):
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                connection.execute(f"LOCK TABLE {table.path} IN ACCESS SHARE MODE".encode())
                now = connection.execute("SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text")
                text, lsn = now.fetchone() or ("", "")
            snapshot = Snapshot.parse(text, parse_lsn(lsn))
            if not all(map(snapshot.sees, self._passed)):
                connection.execute("ROLLBACK")
                if self._is_single:
                    yield Unseen()
                    return
                time.sleep(_VISIBLE_S)
                continue
            altered = self._find_altered(connection)
            if altered is not None:
                connection.execute("ROLLBACK")
                yield Altered(altered)
                return
            chunk = None
            for chunk in self._of_one_snapshot(connection, after, snapshot, self._size if is_indexed else None):
                yield chunk
            connection.execute("COMMIT")
            if chunk is None or chunk.is_last or self._is_single:
                return
            after = chunk.get_row_key(chunk.columns.num_rows - 1)

    def _find_altered(self, connection: Any) -> schemas.LoggedSchema | None:
        """Return the schema of the table if it is not the expected one."""
        if self._expected is None:
            return None
        schema = schemas.describe(connection, self._table.oid)
        return None if schema is None or schema.is_like(self._expected) else schema

    def _of_one_snapshot(
        self, connection: Any, after: Key | None, snapshot: Snapshot, limit: int | None
    ) -> Iterator[Chunk]:
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
        where = _where(table, after, self._last)
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


def _where(table: CdcTable, after: Key | None, last: Key | None) -> str:
    """Return the condition of a range of keys."""
    orders = ", ".join(column.order for column in table.key)
    conditions = [
        f"({orders}) {sign} ({', '.join(table.literals(key))})"
        for sign, key in ((">", after), ("<=", last))
        if key is not None
    ]
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def find_cuts(connection: psycopg.Connection[Any], table: CdcTable, size: int) -> Iterator[Key]:
    """Yield keys that cut a table into ranges of about `size` rows: the last key of each range but the last.

    Dense integers are cut evenly. Other keys are found by one query for each range, over the index alone. A key whose
    order no index has is not cut: each range would sort the whole table.
    """
    if not all(column.is_native for column in table.key):
        return
    if len(table.key) == 1 and table.key[0].is_number:
        column = table.key[0].name
        row = connection.execute(f"SELECT min({column}), max({column}) FROM {table.path}".encode()).fetchone()
        if row is None or row[0] is None or row[1] - row[0] < size:
            return
        low, high = row
        windows = (low, low + (high - low) // 2, high - size + 1)
        counts = [
            connection.execute(
                f"SELECT count(*) FROM {table.path} WHERE {column} BETWEEN {start} AND {start + size - 1}".encode()
            ).fetchone()
            for start in windows
        ]
        if all(count is not None and count[0] >= _DENSE * size for count in counts):
            for key in range(low + size - 1, high, size):
                yield (key,)
            return
    after: Key | None = None
    orders = ", ".join(column.order for column in table.key)
    texts = ", ".join(f"t.{column.name}::text" for column in table.key)
    while True:
        row = connection.execute(
            f"SELECT {texts} FROM {table.path} AS t{_where(table, after, None)} ORDER BY {orders} "
            f"OFFSET {size - 1} LIMIT 1".encode()
        ).fetchone()
        if row is None:
            return
        after = tuple(column.value(text) for column, text in zip(table.key, row, strict=True))
        yield after
