"""Read positions of a CDC source (key ranges with their snapshots, and a position in the log), and the table to read.

The snapshot of a key range records the transactions that it saw. `CdcTable` describes the table from the catalog: its
columns, and the order of its keys.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from penstock.base.errors import UnsupportedError
from penstock.connectors.cdc.events import TableId
from penstock.connectors.postgres.cdc.schemas import LoggedSchema
from penstock.connectors.postgres.client import Address, Relation, quoted
from penstock.connectors.postgres.text_columns import FAIL, literal

if TYPE_CHECKING:
    import psycopg


#: the values of a key: integers as int, all others as text, which the server orders by bytes
Key: TypeAlias = tuple[int | str, ...]

_HALF: Final = 1 << 31
_WRAP: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The transactions visible to a snapshot: all before `next` except the running ones.

    Attributes:
        next: the 64-bit number of the next transaction.
        running: the numbers of the running transactions.
        lsn: the log position at that time. Every visible transaction was committed before it.
    """

    next: int
    running: frozenset[int]
    lsn: int

    @staticmethod
    def parse(text: str, lsn: int) -> Snapshot:
        """Parse the output of `pg_current_snapshot()`: `xmin:xmax:xip,…`."""
        _, following, running = text.split(":")
        return Snapshot(int(following), frozenset(map(int, filter(None, running.split(",")))), lsn)

    def sees(self, xid: int) -> bool:
        """Return whether a transaction is visible, given the low 32 bits of its number."""
        full = self.next - self.next % _WRAP + xid
        if full >= self.next + _HALF:
            full -= _WRAP
        elif full < self.next - _HALF:
            full += _WRAP
        return full < self.next and full not in self.running

    def is_like(self, other: Snapshot) -> bool:
        """Return whether both snapshots see the same transactions."""
        return self.next == other.next and self.running == other.running


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys after the previous range, up to and including `last`; up to the end if `last` is None.

    `snapshot` is the one that the rows were read in; None for rows that are still to be read.
    """

    last: Key | None
    snapshot: Snapshot | None


@dataclass(frozen=True, slots=True)
class TablePosition:
    """The part of a table that has been read. `ranges` ascend; keys after the last of them are still to be read."""

    ranges: tuple[KeyRange, ...] = ()

    @property
    def is_read(self) -> bool:
        """Whether all rows have been read."""
        return bool(self.ranges) and self.ranges[-1].last is None and None not in self._snapshots

    @property
    def _snapshots(self) -> list[Snapshot | None]:
        return [key_range.snapshot for key_range in self.ranges]

    @property
    def last(self) -> Key | None:
        """The last key that was handed out; None at the beginning, and when everything is read."""
        return self.ranges[-1].last if self.ranges else None

    def through(self, last: Key | None, snapshot: Snapshot) -> TablePosition:
        """Return this position extended by the rows up to the key `last`, read in `snapshot`."""
        return TablePosition(_extended(self.ranges, last, snapshot))

    def closed(self) -> TablePosition:
        """Return the same position with a range for the keys at the end that are still to be read."""
        if self.ranges and self.ranges[-1].last is None:
            return self
        return TablePosition((*self.ranges, KeyRange(None, None)))

    def find_unread(self) -> tuple[Key | None, Key | None] | None:
        """Return the bounds of the first unread range: the key before it, and its last key. None if all are read."""
        if None not in self._snapshots:
            return None
        index = self._snapshots.index(None)
        return (self.ranges[index - 1].last if index else None), self.ranges[index].last

    def with_rows(self, last: Key | None, snapshot: Snapshot) -> TablePosition:
        """Return the position after rows of the first range to read, up to the key `last`; None: up to its end."""
        index = self._snapshots.index(None)
        end = self.ranges[index].last
        read = _extended(self.ranges[:index], end if last is None else last, snapshot)
        rest = () if last is None or last == end else (KeyRange(end, None),)
        return TablePosition((*read, *rest, *self.ranges[index + 1 :]))

    def followed_by(self, other: TablePosition) -> TablePosition:
        """Return the position extended by the ranges of `other`, which follow."""
        position = self
        for key_range in other.ranges:
            if key_range.snapshot is None:
                position = TablePosition((*position.ranges, key_range))
            else:
                position = position.through(key_range.last, key_range.snapshot)
        return position

    def forget(self, xid: int) -> TablePosition:
        """Return the position without the ranges whose snapshots have seen a transaction: they are to be read again."""
        return TablePosition(
            tuple(
                replace(key_range, snapshot=None) if key_range.snapshot and key_range.snapshot.sees(xid) else key_range
                for key_range in self.ranges
            )
        )

    @property
    def end_lsn(self) -> int:
        """The log position from which on no committed transaction was seen by any snapshot."""
        return max((snapshot.lsn for snapshot in self._snapshots if snapshot is not None), default=0)


def _extended(ranges: tuple[KeyRange, ...], last: Key | None, snapshot: Snapshot) -> tuple[KeyRange, ...]:
    before = ranges[-1].snapshot if ranges else None
    if before is not None and before.is_like(snapshot):
        # The later log position is valid for both.
        snapshot, ranges = replace(snapshot, lsn=max(snapshot.lsn, before.lsn)), ranges[:-1]
    return (*ranges, KeyRange(last, snapshot))


class SeenKeys:
    """Decides whether the rows of a table contain a change: the rows already read, and the rows still to be read.

    Rows that are still to be read will contain it, see `LogSplit.passed`. Built once per position, and queried for each
    change.
    """

    def __init__(self, position: TablePosition) -> None:
        self._ranges = position.closed().ranges
        self._lasts: Sequence[Key] = [key_range.last for key_range in self._ranges if key_range.last is not None]
        self.end_lsn = position.end_lsn

    def has(self, key: Key, xid: int) -> bool:
        """Return whether the snapshot of the key's range has seen the transaction, or will."""
        snapshot = self._ranges[bisect_left(self._lasts, key)].snapshot
        return snapshot is None or snapshot.sees(xid)

    def check_visibility(self, xid: int) -> tuple[bool, bool]:
        """Return whether any snapshot has seen the transaction, and whether all have, or will."""
        snapshots = [key_range.snapshot for key_range in self._ranges]
        answers = [snapshot is None or snapshot.sees(xid) for snapshot in snapshots]
        return any(snapshot is not None and snapshot.sees(xid) for snapshot in snapshots), all(answers)


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A position in the log.

    Attributes:
        lsn: the end of the last transaction that was read completely.
        commit_lsn: the commit position of the next transaction, if some of its changes were already read; or 0.
        changes: the number of these changes.
    """

    lsn: int
    commit_lsn: int = 0
    changes: int = 0


@dataclass(frozen=True, slots=True)
class CdcSplit:
    """The split of a source of one table, in savepoints of earlier versions; `LogSplit` has taken its place.

    Attributes:
        table: the position of the snapshot; None without a snapshot, or once it is irrelevant.
        log: the position to read the log from.
    """

    table: TablePosition | None
    log: LogPosition = field(default_factory=lambda: LogPosition(0))


@dataclass(frozen=True, slots=True)
class TableState:
    """A table of a source, and how far it has been read.

    Attributes:
        id: its name.
        oid: its OID; 0 if it is not known yet.
        position: the position of the snapshot; None without a snapshot, or once it is irrelevant.
        logged: its schema at the position of the log, in a source of events; None before its first row.
    """

    id: TableId
    oid: int
    position: TablePosition | None
    logged: LoggedSchema | None = None

    @property
    def is_read(self) -> bool:
        """Whether no rows are still to be read."""
        return self.position is None or self.position.find_unread() is None


@dataclass(frozen=True, slots=True)
class LogSplit:
    """The log of all tables; its reader also reads the rows that no other has read.

    Attributes:
        tables: the tables.
        log: the position to read the log from.
        is_following: whether the log has been read, rather than the rows alone.
        passed: the transactions whose changes of rows still to be read have passed by. Snapshots of these rows must
            have seen them: the log has a transaction a moment before others see it.
    """

    tables: tuple[TableState, ...]
    log: LogPosition
    is_following: bool = False
    passed: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class ChunkSplit:
    """A range of the keys of a table, which any reader may read.

    Attributes:
        table: the table; its position covers the keys of this chunk alone.
        number: distinguishes the chunks of a table.
        after: the key before the first one; None at the beginning of the table.
        is_left: whether its reader leaves the rest to the reader of the log, because the columns have changed.
    """

    table: TableState
    number: int
    after: Key | None
    is_left: bool = False

    @property
    def is_finished(self) -> bool:
        """Whether its reader will not read any more of it."""
        return self.is_left or self.table.is_read


@dataclass(frozen=True, slots=True)
class Heard:
    """Confirms to a reader that the enumerator knows of finished chunks: (OID of the table, number)."""

    chunks: tuple[tuple[int, int], ...]


_NUMBERS: Final = frozenset({"smallint", "integer", "bigint"})
_COLLATION: Final = """
    SELECT coalesce(
        c.collcollate IN ('C', 'POSIX') OR (c.collname = 'default' AND d.datcollate IN ('C', 'POSIX')), false
    )
    FROM pg_attribute a LEFT JOIN pg_collation c ON c.oid = a.attcollation,
         (SELECT datcollate FROM pg_database WHERE datname = current_database()) d
    WHERE a.attrelid = to_regclass(%s) AND a.attname = %s
