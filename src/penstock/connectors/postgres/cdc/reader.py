"""`CdcReader`: reads a table and then its log.

`ChunkReading` reads the table in chunks in key order, each chunk with the snapshot it was read in.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from penstock.base.errors import OperationError
from penstock.connectors.postgres.cdc.changes import SNAPSHOT, CdcSettings, ChangeReader, Output
from penstock.connectors.postgres.cdc.position import CdcSplit, CdcTable, Key, KeyColumn, Snapshot, TablePosition
from penstock.connectors.postgres.cdc.replication import Keepalive, LogStream, ReplicationRefused, parse_lsn
from penstock.connectors.postgres.cdc.slots import check_publication, check_slot, described, end_of_log
from penstock.connectors.postgres.client import connect, driver, naming
from penstock.connectors.postgres.text_columns import SESSION, parse_batch, texts_of_csv
from penstock.connectors.split_reader import Background
from penstock.runtime.columns import ColumnBatch
from penstock.runtime.connector import InputStatus, SourceReader, SourceReaderContext
from penstock.runtime.records import Batch


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


LOG: Final = logging.getLogger(__name__)

#: After a lost connection: the pause before a retry, and how long to keep trying. A restarting server is back by then.
RETRY_MS: Final = 500
GIVE_UP_MS: Final = 120_000
#: Log a warning when the slot retains this much of the log, and repeat it at this interval.
WARN_BYTES: Final = 1 << 30
WARN_EVERY_MS: Final = 60_000
#: Messages that a poll may read even if it wants fewer records: most may be changes that are skipped.
MESSAGES_MIN: Final = 64


class CdcReader(SourceReader[Any, CdcSplit]):
    """Reads the source's only split and tracks its position."""

    def __init__(self, context: SourceReaderContext, settings: CdcSettings) -> None:
        self._context = context
        self._settings = settings
        self._split: CdcSplit | None = None
        self._has_asked = self._is_last = False
        self._table: CdcTable | None = None
        self._outputs: tuple[Output, ...] = ()
        self._reading: Background[Chunk] | None = None
        self._chunk: Chunk | None = None
        self._place = 0
        self._changes: ChangeReader | None = None
        self._stream: LogStream | None = None
        self._has_more = False
        self._retry_at_ms: int | None = None
        self._failing_since_ms: int | None = None
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

    # --- splits ------------------------------------------------------------------------------------------------------

    def add_splits(self, splits: Sequence[CdcSplit]) -> None:
        """See `SourceReader`."""
        (self._split,) = splits
        self._confirmed = self._server_lsn = self._split.log.lsn

    def no_more_splits(self) -> None:
        """See `SourceReader`."""
        self._is_last = True

    def snapshot_state(self, checkpoint_id: int) -> list[CdcSplit]:
        """See `SourceReader`."""
        if self._split is None:
            return []
        self._pending[checkpoint_id] = self._split.log.lsn
        return [self._split]

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Let the server discard the log up to an earlier checkpoint, `confirm_delay` checkpoints back."""
        for known in [pending_id for pending_id in self._pending if pending_id <= checkpoint_id]:
            self._complete.append(self._pending.pop(known))
        while len(self._complete) > self._settings.confirm_delay:
            self._confirmed = max(self._confirmed, self._complete.popleft())
        self._send_status()

    def poll_next(self, max_records: int) -> Batch | InputStatus:
        """See `SourceReader`."""
        split = self._split
        if split is None:
            if self._is_last:
                return InputStatus.END_OF_INPUT
            if not self._has_asked:
                self._has_asked = True
                self._context.request_split()
            return InputStatus.NOTHING_AVAILABLE
        if split.table is not None and not split.table.is_read:
            return self._poll_table(split, split.table, max_records)
        if self._settings.startup == SNAPSHOT:
            self._split, self._has_asked = None, False
            return self.poll_next(max_records)
        return self._poll_log(max_records)

    def retry_after_ms(self) -> int:
        """Return 0 until the log is read up to its end as of connecting: an epoch of MICRO_BATCH reads up to there.

        This takes up to 15 s if the log ends in the middle of a record, because that is how often a server writes it
        all.
        """
        split = self._split
        if split is None:
            return super().retry_after_ms()
        is_behind = self._stream is None or self._has_more or split.log.lsn < self._until_lsn
        return 0 if is_behind else super().retry_after_ms()

    # --- the table ---------------------------------------------------------------------------------------------------

    def _poll_table(self, split: CdcSplit, position: TablePosition, max_records: int) -> Batch | InputStatus:
        if self._chunk is None:
            self._chunk, self._place = self._next_chunk(position), 0
            if self._chunk is None:
                return InputStatus.NOTHING_AVAILABLE
        chunk = self._chunk
        count = min(max_records, chunk.columns.num_rows - self._place)
        columns = chunk.columns.slice(self._place, count)
        self._place += count
        if self._place < chunk.columns.num_rows or not chunk.is_last:
            last = chunk.get_row_key(self._place - 1)
        else:
            last = None
            LOG.info("all rows of table %s have been read", self._settings.path)
        self._split = CdcSplit(position.through(last, chunk.snapshot), split.log)
        if self._place == chunk.columns.num_rows:
            self._chunk = None
        if last is None:
            self._end_reading()
        return self._batch(columns, None, None) if count else InputStatus.NOTHING_AVAILABLE

    def _next_chunk(self, position: TablePosition) -> Chunk | None:
        """Return the next chunk, if it has been read. After a lost connection, reconnect and resume at the position."""
        now_ms = self._context.now_ms()
        if self._retry_at_ms is not None and now_ms < self._retry_at_ms:
            return None
        try:
            if self._reading is None:
                with connect(self._settings.address) as connection:
                    self._table, self._outputs = described(connection, self._settings)
                reading = ChunkReading(self._table, position.last, self._settings.chunk_size)
                self._reading = Background(reading.chunks, reading.interrupt)
            chunk = self._reading.take()
        except driver().OperationalError as error:
            self._end_reading()
            self._lost(error, now_ms)
            return None
        self._retry_at_ms = None
        if chunk is not None:
            self._failing_since_ms = None
        return chunk

    def _end_reading(self) -> None:
        reading, self._reading, self._chunk = self._reading, None, None
        if reading is not None:
            reading.close()

    # --- the log -----------------------------------------------------------------------------------------------------

    def _poll_log(self, max_records: int) -> Batch | InputStatus:
        now_ms = self._context.now_ms()
        if self._stream is None and not self._connect(now_ms):
            return InputStatus.NOTHING_AVAILABLE
        changes, stream = self._changes, self._stream
        assert changes is not None
        assert stream is not None
        try:
            for _ in range(max(max_records, MESSAGES_MIN)):
                if len(changes.gathered.rows) >= max(1, max_records - 1):  # an update may yield two rows
                    break
                message = stream.receive()
                self._has_more = message is not None
                if message is None:
                    break
                self._failing_since_ms = None
                if isinstance(message, Keepalive):
                    changes.sent(message.lsn)
                    if message.wants_answer:
                        self._send_status()
                else:
                    changes.feed(message)
        except driver().Error as error:
            self._lost(error, now_ms)
        self._server_lsn = max(self._server_lsn, stream.server_lsn)
        assert self._split is not None
        self._split = CdcSplit(self._split.table if changes.needs_snapshot else None, changes.position)
        self._beat(now_ms)
        gathered = changes.take()
        return InputStatus.NOTHING_AVAILABLE if gathered is None else self._batch(*gathered)

    def _connect(self, now_ms: int) -> bool:
        """Connect to the log; return whether that succeeded."""
        if self._retry_at_ms is not None and now_ms < self._retry_at_ms:
            return False
        settings, split = self._settings, self._split
        assert split is not None
        try:
            with connect(settings.address) as connection:
                self._table, self._outputs = described(connection, settings)
                check_publication(connection, settings, self._table)
                check_slot(connection, settings, split.log.lsn)
                self._until_lsn = end_of_log(connection)
            self._stream = LogStream(settings.address, settings.slot, settings.publication, split.log.lsn)
        except ReplicationRefused as error:
            if not error.is_in_use:
                raise
            self._lost(error, now_ms)
            return False
        except driver().OperationalError as error:
            self._lost(error, now_ms)
            return False
        if self._changes is None:
            self._changes = ChangeReader(
                self._table, split.log, split.table, settings.mode, settings.truncates, self._context.count
            )
        else:
            self._changes.rewind()
        self._retry_at_ms = None
        self._heartbeat_at_ms = 0
        return True

    def _lost(self, error: Exception, now_ms: int) -> None:
        """Schedule a reconnect from the same position; raise if retries have failed for too long."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
        if self._failing_since_ms is None:
            self._failing_since_ms = now_ms
            LOG.warning("table %s cannot be read, trying again: %s", self._settings.path, error)
        if now_ms - self._failing_since_ms > GIVE_UP_MS:
            raise OperationError(
                f"table {self._settings.path} at {self._settings.address.shown} could not be read for "
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

    # --- the output --------------------------------------------------------------------------------------------------

    def _batch(self, columns: pa.RecordBatch, kinds: bytes | None, committed_us: list[int] | None) -> Batch:
        assert self._table is not None
        arrays = []
        for output in self._outputs:
            if output.column is not None:
                arrays.append(columns.column(output.column))
            elif output.metadata == "op_ts":
                times = [0] * columns.num_rows if committed_us is None else [us // 1_000 for us in committed_us]
                arrays.append(pa.array(times, pa.int64()).cast(pa.timestamp("ms", "UTC")))
            else:
                arrays.append(pa.array([self._metadata(output.metadata)] * columns.num_rows, pa.string()))
        batch = pa.RecordBatch.from_arrays(arrays, [field.name for field in self._outputs])
        return ColumnBatch(batch, None, kinds if kinds is not None and any(kinds) else None)

    def _metadata(self, key: str | None) -> str:
        settings = self._settings
        database = settings.address.shown.rpartition("/")[2]
        return {"database_name": database, "schema_name": settings.schema, "table_name": settings.table}[key or ""]

    def close(self) -> None:
        """Stop reading; the slot stays."""
        self._end_reading()
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
