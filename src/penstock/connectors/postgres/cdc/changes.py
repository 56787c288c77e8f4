"""Conversion of log messages into changes of rows, with the log position after each.

`ChangeReader` converts messages of all tables without a connection and without a clock, and skips the changes that the
rows of the snapshot contain. `RowOutput` collects rows with kinds, as columns; `EventOutput` collects events of rows
and schemas.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from penstock.base.errors import OperationError
from penstock.base.types import RowKind
from penstock.connectors.cdc import events
from penstock.connectors.postgres.cdc import replication, schemas
from penstock.connectors.postgres.cdc.options import ALL, FAIL, UPSERT
from penstock.connectors.postgres.cdc.position import CdcTable, Key, LogPosition, SeenKeys, TablePosition, TableState
from penstock.connectors.postgres.text_columns import parse_batch, parse_column, parse_texts

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = 0, 1, 2, 3
_INSERT, _UPDATE, _DELETE = RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE
_NUMBERS: Final = frozenset({20, 21, 23})
#: Returns the current schema of a table in the catalog, by its OID; None if the table was dropped.
Describe: TypeAlias = Callable[[int], schemas.LoggedSchema | None]


@dataclass(slots=True)
class Columns:
    """The positions of the source's columns and of its key columns in the rows of the log."""

    places: list[int]
    key: list[tuple[int, Callable[[str], int | str]]]
    key_alone: list[bool]

    is_whole: bool = field(init=False)

    def __post_init__(self) -> None:
        self.is_whole = self.places == list(range(len(self.key_alone)))

    def select(self, values: replication.Values) -> replication.Values:
        """Return the values of the source's columns; the row itself if these are all of its columns, in order."""
        return values if self.is_whole else [values[index] for index in self.places]


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


class Output(ABC):
    """Collects the changes that the rows of the snapshot do not contain."""

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
    def truncate(self, followed: FollowedTable, begin: replication.Begin) -> None:
        """Collect that a table has lost all rows."""

    def check_delete(self, followed: FollowedTable, has_key_alone: bool) -> None:  # noqa: B027 - most need no check
        """Raise an error if a deletion needs more than the key."""


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
        self._begin: replication.Begin | None = None
        self._changes = 0
        self._skips = 0
        self._end_lsn = 0
        self.note_rows()

    @property
    def position(self) -> LogPosition:
        """The log position after what was read."""
        return LogPosition(self._lsn, self._commit_lsn, self._read)

    def note_rows(self) -> None:
        """Record that rows have been read: forget them only after the last of their snapshots."""
        self._end_lsn = max((f.seen.end_lsn for f in self.tables.values() if f.seen is not None), default=-1)

    def add(self, followed: FollowedTable) -> None:
        """Read another table."""
        self.tables[followed.state.oid] = followed
        self.note_rows()

    def rewind(self) -> None:
        """Prepare for a new connection: the server resends the transaction that was not read completely."""
        self._begin = None
        for followed in self.tables.values():
            followed.relation = followed.columns = None

    def sent(self, lsn: int) -> None:
        """Note that the server has sent everything before this position."""
        if self._begin is None and not self._commit_lsn and lsn > self._lsn:
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
        """Process messages: collect their changes and advance the position past them."""
        tables, output = self.tables, self.output
        for data in messages:
            kind = data[0]
            if kind in replication.ROWS:
                followed = tables.get(replication.unpack_oid(data)[0])
                if followed is None or not self._is_due(followed):
                    continue
                if kind == replication.INSERT and followed.seen is None and followed.columns is not None:
                    assert self._begin is not None
                    output.insert(followed, self._begin, replication.decode_row(data, 6)[0])  # as most changes
                else:
                    self._change(followed, data)
            elif kind == replication.BEGIN:
                self._begin, self._changes = replication.decode_begin(data), 0
                self._skips = self._read if self._begin.commit_lsn == self._commit_lsn else 0
            else:
                self._feed_other(data)

    def _feed_other(self, data: bytes) -> None:
        message = replication.decode(data)
        if isinstance(message, replication.Commit):
            self._begin = None
            if message.end_lsn > self._lsn:
                self._reach(message.end_lsn)
        elif isinstance(message, replication.Truncate):
            for oid in message.oids:
                followed = self.tables.get(oid)
                if followed is not None and self._is_due(followed):
                    self._truncate(followed)
        elif isinstance(message, replication.Relation):
            followed = self.tables.get(message.oid)
            if followed is not None:
                followed.relation, followed.columns = message, None

    def _is_due(self, followed: FollowedTable) -> bool:
        """Count a change, and return whether it comes after the position."""
        begin = self._begin
        assert begin is not None
        if followed.state.position is not None and not followed.state.is_read:
            self.passed.add(begin.xid)
        if begin.commit_lsn < self._lsn:
            return False
        self._changes += 1
        if self._changes <= self._skips:
            return False
        self._commit_lsn, self._read = begin.commit_lsn, self._changes
        return True

    def _change(self, followed: FollowedTable, data: bytes) -> None:
        begin = self._begin
        assert begin is not None
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
        if not isinstance(self.output, EventOutput):
            raise OperationError(
                f"table {followed.path} was truncated while its rows were read: begin without the state of the job"
            )
        assert followed.state.position is not None
        followed.move(followed.state.position.forget(begin.xid))
        self.passed.add(begin.xid)
        self.note_rows()


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
        absent = [names[index] for index in columns.places if new[index] is replication.UNCHANGED]
        if not absent:
            return new
        raise OperationError(
            f"an update of {followed.path} left the large value of column {', '.join(absent)} as it was, and "
            f"the log does not have it: execute ALTER TABLE {followed.path} REPLICA IDENTITY FULL. For this "
            "change, which stays without it, leave out the column, or begin without the state of the job"
        )
    return [was if value is replication.UNCHANGED else value for value, was in zip(new, old, strict=True)]


