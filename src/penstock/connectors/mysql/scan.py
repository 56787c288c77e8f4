"""MySQL and MariaDB as a source: the bounded scan of a table in parts, and lookups of rows by key.

`penstock.connectors.postgres.scan` has the classes that users see; they choose these ones by the URL.

**Positions.** A reader resumes where it stopped (G8), so the rows of a part need an order. With a primary key, or
another unique index without NULL, rows are in its order, and a position is the key of the last row: the query continues
after it. Without one (a view, a table without a key), rows are ordered by a hash of their values, and a position is a
number of rows. Equal rows are indistinguishable, so it does not matter which of them comes first.

**Snapshots.** Each part is read in a transaction with a snapshot of its own, because the server cannot share one. Parts
that begin at different times see the table at these times: rows that move between parts meanwhile may come twice, or
not at all. With one part, the rows are from a single moment, until a failure: the remaining rows are then read in their
state at that time.

**Lookups.** `KeyLookup` finds the rows of many keys with one query.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa

from penstock.connectors.mysql import client, values
from penstock.connectors.postgres import text_columns
from penstock.connectors.postgres.scan import Rows, ScanEnumerator, Scanned, ScannedColumn, ScanReader, ScanSplit
from penstock.connectors.split_reader import Background

#: The keys of one query of a lookup: each is a SELECT of its own.
_KEYS_MAX: Final = 200
_NUMBERS: Final = frozenset(
    ["tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "double", "year", "float", "bit", "enum", "set"]
)
_OCTETS: Final = frozenset(["binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"])


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of the read order.

    Attributes:
        name: the quoted name, with `t.` before it.
        expression: the expression that is compared, and selected as the position.
    """

    name: str
    expression: str
    kind: str

    @staticmethod
    def of(column: client.ServerColumn) -> KeyColumn:
        """Return how a column is compared. ENUM and SET sort by number, but compare to text as text."""
        name = f"t.{client.quoted(column.name)}"
        if column.kind in ("enum", "set", "bit"):
            return KeyColumn(name, f"({name} + 0)", column.kind)
        return KeyColumn(name, f"({name} + 0e0)" if column.kind == "float" else name, column.kind)

    @property
    def selected(self) -> str:
        """The expression whose text is a position."""
        return f"HEX({self.expression})" if self.kind in _OCTETS else self.expression

    def literal(self, position: str) -> str:
        """Return a position as an SQL literal."""
        if self.kind in _NUMBERS:
            return position + ("e0" if self.kind in ("double", "float") and "e" not in position else "")
        return f"x'{position}'" if self.kind in _OCTETS else client.literal(position)


def find_key(relation: client.Relation) -> tuple[str, ...]:
    """Return the columns of the primary key, or of another unique index without NULL; none without one."""
    for names in relation.uniques:
        if not any(relation.column(name).is_nullable for name in names):
            return names
    return ()


def after(key: Sequence[KeyColumn], position: Sequence[str]) -> str:
    """Return the condition of rows after a position."""
    condition = ""
    for column, text in reversed(list(zip(key, position, strict=True))):
        literal = column.literal(text)
        more = f" OR ({column.expression} = {literal} AND {condition})" if condition else ""
        condition = f"({column.expression} > {literal}{more})"
    if len(key) > 1:  # so that the server finds the beginning by the index
        condition = f"{key[0].expression} >= {key[0].literal(position[0])} AND {condition}"
    return condition


def build_query(
    scanned: Scanned, split: ScanSplit, relation: client.Relation, readings: Sequence[values.Reading]
) -> str:
    """Return the query for a part's rows after its position; the key columns follow all others."""
    key = [KeyColumn.of(relation.column(name)) for name in split.key]
    expressions = [*(reading.expression for reading in readings), *(column.selected for column in key)]
    where = [condition for condition in (split.condition, *scanned.conditions) if condition]
    offset = 0
    if key:
        order = ", ".join(column.name for column in key)
        if split.after is not None:
            where.append(after(key, split.after))
    else:
        texts = ", ".join(f"COALESCE(HEX(CAST({reading.expression} AS BINARY)), '-')" for reading in readings)
        order, offset = f"SHA2(CONCAT_WS(',', {texts or 1}), 256)", split.rows
    text = f"SELECT {', '.join(expressions) or 1} FROM {relation.path} AS t"
    if where:
        text += " WHERE " + " AND ".join(f"({condition})" for condition in where)
    text += f" ORDER BY {order}"
    if scanned.limit is not None or offset:
        count = (1 << 63) if scanned.limit is None else max(0, scanned.limit - split.rows)
        text += f" LIMIT {count} OFFSET {offset}"
    return text


