"""`CdcReader`: reads chunks, and then the log, with positions that are exact to the row.

Chunks and the log are read in the background. There `ChangeFilter` selects the changes that count; `CdcReader` emits
them, updates the metrics and keeps the position. An `Output` makes the records: events, or columns of a table.

**A table that is altered while its chunks are read.** Every chunk is read with the schema of its position. If the
schema of a chunk differs from the schema that the reader has emitted, the reader first reads the log up to the
position of the chunk, for the chunks that it has read before. So the statement comes between the two, as in the log.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, NamedTuple, TypeVar

from penstock.base.types import RowKind
from penstock.connectors.cdc.events import (
    CreateTableEvent,
    DataChangeEvent,
    SchemaChangeEvent,
    TableId,
    TableSchema,
)
from penstock.connectors.cdc.incremental import ChunkPositions, ReadChunk
from penstock.connectors.mysql import client
from penstock.connectors.mysql.cdc import binlog
from penstock.connectors.mysql.cdc.binlog import LogConnection, LogPosition
from penstock.connectors.mysql.cdc.database import (
    Chunk,
    ChunkRows,
    Known,
    MySqlDatabase,
    Reached,
    RowChanges,
    TableChanges,
    comparable,
)
from penstock.connectors.mysql.cdc.source import CatchUp, ChunkSplit, Left, LogSplit, NewTables, Split
from penstock.connectors.mysql.cdc.tables import TEXTS, ColumnDefinition, TableDefinition
from penstock.connectors.split_reader import Background
from penstock.runtime.connector import InputStatus, SourceReader, SourceReaderContext
from penstock.runtime.records import Batch

LOG: Final = logging.getLogger(__name__)

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = 0, 1, 2, 3
KINDS: Final = (RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE)
#: After a lost connection: the pause before a retry, and how long to keep trying. A restarting server is back by then.
RETRY_MS: Final = 500
GIVE_UP_MS: Final = 120_000
#: the number of changes that the background thread hands over at a time
_CHANGES: Final = 1_000
_WAIT_S: Final = 0.005
_WARN_MS: Final = 60_000


class Change(NamedTuple):
    """A change to emit.

    Attributes:
        number: the number of the row in its event.
        kind: INSERT, UPDATE_AFTER or DELETE.
        before: the row before.
        after: the row after.
    """

    number: int
    kind: int
    before: tuple[Any, ...] | None
    after: tuple[Any, ...] | None


class Filtered(NamedTuple):
    """The changes of an event that count; see `RowChanges`."""

    definition: TableDefinition
    changes: list[Change]
    seconds: int
    boundary: LogPosition
    event: int


class ChangeFilter:
    """Selects the changes of the log that count for a split, in the background."""

    def __init__(self, database: MySqlDatabase, split: LogSplit) -> None:
        self._database = database
        self._is_log = split.is_log
        self._chunks = {
            table_id: ChunkPositions(ReadChunk(chunk.range, position) for chunk, position in chunks)
            for table_id, chunks in split.chunks.items()
        }
        self._columns = {table_id: chunks[0][0].column for table_id, chunks in split.chunks.items()}
        self._last = {table_id: max(position for _, position in chunks) for table_id, chunks in split.chunks.items()}
        self._weights: dict[TableId, dict[str, bytes]] = {}
        self._weighers: dict[ColumnDefinition, Callable[[Sequence[str]], list[bytes]]] = {}
        self._sessions = ExitStack()
        self._connection: Any = None

    def close(self) -> None:
        """Return the connection for the weights of texts to the pool."""
        self._sessions.close()

    def apply(self, item: RowChanges) -> Filtered:
        """Return the changes that count."""
        definition = item.definition
        table_id = definition.table_id
        changes = list(self._split_changes(item, definition.key_places()))
        chunks = self._chunks.get(table_id)
        if chunks is None:
            if not self._is_log:
                changes = []
        elif not (self._is_log and item.boundary >= self._last[table_id]):
            changes = self._of_chunks(changes, item, chunks)
        return Filtered(definition, changes, item.seconds, item.boundary, item.event)

    @staticmethod
    def _split_changes(item: RowChanges, key: Sequence[int]) -> Iterator[Change]:
        """Yield changes; an update that changes a key is a delete and an insert."""
        first = item.first
        if item.kind == binlog.INSERT:
            for index, (_, after) in enumerate(item.rows, first):
                yield Change(index, INSERT, None, after)
        elif item.kind == binlog.DELETE:
            for index, (before, _) in enumerate(item.rows, first):
                yield Change(index, DELETE, before, None)
        else:
            for index, (before, after) in enumerate(item.rows, first):
                assert before is not None
                assert after is not None
                for position in key:
                    if before[position] != after[position]:
                        yield Change(index, DELETE, before, None)
                        yield Change(index, INSERT, None, after)
                        break
                else:
                    yield Change(index, UPDATE_AFTER, before, after)

    def _of_chunks(self, changes: list[Change], item: RowChanges, chunks: ChunkPositions[LogPosition]) -> list[Change]:
        table_id = item.definition.table_id
        column = self._columns[table_id]
        if column is None:
            (chunk,) = chunks.chunks
            return changes if item.boundary >= chunk.position else []
        position = item.definition.find(column)
        assert position is not None
        rows = [change.after if change.after is not None else change.before for change in changes]
        values = [row[position] for row in rows if row is not None]
        if item.definition.columns[position].kind in TEXTS:
            values = self._weigh(item.definition, position, values)
        boundary = item.boundary
        return [
            change for change, value in zip(changes, values, strict=True) if chunks.admits(comparable(value), boundary)
        ]

    def _weigh(self, definition: TableDefinition, position: int, texts: list[str]) -> list[Any]:
        weights = self._weights.setdefault(definition.table_id, {})
        missing = list({text for text in texts if text not in weights})
        if missing:
            column = definition.columns[position]
            weigh = self._weighers.get(column)
            if weigh is None:
                if self._connection is None:
                    self._connection = self._sessions.enter_context(self._database.session())
                weigh = self._weighers[column] = self._database.open_weights(self._connection, column)
            weights |= zip(missing, weigh(missing), strict=True)
        result = [weights[text] for text in texts]
        if len(weights) > 100_000:
            weights.clear()
        return result


OutT = TypeVar("OutT")


class Output(ABC, Generic[OutT]):
    """Makes records of changes. `wants_schemas`: whether schemas are records too."""

    wants_schemas: bool = False

    @abstractmethod
    def add_changes(self, definition: TableDefinition, changes: Sequence[Change], meta: Mapping[str, Any]) -> None:
        """Add changes of a table."""

    def add_schema_changes(self, changes: Sequence[SchemaChangeEvent]) -> None:
        """Add changes of schemas."""

    @abstractmethod
    def take(self, max_records: int) -> Batch | None:
        """Return the added records as a batch; None without any."""

    def get_left(self) -> tuple[Any, ...]:
        """Return the records that did not fit into the last `take`."""
        return ()

    def put_back(self, records: Sequence[Any]) -> None:
        """Add records that were left."""


class EventOutput(Output[Any]):
    """Emits the events of `penstock.connectors.cdc.events`."""

    wants_schemas = True

    def __init__(self) -> None:
        self._events: list[Any] = []

    def add_changes(self, definition: TableDefinition, changes: Sequence[Change], meta: Mapping[str, Any]) -> None:
        """See `Output`."""
        table_id = definition.table_id
        self._events.extend(
            DataChangeEvent(table_id, KINDS[kind], before, after, meta) for _, kind, before, after in changes
        )

    def add_schema_changes(self, changes: Sequence[SchemaChangeEvent]) -> None:
        """See `Output`."""
        self._events.extend(changes)

    def take(self, max_records: int) -> Batch | None:
        """See `Output`."""
        events, self._events = self._events[:max_records], self._events[max_records:]
        return Batch(events, None) if events else None

    def get_left(self) -> tuple[Any, ...]:
        """See `Output`."""
        return tuple(self._events)

    def put_back(self, records: Sequence[Any]) -> None:
        """See `Output`."""
        self._events.extend(records)


@dataclass(slots=True)
class _Reading:
    """A log that is being read."""

    background: Background[list[Any]]
    items: deque[Any]
    stop: LogPosition | None


class CdcReader(SourceReader[Any, Split]):
    """See the module docstring."""

    def __init__(
        self, context: SourceReaderContext, database: MySqlDatabase, output: Output[Any], readers: int
    ) -> None:
        self._context = context
        self._database = database
        self._output = output
        self._waits_for_checkpoint = readers > 1
        self._chunks: deque[ChunkSplit] = deque()
        #: the logs to read for the chunks that were read; the last split also gets the chunks that follow
        self._tails: list[LogSplit] = []
        self._catch_up: CatchUp | None = None
        self._main: LogSplit | None = None
        self._new_tables: deque[TableId] = deque()
        self._announced: dict[TableId, TableSchema] = {}
        self._has_asked = self._is_last = False
        #: whether records were emitted since the last completed checkpoint, and the checkpoint that covers them
        self._is_dirty = False
        self._saved_in: int | None = None
        self._waits_since_ms: int | None = None
        self._chunk_reading: Background[ChunkRows | None] | None = None
        self._log: _Reading | None = None
        self._retry_at_ms: int | None = None
        self._failing_since_ms: int | None = None
        self._log_seconds = 0
        self._error: Exception | None = None
        context.gauge("mysql.lagMs", self._measure_lag)

    def _measure_lag(self) -> int:
        """Return the age (ms) of the last change that was read from the log; 0 before there is one."""
        return max(0, self._context.now_ms() - self._log_seconds * 1_000) if self._log_seconds else 0

    # --- splits ----------------------------------------------------------------------------------------------------

    def add_splits(self, splits: Sequence[Split]) -> None:
        """See `SourceReader`."""
        self._has_asked = False
        for pending in splits:
            split: Split | None = pending
            if isinstance(pending, Left):
                self._output.put_back(pending.records)
                split = pending.split
            if split is None or isinstance(split, Left):
                continue
            if isinstance(split, ChunkSplit):
                self._chunks.appendleft(split) if split.rows is not None else self._chunks.append(split)
            elif isinstance(split, CatchUp):
                self._catch_up = split
            elif isinstance(split, NewTables):
                self._new_tables.extend(split.table_ids)
            elif split.is_log:
                self._main = split
                self._announced |= split.announced
            else:
                self._tails.append(split)
                self._announced |= split.announced

    def no_more_splits(self) -> None:
        """See `SourceReader`."""
        self._is_last = True

    def snapshot_state(self, checkpoint_id: int) -> list[Split]:
        """See `SourceReader`."""
        if self._is_dirty and self._saved_in is None:
            self._saved_in = checkpoint_id
        announced = dict(self._announced) if self._output.wants_schemas else {}
        splits: list[Split] = list(self._chunks)
        splits += [replace(tail, announced=announced) for tail in self._tails]
        if self._catch_up is not None:
            splits.append(self._catch_up)
        if self._main is not None:
            splits.append(replace(self._main, announced=announced))
        if self._new_tables:
            splits.append(NewTables(tuple(self._new_tables)))
        left = self._output.get_left()
        if left:  # with what comes after it, so that it stays before that
            index = next((i for i in reversed(range(len(splits))) if isinstance(splits[i], LogSplit)), 0)
            pending = splits[index] if splits else None
            assert not isinstance(pending, Left)
            splits[index : index + 1] = [Left(left, pending)]
        return splits

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """See `SourceReader`."""
        if self._saved_in is not None and checkpoint_id >= self._saved_in:
            self._is_dirty, self._saved_in = False, None

    # --- polling ---------------------------------------------------------------------------------------------------

    def poll_next(self, max_records: int) -> Batch | InputStatus:
        """See `SourceReader`."""
        now_ms = self._context.now_ms()
        if self._retry_at_ms is not None and now_ms < self._retry_at_ms:
            return InputStatus.NOTHING_AVAILABLE
        self._retry_at_ms = None
        batch = self._output.take(max_records)
        if batch is None:
            errors = client.load_library().err
            try:
                self._work(max_records)
                self._failing_since_ms = None
            except (errors.MySQLError, OSError) as error:
                self._lose(error, now_ms)
            batch = self._output.take(max_records)
        if batch is not None:
            self._is_dirty, self._saved_in = True, None
            return batch
        if self._is_last and self._is_idle():
            return InputStatus.END_OF_INPUT
        return InputStatus.NOTHING_AVAILABLE

    def _is_idle(self) -> bool:
        return not (self._chunks or self._catch_up or self._main or self._output.get_left())

    def _lose(self, error: Exception, now_ms: int) -> None:
        """Record that the connection is lost; raise the error if it is permanent."""
        self._close_readings()
        if not client.is_passing(error):
            raise error
        self._failing_since_ms = now_ms if self._failing_since_ms is None else self._failing_since_ms
        if now_ms - self._failing_since_ms > GIVE_UP_MS:
            raise error
        self._context.count("numConnectionFailures")
        LOG.warning("%s: %s; trying again", self._database.settings.address.shown, client.describe(error))
        self._retry_at_ms = now_ms + RETRY_MS

    def retry_after_ms(self) -> int:
        """Return 0 while a chunk is read, or changes are waiting."""
        is_busy = self._chunk_reading is not None or (self._log is not None and bool(self._log.items))
        return 0 if is_busy else super().retry_after_ms()

    def _work(self, max_records: int) -> None:
        """Add some records to the output, or do a step that leads to them."""
        error, self._error = self._error, None
        if error is not None:
            raise error
        if self._chunks:
            self._read_chunks(max_records)
        elif self._main is not None and self._new_tables:
            self._add_new_table(self._main)
        elif self._catch_up is not None:
            if self._tails:
                self._read_tail(self._catch_up.stop, max_records)
            else:
                self._catch_up = None
        elif self._main is not None:
            self._read_main(max_records)
        if not (self._chunks or self._catch_up or self._main):
            self._ask()

    def _ask(self) -> None:
        """Ask for a split; where order matters, only once a checkpoint covers all emitted records."""
        if self._has_asked or self._is_last:
            return
        if self._waits_for_checkpoint and self._is_dirty and not self._tails:
            now_ms = self._context.now_ms()
            if self._waits_since_ms is None or now_ms - self._waits_since_ms > _WARN_MS:
                if self._waits_since_ms is not None:
                    LOG.warning("the log is read after the next checkpoint: set execution.checkpointing.interval")
                self._waits_since_ms = now_ms
            return
        self._waits_since_ms = None
        self._has_asked = True
        self._context.request_split()

    # --- chunks ----------------------------------------------------------------------------------------------------

    def _read_chunks(self, max_records: int) -> None:
        split = self._chunks[0]
        if split.rows is None:
            if self._chunk_reading is None:
                database, chunk = self._database, split.chunk

                def read() -> Iterator[ChunkRows | None]:
                    yield database.read_chunk(chunk)

                self._chunk_reading = Background(read, lambda: None)
            rows = self._chunk_reading.take(_WAIT_S)
            if rows is None:
                if not self._chunk_reading.is_done:
                    return
                self._close_readings()
                self._chunks.popleft()  # its table was dropped
                return
            self._close_readings()
            split = self._chunks[0] = ChunkSplit(
                split.chunk, tuple(rows.rows), Known(rows.definition, rows.position), rows.position
            )
        assert split.rows is not None
        assert split.known is not None
        assert split.position is not None
        if not self._is_at(split.known.definition, split.position, max_records):
            return
        rows_now, rows_left = split.rows[:max_records], split.rows[max_records:]
        self._announce(split.known.definition)
        meta = {"op_ts": 0}
        self._output.add_changes(
            split.known.definition, [Change(index, INSERT, None, row) for index, row in enumerate(rows_now)], meta
        )
        if rows_left:
            self._chunks[0] = replace(split, rows=rows_left)
        else:
            self._chunks.popleft()
            self._keep(split.chunk, split.known, split.position)

    def _is_at(self, definition: TableDefinition, position: LogPosition, max_records: int) -> bool:
        """Return whether the log was read up to the position of a chunk whose schema differs."""
        table_id = definition.table_id
        if not self._tails or not any(table_id in tail.known for tail in self._tails):
            return True
        schema = self._describe(definition)
        if all(
            self._describe(tail.known[table_id].definition) == schema for tail in self._tails if table_id in tail.known
        ):
            return True
        behind = [tail for tail in self._tails if tail.position < position]
        if not behind:
            return True
        self._read_tail(position, max_records, drops=False)
        return False

    def _describe(self, definition: TableDefinition) -> TableSchema:
        return self._database.settings.values.types.describe(definition)

    def _keep(self, chunk: Chunk, known: Known, position: LogPosition) -> None:
        """Record that a chunk was read: its changes count from its position on."""
        self._close_readings()  # the log that is being read does not know it
        if not self._tails or self._tails[-1].position > position:  # that of another reader, before a rescale
            self._tails.append(LogSplit(position, {}))
        tail = self._tails[-1]
        table_id = chunk.table_id
        chunks = dict(tail.chunks)
        chunks[table_id] = (*chunks.get(table_id, ()), (chunk, position))
        tables = {**tail.known}
        tables.setdefault(table_id, known)
        self._tails[-1] = replace(tail, chunks=chunks, known=tables)

    def _announce(self, definition: TableDefinition) -> None:
        """Emit the schema of a table if it has not been emitted yet."""
        if not self._output.wants_schemas:
            return
        schema = self._describe(definition)
        if self._announced.get(definition.table_id) != schema:
            self._announced[definition.table_id] = schema
            self._output.add_schema_changes([CreateTableEvent(definition.table_id, schema)])

    def _add_new_table(self, main: LogSplit) -> None:
        """Read a table that is captured since the restore, chunk by chunk, before the log continues."""
        table_id = self._new_tables[0]
        if table_id not in main.known:
            for chunk in self._database.split_table(table_id):
                rows = self._database.read_chunk(chunk)
                if rows is None:
                    break
                known = {**main.known}
                known.setdefault(table_id, Known(rows.definition, rows.position))
                chunks = {**main.chunks, table_id: (*main.chunks.get(table_id, ()), (chunk, rows.position))}
                main = replace(main, known=known, chunks=chunks)
                self._announce(rows.definition)
                self._output.add_changes(
                    rows.definition, [Change(0, INSERT, None, row) for row in rows.rows], {"op_ts": 0}
                )
            self._main = main
            self._close_readings()
        self._new_tables.popleft()

    # --- the log ---------------------------------------------------------------------------------------------------

    def _read_tail(self, stop: LogPosition, max_records: int, drops: bool = True) -> None:
        """Read the log for chunks that were read, up to a position."""
        index = next((i for i, tail in enumerate(self._tails) if tail.position < stop), None)
        if index is None:
            if drops:
                late = [tail for tail in self._tails if any(is_after(tail, stop))]
                self._tails = late
                if not late or self._main is not None:
                    self._catch_up = None
            return
        tail = self._tails[index]
        split, is_done = self._read_log(tail, stop, max_records)
        self._tails[index] = replace(split, position=max(split.position, stop)) if is_done else split
        if is_done and drops:
            if any(is_after(tail, stop)):
                return
            del self._tails[index]

    def _read_main(self, max_records: int) -> None:
        assert self._main is not None
        main = self._main
        if self._tails:
            chunks = dict(main.chunks)
            for tail in self._tails:
                for table_id, read in tail.chunks.items():
                    chunks[table_id] = (*chunks.get(table_id, ()), *read)
            self._main = main = replace(main, chunks=chunks)
            self._tails = []
        if self._log is None and self._output.wants_schemas:
            for known in main.known.values():
                if known.definition.table_id not in self._announced:
                    self._announce(known.definition)
        self._main, _ = self._read_log(main, None, max_records)
        if self._main.chunks:
            position = self._main.position
            left = {
                table_id: read
                for table_id, read in self._main.chunks.items()
                if any(known_position > position for _, known_position in read)
            }
            if len(left) < len(self._main.chunks):
                self._main = replace(self._main, chunks=left)

    def _read_log(self, split: LogSplit, stop: LogPosition | None, max_records: int) -> tuple[LogSplit, bool]:
        """Add changes of the log to the output; return the split after them, and whether `stop` was reached."""
        if self._log is not None and self._log.stop != stop:
            self._close_readings()
        if self._log is None:
            self._log = self._open_log(split, stop)
        log, start = self._log, split
        room = max_records
        while room > 0:
            if not log.items:
                try:
                    items = log.background.take(_WAIT_S if room == max_records else 0)
                except Exception as error:
                    if split is start:
                        raise
                    self._error = error  # raised after these records
                    break
                if items is None:
                    if not log.background.is_done:
                        break
                    self._close_readings()
                    return split, True
                log.items.extend(items)
                if not items:
                    break
            item = log.items[0]
            if isinstance(item, Filtered):
                split, used = self._emit(item, split, room)
                room -= used
            else:
                log.items.popleft()
                split, used = self._pass(item, split)
                room -= used
        return split, False

    def _emit(self, item: Filtered, split: LogSplit, room: int) -> tuple[LogSplit, int]:
        """Emit changes of an event, as many as there is room for."""
        log = self._log
        assert log is not None
        changes = item.changes
        now, left = changes[:room], changes[room:]
        while left and left[0].number == now[-1].number:  # both changes that are one of a key
            now.append(left.pop(0))
        self._log_seconds = item.seconds
        if now:
            self._announce(item.definition)
            meta = {"op_ts": item.seconds * 1_000, "file": item.boundary.file, "pos": item.boundary.offset}
            self._output.add_changes(item.definition, now, meta)
        if left:
            log.items[0] = item._replace(changes=left)
            position = replace(item.boundary, events=item.event, rows=now[-1].number + 1)
        else:
            log.items.popleft()
            position = replace(item.boundary, events=item.event + 1)
        return replace(split, position=position), max(1, len(now))

    def _pass(self, item: TableChanges | Reached, split: LogSplit) -> tuple[LogSplit, int]:
        """Advance past a statement or the end of a transaction."""
        if isinstance(item, Reached):
            self._log_seconds = item.seconds
            return replace(split, position=item.position), 0
        table_id = item.table_id
        known = dict(split.known)
        old = known.pop(table_id, None)
        if item.definition is not None:
            known[table_id] = Known(item.definition, item.boundary)
        split = replace(split, known=known, position=replace(item.boundary, events=item.event + 1))
        if item.definition is None and table_id in split.chunks:
            split = replace(split, chunks={key: read for key, read in split.chunks.items() if key != table_id})
        if not self._output.wants_schemas or (not split.is_log and table_id not in split.chunks and old is None):
            return split, 0
        schema = None if item.definition is None else self._describe(item.definition)
        if schema is not None and self._announced.get(table_id) == schema and not _has_effect(item.events):
            return split, 0  # the chunks had it already
        if old is not None:
            self._announce(old.definition)
        self._output.add_schema_changes(item.events)
        if schema is None:
            self._announced.pop(table_id, None)
        else:
            self._announced[table_id] = schema
        return split, 1

    def _open_log(self, split: LogSplit, stop: LogPosition | None) -> _Reading:
        database = self._database
        connections: list[LogConnection] = []
        is_closed: list[bool] = []

        def connected(connection: LogConnection) -> None:
            connections.append(connection)
            if is_closed:
                connection.interrupt()

        def interrupt() -> None:
            is_closed.append(True)
            for connection in connections:
                connection.interrupt()

        def read() -> Iterator[list[Any]]:
            with closing(ChangeFilter(database, split)) as changes:
                yield from read_items(changes)

        def read_items(changes: ChangeFilter) -> Iterator[list[Any]]:
            items: list[Any] = []
            count = 0
            for item in database.read_log(split.position, stop, split.known, split.is_log, on_connect=connected):
                if item is not None:
                    if isinstance(item, RowChanges):
                        filtered = changes.apply(item)
                        items.append(filtered)
                        count += len(filtered.changes)
                    elif items and isinstance(item, Reached) and isinstance(items[-1], Reached):
                        items[-1] = item
                    else:
                        items.append(item)
                if item is None or count >= _CHANGES or len(items) >= _CHANGES:
                    yield items
                    items, count = [], 0
            if items:
                yield items

        return _Reading(Background(read, interrupt), deque(), stop)

    def _close_readings(self) -> None:
        chunk, self._chunk_reading = self._chunk_reading, None
        log, self._log = self._log, None
        if chunk is not None:
            chunk.close()
        if log is not None:
            log.background.close()

    def close(self) -> None:
        """Stop reading."""
        self._close_readings()
        self._database.close()


def is_after(tail: LogSplit, stop: LogPosition) -> list[bool]:
    """Return whether each chunk was read after a position."""
    return [position > stop for read in tail.chunks.values() for _, position in read]


def _has_effect(changes: Sequence[SchemaChangeEvent]) -> bool:
    """Return whether schema changes do more than repeat the schema."""
    return any(type(change).__name__ == "TruncateTableEvent" for change in changes)