def _check_identity(followed: FollowedTable, relation: replication.Relation) -> None:
    if relation.identity == "n":
        raise OperationError(
            f"table {followed.path} has REPLICA IDENTITY NOTHING, so the log does not say which rows change: "
            f"execute ALTER TABLE {followed.path} REPLICA IDENTITY DEFAULT"
        )


class Gathered(NamedTuple):
    """Collected changes: the values of each row as text, the kind of each change, its transaction, its table."""

    rows: tuple[replication.Values, ...]
    kinds: bytes
    begins: tuple[replication.Begin, ...]
    tables: tuple[events.TableId, ...]


class RowOutput(Output):
    """Collects rows with kinds, all with the same columns.

    Args:
        mode: `all` for updates with the previous row, which needs REPLICA IDENTITY FULL; `upsert` for rows by key.
        truncates: `fail` or `skip`: how to handle a TRUNCATE of a table.
        count: increments a counter.
    """

    def __init__(self, mode: str, truncates: str, count: Callable[[str, int], None]) -> None:
        self._mode = mode
        self._truncates = truncates
        self._count = count
        self._table: CdcTable | None = None
        self._changes: list[tuple[replication.Values, int, replication.Begin, events.TableId]] = []

    @property
    def size(self) -> int:
        """See `Output`."""
        return len(self._changes)

    def locate(self, followed: FollowedTable, begin: replication.Begin) -> Columns:
        """Locate the columns in the relation. Raises if a column is missing, or if rows cannot be identified."""
        relation, table = followed.relation, followed.table
        assert relation is not None
        names = [column.name for column in relation.columns]
        absent = [name for name in table.names if name not in names]
        if absent:
            raise OperationError(
                f"table {table.path} has lost column {', '.join(absent)}, or it has another name: it has "
                f"{', '.join(names)}. Read other columns, without the state of the job"
            )
        key: list[tuple[int, Callable[[str], int | str]]] = []
        for key_column in table.key:
            name = key_column.name[1:-1].replace('""', '"')
            if name not in names:
                raise OperationError(f"table {table.path} has lost column {name!r} of its primary key")
            key.append((names.index(name), key_column.value))
        if self._mode == UPSERT:
            _check_identity(followed, relation)
        indices = [names.index(name) for name in table.names]
        return Columns(indices, key, [column.is_key for column in relation.columns])

    def insert(self, followed: FollowedTable, begin: replication.Begin, new: replication.Values) -> None:
        """See `Output`."""
        self._add(followed, begin, INSERT, new)

    def update(
        self,
        followed: FollowedTable,
        begin: replication.Begin,
        old: replication.Values | None,
        new: replication.Values,
    ) -> None:
        """See `Output`."""
        if self._mode == ALL:
            if old is None:
                raise _has_no_old_rows(followed)
            self._add(followed, begin, UPDATE_BEFORE, old)
        self._add(followed, begin, UPDATE_AFTER, new)

    def delete(
        self, followed: FollowedTable, begin: replication.Begin, old: replication.Values, has_key_alone: bool
    ) -> None:
        """See `Output`."""
        self._add(followed, begin, DELETE, old)

    def check_delete(self, followed: FollowedTable, has_key_alone: bool) -> None:
        """Raise if the server did not send the previous row."""
        if self._mode == ALL and has_key_alone:
            raise _has_no_old_rows(followed)

    def truncate(self, followed: FollowedTable, begin: replication.Begin) -> None:
        """See `Output`. Raises, or counts it."""
        if self._truncates == FAIL:
            raise OperationError(
                f"table {followed.path} was truncated at {replication.lsn_text(begin.commit_lsn)}, and the log "
                "does not say "
                "which rows it had: begin without the state of the job, or set the mode of truncates to 'skip' to keep "
                "them"
            )
        self._count("truncatesSkipped", 1)

    def _add(self, followed: FollowedTable, begin: replication.Begin, kind: int, values: replication.Values) -> None:
        columns = followed.columns
        assert columns is not None
        self._changes.append((values if columns.is_whole else columns.select(values), kind, begin, followed.state.id))
        self._table = followed.table

    def take(self) -> tuple[pa.RecordBatch, Gathered] | None:
        """Return the collected rows as columns, with their metadata; None without changes."""
        changes, table = self._changes, self._table
        if not changes:
            return None
        assert table is not None
        self._changes = []
        rows, kinds, begins, tables = zip(*changes, strict=True)
        gathered = Gathered(rows, bytes(kinds), begins, tables)
        return _parse(gathered.rows, table.types, table.names, table.unrepresentable), gathered


