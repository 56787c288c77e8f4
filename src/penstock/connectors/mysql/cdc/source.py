"""`MySqlEventSource`: the enumerator of the CDC source, its splits, and the source itself.

**The course of a job.** The enumerator splits tables into chunks, and assigns each to the next reader that asks. A
reader asks when it has emitted its chunk. When no chunk is left and all readers have asked, all chunks have been read,
so the current end of the log is after all of them. All readers read the log up to there, for their own chunks
(`CatchUp`), and ask again. Then the first reader gets the log from there on (`LogStart`).

With several readers, each waits for a checkpoint before it asks for the last time: its records then come before all
records of the log.

A source that restarts alone cannot count on what readers have asked for, so all restart together.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

from penstock.base.errors import ConfigurationError
from penstock.connectors.cdc.events import TableId, TableSchema
from penstock.connectors.mysql.cdc.binlog import LogPosition
from penstock.connectors.mysql.cdc.database import (
    INITIAL,
    SNAPSHOT,
    CdcSettings,
    Chunk,
    Known,
    MySqlDatabase,
)
from penstock.connectors.mysql.client import MySqlAddress, is_passing, load_library
from penstock.runtime import connector

#: how often, and after which pause, to retry a call if the server is unreachable
_RETRIES, _RETRY_MS = 240, 500


@dataclass(frozen=True, slots=True)
class ChunkSplit:
    """A chunk to read; with `rows`, a chunk that was read and not yet emitted.

    Attributes:
        chunk: the chunk.
        rows: the remaining rows; None before the chunk is read.
        known: the table at that time.
        position: the position of the rows.
    """

    chunk: Chunk
    rows: tuple[tuple[Any, ...], ...] | None = None
    known: Known | None = None
    position: LogPosition | None = None


@dataclass(frozen=True, slots=True)
class LogSplit:
    """The log from a position on.

    Attributes:
        position: where to continue.
        known: the tables at the position.
        chunks: the chunks that this reader has read, by table; `ChunkPositions` decides which of their changes count.
            All changes of other tables count.
        announced: the schemas that were emitted.
        is_log: whether this is the log of all tables; otherwise it is read for the chunks alone.
        stop: where to end; None to continue without end, or until a `CatchUp`.
    """

    position: LogPosition
    known: dict[TableId, Known]
    chunks: dict[TableId, tuple[tuple[Chunk, LogPosition], ...]] = field(default_factory=dict)
    announced: dict[TableId, TableSchema] = field(default_factory=dict)
    is_log: bool = False
    stop: LogPosition | None = None


@dataclass(frozen=True, slots=True)
class CatchUp:
    """A request to read the log up to a position, for the chunks that the reader has read."""

    stop: LogPosition


@dataclass(frozen=True, slots=True)
class NewTables:
    """Tables for the reader of the log to capture, unless it captures them already."""

    table_ids: tuple[TableId, ...]


@dataclass(frozen=True, slots=True)
class Left:
    """Records that a reader has made and not yet emitted, and the split after them."""

    records: tuple[Any, ...]
    split: ChunkSplit | LogSplit | CatchUp | NewTables | None = None


Split: TypeAlias = ChunkSplit | LogSplit | CatchUp | NewTables | Left


@dataclass(slots=True)
class EnumeratorState:
    """The state of the enumerator.

    Attributes:
        tables: the tables to split; None before they are known.
        chunks: the chunks to assign.
        stop: the position up to which readers catch up; None before all chunks are read.
        log: the split of the log after `stop`; None before all readers have caught up.
        has_assigned_log: whether `log` is assigned.
        captured: all tables that the enumerator has captured.
    """

    tables: list[TableId] | None = None
    chunks: deque[ChunkSplit] = field(default_factory=deque)
    stop: LogPosition | None = None
    log: LogSplit | None = None
    has_assigned_log: bool = False
    captured: list[TableId] = field(default_factory=list)


class CdcEnumerator(connector.SplitEnumerator[Split]):
    """See the module docstring. `database` does the work at the server, in the background."""

    def __init__(
        self,
        context: connector.SplitEnumeratorContext[Split],
        settings: CdcSettings,
        database: MySqlDatabase,
        restored: EnumeratorState | None,
        readers: int,
    ) -> None:
        self._context = context
        self._settings = settings
        self._database = database
        self._state = restored or EnumeratorState()
        self._is_restored = restored is not None
        #: the number of readers that take part, the first of all
        self._readers = readers
        #: readers that wait for an answer
        self._waiting: dict[int, None] = {}
        #: readers that know where to catch up to
        self._told: set[int] = set()
        self._is_working = False
        self._new_tables: NewTables | None = None

    def start(self) -> None:
        """Check the server, and find the tables."""
        state = self._state
        if state.tables is None:
            self._work(self._find_tables, self._on_tables)
        elif self._is_restored and state.has_assigned_log and self._settings.adds_tables:
            self._work(self._database.find_tables, self._on_new_tables)

    def _work(self, work: Callable[[], Any], handler: Callable[[Any], None]) -> None:
        """Do work in the background, one task at a time, and pass its result to the handler."""
        self._is_working = True

        def handle(result: Any, error: BaseException | None, retries: int = 0) -> None:
            if error is not None:
                if retries == _RETRIES or not is_passing(error):
                    raise error
                again = partial(handle, retries=retries + 1)
                self._context.call_async(work, again, _RETRY_MS)  # the server is away, and may come back
                return
            self._is_working = False
            handler(result)
            self._serve()

        self._context.call_async(work, handle)

    def _find_tables(self) -> tuple[list[TableId], LogSplit | None]:
        self._database.check()
        tables = self._database.find_tables()
        if not tables:
            raise ConfigurationError(
                f"no table of {self._settings.address.shown} matches {', '.join(self._settings.tables)}, or the user "
                "may not see it (GRANT SELECT)"
            )
        if self._settings.startup in (INITIAL, SNAPSHOT):
            return tables, None
        # The definitions are current: the log from an earlier position fits them if no table was altered since.
        start = self._database.find_start()
        known, _ = self._database.read_tables(tables)
        return tables, LogSplit(
            start, {key: Known(value.definition, start) for key, value in known.items()}, is_log=True
        )

    def _on_tables(self, result: tuple[list[TableId], LogSplit | None]) -> None:
        tables, log = result
        self._state.captured = tables
        self._state.tables = [] if log is not None else list(tables)
        self._state.log = log

    def _on_new_tables(self, tables: list[TableId]) -> None:
        state = self._state
        new = tuple(table_id for table_id in tables if table_id not in state.captured)
        state.captured += new
        self._new_tables = NewTables(new) if new else None

    def handle_split_request(self, subtask_index: int) -> None:
        """See `SplitEnumerator`."""
        if subtask_index >= self._readers:
            self._context.signal_no_more_splits(subtask_index)
            return
        self._waiting[subtask_index] = None
        self._serve()

    def _serve(self) -> None:
        """Answer as many of the waiting readers as possible."""
        state = self._state
        if state.tables is None:
            return
        if self._new_tables is not None:
            for subtask_index in range(self._readers):
                self._context.assign_split(self._new_tables, subtask_index)
            self._new_tables = None
        while state.chunks and self._waiting:
            self._assign(state.chunks.popleft(), next(iter(self._waiting)))
        if state.tables and not self._is_working and len(state.chunks) < self._readers:
            table_id = state.tables[0]
            self._work(lambda: self._database.split_table(table_id), self._on_chunks)
        if state.tables or state.chunks or self._is_working:
            return
        if state.has_assigned_log:
            for subtask_index in list(self._waiting):
                del self._waiting[subtask_index]
                self._context.signal_no_more_splits(subtask_index)
            return
        if state.log is None:
            self._serve_snapshot()
        elif state.stop is None or self._has_caught_up():
            if not self._waiting:
                return
            state.has_assigned_log = True
            self._assign(state.log, next(iter(self._waiting)))
            state.log = replace(state.log, known={})
            self._serve()

    def _serve_snapshot(self) -> None:
        """Let readers catch up when all have read their chunks."""
        if len(self._waiting) < self._readers:
            return
        if self._settings.startup == SNAPSHOT:
            for subtask_index in list(self._waiting):
                del self._waiting[subtask_index]
                self._context.signal_no_more_splits(subtask_index)
            return
        captured = list(self._state.captured)
        self._work(lambda: self._database.read_end(captured), self._on_end)

    def _on_end(self, result: tuple[list[TableId], dict[TableId, Known], LogPosition | None]) -> None:
        new, known, position = result
        if position is None:
            self._state.tables = new
            self._state.captured += new
            return
        self._state.stop = position
        self._state.log = LogSplit(position, known, is_log=True)

    def _has_caught_up(self) -> bool:
        """Send readers the position to catch up to; return whether all have reached it and wait for a split."""
        assert self._state.stop is not None
        for subtask_index in [index for index in self._waiting if index not in self._told]:
            self._told.add(subtask_index)
            self._assign(CatchUp(self._state.stop), subtask_index)
        return len(self._waiting) == self._readers

    def _assign(self, split: Split, subtask_index: int) -> None:
        self._waiting.pop(subtask_index, None)
        self._context.assign_split(split, subtask_index)

    def _on_chunks(self, chunks: list[Chunk]) -> None:
        assert self._state.tables is not None
        del self._state.tables[0]
        self._state.chunks.extend(map(ChunkSplit, chunks))

    def add_splits_back(self, splits: Sequence[Split], subtask_index: int) -> None:
        """See `SplitEnumerator`; all readers restart together, so only undelivered splits come back."""
        self._waiting.pop(subtask_index, None)
        self._state.chunks.extendleft(split for split in splits if isinstance(split, ChunkSplit))

    def close(self) -> None:
        """Close connections."""
        self._database.close()

    def snapshot_state(self, checkpoint_id: int) -> EnumeratorState:
        """See `SplitEnumerator`."""
        state = self._state
        return replace(
            state,
            tables=None if state.tables is None else list(state.tables),
            chunks=deque(state.chunks),
            captured=list(state.captured),
        )


class MySqlEventSource(connector.Source[Any, Split]):
    r"""Reads tables of MySQL or MariaDB, and then their changes, as the events of `penstock.connectors.cdc.events`.

    Tables are read in chunks by all subtasks, without locks; then one subtask reads the log. Each change is emitted
    exactly once, the changes of a row in order. With several subtasks the log is read after a checkpoint.

    Args:
        settings: the server, the tables, and how to read them.
        output: makes records of changes; by default events.

    Examples:
        >>> from penstock.connectors.mysql.cdc.database import CdcSettings
        >>> from penstock.connectors.mysql.cdc.source import MySqlEventSource
        >>> from penstock.connectors.mysql.client import MySqlAddress
        >>> source = MySqlEventSource(CdcSettings(MySqlAddress("db", user="cdc", password="secret"), (r"shop\..*",)))
        >>> source.boundedness.name
        'CONTINUOUS_UNBOUNDED'
    """

    # All readers are in one phase of the snapshot; a reader restarted alone could find the others in a later one.
    restarts_by_reader = False

    def __init__(self, settings: CdcSettings, output: Callable[[], Any] | None = None) -> None:
        self.settings = settings
        self._output = output
        #: whether one subtask reads everything: the execution mode assigns all splits in advance
        self._reads_alone = False

    @property
    def boundedness(self) -> connector.Boundedness:
        """Bounded if only the tables are read."""
        is_bounded = self.settings.startup == SNAPSHOT
        return connector.Boundedness.BOUNDED if is_bounded else connector.Boundedness.CONTINUOUS_UNBOUNDED

    def check_execution_mode(self, mode: str, is_local: bool) -> None:
        """Record that BATCH and MICRO_BATCH assign splits in advance."""
        self._reads_alone = mode != "STREAMING"

    def create_database(self) -> MySqlDatabase:
        """Return the `MySqlDatabase` of the settings."""
        return MySqlDatabase(self.settings)

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[Split], restored: Any | None
    ) -> connector.SplitEnumerator[Split]:
        """See `Source`."""
        readers = 1 if self._reads_alone else context.parallelism
        return CdcEnumerator(context, self.settings, self.create_database(), restored, readers)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[Any, Split]:
        """See `Source`."""
        from penstock.connectors.mysql.cdc.reader import CdcReader, EventOutput

        readers = 1 if self._reads_alone else context.parallelism
        output = EventOutput() if self._output is None else self._output()
        return CdcReader(context, self.create_database(), output, readers)


class MySqlSourceBuilder:
    r"""Builds a `MySqlEventSource`, with the method names of Flink CDC.

    Examples:
        >>> from penstock.datastream.connectors.mysql_cdc import MySqlSourceBuilder
        >>> builder = MySqlSourceBuilder().hostname("db").username("cdc").password("secret")
        >>> source = builder.table_list(r"shop\.orders_\d+", r"shop\.people").server_id("5400-5404").build()
    """

    def __init__(self) -> None:
        self._address: dict[str, Any] = {"host": "localhost"}
        self._settings: dict[str, Any] = {}

    def hostname(self, hostname: str) -> MySqlSourceBuilder:
        """Set the server's host; localhost by default."""
        self._address["host"] = hostname
        return self

    def port(self, port: int) -> MySqlSourceBuilder:
        """Set the server's port; 3306 by default."""
        self._address["port"] = port
        return self

    def username(self, username: str) -> MySqlSourceBuilder:
        """Set the user. It needs SELECT on the tables, REPLICATION SLAVE and REPLICATION CLIENT."""
        self._address["user"] = username
        return self

    def password(self, password: str) -> MySqlSourceBuilder:
        """Set the user's password."""
        self._address["password"] = password
        return self

    def table_list(self, *tables: str) -> MySqlSourceBuilder:
        """Set the tables: regular expressions that match all of `database.table`."""
        self._settings["tables"] = tables
        return self

    def server_id(self, server_id: str) -> MySqlSourceBuilder:
        """Set the server ids of the readers, such as `5400-5404`; random ids by default."""
        self._settings["server_ids"] = parse_server_ids(server_id)
        return self

    def startup_mode(self, mode: str) -> MySqlSourceBuilder:
        """Set `initial` (default), `earliest-offset`, `latest-offset` or `snapshot`."""
        self._settings["startup"] = mode
        return self

    def split_size(self, rows: int) -> MySqlSourceBuilder:
        """Set the number of rows of a chunk; 8096 by default."""
        self._settings["chunk_size"] = rows
        return self

    def heartbeat_interval(self, interval_ms: int) -> MySqlSourceBuilder:
        """Set after how long (ms) without changes the server sends a heartbeat; 30 000 by default."""
        self._settings["heartbeat_ms"] = interval_ms
        return self

    def scan_newly_added_table_enabled(self, is_enabled: bool) -> MySqlSourceBuilder:
        """Set whether a restored job also captures tables that match only now; by default it does not."""
        self._settings["adds_tables"] = is_enabled
        return self

    def build(self) -> MySqlEventSource:
        """Build the source.

        Raises:
            ConfigurationError: if a setting is missing or has an invalid value, and without the package PyMySQL.
        """
        load_library()
        return MySqlEventSource(CdcSettings(MySqlAddress(**self._address), **({"tables": ()} | self._settings)))


def parse_server_ids(text: str | None) -> tuple[int, int] | None:
    """Return the first and the last server id of `5400` or `5400-5404`.

    Raises:
        ConfigurationError: if it is neither.
    """
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 0 < first <= last < 1 << 32:
        raise ConfigurationError(f"'server-id' is a number such as 5400 or a range such as 5400-5404, not {text!r}")
    return first, last
