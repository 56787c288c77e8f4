"""Conversion of log messages into row changes with the log position after each, and the settings of a CDC source.

`ChangeReader` converts messages without a connection and without a clock. `CdcSettings` names the table to read, and
how.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from penstock.base.errors import ConfigurationError, OperationError
from penstock.connectors.postgres.cdc import replication
from penstock.connectors.postgres.cdc.position import CdcTable, Key, LogPosition, SeenKeys, TablePosition
from penstock.connectors.postgres.client import Address
from penstock.connectors.postgres.text_columns import FAIL as UNREPRESENTABLE_FAIL
from penstock.connectors.postgres.text_columns import MODES, parse_batch

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = 0, 1, 2, 3
ALL, UPSERT = "all", "upsert"
FAIL, SKIP = "fail", "skip"


@dataclass(slots=True)
class _Columns:
    """The positions of the source's columns and of its key columns in the table's rows."""

    places: list[int]
    key: list[tuple[int, Callable[[str], int | str]]]
    key_alone: list[bool]


@dataclass(slots=True)
class Gathered:
    """Collected changes: the values of each row as text, the kind of each change, and its commit time (µs)."""

    rows: list[list[replication.Value]] = field(default_factory=list)
    kinds: bytearray = field(default_factory=bytearray)
    committed_us: list[int] = field(default_factory=list)


class ChangeReader:
    """Converts messages into rows.

    Args:
        table: the table to read; changes of other tables are skipped.
        position: the log position to start from.
        snapshot: the part of the table that was already read; None without a snapshot.
        mode: `all` for updates with the previous row, which needs REPLICA IDENTITY FULL; `upsert` for rows by key.
        truncates: `fail` or `skip`: how to handle a TRUNCATE of the table.
        count: increments a counter.
    """

    def __init__(
        self,
        table: CdcTable,
        position: LogPosition,
        snapshot: TablePosition | None,
        mode: str,
        truncates: str,
        count: Callable[[str, int], None],
    ) -> None:
        self._table = table
        self._mode = mode
        self._truncates = truncates
        self._count = count
        self._seen = None if snapshot is None else SeenKeys(snapshot)
        self.position = position
        self._columns: _Columns | None = None
        self._begin: replication.Begin | None = None
        self._changes = 0
        self._skips = 0
        self.gathered = Gathered()

    @property
    def needs_snapshot(self) -> bool:
        """Whether the snapshot position is still needed to filter changes."""
        return self._seen is not None

    def rewind(self) -> None:
        """Prepare for a new connection: the server resends the transaction that was not read completely."""
        self._begin = None
        self._columns = None

    def sent(self, lsn: int) -> None:
        """Note that the server has sent everything before this position."""
        if self._begin is None and not self.position.commit_lsn and lsn > self.position.lsn:
            self._reach(lsn)

    def _reach(self, lsn: int) -> None:
        self.position = LogPosition(lsn)
        if self._seen is not None and lsn > self._seen.end_lsn:
            self._seen = None

    def feed(self, data: bytes) -> None:
        """Process a message: collect its rows and advance the position past it."""
        message = replication.decode(data)
        if isinstance(message, replication.Insert | replication.Update | replication.Delete | replication.Truncate):
            self._change(message)
        elif isinstance(message, replication.Begin):
            self._begin, self._changes = message, 0
            is_part_read = message.commit_lsn == self.position.commit_lsn
            self._skips = self.position.changes if is_part_read else 0
        elif isinstance(message, replication.Commit):
            self._begin = None
            if message.end_lsn > self.position.lsn:
                self._reach(message.end_lsn)
        elif isinstance(message, replication.Relation) and message.oid == self._table.oid:
            self._columns = self._locate_columns(message)

    def _change(
        self, message: replication.Insert | replication.Update | replication.Delete | replication.Truncate
    ) -> None:
        begin = self._begin
        assert begin is not None
        oids = message.oids if isinstance(message, replication.Truncate) else (message.oid,)
        if self._table.oid not in oids or begin.commit_lsn < self.position.lsn:
            return
        self._changes += 1
        if self._changes <= self._skips:
            return
        if isinstance(message, replication.Truncate):
            self._truncate(begin)
        else:
            columns = self._columns
            assert columns is not None
            if isinstance(message, replication.Insert):
                self._add(begin, columns, INSERT, message.new)
            elif isinstance(message, replication.Update):
                self._update(begin, columns, message)
            else:
                self._delete(begin, columns, message.old, message.has_key_alone)
        self.position = LogPosition(self.position.lsn, begin.commit_lsn, self._changes)

    def _update(self, begin: replication.Begin, columns: _Columns, message: replication.Update) -> None:
        if message.old is None and self._is_seen(begin, columns, message.new):
            return
        old, new = message.old, self._completed(columns, message)
        if old is None or (not message.has_key_alone and self._key(columns, old) == self._key(columns, new)):
            if self._mode == ALL:
                self._add(begin, columns, UPDATE_BEFORE, self._whole(columns, old))
            self._add(begin, columns, UPDATE_AFTER, new)
            return
        # The key has changed: to everyone who identifies rows by key, this is a delete and an insert.
        self._delete(begin, columns, old, message.has_key_alone)
        self._add(begin, columns, INSERT, new)

    def _delete(
        self, begin: replication.Begin, columns: _Columns, old: replication.Values, has_key_alone: bool
    ) -> None:
        if self._mode == ALL:
            old = self._whole(columns, None if has_key_alone else old)
        elif has_key_alone:
            old = [value if is_key else None for value, is_key in zip(old, columns.key_alone, strict=True)]
        self._add(begin, columns, DELETE, old)

    def _whole(self, columns: _Columns, old: replication.Values | None) -> replication.Values:
        """Return the previous row; raise if the server did not send it."""
        if old is None:
            raise OperationError(
                f"the log does not have rows of {self._table.path} as they were before they changed: execute "
                f"ALTER TABLE {self._table.path} REPLICA IDENTITY FULL, or read it with changelog mode 'upsert'. "
                "Changes before that stay without; where they are of no use, begin without the state of the job"
            )
        return old

    def _completed(self, columns: _Columns, message: replication.Update) -> replication.Values:
        """Return the new row, with unchanged large values taken from the old one."""
        new = message.new
        if replication.UNCHANGED not in new:
            return new
        old = message.old if not message.has_key_alone else None
        if old is None:
            absent = [
                name
                for name, index in zip(self._table.names, columns.places, strict=True)
                if new[index] is replication.UNCHANGED
            ]
            if not absent:
                return new
            raise OperationError(
                f"an update of {self._table.path} left the large value of column {', '.join(absent)} as it was, and "
                f"the log does not have it: execute ALTER TABLE {self._table.path} REPLICA IDENTITY FULL. For this "
                "change, which stays without it, leave out the column, or begin without the state of the job"
            )
        return [was if value is replication.UNCHANGED else value for value, was in zip(new, old, strict=True)]

    def _truncate(self, begin: replication.Begin) -> None:
        if self._seen is not None and begin.commit_lsn <= self._seen.end_lsn:
            any_saw, all_saw = self._seen.check_visibility(begin.xid)
            if all_saw:
                return
            if any_saw:
                raise OperationError(
                    f"table {self._table.path} was truncated while its rows were read: begin without the state of "
                    "the job"
                )
        if self._truncates == FAIL:
            raise OperationError(
                f"table {self._table.path} was truncated at {replication.lsn_text(begin.commit_lsn)}, and the log "
                "does not say "
                "which rows it had: begin without the state of the job, or set the mode of truncates to 'skip' to keep "
                "them"
            )
        self._count("truncatesSkipped", 1)

    def _add(self, begin: replication.Begin, columns: _Columns, kind: int, values: replication.Values) -> None:
        if self._is_seen(begin, columns, values):
            return
        gathered = self.gathered
        gathered.rows.append([values[index] for index in columns.places])
        gathered.kinds.append(kind)
        gathered.committed_us.append(begin.committed_us)

    def _is_seen(self, begin: replication.Begin, columns: _Columns, values: replication.Values) -> bool:
        """Return whether the snapshot's rows already contain the change."""
        return self._seen is not None and self._seen.has(self._key(columns, values), begin.xid)

    def _key(self, columns: _Columns, values: replication.Values) -> Key:
        key = []
        for index, make in columns.key:
            value = values[index]
            assert isinstance(value, bytes)
            key.append(make(value.decode()))
        return tuple(key)

    def _locate_columns(self, relation: replication.Relation) -> _Columns:
        """Locate the columns in the relation. Raises if a column is missing, or if rows cannot be identified."""
        names = [column.name for column in relation.columns]
        absent = [name for name in self._table.names if name not in names]
        if absent:
            raise OperationError(
                f"table {self._table.path} has lost column {', '.join(absent)}, or it has another name: it has "
                f"{', '.join(names)}. Read other columns, without the state of the job"
            )
        key: list[tuple[int, Callable[[str], int | str]]] = []
        for key_column in self._table.key:
            name = key_column.name[1:-1].replace('""', '"')
            if name not in names:
                raise OperationError(f"table {self._table.path} has lost column {name!r} of its primary key")
            key.append((names.index(name), key_column.value))
        if self._mode == UPSERT and relation.identity == "n":
            raise OperationError(
                f"table {self._table.path} has REPLICA IDENTITY NOTHING, so the log does not say which rows change: "
                f"execute ALTER TABLE {self._table.path} REPLICA IDENTITY DEFAULT"
            )
        indices = [names.index(name) for name in self._table.names]
        return _Columns(indices, key, [column.is_key for column in relation.columns])

    def take(self) -> tuple[pa.RecordBatch, bytes, list[int]] | None:
        """Return the collected rows as columns, with change kinds and commit times (µs); None without changes."""
        gathered = self.gathered
        if not gathered.rows:
            return None
        self.gathered = Gathered()
        table = self._table
        columns: list[Any] = list(zip(*gathered.rows, strict=True))
        texts = [pa.array(column, pa.binary()).cast(pa.string()) for column in columns]
        rows = parse_batch(texts, table.types, table.names, table.unrepresentable)
        return rows, bytes(gathered.kinds), gathered.committed_us