def _has_no_old_rows(followed: FollowedTable) -> OperationError:
    return OperationError(
        f"the log does not have rows of {followed.path} as they were before they changed: execute "
        f"ALTER TABLE {followed.path} REPLICA IDENTITY FULL, or read it with changelog mode 'upsert'. "
        "Changes before that stay without; where they are of no use, begin without the state of the job"
    )


def _parse(
    rows: Sequence[Sequence[replication.Value]], types: Sequence[pa.DataType], names: Sequence[str], mode: str
) -> pa.RecordBatch:
    columns: list[Any] = list(zip(*rows, strict=True))
    texts = [pa.array(column, pa.binary()).cast(pa.string()) for column in columns]
    return parse_batch(texts, types, names, mode)


def parse_rows(
    rows: Sequence[Sequence[replication.Value]], types: Sequence[pa.DataType], names: Sequence[str], mode: str
) -> list[tuple[Any, ...]]:
    """Return rows of texts as tuples of Python values, the same as those of columns (`to_values`)."""
    columns: list[Iterable[Any]] = []
    for texts, kind, name in zip(zip(*rows, strict=True), types, names, strict=True):
        values = parse_texts(texts, kind)
        if values is None:  # a type, or a value, that needs more care
            array = pa.array(texts, pa.binary()).cast(pa.string())
            values = parse_column(array, kind, name, mode).to_pylist()
        columns.append(values)
    return list(zip(*columns, strict=True))


