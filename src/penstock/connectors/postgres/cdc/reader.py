"""`CdcReader`: reads chunks of tables, and the log of all tables.

The reader of the log also reads the rows that no other reader reads: all rows where readers do not report their
chunks, the rows of new tables, and the rows of tables whose columns have changed.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from penstock.base.errors import ConfigurationError, OperationError
from penstock.base.types import RowKind
from penstock.connectors.cdc import events
from penstock.connectors.postgres.cdc import changes, outputs, schemas, slots
from penstock.connectors.postgres.cdc.options import SNAPSHOT, CdcSettings
from penstock.connectors.postgres.cdc.options import Output as OutputColumn
from penstock.connectors.postgres.cdc.position import (
    CdcSplit,
    CdcTable,
    ChunkSplit,
    Heard,
    LogSplit,
    TablePosition,
    TableState,
)
from penstock.connectors.postgres.cdc.replication import LogStream, ReplicationRefused
from penstock.connectors.postgres.cdc.table_chunks import Altered, Chunk, ChunkReading, Unseen
from penstock.connectors.postgres.client import connect, driver
from penstock.connectors.split_reader import WAIT_S, Background
from penstock.runtime.columns import ColumnBatch
from penstock.runtime.connector import InputStatus, SourceReader, SourceReaderContext
from penstock.runtime.records import Batch

LOG: Final = logging.getLogger(__name__)

#: After a lost connection: the pause before a retry, and how long to keep trying. A restarting server is back by then.
RETRY_MS: Final = 500
GIVE_UP_MS: Final = 120_000
#: Log a warning when the slot retains this much of the log, and repeat it at this interval.
WARN_BYTES: Final = 1 << 30
WARN_EVERY_MS: Final = 60_000
#: Messages that a poll may read even if it wants fewer records: most may be changes that are skipped.
MESSAGES_MIN: Final = 64
#: Polls of the log between two chunks that its reader reads while it follows the log.
POLLS_BETWEEN: Final = 4

_KINDS: Final = ("+I", "-U", "+U", "-D")


class _RowsOfTable:
    """The reading of a range of keys, and the chunk that is being handed out."""

    def __init__(self, oid: int, reading: ChunkReading) -> None:
        self.oid = oid
        self.chunk: Chunk | None = None
        self.place = 0
        self._background: Background[Any] = Background(reading.chunks, reading.interrupt)

    def take(self) -> Chunk | Altered | Unseen | None:
        """Return the current chunk, or what comes in its place; None if it has not been read yet."""
        if self.chunk is None:
            item = self._background.take(WAIT_S)
            if not isinstance(item, Chunk):
                return item
            self.chunk, self.place = item, 0
        return self.chunk

    def close(self) -> None:
        self._background.close()


class CdcReader(SourceReader[Any, Any]):
    """Reads chunks of tables, and the log; the subclasses `RowReader` and `EventReader` make the records."""

    has_events = False

    def __init__(self, context: SourceReaderContext, settings: CdcSettings) -> None:
        self._context = context
        self._settings = settings
        self._chunks: deque[ChunkSplit] = deque()
        self._reported: list[ChunkSplit] = []
        self._heard: set[tuple[int, int]] = set()
        self._heard_by: dict[int, frozenset[tuple[int, int]]] = {}
        self._is_told = True
        self._tables: dict[int, CdcTable | None] = {}
        self._idle: list[Any] = []
        self._split: LogSplit | None = None
        self._is_asked = self._is_last = False
        self._rows: _RowsOfTable | None = None
        self._retry_at_ms: int | None = None
        self._failing_since_ms: int | None = None
        # --- the log ---
        self._changes: changes.ChangeReader | None = None
        self._stream: LogStream | None = None
        self._discovers = settings.adds_tables
        self._has_more = False
        self._polls_due = 0
        #: the schemas of the catalog that rows wait for, each with the schema that the log had told until then
        self._altered: dict[int, tuple[schemas.LoggedSchema, schemas.LoggedSchema | None]] = {}
        self._heartbeat_at_ms = 0
        self._warn_at_ms = 0
        self._pending: dict[int, int] = {}
        self._complete: deque[int] = deque()
        self._confirmed = 0
        self._server_lsn = 0
        self._until_lsn = 0
        context.gauge("postgres.bytesBehind", self._bytes_behind)
        context.gauge("postgres.bytesKept", self._bytes_kept)

    def _bytes_behind(self) -> int:
        """Return the size of the unread log, up to the last position that the server reported."""
        split = self._split
        return 0 if split is None else max(0, self._server_lsn - split.log.lsn)

    def _bytes_kept(self) -> int:
        """Return the size of the log that the server retains for the slot."""
        return max(0, self._server_lsn - self._confirmed) if self._confirmed else 0

    # --- output --------------------------------------------------------------------------------------------------

    @abstractmethod
    def make_output(self) -> Any:
        """Return the output of the log."""

    @abstractmethod
    def describe(self, connection: Any, state: TableState) -> CdcTable:
        """Return a table with the columns to read."""

    @abstractmethod
    def emit_rows(self, state: TableState, table: CdcTable, columns: pa.RecordBatch) -> Batch:
        """Return rows of the snapshot as a batch; there is at least one."""

    @abstractmethod
    def emit_changes(self) -> Batch | None:
        """Return the records that the output has collected."""

    def check_published(self, connection: Any, followed: changes.FollowedTable) -> None:
        """Raise if the publication omits changes of a table."""
        slots.check_publication(connection, self._settings, followed.table)

    def create(self, state: TableState) -> None:
        """Note that a table exists, before its first row."""

    def take_created(self, max_records: int) -> Batch | None:
        """Return what comes before the first rows of tables; None for nothing."""
        return None

    def adopt(self, followed: changes.FollowedTable, catalog: schemas.LoggedSchema) -> None:
        """Take over the columns of the catalog."""

    # --- splits ------------------------------------------------------------------------------------------------------

    def add_splits(self, splits: Sequence[Any]) -> None:
        """See `SourceReader`. There are splits of the log, of earlier versions too, and of chunks."""
        for split in splits:
            if isinstance(split, Heard):
                self._heard |= {*split.chunks}
                continue
            self._is_asked = False
            if isinstance(split, ChunkSplit) and split.is_finished:
                self._reported.append(split)
                self._is_told = False
            elif isinstance(split, ChunkSplit):
                self._chunks.append(split)
            elif isinstance(split, CdcSplit):
                position = None if split.table is None else split.table.closed()
                name = events.TableId(self._settings.schema, self._settings.table)
                has_begun = position is None or position.is_read
                self._begin_log(LogSplit((TableState(name, 0, position),), split.log, has_begun))
            else:
                self._begin_log(split)

    def _begin_log(self, split: LogSplit) -> None:
        self._split = split
        self._confirmed = self._server_lsn = split.log.lsn

    def no_more_splits(self) -> None:
        """See `SourceReader`."""
        self._is_last = True

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        """See `SourceReader`. Finished chunks stay until a checkpoint has that the enumerator has heard of them."""
        self._heard_by[checkpoint_id] = frozenset(self._heard)
        splits: list[Any] = [*self._chunks, *self._reported]
        if self._split is not None:
            self._pending[checkpoint_id] = self._split.log.lsn
            splits.append(self._split)
        return splits

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Let the server discard the log up to an earlier checkpoint, `confirm_delay` checkpoints back."""
        heard = self._heard_by.pop(checkpoint_id, frozenset())
        self._heard_by = {other: chunks for other, chunks in self._heard_by.items() if other > checkpoint_id}
        self._reported = [split for split in self._reported if (split.table.oid, split.number) not in heard]
        self._heard -= heard
        for known in [pending_id for pending_id in self._pending if pending_id <= checkpoint_id]:
            self._complete.append(self._pending.pop(known))
        while len(self._complete) > self._settings.confirm_delay:
            self._confirmed = max(self._confirmed, self._complete.popleft())
        self._send_status()

    def poll_next(self, max_records: int) -> Batch | InputStatus:
        """See `SourceReader`."""
        if not self._is_told:
            self._is_told = True
            known = self._heard
            self._context.send_source_event([s for s in self._reported if (s.table.oid, s.number) not in known])
        if self._chunks:
            return self._poll_chunk(max_records)
        split = self._split
        if split is None:
            if self._is_last:
                return InputStatus.END_OF_INPUT
            if not self._is_asked:
                self._is_asked = True
                self._context.request_split()
            return InputStatus.NOTHING_AVAILABLE
        return self._poll_log_split(split, max_records)

    def retry_after_ms(self) -> int:
        """Return 0 until the log is read up to its end as of connecting: an epoch of MICRO_BATCH reads up to there.

        This takes up to 15 s if the log ends in the middle of a record, because that is how often a server writes it
        all.
        """
        if self._chunks:
            return 0
        split = self._split
        if split is None:
            return super().retry_after_ms()
        is_behind = self._stream is None or self._has_more or split.log.lsn < self._until_lsn
        return 0 if is_behind else super().retry_after_ms()

    # --- chunks ------------------------------------------------------------------------------------------------------

    def _poll_chunk(self, max_records: int) -> Batch | InputStatus:
        split = self._chunks[0]
        state = split.table
        if state.oid not in self._tables:
            self._tables[state.oid] = None
            self.create(state)
        created = self.take_created(max_records)
        if created is not None:
            return created
        position = state.position
        assert position is not None
        bounds = position.find_unread()
        assert bounds is not None
        after = bounds[0] if len(position.ranges) > 1 else split.after

        def begin() -> _RowsOfTable:
            table = self._tables[state.oid]
            if table is None:
                with connect(self._settings.address) as connection:
                    table = self._tables[state.oid] = self.describe(connection, state)
            size = self._settings.chunk_size
            reading = ChunkReading(table, after, bounds[1], size, state.logged, idle=self._idle)
            return _RowsOfTable(state.oid, reading)

        item = self._take_rows(begin)
        if item is None:
            return InputStatus.NOTHING_AVAILABLE
        assert not isinstance(item, Unseen)  # nothing of the log has passed by
        if isinstance(item, Altered):
            self._end_chunk(replace(split, is_left=True))
            return InputStatus.NOTHING_AVAILABLE
        columns, position = self._hand_out(item, position, max_records)
        split = self._chunks[0] = replace(split, table=replace(state, position=position))
        if split.is_finished:
            self._end_chunk(split)
        table = self._tables[state.oid]
        assert table is not None
        return self.emit_rows(state, table, columns) if columns.num_rows else InputStatus.NOTHING_AVAILABLE

    def _end_chunk(self, split: ChunkSplit) -> None:
        """Keep a finished chunk until the enumerator has heard of it; it is reported before the next request."""
        self._end_rows()
        self._chunks.popleft()
        if self._settings.startup != SNAPSHOT:
            self._reported.append(replace(split, table=replace(split.table, logged=None)))
            self._is_told = False

    # --- rows --------------------------------------------------------------------------------------------------------

    def _take_rows(self, begin: Callable[[], _RowsOfTable]) -> Chunk | Altered | Unseen | None:
        """Return the current chunk, or what comes in its place; None if it is not there yet. Reconnects if needed."""
        now_ms = self._context.now_ms()
        if self._retry_at_ms is not None and now_ms < self._retry_at_ms:
            return None
        try:
            if self._rows is None:
                self._rows = begin()
            item = self._rows.take()
        except driver().OperationalError as error:
            self._end_rows()
            self._lost(error, now_ms)
            return None
        self._retry_at_ms = None
        if item is not None:
            self._failing_since_ms = None
        return item

    def _hand_out(
        self, chunk: Chunk, position: TablePosition, max_records: int
    ) -> tuple[pa.RecordBatch, TablePosition]:
        """Return some rows of the current chunk, and the position after them."""
        rows = self._rows
        assert rows is not None
        count = min(max_records, chunk.columns.num_rows - rows.place)
        columns = chunk.columns.slice(rows.place, count)
        rows.place += count
        is_done = rows.place == chunk.columns.num_rows
        last = None if is_done and chunk.is_last else chunk.get_row_key(rows.place - 1)
        if is_done:
            rows.chunk = None
        return columns, position.with_rows(last, chunk.snapshot)

    def _end_rows(self) -> None:
        rows, self._rows = self._rows, None
        if rows is not None:
            rows.close()

    # --- the log and its tables --------------------------------------------------------------------------------------

    def _poll_log_split(self, split: LogSplit, max_records: int) -> Batch | InputStatus:
        if self._changes is None and not self._follow_tables(split):
            return InputStatus.NOTHING_AVAILABLE
        created = self.take_created(max_records)
        if created is not None:
            return created
        assert self._changes is not None
        unread = self._find_unread()
        if self._changes.output.size:  # columns of the catalog were adopted
            self._note_split()
            return self.emit_changes() or InputStatus.NOTHING_AVAILABLE
        if unread is not None and (not split.is_following or self._polls_due <= 0):
            return self._poll_rows(unread, max_records)
        if self._settings.startup == SNAPSHOT:
            self._split, self._changes, self._is_asked = None, None, False
            return self.poll_next(max_records)
        if not split.is_following:
            LOG.info("all rows of %s have been read", self._settings.title)
            self._split = replace(split, is_following=True)
        return self._poll_log(max_records)

    def _find_unread(self) -> changes.FollowedTable | None:
        """Return the table whose rows are read next; None if no table is ready."""
        assert self._changes is not None
        for followed in self._changes.tables.values():
            if not followed.state.is_read and self._is_ready(followed):
                return followed
        return None

    def _is_ready(self, followed: changes.FollowedTable) -> bool:
        """Return whether rows can be read: catalog and log have the same columns, or the log will not change them.

        If the catalog has other columns, the log is read up to the position where they were seen. If the log has sent
        no other columns by then, no row has changed since, and the reader adopts those of the catalog. Otherwise the
        log may have sent later columns, so the reader asks the catalog again when it reads the rows.
        """
        if followed.state.oid not in self._altered:
            return True
        catalog, told_before = self._altered[followed.state.oid]
        assert self._changes is not None
        if self._settings.startup != SNAPSHOT and self._changes.position.lsn < catalog.lsn:
            return False
        del self._altered[followed.state.oid]
        logged = followed.state.logged
        if logged is not None and logged is told_before:
            self.adopt(followed, catalog)
            with connect(self._settings.address) as connection:
                followed.table = self.describe(connection, followed.state)
        return True

    def _follow_tables(self, split: LogSplit) -> bool:
        """Describe the tables from the catalog; return whether that succeeded."""
        now_ms = self._context.now_ms()
        if self._retry_at_ms is not None and now_ms < self._retry_at_ms:
            return False
        try:
            with connect(self._settings.address) as connection:
                followed = [self._follow(connection, state) for state in split.tables]
        except driver().OperationalError as error:
            self._lost(error, now_ms)
            return False
        self._retry_at_ms = None
        self._changes = changes.ChangeReader(followed, split.log, self.make_output(), split.passed)
        self._note_split()
        for table in followed:
            self.create(table.state)
        return True

    def _follow(self, connection: Any, state: TableState) -> changes.FollowedTable:
        table = self.describe(connection, state)
        if state.oid not in (0, table.oid):
            raise OperationError(
                f"table {table.path} was dropped and created again: begin without the state of the job"
            )
        followed = changes.FollowedTable(replace(state, oid=table.oid), table)
        followed.move(state.position)
        return followed

    def _note_split(self) -> None:
        """Note the positions of the log and of the tables' rows."""
        split, reader = self._split, self._changes
        assert split is not None
        assert reader is not None
        states = tuple(followed.state for followed in reader.tables.values())
        self._split = replace(split, tables=states, log=reader.position, passed=frozenset(reader.passed))

    def _poll_rows(self, followed: changes.FollowedTable, max_records: int) -> Batch | InputStatus:
        """Read rows of a table that no other reader has read. While the log is followed, it waits for a chunk."""
        split, reader = self._split, self._changes
        assert split is not None
        assert reader is not None
        state = followed.state
        if self._rows is not None and self._rows.oid != state.oid:
            self._end_rows()
        position = state.position
        assert position is not None
        after, last = position.find_unread() or (None, None)

        def begin() -> _RowsOfTable:
            with connect(self._settings.address) as connection:
                followed.table = self.describe(connection, state)
            return _RowsOfTable(
                state.oid,
                ChunkReading(
                    followed.table,
                    after,
                    last,
                    self._settings.chunk_size,
                    state.logged,
                    reader.passed,
                    is_single=split.is_following,
                ),
            )

        item = self._take_rows(begin)
        if item is None:
            return InputStatus.NOTHING_AVAILABLE
        if isinstance(item, Altered | Unseen):
            self._end_rows()
            self._polls_due = POLLS_BETWEEN
            if isinstance(item, Altered):
                self._altered[state.oid] = item.schema, state.logged
            return InputStatus.NOTHING_AVAILABLE
        columns, position = self._hand_out(item, position, max_records)
        followed.move(position)
        reader.passed.clear()
        reader.note_rows()
        rows = self._rows
        assert rows is not None
        is_indexed = all(column.is_native for column in followed.table.key)
        if rows.chunk is None and (item.is_last or (split.is_following and is_indexed)):
            self._end_rows()
            self._polls_due = POLLS_BETWEEN
        self._note_split()
        if not columns.num_rows:
            return InputStatus.NOTHING_AVAILABLE
        return self.emit_rows(followed.state, followed.table, columns)

    def _poll_log(self, max_records: int) -> Batch | InputStatus:
        now_ms = self._context.now_ms()
        if self._stream is None and not self._connect(now_ms):
            return InputStatus.NOTHING_AVAILABLE
        reader, stream = self._changes, self._stream
        assert reader is not None
        assert stream is not None
        self._polls_due -= 1
        enough = max(1, max_records - 1)  # an update may yield two rows
        left, output = max(max_records, MESSAGES_MIN), reader.output
        try:
            while left > 0 and (room := enough - output.size) > enough // 8:  # the rest would be small batches
                messages, position = stream.receive(max(1, min(left, room // 2)))
                self._has_more = bool(messages) or position is not None
                if not self._has_more:
                    self._polls_due = 0
                    break
                left -= len(messages) + 1
                self._failing_since_ms = None
                reader.feed(*messages)
                if position is not None:
                    reader.sent(position.lsn)
                    if position.wants_answer:
                        self._send_status()
        except driver().Error as error:
            self._lost(error, now_ms)
        self._server_lsn = max(self._server_lsn, stream.server_lsn)
        self._note_split()
        self._beat(now_ms)
        return self.emit_changes() or InputStatus.NOTHING_AVAILABLE

    def _connect(self, now_ms: int) -> bool:
        """Connect to the log; return whether that succeeded."""
        if self._retry_at_ms is not None and now_ms < self._retry_at_ms:
            return False
        settings, split, reader = self._settings, self._split, self._changes
        assert split is not None
        assert reader is not None
        try:
            with connect(settings.address) as connection:
                for followed in reader.tables.values():
                    followed.table = self.describe(connection, followed.state)
                    self.check_published(connection, followed)
                slots.check_slot(connection, settings, split.log.lsn)
                self._discover(connection)
                self._until_lsn = slots.end_of_log(connection)
            self._stream = LogStream(settings.address, settings.slot, settings.publication, split.log.lsn)
        except ReplicationRefused as error:
            if not error.is_in_use:
                raise
            self._lost(error, now_ms)
            return False
        except driver().OperationalError as error:
            self._lost(error, now_ms)
            return False
        reader.rewind()
        self._retry_at_ms = None
        self._heartbeat_at_ms = 0
        return True

    def _discover(self, connection: Any) -> None:
        """Add the tables that have appeared; in the middle of a transaction, the next connection does it."""
        split, reader = self._split, self._changes
        assert split is not None
        assert reader is not None
        if not self._discovers or split.log.commit_lsn:
            return
        self._discovers = False
        more = slots.add_tables(connection, self._settings, split, self.has_events)
        for state in more.tables[len(split.tables) :]:
            followed = self._follow(connection, state)
            reader.add(followed)
            self.create(state)
        reader.passed |= more.passed
        self._note_split()

    def _lost(self, error: Exception, now_ms: int) -> None:
        """Schedule a reconnect from the same position; raise if retries have failed for too long."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
        if self._failing_since_ms is None:
            self._failing_since_ms = now_ms
            LOG.warning("%s cannot be read, trying again: %s", self._settings.title, error)
        if now_ms - self._failing_since_ms > GIVE_UP_MS:
            raise OperationError(
                f"{self._settings.title} at {self._settings.address.shown} could not be read for "
                f"{GIVE_UP_MS // 1000} s: {error}"
            ) from error
        self._retry_at_ms = now_ms + RETRY_MS

    def _beat(self, now_ms: int) -> None:
        """Ask the server for its position at intervals, so that a quiet table does not hold back the log of others."""
        if self._stream is not None and now_ms >= self._heartbeat_at_ms:
            self._heartbeat_at_ms = now_ms + self._settings.heartbeat_ms
            self._send_status(asks=True)
        retained_bytes = self._bytes_kept()
        if retained_bytes >= WARN_BYTES and now_ms >= self._warn_at_ms:
            self._warn_at_ms = now_ms + WARN_EVERY_MS
            LOG.warning(
                "the server keeps %d MB of its log for slot %s, of which %d MB are not read yet; it forgets what "
                "completed checkpoints have, so look at how often they complete",
                retained_bytes >> 20,
                self._settings.slot,
                self._bytes_behind() >> 20,
            )

    def _send_status(self, asks: bool = False) -> None:
        if self._stream is None or self._split is None:
            return
        now_ms = self._context.now_ms()
        try:
            self._stream.confirm(self._split.log.lsn, self._confirmed, now_ms, asks)
        except driver().Error as error:
            self._lost(error, now_ms)

    def close(self) -> None:
        """Stop reading; the slot stays."""
        self._end_rows()
        while self._idle:
            self._idle.pop().close()
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


class RowReader(CdcReader):
    """Emits rows with kinds, all with the same columns."""

    def __init__(self, context: SourceReaderContext, settings: CdcSettings) -> None:
        super().__init__(context, settings)
        self._outputs: tuple[OutputColumn, ...] = ()
        self._first: CdcTable | None = None
        self._output = outputs.RowOutput(settings.mode, settings.truncates, context.count)

    def make_output(self) -> outputs.RowOutput:
        """See `CdcReader`."""
        return self._output

    def describe(self, connection: Any, state: TableState) -> CdcTable:
        """See `CdcReader`. All tables must have the same columns."""
        table, outputs = slots.described(connection, self._settings, state.id)
        first = self._first
        if first is None or first.id == table.id:
            self._first, self._outputs = table, outputs
        elif (table.names, table.types) != (first.names, first.types):
            raise ConfigurationError(
                f"tables {first.path} and {table.path} have other columns: name columns that all tables have, or read "
                "each table by a source of its own, or read their events (PostgresEventSource)"
            )
        return table

    def emit_rows(self, state: TableState, table: CdcTable, columns: pa.RecordBatch) -> Batch:
        """See `CdcReader`."""
        return self._batch(columns, None, state.id)

    def emit_changes(self) -> Batch | None:
        """See `CdcReader`."""
        taken = self._output.take()
        return None if taken is None else self._batch(taken[0], taken[1], None)

    def _batch(
        self, columns: pa.RecordBatch, gathered: outputs.Gathered | None, table_id: events.TableId | None
    ) -> Batch:
        arrays = []
        for output in self._outputs:
            if output.column is not None:
                arrays.append(columns.column(output.column))
            elif output.metadata == "op_ts":
                times = (
                    [0] * columns.num_rows if gathered is None else [time_us // 1_000 for time_us in gathered.times_us]
                )
                arrays.append(pa.array(times, pa.int64()).cast(pa.timestamp("ms", "UTC")))
            elif output.metadata == "row_kind":
                letters = [
                    _KINDS[kind] for kind in (gathered.kinds if gathered is not None else bytes(columns.num_rows))
                ]
                arrays.append(pa.array(letters, pa.string()))
            elif output.metadata == "database_name":
                arrays.append(pa.array([self._settings.database] * columns.num_rows, pa.string()))
            else:
                index = 0 if output.metadata == "schema_name" else 1
                names = [table_id] * columns.num_rows if gathered is None else gathered.tables
                arrays.append(pa.array([name[index] for name in names if name is not None], pa.string()))
        batch = pa.RecordBatch.from_arrays(arrays, [field.name for field in self._outputs])
        kinds = None if gathered is None or not any(gathered.kinds) else gathered.kinds
        return ColumnBatch(batch, None, kinds)


_NO_TIME: Final = {"op_ts": 0}


class EventReader(CdcReader):
    """Emits events of rows and of schemas."""

    has_events = True

    def __init__(self, context: SourceReaderContext, settings: CdcSettings) -> None:
        super().__init__(context, settings)
        self._types: dict[int, str] = {}
        self._output = outputs.EventOutput(settings.unrepresentable, self._describe_now, self._name_type)
        self._created: dict[events.TableId, events.TableSchema] = {}

    def _describe_now(self, oid: int) -> schemas.LoggedSchema | None:
        with connect(self._settings.address) as connection:
            return schemas.describe(connection, oid)

    def _name_type(self, oid: int) -> str:
        name = self._types.get(oid)
        if name is None:
            with connect(self._settings.address) as connection:
                row = connection.execute("SELECT typname FROM pg_type WHERE oid = %s", (oid,)).fetchone()
            name = self._types[oid] = "text" if row is None else row[0]
        return name

    def make_output(self) -> outputs.EventOutput:
        """See `CdcReader`."""
        return self._output

    def describe(self, connection: Any, state: TableState) -> CdcTable:
        """See `CdcReader`."""
        return slots.describe_logged(connection, self._settings, state.id, state.oid, state.logged)

    def check_published(self, connection: Any, followed: changes.FollowedTable) -> None:
        """See `CdcReader`. The catalog may have other columns than the log has at its position, or no such table."""
        state, path = followed.state, followed.path
        row = connection.execute("SELECT to_regclass(%s)::oid", (path,)).fetchone()
        if row is None or row[0] is None:
            LOG.warning("table %s is gone: no changes follow those that the log still has", path)
            return
        if row[0] != state.oid:
            raise OperationError(f"table {path} was dropped and created again: begin without the state of the job")
        table = slots.describe_logged(connection, self._settings, state.id, state.oid, None)
        slots.check_publication(connection, self._settings, table)

    def create(self, state: TableState) -> None:
        """See `CdcReader`."""
        if state.logged is not None:
            self._created[state.id] = state.logged.schema

    def take_created(self, max_records: int) -> Batch | None:
        """See `CdcReader`."""
        names = list(self._created)[:max_records]
        return Batch([events.CreateTableEvent(name, self._created.pop(name)) for name in names]) if names else None

    def adopt(self, followed: changes.FollowedTable, catalog: schemas.LoggedSchema) -> None:
        """See `CdcReader`."""
        self._output.adopt(followed, catalog)

    def emit_rows(self, state: TableState, table: CdcTable, columns: pa.RecordBatch) -> Batch:
        """See `CdcReader`."""
        rows = outputs.to_values(columns)
        return Batch([events.DataChangeEvent(state.id, RowKind.INSERT, None, row, _NO_TIME) for row in rows])

    def emit_changes(self) -> Batch | None:
        """See `CdcReader`."""
        emitted = self._output.take()
        return Batch(emitted) if emitted else None
