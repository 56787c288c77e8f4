"""The server side of the CDC source: checks, positions, chunks of tables, and the log as row changes.

`MySqlDatabase` is thread-safe: each call takes a connection of its own from a pool.

**The position of a read.** MariaDB reports the position of a snapshot, so a chunk is read as of its position. MySQL
does not. It writes a transaction to the log shortly before queries see it, and the position that it reports includes
such transactions. So the low watermark of a chunk is a position that was read `LOW_AGE_S` before the query: every
transaction up to that position is visible by then. The changes after it are applied to the chunk again, which is
idempotent for the changes that the query has seen.
"""

from __future__ import annotations

import re
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from penstock.base.errors import ConfigurationError, FormatError, OperationError
from penstock.connectors.cdc.events import SchemaChangeEvent, TableId
from penstock.connectors.cdc.incremental import KeyRange, RowChange, correct_rows
from penstock.connectors.mysql import client
from penstock.connectors.mysql.cdc import binlog, ddl
from penstock.connectors.mysql.cdc.binlog import LogConnection, LogParser, LogPosition
from penstock.connectors.mysql.cdc.checks import check_server
from penstock.connectors.mysql.cdc.tables import (
    INTEGERS,
    TEXTS,
    ColumnDefinition,
    TableDefinition,
    list_tables,
    read_charset,
    read_definitions,
)
from penstock.connectors.mysql.cdc.values import Charsets, RowDecoder, RowParser, ValueSettings

INITIAL, EARLIEST, LATEST, SPECIFIC, TIMESTAMP, SNAPSHOT = (
    *("initial", "earliest-offset", "latest-offset", "specific-offset", "timestamp", "snapshot"),
)
STARTUP_MODES: Final = (INITIAL, EARLIEST, LATEST, SPECIFIC, TIMESTAMP, SNAPSHOT)
CHUNK_SIZE: Final = 8_096
HEARTBEAT_MS: Final = 30_000
#: The distribution factors (values of an integer key per row) between which a table is split evenly, as in Flink.
EVEN_MIN, EVEN_MAX = 0.05, 1_000.0
#: the age (s) of the position that serves as a chunk's low watermark, see the module docstring
LOW_AGE_S: Final = 0.5
#: how often a chunk is read again because its table was altered meanwhile, or a table without a key changed
_ATTEMPTS: Final = 50
_KEYLESS_ATTEMPTS: Final = 5
#: how many keys to ask the server about at once
_WEIGHTS: Final = 200
#: the key types that can split a table; a table with another key is one chunk
_SPLITTABLE: Final = {*INTEGERS, "decimal", "date", "datetime", "timestamp", "year", "char", "varchar"}
_SPLITTABLE_BYTES: Final = frozenset({"binary", "varbinary"})


@dataclass(frozen=True, slots=True)
class CdcSettings:
    """The settings of a CDC source; `MySqlSourceBuilder` explains them.

    Attributes:
        address: the server.
        tables: regular expressions; a table is captured if one of them matches all of `database.table`.
        server_ids: the first and the last server id of the readers; None for random ids.
        startup: one of `STARTUP_MODES`.
        start_position: for `specific-offset`: a file and an offset, or a set of GTIDs.
        start_timestamp_ms: for `timestamp`: changes from then on are read, in ms since 1970.
        chunk_size: the approximate number of rows of a chunk.
        chunk_keys: the column that splits a table, by regular expressions of table names.
        heartbeat_ms: the idle time (ms) after which the server sends a heartbeat.
        adds_tables: whether a restored job also captures tables that match only now.
        values: how values are read.
    """

    address: client.MySqlAddress
    tables: tuple[str, ...]
    server_ids: tuple[int, int] | None = None
    startup: str = INITIAL
    start_position: LogPosition | None = None
    start_timestamp_ms: int = 0
    chunk_size: int = CHUNK_SIZE
    chunk_keys: Mapping[str, str] = field(default_factory=dict)
    heartbeat_ms: int = HEARTBEAT_MS
    adds_tables: bool = False
    values: ValueSettings = field(default_factory=ValueSettings)

    def __post_init__(self) -> None:
        if self.startup not in STARTUP_MODES:
            raise ConfigurationError(f"the startup mode is {' or '.join(STARTUP_MODES)}, not {self.startup!r}")
        if self.chunk_size < 2 or self.heartbeat_ms < 1:
            raise ConfigurationError("a chunk has at least 2 rows, and a heartbeat interval is above 0")
        if not self.tables:
            raise ConfigurationError("name the tables to capture")
        for pattern in (*self.tables, *self.chunk_keys):
            try:
                re.compile(pattern)
            except re.error as error:
                raise ConfigurationError(f"{pattern!r} is not a regular expression: {error}") from error
        if self.startup == SPECIFIC and self.start_position is None:
            raise ConfigurationError("the startup mode 'specific-offset' needs a file and an offset, or a set of GTIDs")

    def captures(self, table_id: TableId) -> bool:
        """Return whether a table is captured."""
        name = str(table_id)
        return any(re.fullmatch(pattern, name) for pattern in self.tables)


