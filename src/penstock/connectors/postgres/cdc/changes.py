"""Conversion of log messages into changes of rows, with the log position after each.

`ChangeReader` converts messages of all tables without a connection and without a clock, and skips the changes that the
rows of the snapshot contain; an `Output` collects the others (`penstock.connectors.postgres.cdc.outputs`).

**Many changes at once.** Most changes need no decision: their table has no rows of a snapshot left to compare with.
`feed` only notes such messages with their transactions, and `MessageBuffer` decodes them together. Where a row needs a
decision (another key, a large value that is not there, a table that the reader does not know yet), or where there are
few of them, each message is decoded by itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np

from penstock.base.errors import OperationError
from penstock.connectors.postgres.cdc import replication
from penstock.connectors.postgres.cdc.position import CdcTable, Key, LogPosition, SeenKeys, TablePosition, TableState

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = 0, 1, 2, 3
#: Rows of a table that are decoded together: fewer cost more than each by itself, and more bytes are copied for little.
TOGETHER_MIN: Final = 24
TOGETHER_MAX_BYTES: Final = 1 << 26
_UPDATE_KIND, _DELETE_KIND, _INSERT_KIND = b"UDI"
_OLD_KEY, _OLD_ROW, _NEW_ROW = b"KON"
#: more changes than any transaction has
_ALL: Final = 1 << 62


@dataclass(slots=True)
class Columns:
    """The positions of the source's columns and of its key columns in the rows of the log."""

    positions: list[int]
    key: list[tuple[int, Callable[[str], int | str]]]
    key_alone: list[bool]

    is_whole: bool = field(init=False)

    def __post_init__(self) -> None:
        self.is_whole = self.positions == list(range(len(self.key_alone)))

    def select(self, values: replication.Values) -> replication.Values:
        """Return the values of the source's columns; the row itself if these are all of its columns, in order."""
        return values if self.is_whole else [values[index] for index in self.positions]


@dataclass(slots=True)
class FollowedTable:
    """A table of the log.

    Attributes:
        state: the table, and how far its rows have been read.
        table: its columns to read, from the catalog.
        seen: decides which changes the rows contain; None once the log is past their snapshots.
        relation: the columns of the last Relation message.
        columns: where the source's columns are among these; None until a change needs it.
    """

    state: TableState
    table: CdcTable
    seen: SeenKeys | None = None
    relation: replication.Relation | None = None
    columns: Columns | None = None

    @property
    def path(self) -> str:
        """The quoted path of the table."""
        return self.table.path

    def move(self, position: TablePosition | None) -> None:
        """Note how far the rows have been read."""
        self.state = replace(self.state, position=position)
        self.seen = None if position is None else SeenKeys(position)


class DecodedRows(NamedTuple):
    """The rows of some changes of a table, decoded together: an update with its previous row has two.

    Attributes:
        buffer: has the values.
        columns: where the values of each of the source's columns are.
        kinds: the kind of change of each row, an item of `INSERT`, `UPDATE_BEFORE`, `UPDATE_AFTER` and `DELETE`.
        messages: the number of the message that each row is from.
    """

    buffer: replication.MessageBuffer
    columns: list[replication.ValueRanges]
    kinds: Any
    messages: Any


