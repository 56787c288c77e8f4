"""`redis`: reads, looks up and writes rows as hashes of Redis or Valkey.

**Keys.** A row is the hash whose key is the table's prefix and the values of its primary key. Several values are joined
by `:`; in them `:` is written as `%3A` and `%` as `%25`, so that no two rows have the same key. Values are text as in
the format `csv`, and BINARY is stored as it is. NULL is a field that is not there.

**Writing.** `RedisTableSink` sets the fields of a row with HSET, removes those that are NULL, and removes the hash of a
deleted row. Sending a row again changes nothing. All columns are fields, also those of the key, so every row has one.

**Reading.** A scan asks for all keys with the prefix once (SCAN), and its splits are lists of keys; rows are read when
their turn comes. A row that is removed meanwhile is left out. Key columns are read from the key, so hashes that others
have written need no fields for them. A hash that has none of the table's columns as fields is no row.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final
from urllib.parse import quote, urlsplit, urlunsplit

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.errors import ConfigurationError, OperationError, UnsupportedError, WrongValueError, short_repr
from penstock.codecs.column_data import ColumnData
from penstock.connectors.async_sink.request_buffer import AsyncSinkSettings
from penstock.connectors.async_sink.sink import AsyncSinkWriter
from penstock.connectors.redis.client import RedisAddress, RedisConnections, load_library
from penstock.connectors.redis.sink import SETTINGS, RedisCommand, RedisSink
from penstock.connectors.split_reader import DiscoveredSplits, PositionedReader
from penstock.runtime import connector
from penstock.runtime.columns import ColumnBatch
from penstock.sql.connectors.jdbc import LOOKUP_OPTIONS
from penstock.sql.data import types
from penstock.sql.data.arrow import columns_of_changes
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.formats.csv import CsvRules, shown
from penstock.sql.formats.text_columns import column_reader
from penstock.sql.logical.nodes import ALL, DELETE, UPDATE_BEFORE, RowSchema, Scan, Write
from penstock.sql.tables.connector import LookedUp, LookupReader, TableConnector, TableLookup, TableOptions
from penstock.sql.tables.tables import TableReader, TableWriter, column_names

_RULES: Final = CsvRules()
_BINARY: Final = (types.BinaryType, types.VarBinaryType)
_PLAIN: Final = (
    *_BINARY,
    types.BooleanType,
    types.NumericType,
    types.CharType,
    types.VarCharType,
    types.DateType,
    types.TimeType,
    types.TimestampType,
    types.LocalZonedTimestampType,
)
#: how many keys a split has, and how many a pipeline asks for
KEYS_PER_SPLIT: Final = 10_000
KEYS_AT_ONCE: Final = 500
_RETRY_PAUSE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class HashTable:
    """Where and how rows are stored.

    Attributes:
        address: the server.
        title: the table's name, for errors.
        prefix: the beginning of its keys.
        names: the names of its columns.
        types: their types.
        key: the positions of the primary key columns.
    """

    address: RedisAddress
    title: str
    prefix: str
    names: tuple[str, ...]
    types: tuple[DataType, ...]
    key: tuple[int, ...]

    def format_columns(self, columns: Sequence[pa.Array], positions: Sequence[int]) -> list[list[bytes | None]]:
        """Return the stored form of values, by column; `columns` are those at these positions."""
        formatted: list[list[bytes | None]] = []
        for column, position in zip(columns, positions, strict=True):
            kind = self.types[position]
            if not isinstance(kind, _BINARY):
                column = shown(kind, _RULES, self.names[position])(column)
            formatted.append(column.cast(pa.binary()).to_pylist())
        return formatted

    def build_keys(self, columns: Sequence[Sequence[bytes | None]]) -> list[bytes | None]:
        """Return the keys of rows, given the stored form of the key columns; None for one with NULL."""
        prefix = self.prefix.encode()
        if len(columns) == 1:
            return [None if value is None else prefix + value for value in columns[0]]
        return [
            None if None in values else prefix + b":".join(map(_escape, values))
            for values in zip(*columns, strict=True)
        ]

    def parse_key(self, key: bytes) -> list[bytes]:
        """Return the stored form of the key columns. Raises `OperationError` if the key has another number of them."""
        rest = key[len(self.prefix.encode()) :]
        if len(self.key) == 1:
            return [rest]
        values = [value.replace(b"%3A", b":").replace(b"%25", b"%") for value in rest.split(b":")]
        if len(values) != len(self.key):
            raise OperationError(
                f"table {self.title}: key {short_repr(key)} has {len(values)} values behind the prefix "
                f"{self.prefix!r}, the primary key has {len(self.key)} columns"
            )
        return values

    def read_rows(self, connections: RedisConnections, keys: Sequence[bytes], retries: int) -> tuple[Any, list[int]]:
        """Return the rows that some of the keys have, as columns, and the positions of these keys."""
        names = [name.encode() for name in self.names]
        rows: list[list[bytes | None]] = []
        present: list[int] = []
        for start in range(0, len(keys), KEYS_AT_ONCE):
            some = keys[start : start + KEYS_AT_ONCE]
            replies = _ask(connections, [("HMGET", key, *names) for key in some], retries)
            for number, (key, reply) in enumerate(zip(some, replies, strict=True), start):
                if any(value is not None for value in reply):
                    for position, value in zip(self.key, self.parse_key(key), strict=True):
                        reply[position] = value
                    rows.append(reply)
                    present.append(number)
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self.names)
        arrays = [
            parse_column(self.title, self.names[position], self.types[position], values, [keys[at] for at in present])
            for position, values in enumerate(columns)
        ]
        return pa.RecordBatch.from_arrays(arrays, column_names(len(arrays))), present


def parse_column(
    title: str, name: str, kind: DataType, values: Sequence[bytes | None], keys: Sequence[bytes | str]
) -> pa.Array:
    """Return a column of a table, given the stored form of its values. `keys`: their keys or ids, for errors."""
    if isinstance(kind, _BINARY):
        return pa.array(values, pa.binary())
    try:
        texts = pa.array([None if value is None else value.decode() for value in values], pa.string())
    except UnicodeDecodeError as error:
        raise OperationError(f"table {title}: column '{name}' has bytes that are no text: {error}") from error
    parsed, bad = column_reader(kind, _RULES.text(), f"column '{name}'")(texts)
    if bad is not None and pc.any(bad).as_py():
        row = pc.index(bad, True).as_py()
        raise OperationError(
            f"table {title}: column '{name}' of key {short_repr(keys[row])} is "
            f"{short_repr(texts[row].as_py())}, which is no {kind}"
        )
    return parsed


def _escape(value: bytes) -> bytes:
    return value.replace(b"%", b"%25").replace(b":", b"%3A")


def _ask(connections: RedisConnections, commands: Sequence[Any], retries: int) -> list[Any]:
    """Return the replies of commands that only read, which are sent again after a failure of the connection."""
    while True:
        try:
            return connections.execute_all(commands)
        except OperationError as error:
            if not retries or not isinstance(error.__cause__, Exception) or not connections.is_passing(error.__cause__):
                raise
        retries -= 1
        time.sleep(_RETRY_PAUSE_S)


class RedisTableSink(RedisSink[Any]):
    """Accepts rows as (kind, internal values), or columns.

    Args:
        table: the table to write.
        ttl_ms: how long a row is kept after it was written; None for good.
        settings: the limits.
    """

    def __init__(self, table: HashTable, ttl_ms: int | None, settings: AsyncSinkSettings) -> None:
        super().__init__(table.address.url, _keep, settings)
        self.table = table
        self.ttl_ms = ttl_ms

    def create_writer(self, context: connector.SinkWriterContext) -> connector.SinkWriter[Any, Any]:
        """See `Sink`."""
        return _TableWriter(self, context)


def _keep(command: RedisCommand) -> RedisCommand:
    return command


class _TableWriter(AsyncSinkWriter[Any]):
    """Turns rows into commands."""

    def __init__(self, sink: RedisTableSink, context: connector.SinkWriterContext) -> None:
        super().__init__(sink, context)
        self._table = sink.table
        self._ttl_ms = sink.ttl_ms

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """See `SinkWriter`."""
        if values:
            columns, kinds = columns_of_changes(values, self._table.names, self._table.types)
            self.write_changes(ColumnData(columns), kinds, None)

    def write_columns(self, data: ColumnData, rowtimes: Any) -> None:
        """See `SinkWriter`."""
        self.write_changes(data, bytes(len(data)), rowtimes)

    def write_changes(self, data: ColumnData, kinds: bytes, rowtimes: Any) -> None:
        """See `SinkWriter`."""
        table = self._table
        columns = table.format_columns(data.columns.columns, range(len(table.names)))
        keys = table.build_keys([columns[position] for position in table.key])
        names = [name.encode() for name in table.names]
        commands = [
            self._build_command(key, kind, names, values)
            for key, kind, values in zip(keys, kinds, zip(*columns, strict=True), strict=True)
        ]
        super().write_batch(commands, None)

    def _build_command(
        self, key: bytes | None, kind: int, names: Sequence[bytes], values: Sequence[bytes | None]
    ) -> RedisCommand:
        if key is None:
            raise OperationError(f"table {self._table.title}: a column of the primary key is NULL")
        if kind in (DELETE, UPDATE_BEFORE):
            return RedisCommand.delete(key)
        fields = {name: value for name, value in zip(names, values, strict=True) if value is not None}
        command = RedisCommand.hset(key, fields, self._ttl_ms)
        if len(fields) == len(names):
            return command
        return command.then(RedisCommand.hdel(key, *[name for name in names if name not in fields]))


@dataclass(frozen=True, slots=True)
class KeysSplit:
    """Some keys of a table, read up to `position`."""

    keys: tuple[bytes, ...]
    position: int = 0


class RedisHashSource(connector.Source[Any, KeysSplit]):
    """Reads the rows of a table once, as columns (G8: a position is one in a list of keys)."""

    boundedness = connector.Boundedness.BOUNDED

    def __init__(self, table: HashTable) -> None:
        self.table = table

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[KeysSplit], restored: Any | None
    ) -> connector.SplitEnumerator[KeysSplit]:
        """See `Source`."""
        return DiscoveredSplits(context, self.find_splits, restored)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[Any, KeysSplit]:
        """See `Source`."""
        return _RowsReader(self.table, context)

    def find_splits(self) -> list[KeysSplit]:
        """Return all keys in splits."""
        connections = RedisConnections(self.table.address, "redis")
        try:
            keys = sorted(set(_scan(connections, self.table.prefix)))
        finally:
            connections.close()
        return [KeysSplit(tuple(keys[at : at + KEYS_PER_SPLIT])) for at in range(0, len(keys), KEYS_PER_SPLIT)]


def _scan(connections: RedisConnections, prefix: str) -> Iterator[bytes]:
    """Yield the keys with a prefix; the server may name one several times."""
    pattern = "".join(f"\\{character}" if character in "*?[]^\\" else character for character in prefix) + "*"
    cursor: Any = 0
    while True:
        ((cursor, keys),) = _ask(connections, [("SCAN", cursor, "MATCH", pattern, "COUNT", 1_000)], 3)
        yield from keys
        if int(cursor) == 0:
            return


class _RowsReader(PositionedReader[KeysSplit]):
    def __init__(self, table: HashTable, context: connector.SourceReaderContext) -> None:
        super().__init__(context)
        self._table = table
        self._connections = RedisConnections(table.address, "redis")

    def read(self, split: KeysSplit, max_records: int) -> tuple[ColumnBatch, KeysSplit] | None:
        """See `PositionedReader`."""
        while split.position < len(split.keys):
            keys = split.keys[split.position : split.position + min(max_records, KEYS_AT_ONCE)]
            rows, _ = self._table.read_rows(self._connections, keys, 3)
            split = replace(split, position=split.position + len(keys))
            if rows.num_rows:
                return ColumnBatch(rows, None, None), split
        return None

    def close(self) -> None:
        """Close the connection."""
        self._connections.close()


class RedisLookupReader(LookupReader):
    """Finds rows by primary key, with one pipeline for the keys of a batch."""

    def __init__(self, table: HashTable, order: tuple[int, ...], retries: int) -> None:
        self._table = table
        self._order = order
        self._retries = retries
        self._connections = RedisConnections(table.address, "redis")

    def lookup(self, keys: pa.RecordBatch) -> LookedUp:
        """See `LookupReader`."""
        formatted = dict(zip(self._order, self._table.format_columns(keys.columns, self._order), strict=True))
        built = self._table.build_keys([formatted[position] for position in self._table.key])
        numbers = [number for number, key in enumerate(built) if key is not None]
        wanted = [key for key in built if key is not None]
        rows, present = self._table.read_rows(self._connections, wanted, self._retries)
        return LookedUp(rows, pa.array([numbers[index] for index in present], pa.int64()))

    def close(self) -> None:
        """Close the connection."""
        self._connections.close()


def _text(key: str, description: str) -> ConfigOption[str | None]:
    return ConfigOptions.key(key).string_type().no_default_value().with_description(description)


def _number(key: str, default: int, description: str) -> ConfigOption[int]:
    return ConfigOptions.key(key).int_type().default_value(default).with_description(description)


URL: Final = _text(
    "url",
    "`redis://HOST:PORT/DATABASE`; `rediss://…` with TLS, `unix://…` for a socket. Its query may have parameters of "
    "redis-py's connections, such as `ssl_ca_certs` and `socket_timeout`.",
)
PREFIX: Final = _text("key-prefix", "The beginning of the keys of all rows, such as `orders:`.")
USERNAME: Final = _text("username", "The user name, if it is not in the URL.")
PASSWORD: Final = _text("password", "The password, if it is not in the URL.")
TTL: Final = (
    ConfigOptions.key("ttl")
    .duration_type()
    .no_default_value()
    .with_description("How long a row is kept after it was last written; without it, rows do not expire.")
)
BATCH_SIZE: Final = _number("sink.batch.max-size", SETTINGS.max_batch_size, "The maximum number of rows in a pipeline.")
BATCH_BYTES: Final = _number(
    "sink.flush-buffer.size", SETTINGS.max_batch_size_in_bytes, "The maximum size of a pipeline in bytes."
)
FLUSH_MS: Final = (
    ConfigOptions.key("sink.flush-buffer.timeout")
    .duration_type()
    .default_value(SETTINGS.max_time_in_buffer_ms)
    .with_description("The maximum time that rows wait for others.")
)
IN_FLIGHT: Final = _number(
    "sink.requests.max-inflight", SETTINGS.max_in_flight_requests, "The maximum number of pipelines at the same time."
)
BUFFERED: Final = _number(
    "sink.requests.max-buffered", SETTINGS.max_buffered_requests, "The number of waiting rows that stops the input."
)
ATTEMPTS: Final = _number("sink.max-attempts", SETTINGS.max_attempts, "How often a row is sent before the job fails.")


class RedisConnector(TableConnector):
    """See the module docstring."""

    name = "redis"
    required_options = (URL, PREFIX)
    optional_options = (
        USERNAME,
        PASSWORD,
        *LOOKUP_OPTIONS,
        TTL,
        BATCH_SIZE,
        BATCH_BYTES,
        FLUSH_MS,
        IN_FLIGHT,
        BUFFERED,
        ATTEMPTS,
    )

    def reader(self, scan: Scan, options: TableOptions) -> TableReader:
        """Return the reader; raise `ValidationError` for a table without a primary key."""
        return TableReader(RedisHashSource(build_table(scan.schema, scan.key, options)), key=scan.key)

    def lookup(self, scan: Scan, key: Sequence[int], options: TableOptions) -> TableLookup:
        """Return the lookup; raise `ValidationError` unless the keys are the primary key."""
        table = build_table(scan.schema, scan.key, options)
        if sorted(key) != sorted(table.key):
            named = ", ".join(table.names[position] for position in table.key)
            raise ValidationError(
                f"rows of table {options.title} are found by their whole primary key, ({named}): join on these "
                "columns, or set 'lookup.cache' = 'FULL'"
            )
        # With this option the join itself retries.
        retries = 0 if "lookup.max-retries" in options else 3
        return TableLookup(tuple(key), partial(RedisLookupReader, table, tuple(key), retries))

    def writer(self, write: Write, options: TableOptions) -> TableWriter:
        """Return the writer, which upserts by primary key."""
        if write.overwrites:
            raise UnsupportedError(
                f"INSERT OVERWRITE into table {options.title} is not supported: remove its keys first"
            )
        table = build_table(write.schema, write.key, options)
        try:
            settings = replace(
                SETTINGS,
                max_batch_size=options.read(BATCH_SIZE),
                max_batch_size_in_bytes=options.read(BATCH_BYTES),
                max_time_in_buffer_ms=options.read(FLUSH_MS),
                max_in_flight_requests=options.read(IN_FLIGHT),
                max_buffered_requests=options.read(BUFFERED),
                max_attempts=options.read(ATTEMPTS),
            )
        except WrongValueError as error:
            raise ValidationError(f"Invalid options of table {options.title}: {error}") from error
        sink = RedisTableSink(table, options.read(TTL), settings)
        return TableWriter(sink, ALL, wants_before=False, takes_columns=True, deletes_by_key=True)


def build_table(schema: RowSchema, key: Sequence[int], options: TableOptions) -> HashTable:
    """Return how rows are stored. Raises `ValidationError` and `UnsupportedError` for tables that cannot be."""
    load_library("connector 'redis'")
    if not key:
        raise ValidationError(
            f"table {options.title} declares no PRIMARY KEY, which the keys in Redis are made of: add "
            "PRIMARY KEY (…) NOT ENFORCED"
        )
    check_types(schema, range(len(schema)), "a field of a hash", options)
    if not options.required(PREFIX):
        raise options.wrong(PREFIX.key(), "it is empty, and all keys of the database would be rows of the table")
    return HashTable(
        read_address(options),
        options.title,
        options.required(PREFIX),
        tuple(schema.names),
        tuple(schema.types),
        tuple(key),
    )


def check_types(schema: RowSchema, positions: Iterable[int], holder: str, options: TableOptions) -> None:
    """Raise `UnsupportedError` for columns of types that are not stored as text."""
    for column in (schema[position] for position in positions):
        if not isinstance(column.type, _PLAIN):
            raise UnsupportedError(
                f"column '{column.name}' of table {options.title} is {column.type}, which {holder} does not "
                "hold: declare it as STRING, and take it apart by functions of JSON"
            )


def read_address(options: TableOptions) -> RedisAddress:
    """Return the address of the server. Raises `ValidationError` for a wrong URL."""
    url, user, password = options.required(URL), options.read(USERNAME), options.read(PASSWORD)
    if user or password:
        parts = urlsplit(url)
        if "@" in parts.netloc:
            raise options.wrong(URL.key(), "it has a user, and so do username or password: give one of them")
        account = f"{quote(user or '', safe='')}:{quote(password or '', safe='')}@"
        url = urlunsplit(parts._replace(netloc=account + parts.netloc))
    try:
        return RedisAddress(url)
    except ConfigurationError as error:
        raise options.wrong(URL.key(), str(error)) from error