#: The table's rows and then its changes; changes from now on; changes that the slot has retained; only the table's
#: rows.
INITIAL, LATEST, COMMITTED, SNAPSHOT = "initial", "latest-offset", "committed-offset", "snapshot"
STARTUP_MODES: Final = (INITIAL, LATEST, COMMITTED, SNAPSHOT)
CHUNK_SIZE: Final = 8_096
HEARTBEAT_MS: Final = 30_000
CONFIRM_DELAY: Final = 3


@dataclass(frozen=True, slots=True)
class Output:
    """A column of the output.

    Attributes:
        name: its name in the output.
        column: the table's column; None for metadata of the change.
        type: its Arrow type; None for the column's default.
        metadata: `database_name`, `schema_name`, `table_name` or `op_ts`.
    """

    name: str
    column: str | None
    type: Any = None
    metadata: str | None = None


@dataclass(frozen=True, slots=True)
class CdcSettings:
    """The settings made by `PostgresSourceBuilder`, which explains them.

    Attributes:
        outputs: the columns of the output; empty for all columns of the table.
        allows_incomplete: whether the publication may omit rows and kinds of changes.
        unrepresentable: how to read values that a type cannot hold, see `text_columns`.
    """

    address: Address
    schema: str
    table: str
    slot: str
    publication: str
    startup: str = INITIAL
    mode: str = ALL
    truncates: str = FAIL
    outputs: tuple[Output, ...] = ()
    chunk_size: int = CHUNK_SIZE
    heartbeat_ms: int = HEARTBEAT_MS
    confirm_delay: int = CONFIRM_DELAY
    allows_incomplete: bool = False
    unrepresentable: str = UNREPRESENTABLE_FAIL

    def __post_init__(self) -> None:
        for setting, value, known in (
            ("startup mode", self.startup, STARTUP_MODES),
            ("changelog mode", self.mode, (ALL, UPSERT)),
            ("mode of truncates", self.truncates, (FAIL, SKIP)),
            ("mode of unrepresentable values", self.unrepresentable, MODES),
        ):
            if value not in known:
                raise ConfigurationError(f"the {setting} is {' or '.join(known)}, not {value!r}")
        if self.chunk_size < 1 or self.heartbeat_ms < 1 or self.confirm_delay < 0:
            raise ConfigurationError("sizes of chunks and heartbeat intervals are above 0, and delays not below")
        if not self.slot and self.startup != SNAPSHOT:
            raise ConfigurationError("the changes of a table are kept for a slot: name it (slot.name)")

    @property
    def path(self) -> str:
        """The table's path, in the form that `quoted_path` expects."""
        return ".".join('"' + name.replace('"', '""') + '"' for name in (self.schema, self.table))