def to_values(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """Return the rows of a batch as tuples of Python values."""
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


@dataclass(slots=True)
class _Version:
    """The rows of a table that have the same columns."""

    schema: events.TableSchema
    rows: list[list[replication.Value]] = field(default_factory=list)
    values: list[tuple[Any, ...]] = field(default_factory=list)


class _Change(NamedTuple):
    """An event of a row whose values are still text: the places of its rows in its version."""

    table_id: events.TableId
    version: _Version
    kind: RowKind
    before: int | None
    after: int | None
    meta: Mapping[str, Any]


class EventOutput(Output):
    """Collects events of rows and of schemas, in the order of the log.

    Args:
        unrepresentable: how to read values that a type cannot hold, see `text_columns`.
        describe: returns the schema that the catalog has of a table now.
        name_type: returns the name of a type by its OID.
    """

    def __init__(self, unrepresentable: str, describe: Describe, name_type: Callable[[int], str]) -> None:
        self._unrepresentable = unrepresentable
        self._describe = describe
        self._name_type = name_type
        self._entries: list[events.Event | _Change] = []
        self._versions: dict[int, _Version] = {}
        self._begin: replication.Begin | None = None
        self._meta: Mapping[str, Any] = {}

    @property
    def size(self) -> int:
        """See `Output`."""
        return len(self._entries)

    def locate(self, followed: FollowedTable, begin: replication.Begin) -> Columns | None:
        """Compare the columns of the log with the schema, and collect the events that lead from one to the other.

        The log may have columns from before the table was described. Such changes are contained in the rows: a change
        of a schema waits for the transactions that change rows, and the rows were read after it.
        """
        relation, logged = followed.relation, followed.state.logged
        assert relation is not None
        _check_identity(followed, relation)
        told = schemas.read_relation(relation, logged, self._name_type)
        if logged is None:
            catalog = self._describe(relation.oid)
            schema = told.schema
            if catalog is not None:
                kept = tuple(name for name in catalog.schema.primary_key if name in schema.names)
                schema = replace(schema, primary_key=kept)
            self._adopt(followed, replace(told, schema=schema))
            self._entries.append(events.CreateTableEvent(followed.state.id, schema))
        elif not told.is_like(logged):
            if followed.seen is not None and begin.commit_lsn <= logged.lsn:
                return None
            catalog = self._describe(relation.oid)
            self._follow(followed, catalog if catalog is not None and catalog.is_like(told) else told, logged.lsn)
        logged = followed.state.logged
        assert logged is not None
        names = [column.name for column in relation.columns]
        attributes = dict(zip(logged.schema.names, logged.attributes, strict=True))
        key: list[tuple[int, Callable[[str], int | str]]] = [
            (names.index(name), int if attributes[name].type_oid in _NUMBERS else str)
            for name in logged.schema.primary_key
        ]
        positions = [names.index(name) for name in logged.schema.names]
        return Columns(positions, key, [column.is_key for column in relation.columns])

    def adopt(self, followed: FollowedTable, catalog: schemas.LoggedSchema) -> None:
        """Collect the events that lead to the schema of the catalog, which rows have from now on."""
        self._follow(followed, catalog, catalog.lsn)

    def _follow(self, followed: FollowedTable, following: schemas.LoggedSchema, lsn: int) -> None:
        logged = followed.state.logged
        assert logged is not None
        changes, schema = schemas.find_changes(followed.state.id, logged, following)
        if followed.seen is not None and len(schema.schema.primary_key) != len(logged.schema.primary_key):
            raise OperationError(
                f"table {followed.path} got another primary key while its rows were read: begin without the state of "
                "the job"
            )
        self._entries += changes
        self._adopt(followed, replace(schema, lsn=lsn))

    def _adopt(self, followed: FollowedTable, logged: schemas.LoggedSchema) -> None:
        followed.state = replace(followed.state, logged=logged)
        self._versions.pop(followed.state.oid, None)

    def insert(self, followed: FollowedTable, begin: replication.Begin, new: replication.Values) -> None:
        """See `Output`."""
        self._add(followed, begin, _INSERT, None, new)

    def update(
        self,
        followed: FollowedTable,
        begin: replication.Begin,
        old: replication.Values | None,
        new: replication.Values,
    ) -> None:
        """See `Output`."""
        self._add(followed, begin, _UPDATE, old, new)

    def delete(
        self, followed: FollowedTable, begin: replication.Begin, old: replication.Values, has_key_alone: bool
    ) -> None:
        """See `Output`."""
        self._add(followed, begin, _DELETE, old, None)

    def truncate(self, followed: FollowedTable, begin: replication.Begin) -> None:
        """See `Output`."""
        self._entries.append(events.TruncateTableEvent(followed.state.id))

    def _add(
        self,
        followed: FollowedTable,
        begin: replication.Begin,
        kind: RowKind,
        before: replication.Values | None,
        after: replication.Values | None,
    ) -> None:
        state, columns = followed.state, followed.columns
        assert columns is not None
        version = self._versions.get(state.oid)
        if version is None:
            assert state.logged is not None
            version = self._versions[state.oid] = _Version(state.logged.schema)
        if begin is not self._begin:
            self._begin, self._meta = begin, {"op_ts": begin.committed_us // 1_000}
        rows = version.rows
        first = second = None
        if before is not None:
            first = len(rows)
            rows.append(before if columns.is_whole else columns.select(before))
        if after is not None:
            second = len(rows)
            rows.append(after if columns.is_whole else columns.select(after))
        self._entries.append(_Change(state.id, version, kind, first, second, self._meta))

    def take(self) -> list[events.Event]:
        """Return the collected events."""
        entries, self._entries = self._entries, []
        self._versions = {}
        complete: list[events.Event] = []
        for entry in entries:
            if not isinstance(entry, _Change):
                complete.append(entry)
                continue
            table_id, version, kind, first, second, meta = entry
            if version.rows:
                schema = version.schema
                types = [column.type for column in schema.columns]
                version.values = parse_rows(version.rows, types, schema.names, self._unrepresentable)
                version.rows = []
            values = version.values
            before = None if first is None else values[first]
            after = None if second is None else values[second]
            complete.append(events.DataChangeEvent(table_id, kind, before, after, meta))
        return complete