_ALL: Final = KeyRange()


class Known(NamedTuple):
    """A table at a position: statements and rows before it are not for this definition."""

    definition: TableDefinition
    since: LogPosition


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a table.

    Attributes:
        table_id: the table.
        column: the column that splits the table; None for a table that is one chunk.
        values: the limits as SQL values; None for no limit.
        range: the limits in the form that is compared: weights for text, otherwise the values.
    """

    table_id: TableId
    column: str | None = None
    values: KeyRange = _ALL
    range: KeyRange = _ALL


@dataclass(frozen=True, slots=True)
class ChunkRows:
    """The rows of a chunk as of a position, and the table as it was then."""

    definition: TableDefinition
    position: LogPosition
    rows: list[tuple[Any, ...]]


class RowChanges(NamedTuple):
    """Changes of rows of one event of the log.

    Attributes:
        definition: the table.
        kind: INSERT, UPDATE or DELETE.
        rows: the changes.
        seconds: when the statement began, in seconds since 1970.
        boundary: where the transaction begins.
        event: the number of the event in it.
        first: the number of the first of these rows in the event.
    """

    definition: TableDefinition
    kind: int
    rows: list[RowChange]
    seconds: int
    boundary: LogPosition
    event: int
    first: int


class TableChanges(NamedTuple):
    """A statement that changed a table.

    Attributes:
        table_id: the table.
        definition: the table after the statement; None if it was dropped.
        events: the schema changes.
        seconds: see `RowChanges`.
        boundary: see `RowChanges`.
        event: see `RowChanges`.
    """

    table_id: TableId
    definition: TableDefinition | None
    events: tuple[SchemaChangeEvent, ...]
    seconds: int
    boundary: LogPosition
    event: int


class Reached(NamedTuple):
    """The log was read up to the end of a transaction."""

    position: LogPosition
    seconds: int


class MySqlDatabase:
    """See the module docstring."""

    def __init__(self, settings: CdcSettings) -> None:
        self.settings = settings
        self._idle: list[Any] = []
        self._is_closed = False
        #: recent positions, and when they were read
        self._lately: deque[tuple[float, LogPosition]] = deque(maxlen=100)

    @contextmanager
    def session(self) -> Iterator[Any]:
        """Lend a connection; after an error it is closed, otherwise it is used again."""
        connection = self._idle.pop() if self._idle else client.connect(self.settings.address, read_timeout=None)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        if self._is_closed:
            connection.close()
        else:
            self._idle.append(connection)

    def close(self) -> None:
        """Close the connections that are not lent."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()

    def check(self) -> None:
        """Check the settings of the server, see `checks`."""
        check_server(self)

    # --- positions -------------------------------------------------------------------------------------------------

    def read_position(self, connection: Any) -> LogPosition:
        """Return the end of the log."""
        server = client.read_server(connection)
        is_new = server.dialect == client.MYSQL and server.version >= (8, 2)
        rows = client.query(connection, "SHOW BINARY LOG STATUS" if is_new else "SHOW MASTER STATUS")
        if not rows:
            raise OperationError(f"{self.settings.address.shown} writes no binary log: start it with log_bin")
        file, offset = rows[0][:2]
        gtids, identity = read_identity(connection, server)
        return LogPosition(file, int(offset), gtids=gtids, server=identity)

    def find_start(self) -> LogPosition:
        """Return where the log is read from, in the modes without a snapshot."""
        settings = self.settings
        with self.session() as connection:
            end = self.read_position(connection)
            if settings.startup == LATEST:
                return end
            files = [str(row[0]) for row in client.query(connection, "SHOW BINARY LOGS")]
            if settings.startup == EARLIEST:
                return replace(end, file=files[0], offset=4, gtids="")
            if settings.startup == SPECIFIC:
                assert settings.start_position is not None
                position = settings.start_position
                return replace(position, server=end.server if position.file else "", file=position.file or end.file)
        return self._find_timestamp(files, end)

    def _find_timestamp(self, files: Sequence[str], end: LogPosition) -> LogPosition:
        """Return the position before the first transaction at or after a time; the log has whole seconds."""
        wanted_s = self.settings.start_timestamp_ms // 1_000
        start = replace(end, file=files[0], offset=4, gtids="")
        for file in reversed(files):
            first = replace(end, file=file, offset=4, gtids="")
            seconds = next((item.seconds for item in self.read_log(first, end, {}) if item and item.seconds), None)
            if seconds is not None and seconds < wanted_s:
                start = first
                break
        before = start
        for item in self.read_log(start, end, {}):
            if item is not None and item.seconds >= wanted_s:
                return before
            if isinstance(item, Reached):
                before = item.position
        return end

    # --- tables ----------------------------------------------------------------------------------------------------

    def find_tables(self) -> list[TableId]:
        """Return the captured tables that exist."""
        with self.session() as connection:
            return [table_id for table_id in list_tables(connection) if self.settings.captures(table_id)]

    def read_tables(self, table_ids: Iterable[TableId]) -> tuple[dict[TableId, Known], LogPosition]:
        """Return the definitions of tables as of a position: no table was altered shortly before or since."""
        wanted = list(table_ids)
        with self.session() as connection:
            for _ in range(_ATTEMPTS):
                low = self.read_position(connection)
                definitions = self._read_definitions(connection, wanted)
                high = self.read_position(connection)
                known = {table_id: Known(definition, high) for table_id, definition in definitions.items()}
                if not self._is_altered({key: item._replace(since=low) for key, item in known.items()}, low, high):
                    return known, high
        raise OperationError("the captured tables are altered all the time: their definitions cannot be read")

    def read_end(self, captured: Sequence[TableId]) -> tuple[list[TableId], dict[TableId, Known], LogPosition | None]:
        """Return the captured tables and the end of the log; or tables that were created since, to be read before."""
        while True:
            with self.session() as connection:
                start = self.read_position(connection)
            new = [table_id for table_id in self.find_tables() if table_id not in captured]
            if new:
                return new, {}, None
            known, end = self.read_tables(captured)
            items = self.read_log(start, end, {}, captures_new=True, decodes=False)
            if not any(isinstance(item, TableChanges) and item.table_id not in captured for item in items):
                return [], known, end

    def _read_definitions(self, connection: Any, table_ids: Sequence[TableId]) -> dict[TableId, TableDefinition]:
        definitions: dict[TableId, TableDefinition] = {}
        for schema in dict.fromkeys(table_id.schema for table_id in table_ids):
            names = [table_id.table for table_id in table_ids if table_id.schema == schema]
            definitions |= read_definitions(connection, schema, names)
        return definitions

    # --- chunks ----------------------------------------------------------------------------------------------------

    def split_table(self, table_id: TableId) -> list[Chunk]:
        """Return the chunks of a table; empty if the table no longer exists."""
        with self.session() as connection:
            definition = self._read_definitions(connection, [table_id]).get(table_id)
            if definition is None:
                return []
            column = self.find_chunk_column(definition)
            if column is None:
                return [Chunk(table_id)]
            borders = self._find_borders(connection, definition, column)
            weights: Sequence[Any] = borders
            if column.kind in TEXTS:
                weigh = self.open_weights(connection, column)
                weights = [weigh([border])[0] for border in borders]
        limits, compared = [None, *borders, None], [None, *weights, None]
        return [
            Chunk(table_id, column.name, KeyRange(*limits[index : index + 2]), KeyRange(*compared[index : index + 2]))
            for index in range(len(limits) - 1)
        ]

    def find_chunk_column(self, definition: TableDefinition) -> ColumnDefinition | None:
        """Return the column that splits a table; None if the table is one chunk.

        Raises:
            ConfigurationError: if the settings name a column that does not fit.
        """
        name = str(definition.table_id)
        for pattern, wanted in self.settings.chunk_keys.items():
            if re.fullmatch(pattern, name):
                position = definition.find(wanted)
                if position is None or position not in definition.key_places():
                    raise ConfigurationError(
                        f"table {name} is split by a column of its primary key, which {wanted!r} is not: it has "
                        f"{', '.join(definition.primary_key) or 'none'}"
                    )
                return definition.columns[position]
        positions = definition.key_places()
        if not positions:
            return None
        column = definition.columns[positions[0]]
        return column if column.kind in _SPLITTABLE or column.kind in _SPLITTABLE_BYTES else None

    def _find_borders(self, connection: Any, definition: TableDefinition, column: ColumnDefinition) -> list[Any]:
        """Return the first key of each chunk except the first."""
        table, name = quote(definition.table_id), client.quoted(column.name)
        size = self.settings.chunk_size
        low, high = client.query(connection, f"SELECT MIN({name}), MAX({name}) FROM {table}")[0]
        if low is None or low == high:
            return []
        if column.kind in INTEGERS:
            density = (high - low + 1) / max(self._estimate_rows(connection, definition.table_id), 1)
            if high - low < size:
                return []
            if EVEN_MIN <= density <= EVEN_MAX:
                step = max(2, int(size * max(density, 1.0)))
                return list(range(low + step, high + 1, step))
        borders: list[Any] = []
        sql = f"SELECT {name} FROM {table} WHERE {name} > %s ORDER BY {name} LIMIT 1 OFFSET {size - 1}"
        while rows := client.query(connection, sql.replace("%", "%%").replace("%%s", "%s"), (low,)):
            low = rows[0][0]
            borders.append(low)
        return borders

    @staticmethod
    def _estimate_rows(connection: Any, table_id: TableId) -> int:
        if client.read_server(connection).dialect == client.MYSQL:
            client.execute(connection, "SET SESSION information_schema_stats_expiry = 0")
        sql = "SELECT TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
        rows = client.query(connection, sql, table_id)
        return int(rows[0][0] or 0) if rows else 0

    def open_weights(self, connection: Any, column: ColumnDefinition) -> Callable[[Sequence[str]], list[bytes]]:
        """Return a function that computes the weights of texts: bytes in the order of the column's collation."""
        collation = column.collation or ""
        pads = "_nopad_" not in collation
        if client.read_server(connection).dialect == client.MYSQL:
            ((attribute,),) = client.query(
                connection,
                "SELECT PAD_ATTRIBUTE FROM information_schema.COLLATIONS WHERE COLLATION_NAME = %s",
                (collation,),
            )
            pads = attribute == "PAD SPACE"
        length = f" AS CHAR({column.length})" if pads and column.length else ""
        expression = f"HEX(WEIGHT_STRING(CONVERT(%s USING {column.charset}) COLLATE {collation}{length}))"

        def weigh(texts: Sequence[str]) -> list[bytes]:
            weights: list[bytes] = []
            for begin in range(0, len(texts), _WEIGHTS):
                part = texts[begin : begin + _WEIGHTS]
                row = client.query(connection, f"SELECT {', '.join([expression] * len(part))}", part)[0]
                weights.extend(bytes.fromhex(value if isinstance(value, str) else value.decode()) for value in row)
            return weights

        return weigh

    def read_chunk(self, chunk: Chunk) -> ChunkRows | None:
        """Read a chunk as of its high watermark; return None if the table no longer exists."""
        with self.session() as connection:
            is_mariadb = client.read_server(connection).dialect == client.MARIADB
            if is_mariadb:
                return self._read_snapshot(connection, chunk)
            return self._read_corrected(connection, chunk)

    def _read_snapshot(self, connection: Any, chunk: Chunk) -> ChunkRows | None:
        """Read a chunk from MariaDB, which reports the position of a snapshot."""
        for _ in range(_ATTEMPTS):
            client.execute(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            client.execute(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            status = dict(client.query(connection, "SHOW STATUS LIKE 'binlog_snapshot_%'"))
            gtids, identity = read_identity(connection, client.read_server(connection))
            position = LogPosition(
                status["Binlog_snapshot_file"], int(status["Binlog_snapshot_position"]), gtids=gtids, server=identity
            )
            try:
                definition = self._read_definitions(connection, [chunk.table_id]).get(chunk.table_id)
                if definition is None:
                    return None
                rows = self._select(connection, definition, chunk)
            except client.load_library().err.MySQLError as error:
                if client.get_error_code(error) not in _ALTERED:
                    raise
                client.execute(connection, "COMMIT")
                continue
            client.execute(connection, "COMMIT")
            high = self.read_position(connection)
            known = {chunk.table_id: Known(definition, position)}
            if not self._is_altered(known, position, high):
                return ChunkRows(definition, position, rows)
        raise altered(chunk.table_id)

    def _read_corrected(self, connection: Any, chunk: Chunk) -> ChunkRows | None:
        """Read a chunk from MySQL: its rows, and the changes between two positions."""
        for attempt in range(_ATTEMPTS):
            low = self._read_low(connection)
            definition = self._read_definitions(connection, [chunk.table_id]).get(chunk.table_id)
            if definition is None:
                return None
            try:
                rows = self._select(connection, definition, chunk)
            except client.load_library().err.MySQLError as error:
                if client.get_error_code(error) not in _ALTERED:
                    raise
                continue
            high = self.read_position(connection)
            self._lately.append((time.monotonic(), high))
            if low == high:
                return ChunkRows(definition, high, rows)
            changes = self._read_changes(chunk.table_id, Known(definition, low), low, high)
            if changes is None:
                self._lately.clear()  # the next low watermark is after the statement
                continue
            if not changes:
                return ChunkRows(definition, high, rows)
            if not definition.primary_key:
                if attempt < _KEYLESS_ATTEMPTS:
                    continue
                return ChunkRows(definition, low, rows)  # the changes come again after it
            positions = definition.key_places()
            rows = correct_rows(
                rows,
                changes,
                _get_places(positions),
                self._find_contains(connection, definition, chunk, changes),
            )
            return ChunkRows(definition, high, rows)
        raise altered(chunk.table_id)

    def _read_changes(
        self, table_id: TableId, known: Known, low: LogPosition, high: LogPosition
    ) -> list[RowChange] | None:
        """Return the changes of a table between two positions; None if it was altered."""
        tables = {table_id: known}
        if self._is_altered(tables, low, high):
            return None
        changes: list[RowChange] = []
        for item in self.read_log(low, high, tables):
            if isinstance(item, RowChanges):
                changes += item.rows
        return changes

    def _is_altered(self, known: Mapping[TableId, Known], low: LogPosition, high: LogPosition) -> bool:
        """Return whether one of the tables was altered between two positions.

        Rows are not decoded: the definitions may be newer than the rows.
        """
        return low < high and any(
            isinstance(item, TableChanges) for item in self.read_log(low, high, known, decodes=False)
        )

    def _read_low(self, connection: Any) -> LogPosition:
        """Return the latest position that was read at least `LOW_AGE_S` ago."""
        if not self._lately:
            self._lately.append((time.monotonic(), self.read_position(connection)))
        time.sleep(max(0.0, self._lately[0][0] + LOW_AGE_S - time.monotonic()))
        until = time.monotonic() - LOW_AGE_S
        while len(self._lately) > 1 and self._lately[1][0] <= until:
            self._lately.popleft()
        return self._lately[0][1]

    def _find_contains(
        self, connection: Any, definition: TableDefinition, chunk: Chunk, changes: Sequence[RowChange]
    ) -> Callable[[tuple[Any, ...]], bool]:
        if chunk.column is None:
            return lambda row: True
        position = definition.find(chunk.column)
        assert position is not None
        column = definition.columns[position]
        if column.kind not in TEXTS:
            return lambda row: chunk.range.contains(comparable(row[position]))
        texts = list({row[position] for change in changes for row in change if row is not None})
        weights = dict(zip(texts, self.open_weights(connection, column)(texts), strict=True))
        return lambda row: chunk.range.contains(weights[row[position]])

    def _select(self, connection: Any, definition: TableDefinition, chunk: Chunk) -> list[tuple[Any, ...]]:
        """Return the rows of a chunk that a query sees."""
        parser = RowParser(definition, self.settings.values)
        conditions, arguments = [], []
        if chunk.column is not None:
            name = client.quoted(chunk.column)
            for sign, limit in ((">=", chunk.values.low), ("<", chunk.values.high)):
                if limit is not None:
                    conditions.append(f"{name} {sign} %s")
                    arguments.append(limit)
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        expressions = parser.expressions.replace("%", "%%") if arguments else parser.expressions
        table = quote(definition.table_id).replace("%", "%%") if arguments else quote(definition.table_id)
        decoders, connection.decoders = connection.decoders, {}
        try:
            rows = client.query(connection, f"SELECT {expressions} FROM {table}{where}", arguments or None)
        finally:
            connection.decoders = decoders
        return parser.parse(rows)

    # --- the log ---------------------------------------------------------------------------------------------------

    def read_log(
        self,
        start: LogPosition,
        stop: LogPosition | None,
        known: Mapping[TableId, Known],
        captures_new: bool = False,
        decodes: bool = True,
        on_connect: Callable[[LogConnection], None] | None = None,
    ) -> Iterator[RowChanges | TableChanges | Reached | None]:
        """Yield the changes of the log, and None before it waits for more.

        Args:
            start: where to begin; the events and rows that it counts are skipped.
            stop: where to end; None to wait for more without end.
            known: the captured tables at `start`.
            captures_new: whether to capture new tables as well, if the settings match them.
            decodes: whether to decode rows; otherwise only statements are reported.
            on_connect: receives the connection, to interrupt it.
        """
        if stop is not None and start.events == start.rows == 0 and start >= stop:
            return
        settings = self.settings
        with self.session() as connection:
            server = client.read_server(connection)
            tables = LogTables(settings, known, captures_new, server.dialect == client.MARIADB)
            _, identity = read_identity(connection, server)
            by_gtid = bool(start.server or not start.file) and start.server != identity
            if by_gtid and not start.gtids:
                raise OperationError(
                    f"{settings.address.shown} is another server than the one that position {start} is of, and no "
                    "GTIDs are known for it: begin without the state of the job, or let servers write GTIDs "
                    "(gtid_mode = ON)"
                )
            if not by_gtid:
                self._check_file(connection, start)
            tables.load_charsets(connection)
            log = LogConnection(
                settings.address, start, self.next_server_id(), settings.heartbeat_ms / 1_000, stop is not None, by_gtid
            )
            try:
                if on_connect is not None:
                    on_connect(log)
                yield from self._parse(log, replace(start, server=identity), stop, tables, connection, decodes)
            finally:
                log.close()

    def _parse(
        self,
        log: LogConnection,
        start: LogPosition,
        stop: LogPosition | None,
        tables: LogTables,
        connection: Any,
        decodes: bool,
    ) -> Iterator[RowChanges | TableChanges | Reached | None]:
        parser = LogParser(start, tables.wants if decodes else lambda _: False)
        reached = parser.boundary
        is_first = bool(start.events or start.rows)
        for packet in log.packets():
            if packet is None:
                yield None
                continue
            boundary = parser.boundary
            for event in parser.feed(packet):
                skipped = 0
                if is_first and boundary.offset == start.offset and boundary.file == start.file:
                    if event.event < start.events:
                        continue
                    skipped = start.rows if event.event == start.events else 0
                if isinstance(event, binlog.RowsEvent):
                    changes = tables.decode(event, boundary, skipped)
                    if changes is not None:
                        yield changes
                else:
                    yield from tables.change(event, boundary, connection)
            if parser.boundary != reached:
                is_first = is_first and parser.boundary == replace(start, events=0, rows=0)
                reached = parser.boundary
                yield Reached(reached, parser.seconds)
                if stop is not None and reached >= stop:
                    return
        if stop is not None and reached < stop:
            raise OperationError(f"the log ends at {reached}, before {stop}: it was purged or reset meanwhile")

    def _check_file(self, connection: Any, position: LogPosition) -> None:
        files = {str(row[0]): int(row[1]) for row in client.query(connection, "SHOW BINARY LOGS")}
        if position.file not in files:
            raise binlog.purged(position, f"its files are {', '.join(files)}")
        if files[position.file] < position.offset:
            raise binlog.purged(position, f"{position.file} has {files[position.file]} bytes")

    def next_server_id(self) -> int:
        """Return a server id for a connection to the log."""
        first, last = self.settings.server_ids or (2**30, 2**31)
        return first + time.monotonic_ns() // 1_000 % (last - first + 1)


#: the query's table was altered after its snapshot, or dropped: "Table definition has changed", "doesn't exist", …
_ALTERED: Final = frozenset({1412, 1146, 1054, 1020})


def read_identity(connection: Any, server: client.Server) -> tuple[str, str]:
    """Return the transactions that a server has executed, and its identity."""
    if server.dialect == client.MARIADB:
        gtids, number = client.query(connection, "SELECT @@gtid_binlog_pos, @@server_id")[0]
        return str(gtids), str(number)
    gtids, identity = client.query(connection, "SELECT @@GLOBAL.gtid_executed, @@server_uuid")[0]
    return str(gtids).replace("\n", ""), str(identity)


def quote(table_id: TableId) -> str:
    """Return the quoted name of a table for SQL."""
    return f"{client.quoted(table_id.schema)}.{client.quoted(table_id.table)}"


def _get_places(positions: Sequence[int]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    return lambda row: tuple(row[position] for position in positions)


def altered(table_id: TableId) -> OperationError:
    """Return the error for a table that is altered during each attempt to read it."""
    return OperationError(f"table {table_id} is altered all the time: it cannot be read")


def comparable(value: Any) -> Any:
    """Return a key value in the form of the chunk limits: a timestamp without its time zone."""
    return value.replace(tzinfo=None) if getattr(value, "tzinfo", None) is not None else value


class LogTables:
    """The tables at a position of the log, and how their rows are decoded."""

    def __init__(
        self, settings: CdcSettings, known: Mapping[TableId, Known], captures_new: bool, is_mariadb: bool
    ) -> None:
        self._settings = settings
        self._is_mariadb = is_mariadb
        self._known = dict(known)
        self._captures_new = captures_new
        self._charsets = Charsets()
        self._decoders: dict[int, tuple[binlog.LoggedTable, TableDefinition, RowDecoder]] = {}

    def load_charsets(self, connection: Any) -> None:
        """Ask the server for the character sets of the tables."""
        charsets = {
            column.charset
            for known in self._known.values()
            for column in known.definition.columns
            if column.charset is not None and column.kind not in ("enum", "set")
        }
        self._charsets.load(connection, charsets)

    def wants(self, table_id: TableId) -> bool:
        """Return whether the rows of a table are wanted."""
        return table_id in self._known

    def decode(self, event: binlog.RowsEvent, boundary: LogPosition, skipped: int) -> RowChanges | None:
        """Return the changes of an event; None if its table was dropped, or is known only from a later position."""
        known = self._known.get(event.table.table_id)
        if known is None or boundary < known.since:
            return None
        entry = self._decoders.get(id(event.table))
        if entry is None or entry[1] is not known.definition:
            decoder = RowDecoder(known.definition, event.table, self._charsets, self._settings.values)
            entry = self._decoders[id(event.table)] = (event.table, known.definition, decoder)
            if len(self._decoders) > 10_000:
                self._decoders.clear()
        try:
            rows = entry[2].decode(event.data)
        except (LookupError, ValueError, ArithmeticError, struct.error) as error:
            raise FormatError(
                f"a row of table {event.table.table_id} after {boundary} cannot be read: {error}"
            ) from error
        if event.kind == binlog.UPDATE:
            changes = [RowChange(rows[index], rows[index + 1]) for index in range(0, len(rows), 2)]
        elif event.kind == binlog.INSERT:
            changes = [RowChange(None, row) for row in rows]
        else:
            changes = [RowChange(row, None) for row in rows]
        return RowChanges(
            known.definition, event.kind, changes[skipped:], event.seconds, boundary, event.event, skipped
        )

    def change(self, event: binlog.QueryEvent, boundary: LogPosition, connection: Any) -> Iterator[TableChanges]:
        """Apply a statement, and yield the changes of tables."""
        definitions = {table_id: known.definition for table_id, known in self._known.items() if known.since <= boundary}
        context = ddl.StatementContext(
            self._find_missing(connection),
            self._settings.values.types,
            self._captures,
            lambda schema: read_charset(connection, schema),
            self._is_mariadb,
        )
        changes = ddl.apply_statement(event, definitions, context)
        for table_id, definition, events in changes:
            is_known = table_id in definitions
            if not is_known and not (self._captures_new and self._settings.captures(table_id)):
                continue
            if table_id in self._known and boundary < self._known[table_id].since:
                continue
            if definition is None:
                self._known.pop(table_id, None)
            else:
                self._known[table_id] = Known(definition, boundary)
                self.load_charsets(connection)
            yield TableChanges(table_id, definition, events, event.seconds, boundary, event.event)

    def _captures(self, table_id: TableId) -> bool:
        return self._captures_new and self._settings.captures(table_id)

    def _find_missing(self, connection: Any) -> Callable[[TableId], TableDefinition | None]:
        """Return a function that reads the current definition of a table that a statement refers to."""

        def find(table_id: TableId) -> TableDefinition | None:
            if not self._captures_new:
                return None
            return read_definitions(connection, table_id.schema, [table_id.table]).get(table_id)

        return find