class Output(ABC):
    """Collects the changes that the rows of the snapshot do not contain."""

    #: whether updates need their previous row, and deletions all of it
    needs_old_rows = False
    #: whether the rows of a table may be collected again, after an event that says that it has lost them
    may_read_rows_again = False

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of records that were collected."""

    @abstractmethod
    def locate(self, followed: FollowedTable, begin: replication.Begin) -> Columns | None:
        """Return where the columns are in the rows that follow; None if all of these are contained in the rows."""

    @abstractmethod
    def insert(self, followed: FollowedTable, begin: replication.Begin, new: replication.Values) -> None:
        """Collect a new row."""

    @abstractmethod
    def update(
        self,
        followed: FollowedTable,
        begin: replication.Begin,
        old: replication.Values | None,
        new: replication.Values,
    ) -> None:
        """Collect an update that keeps the key; `old` is None if the log does not contain the old row."""

    @abstractmethod
    def delete(
        self, followed: FollowedTable, begin: replication.Begin, old: replication.Values, has_key_alone: bool
    ) -> None:
        """Collect a deletion."""

    @abstractmethod
    def add_together(
        self, changes: Sequence[tuple[FollowedTable, DecodedRows, Sequence[int]]], times_us: Sequence[int]
    ) -> None:
        """Collect changes that were decoded together.

        Args:
            changes: the rows of each table, and which of all changes its messages are.
            times_us: the commit time of each change.
        """

    @abstractmethod
    def truncate(self, followed: FollowedTable, begin: replication.Begin) -> None:
        """Collect that a table has lost all rows."""

    def check_delete(self, followed: FollowedTable, has_key_alone: bool) -> None:  # noqa: B027 - most need no check
        """Raise an error if a deletion needs more than the key."""


class _Noted:
    """Changes that need no decision, with their transactions, until they are decoded together."""

    __slots__ = ("begins", "messages", "tables")

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.begins: list[tuple[int, int, int]] = []
        #: by the bytes of their OIDs
        self.tables: dict[bytes, FollowedTable] = {}

    def clear(self) -> None:
        self.messages.clear()
        self.begins.clear()
        self.tables.clear()


class ChangeReader:
    """Converts messages into changes.

    Args:
        tables: the tables to read; changes of other tables are skipped.
        position: the log position to start from.
        output: collects the changes.
        passed: the transactions that have passed by tables whose rows are still to be read.
    """

    def __init__(
        self, tables: Iterable[FollowedTable], position: LogPosition, output: Output, passed: Iterable[int] = ()
    ) -> None:
        self.tables = {followed.state.oid: followed for followed in tables}
        #: the position, in parts: it moves with each change
        self._lsn, self._commit_lsn, self._read = position.lsn, position.commit_lsn, position.changes
        self.output = output
        self.passed = set(passed)
        #: the fields of the BEGIN message, and how many changes of the transaction were counted
        self._transaction: tuple[int, int, int] | None = None
        self._changes = 0
        self._skips = 0
        self._end_lsn = 0
        self.note_rows()

    @property
    def position(self) -> LogPosition:
        """The log position after what was read."""
        return LogPosition(self._lsn, self._commit_lsn, self._read)

    @property
    def _begin(self) -> replication.Begin | None:
        return None if self._transaction is None else replication.to_begin(self._transaction)

    def note_rows(self) -> None:
        """Record that rows have been read: forget them only after the last of their snapshots."""
        self._end_lsn = max((f.seen.end_lsn for f in self.tables.values() if f.seen is not None), default=-1)

    def add(self, followed: FollowedTable) -> None:
        """Read another table."""
        self.tables[followed.state.oid] = followed
        self.note_rows()

    def rewind(self) -> None:
        """Prepare for a new connection: the server resends the transaction that was not read completely."""
        self._transaction = None
        for followed in self.tables.values():
            followed.relation = followed.columns = None

    def sent(self, lsn: int) -> None:
        """Note that the server has sent everything before this position."""
        if self._transaction is None and not self._commit_lsn and lsn > self._lsn:
            self._reach(lsn)

    def _reach(self, lsn: int) -> None:
        self._lsn, self._commit_lsn, self._read = lsn, 0, 0
        if 0 <= self._end_lsn < lsn:
            for followed in self.tables.values():
                seen = followed.seen
                if seen is not None and followed.state.is_read and lsn > seen.end_lsn:
                    followed.move(None)
            self.note_rows()

    def feed(self, *messages: bytes) -> None:
        """Process messages: collect their changes and advance the position past them.

        If an error is raised, the position is that after the last collected change.
        """
        noted = _Noted()
        tables, note, note_begin = noted.tables, noted.messages.append, noted.begins.append
        begin, changes, skips = self._transaction, self._changes, self._skips
        for data in messages:
            kind = data[0]
            if kind in replication.ROWS:
                oid = data[1:5]
                if oid not in tables:
                    followed = self.tables.get(int.from_bytes(oid))
                    if followed is None:
                        continue
                    if followed.seen is not None or followed.columns is None:
                        self._transaction, self._changes, self._skips = begin, changes, skips
                        self._collect(noted)
                        self._decide(followed, data)
                        changes = self._changes
                        continue
                    tables[oid] = followed
                changes += 1
                if changes > skips:
                    assert begin is not None
                    note(data)
                    note_begin(begin)
            elif kind == replication.BEGIN:
                begin, changes, skips = replication.unpack_begin(data), 0, 0
                if begin[0] < self._lsn:
                    skips = _ALL
                elif begin[0] == self._commit_lsn:
                    skips = self._read
            elif kind == replication.COMMIT:
                begin, (_, end_lsn, _) = None, replication.unpack_commit(data)
                if end_lsn > self._lsn:
                    self._reach(end_lsn)
            else:
                self._transaction, self._changes, self._skips = begin, changes, skips
                self._feed_other(data, noted)
                changes = self._changes
        self._transaction, self._changes, self._skips = begin, changes, skips
        self._collect(noted)

    def _feed_other(self, data: bytes, noted: _Noted) -> None:
        message = replication.decode(data)
        if isinstance(message, replication.Truncate):
            self._collect(noted)
            for oid in message.oids:
                followed = self.tables.get(oid)
                if followed is not None and self._is_due(followed):
                    self._truncate(followed)
                    self._advance()
        elif isinstance(message, replication.Relation):
            followed = self.tables.get(message.oid)
            if followed is not None:
                self._collect(noted)
                followed.relation, followed.columns = message, None

    def _collect(self, noted: _Noted) -> None:
        """Collect the changes that need no decision, and forget them."""
        if not noted.messages:
            return
        if not self._collect_together(noted):
            for data, raw in zip(noted.messages, noted.begins, strict=True):
                self._change(noted.tables[data[1:5]], replication.to_begin(raw), data)
        if noted.begins[-1] is self._transaction:
            self._advance()
        noted.clear()

    def _collect_together(self, noted: _Noted) -> bool:
        """Decode changes together, and collect them; return whether they can be."""
        messages, tables = noted.messages, noted.tables
        if len(messages) < TOGETHER_MIN * len(tables) or sum(map(len, messages)) > TOGETHER_MAX_BYTES:
            return False
        together: list[tuple[FollowedTable, DecodedRows, Sequence[int]]] = []
        for oid, followed in tables.items():
            numbers: Sequence[int] = range(len(messages))
            if len(tables) > 1:
                numbers = [number for number in numbers if messages[number][1:5] == oid]
            if numbers:
                chosen = messages if len(tables) == 1 else [messages[number] for number in numbers]
                decoded = decode_together(followed, chosen, self.output.needs_old_rows)
                if decoded is None:
                    return False
                together.append((followed, decoded, numbers))
        self.output.add_together(together, [committed + replication.EPOCH_US for _, committed, _ in noted.begins])
        return True

    def _decide(self, followed: FollowedTable, data: bytes) -> None:
        """Collect a change unless the rows of the snapshot contain it, or it comes before the position."""
        if self._is_due(followed):
            begin = self._begin
            assert begin is not None
            self._change(followed, begin, data)
            self._advance()

    def _is_due(self, followed: FollowedTable) -> bool:
        """Count a change, and return whether it comes after the position."""
        begin = self._begin
        assert begin is not None
        if followed.state.position is not None and not followed.state.is_read:
            self.passed.add(begin.xid)
        if begin.commit_lsn < self._lsn:
            return False
        self._changes += 1
        return self._changes > self._skips

    def _advance(self) -> None:
        """Move the position past the changes of this transaction that were counted."""
        if self._transaction is not None:
            self._commit_lsn, self._read = self._transaction[0], self._changes

    def _change(self, followed: FollowedTable, begin: replication.Begin, data: bytes) -> None:
        columns = followed.columns
        if columns is None:
            columns = self.output.locate(followed, begin)
            if columns is None:
                return
            followed.columns = columns
        message = replication.decode(data)
        if isinstance(message, replication.Insert):
            self._insert(followed, columns, begin, message.new)
        elif isinstance(message, replication.Update):
            self._update(followed, columns, begin, message)
        elif isinstance(message, replication.Delete):
            self._delete(followed, columns, begin, message.old, message.has_key_alone)

    def _insert(
        self, followed: FollowedTable, columns: Columns, begin: replication.Begin, new: replication.Values
    ) -> None:
        if followed.seen is None or not followed.seen.has(_key(columns, new), begin.xid):
            self.output.insert(followed, begin, new)

    def _update(
        self, followed: FollowedTable, columns: Columns, begin: replication.Begin, message: replication.Update
    ) -> None:
        old, seen = message.old, followed.seen
        if old is None and seen is not None and seen.has(_key(columns, message.new), begin.xid):
            return
        new = _completed(followed, columns, message)
        if old is None or (not message.has_key_alone and _has_same_key(columns, old, new)):
            if seen is None or not seen.has(_key(columns, new), begin.xid):
                self.output.update(followed, begin, old, new)
            return
        # The key has changed: to everyone who identifies rows by key, this is a delete and an insert.
        self._delete(followed, columns, begin, old, message.has_key_alone)
        self._insert(followed, columns, begin, new)

    def _delete(
        self,
        followed: FollowedTable,
        columns: Columns,
        begin: replication.Begin,
        old: replication.Values,
        has_key_alone: bool,
    ) -> None:
        self.output.check_delete(followed, has_key_alone)
        if followed.seen is not None and followed.seen.has(_key(columns, old), begin.xid):
            return
        if has_key_alone:
            old = [value if is_key else None for value, is_key in zip(old, columns.key_alone, strict=True)]
        self.output.delete(followed, begin, old, has_key_alone)

    def _truncate(self, followed: FollowedTable) -> None:
        begin, seen = self._begin, followed.seen
        assert begin is not None
        if seen is not None and (begin.commit_lsn <= seen.end_lsn or not followed.state.is_read):
            any_saw, all_saw = seen.check_visibility(begin.xid)
            if all_saw:
                return
            if any_saw:
                self._forget_rows(followed, begin)
        self.output.truncate(followed, begin)

    def _forget_rows(self, followed: FollowedTable, begin: replication.Begin) -> None:
        """Read rows again that came after a TRUNCATE which other rows are older than."""
        if not self.output.may_read_rows_again:
            raise OperationError(
                f"table {followed.path} was truncated while its rows were read: begin without the state of the job"
            )
        assert followed.state.position is not None
        followed.move(followed.state.position.forget(begin.xid))
        self.passed.add(begin.xid)
        self.note_rows()


def decode_together(followed: FollowedTable, messages: Sequence[bytes], needs_old: bool) -> DecodedRows | None:
    """Decode changes of a table together.

    Args:
        followed: the table; its columns are located, and no rows of a snapshot are left to compare with.
        messages: the messages, of the kinds of `replication.ROWS`.
        needs_old: see `Output.needs_old_rows`.

    Returns:
        the rows; None if a change needs a decision, or raises an error: it is then decoded by itself.
    """
    columns = followed.columns
    assert columns is not None
    buffer, width = replication.MessageBuffer(messages), len(columns.key_alone)
    answer = buffer.find_values(buffer.firsts, width)
    if answer is None or not columns.positions:
        return None
    first, ends = answer
    is_update, has_key_alone = buffer.kinds == _UPDATE_KIND, buffer.marks == _OLD_KEY
    has_old = is_update & (buffer.marks != _NEW_ROW)
    if (has_old & has_key_alone).any() or (needs_old and (has_key_alone.any() or (is_update & ~has_old).any())):
        return None
    updates = np.flatnonzero(has_old)
    second = first
    if len(updates):
        answer = buffer.find_values(ends[updates] + 1, width)
        if answer is None:
            return None
        second, ends[updates] = answer
        if not all(_are_same(buffer, first, second, updates, index) for index, _ in columns.key):
            return None
    if (ends != buffer.ends).any():
        return None
    before = np.arange(len(messages)) + np.cumsum(has_old) - has_old
    after = before[updates] + 1
    ranges = []
    for position in columns.positions:
        starts, lengths = first.starts[position], first.lengths[position]
        if has_key_alone.any() and not columns.key_alone[position]:
            lengths = np.where(has_key_alone, replication.NULL, lengths)
        merged = np.empty((2, len(messages) + len(updates)), np.int64)
        merged[:, before] = starts, lengths
        if len(updates):
            is_unsent = second.lengths[position] == replication.UNSENT
            merged[0, after] = np.where(is_unsent, starts[updates], second.starts[position])
            merged[1, after] = np.where(is_unsent, lengths[updates], second.lengths[position])
        if (merged[1] == replication.UNSENT).any():
            return None
        ranges.append(replication.ValueRanges(merged[0], merged[1]))
    kinds = np.full(len(messages) + len(updates), UPDATE_AFTER, np.uint8)
    kinds[before] = np.select(
        [buffer.kinds == _INSERT_KIND, buffer.kinds == _DELETE_KIND, has_old],
        [INSERT, DELETE, UPDATE_BEFORE],
        UPDATE_AFTER,
    )
    return DecodedRows(buffer, ranges, kinds, np.repeat(np.arange(len(messages)), 1 + has_old))


def _are_same(
    buffer: replication.MessageBuffer,
    first: replication.ValueRanges,
    second: replication.ValueRanges,
    updates: Any,
    index: int,
) -> bool:
    """Return whether the rows before and after some updates have the same text in a column, and not NULL."""
    old = replication.ValueRanges(first.starts[index][updates], first.lengths[index][updates])
    new = replication.ValueRanges(second.starts[index], second.lengths[index])
    if (new.lengths < 0).any() or (old.lengths != new.lengths).any():
        return False
    return bool(buffer.read_column(old).equals(buffer.read_column(new)))


def _key(columns: Columns, values: replication.Values) -> Key:
    key = []
    for index, make in columns.key:
        value = values[index]
        assert isinstance(value, bytes)
        key.append(make(value.decode()))
    return tuple(key)


def _has_same_key(columns: Columns, old: replication.Values, new: replication.Values) -> bool:
    """Return whether two rows have the same key; texts that differ may be one."""
    if all(old[index] == new[index] for index, _ in columns.key):
        return True
    return _key(columns, old) == _key(columns, new)


def _completed(followed: FollowedTable, columns: Columns, message: replication.Update) -> replication.Values:
    """Return the new row, with unchanged large values taken from the old one."""
    new = message.new
    if replication.UNCHANGED not in new:
        return new
    old = message.old if not message.has_key_alone else None
    if old is None:
        assert followed.relation is not None
        names = [column.name for column in followed.relation.columns]
        absent = [names[index] for index in columns.positions if new[index] is replication.UNCHANGED]
        if not absent:
            return new
        raise OperationError(
            f"an update of {followed.path} left the large value of column {', '.join(absent)} as it was, and "
            f"the log does not have it: execute ALTER TABLE {followed.path} REPLICA IDENTITY FULL. For this "
            "change, which stays without it, leave out the column, or begin without the state of the job"
        )
    return [was if value is replication.UNCHANGED else value for value, was in zip(new, old, strict=True)]
