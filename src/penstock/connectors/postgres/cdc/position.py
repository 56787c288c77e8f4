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
    """The keys after the previous range, up to and including `last`; up to the end if `last` is None."""

    last: Key | None
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class TablePosition:
    """The part of a table that has been read. `ranges` ascend; once everything is read, the last one has no end."""

    ranges: tuple[KeyRange, ...] = ()

    @property
    def is_read(self) -> bool:
        """Whether all rows have been read."""
        return bool(self.ranges) and self.ranges[-1].last is None

    @property
    def last(self) -> Key | None:
        """The last key that was handed out; None at the beginning, and when everything is read."""
        return self.ranges[-1].last if self.ranges else None

    def through(self, last: Key | None, snapshot: Snapshot) -> TablePosition:
        """Return this position extended by the rows up to the key `last`, read in `snapshot`."""
        ranges = self.ranges
        if ranges and ranges[-1].snapshot.is_like(snapshot):
            # The later log position is valid for both.
            snapshot, ranges = replace(snapshot, lsn=max(snapshot.lsn, ranges[-1].snapshot.lsn)), ranges[:-1]
        return TablePosition((*ranges, KeyRange(last, snapshot)))

    @property
    def end_lsn(self) -> int:
        """The log position from which on no committed transaction was seen by any snapshot."""
        return max((key_range.snapshot.lsn for key_range in self.ranges), default=0)


class SeenKeys:
    """Decides whether the rows that were read contain a change. Built once per position, queried for each change."""

    def __init__(self, position: TablePosition) -> None:
        self._ranges = position.ranges
        self._lasts: Sequence[Key] = [key_range.last for key_range in position.ranges if key_range.last is not None]
        self.end_lsn = position.end_lsn

    def has(self, key: Key, xid: int) -> bool:
        """Return whether the snapshot of the key's range has seen the transaction."""
        return self._ranges[bisect_left(self._lasts, key)].snapshot.sees(xid)

    def check_visibility(self, xid: int) -> tuple[bool, bool]:
        """Return whether any snapshot has seen the transaction, and whether all have."""
        answers = [key_range.snapshot.sees(xid) for key_range in self._ranges]
        return any(answers), all(answers)


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
    """The table to read, and how far it has been read.

    Attributes:
        table: the position of the snapshot; None without a snapshot, or once it is irrelevant.
        log: the position to read the log from.
    """

    table: TablePosition | None
    log: LogPosition = field(default_factory=lambda: LogPosition(0))


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
    """

    address: Address
    path: str
    oid: int
    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    key: tuple[KeyColumn, ...]
    unrepresentable: str = FAIL

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