class Fetch:
    """Fetches the rows of one part; `rows` runs in a thread, and `interrupt` stops it."""

    def __init__(self, scanned: Scanned, split: ScanSplit) -> None:
        self._scanned = scanned
        self._split = split
        self._connection: Any = None
        self._is_stopped = False

    def rows(self) -> Iterator[Rows]:
        """Yield the rows after the part's position."""
        connection = client.connect(self._scanned.address)
        self._connection = connection
        try:
            if not self._is_stopped:
                yield from self._fetched(connection)
        finally:
            if connection.open:
                connection.close()

    def _fetched(self, connection: Any) -> Iterator[Rows]:
        scanned, split = self._scanned, self._split
        with client.naming(f"cannot read table {scanned.table}"):
            relation = client.read_relation(connection, scanned.table)
            readings = [
                values.Reading.of(relation.column(column.expression), column.type, "t.") for column in scanned.columns
            ]
            client.execute(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            client.execute(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
            names = [column.name for column in scanned.columns]
            sql = build_query(scanned, split, relation, readings)
            for columns in values.fetch_columns(connection, sql, scanned.fetch_size):
                arrays = [
                    reading.read(column, scanned.unrepresentable)
                    for reading, column in zip(readings, columns, strict=False)
                ]
                batch = pa.RecordBatch.from_arrays(arrays, names) if names else _only_count(len(columns[0]))
                count = len(readings)
                yield Rows(batch, tuple(column.cast(pa.string()) for column in columns[count:][: len(split.key)]))

    def interrupt(self) -> None:
        """Stop reading: the connection is shut down, which ends a waiting call."""
        self._is_stopped = True
        with contextlib.suppress(Exception):
            self._connection._sock.shutdown(socket.SHUT_RDWR)


def _only_count(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))


class MySqlScanEnumerator(ScanEnumerator):
    """Cuts the table, and assigns the parts."""

    def _find(self) -> list[ScanSplit]:
        scanned = self._scanned
        connection = client.connect(scanned.address)
        try:
            relation = client.read_relation(connection, scanned.table)
        finally:
            connection.close()
        partitions, key = scanned.partitions, find_key(relation)
        if partitions is None:
            return [ScanSplit(0, "", relation.path, key)]
        conditions = partitions.conditions(f"t.{client.quoted(relation.column(partitions.column).name)}")
        return [ScanSplit(number, condition, relation.path, key) for number, condition in enumerate(conditions)]


class MySqlScanReader(ScanReader):
    """Reads its parts one after the other."""

    def begin(self, split: ScanSplit) -> Background[Rows]:
        """See `ReadAheadReader`."""
        fetch = Fetch(self._scanned, split)
        return Background(fetch.rows, fetch.interrupt)


def describe_columns(address: client.MySqlAddress, table: str, names: Sequence[str]) -> tuple[ScannedColumn, ...]:
    """Return the scanned columns of a table; all columns if `names` is empty.

    Raises:
        MissingPathError: if the table does not exist.
        UnknownNameError: if it does not have one of the columns.
    """
    link = client.MySqlLink(address)
    try:
        relation = link.retrying(0, lambda connection: client.read_relation(connection, table))
    finally:
        link.close()
    chosen = [relation.column(name) for name in names] or list(relation.columns)
    return tuple(ScannedColumn(column.name, column.name, values.to_arrow_type(column)) for column in chosen)


class KeyLookup:
    """Finds the rows of many keys with one query, as columns.

    Args:
        address: the server's address.
        table: the path of the table.
        columns: the columns to return.
        key: the key columns.
        retries: how often a query is retried after the connection was lost.
        unrepresentable: how to read values that a type cannot hold, see `values`.
    """

    def __init__(
        self,
        address: client.MySqlAddress,
        table: str,
        columns: Sequence[ScannedColumn],
        key: Sequence[str],
        retries: int,
        unrepresentable: str = text_columns.FAIL,
    ) -> None:
        self._link = client.MySqlLink(address)
        self._table = table
        self._columns = tuple(columns)
        self._key = tuple(key)
        self._retries = retries
        self._unrepresentable = unrepresentable
        self._connection: Any = None
        self._relation: client.Relation | None = None

    def find(self, keys: Sequence[pa.Array]) -> tuple[pa.RecordBatch, pa.Array]:
        """Return the rows of the keys (an array per key column) and, for each row, its key's index, ascending."""
        literals = [values.to_literals(column, name).to_pylist() for column, name in zip(keys, self._key, strict=True)]
        names = [f"c{index}" for index in range(len(self._columns))]
        empty = pa.RecordBatch.from_arrays([pa.array([], column.type) for column in self._columns], names)
        batches, numbers = [empty], []
        for first in range(0, len(keys[0]), _KEYS_MAX):
            wanted = range(first, min(first + _KEYS_MAX, len(keys[0])))
            for arrays in self._link.retrying(self._retries, partial(self._ask, literals, wanted)):
                batches.append(pa.RecordBatch.from_arrays(arrays[:-1], names))
                numbers.append(arrays[-1])
        if len(batches) == 2:
            return batches[1], numbers[0]
        table = pa.Table.from_batches(batches).combine_chunks()
        rows = table.to_batches()[0] if table.num_rows else empty
        return rows, pa.concat_arrays([pa.array([], pa.int64()), *numbers])

    def _ask(self, literals: Sequence[list[str]], wanted: range, connection: Any) -> list[list[pa.Array]]:
        with client.naming(f"cannot look up rows of table {self._table}"):
            if connection is not self._connection or self._relation is None:
                self._relation = client.read_relation(connection, self._table)
                self._connection = connection
            relation = self._relation
            readings = [
                values.Reading.of(relation.column(column.expression), column.type, "t.") for column in self._columns
            ]
            selected = ", ".join([reading.expression for reading in readings])
            names = [f"t.{client.quoted(relation.column(name).name)}" for name in self._key]
            parts = []
            for number in wanted:
                matches = [f"{name} = {texts[number]}" for name, texts in zip(names, literals, strict=True)]
                parts.append(f"(SELECT {selected}, {number} FROM {relation.path} AS t WHERE {' AND '.join(matches)})")
            bounds = []
            for columns in values.fetch_columns(connection, " UNION ALL ".join(parts), 1 << 16):
                arrays = [
                    reading.read(column, self._unrepresentable)
                    for reading, column in zip(readings, columns, strict=False)
                ]
                arrays.append(columns[-1].cast(pa.string()).cast(pa.int64()))
                bounds.append(arrays)
            return bounds

    def close(self) -> None:
        """Close the connection."""
        self._link.close()