"""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of the primary key.

    Attributes:
        name: its quoted name.
        place: its index among the table's columns.
        is_number: whether it is ordered as a number; otherwise by the bytes of its text.
        is_native: whether the column itself, and so its index, has this order.
        sql_type: its SQL type.
    """

    name: str
    place: int
    is_number: bool
    is_native: bool
    sql_type: str

    @property
    def order(self) -> str:
        """The SQL expression that orders the rows."""
        return f"t.{self.name}" if self.is_native else f'(t.{self.name}::text) COLLATE "C"'

    def value(self, text: str) -> int | str:
        """Parse a key value from its text."""
        return int(text) if self.is_number else text

    def literal(self, value: int | str) -> str:
        """Return the value as an SQL literal that can be compared with `order`."""
        return f"{literal(str(value))}::{self.sql_type}" if self.is_native else f'{literal(str(value))} COLLATE "C"'


_NO_NAME: Final = TableId("", "")


@dataclass(frozen=True, slots=True)
class CdcTable:
    """A table, and its columns to read.

    Attributes:
        address: the database's address.
        path: its quoted path.
        oid: its OID.
        names: the names of the columns to read.
        types: the Arrow types of these columns.
        key: its primary key.
        unrepresentable: how to read values that a type cannot hold.
        id: its name.
    """

    address: Address
    path: str
    oid: int
    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    key: tuple[KeyColumn, ...]
    unrepresentable: str = FAIL
    id: TableId = _NO_NAME

    @property
    def quoted_names(self) -> list[str]:
        """The column names, quoted for SQL."""
        return [quoted(name) for name in self.names]

    def literals(self, key: Key) -> list[str]:
        """Return a key as SQL literals."""
        return [column.literal(value) for column, value in zip(self.key, key, strict=True)]


def key_columns(connection: psycopg.Connection[Any], relation: Relation) -> tuple[KeyColumn, ...]:
    """Return the columns of a table's primary key; empty if the table does not have one."""
    names = [column.name for column in relation.columns]
    columns = []
    for name in relation.key:
        kind = relation.column(name).sql_type
        is_number = kind in _NUMBERS
        is_native = is_number or kind == "uuid"
        if kind == "text" or kind.startswith("character varying"):
            row = connection.execute(_COLLATION, (relation.path, name)).fetchone()
            is_native = row is not None and bool(row[0])
        if kind.startswith("character(") or kind == "citext":
            raise UnsupportedError(
                f"column {name!r} of the primary key of {relation.path} is {kind}, of which different texts are equal: "
                "read the table without a snapshot (startup mode latest-offset), or give it another key"
            )
        columns.append(KeyColumn(quoted(name), names.index(name), is_number, is_native, kind))
    return tuple(columns)
