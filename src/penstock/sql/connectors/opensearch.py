"""`opensearch` and `elasticsearch-7`: tables as documents of an index, with the options of Flink's connectors.

A table without a primary key appends documents. With one, the key is the id of a document, which inserts and updates
write as a whole, and deletes remove. `sink.write-mode` = `merge` replaces the columns only, as Flink's connector does,
and keeps the other fields of a document.

**Indexes of rows.** `index` may hold `{column}`, `{column|pattern}` and `{now()|pattern}`. If the index depends on
columns outside the key, an update that moves a row to another index deletes the document in the former one.

**Versions.** `sink.version.column` gives documents external versions; see `penstock.connectors.opensearch`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from functools import partial
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa

from penstock.base.config_options import POSITIVE, ConfigOption, ConfigOptions, choice
from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.codecs.column_data import ColumnData
from penstock.connectors.async_sink.request_buffer import AsyncSinkSettings
from penstock.connectors.async_sink.sink import AsyncSinkWriter
from penstock.connectors.opensearch import (
    BulkAction,
    BulkSink,
    FailureHandler,
    FlushBackoffType,
    Service,
    bulk_settings,
)
from penstock.runtime.connector import SinkWriter, SinkWriterContext
from penstock.sql.connectors import opensearch_reading as reading
from penstock.sql.connectors.jdbc import LOOKUP_OPTIONS
from penstock.sql.data import types
from penstock.sql.data.arrow import columns_of_changes, to_values
from penstock.sql.data.datetimes import DAY_NS, format_date, format_time, format_timestamp
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.datetime_format import formatting, patterns
from penstock.sql.formats.format import Formats, MessageEncoder
from penstock.sql.functions.casts import cast_kernel
from penstock.sql.functions.definition import Session
from penstock.sql.logical.nodes import ALL, DELETE, INSERTS, UPDATE_BEFORE, PlanColumn, RowSchema, Scan, Write
from penstock.sql.tables.connector import TableConnector, TableLookup, TableOptions
from penstock.sql.tables.tables import TableWriter

_TEXT: Final = types.VarCharType(types.LENGTH_MAX)
_DATES: Final = (types.DateType, types.TimeType, types.TimestampType, types.LocalZonedTimestampType)
_NO_KEYS: Final = (
    types.ArrayType,
    types.MapType,
    types.MultisetType,
    types.RowType,
    types.RawType,
    types.VariantType,
    types.BinaryType,
    types.VarBinaryType,
)
_MS_NS: Final = 1_000_000
_NANOSECOND_DIGITS: Final = 9

TextOf = Callable[[Any], str]


def _short_time(text: str) -> str:
    """Return a text that ends in a time as Java writes it: without `:00` at its end, and with 3, 6 or 9 digits."""
    clock, _, fraction = text.partition(".")
    digits = fraction.rstrip("0")
    if digits:
        return f"{clock}.{fraction[: -(-len(digits) // 3) * 3]}"
    return clock.removesuffix(":00") if clock.count(":") > 1 else clock


def _show_as_java(kind: DataType) -> TextOf | None:
    """Return how Java shows values of a type; None if that is as casts to STRING do."""
    match kind:
        case types.BooleanType():
            return lambda value: str(value).lower()
        case types.DateType():
            return format_date
        case types.TimeType():
            return lambda value: _short_time(format_time(value * _MS_NS, _NANOSECOND_DIGITS))
        case types.TimestampType() | types.LocalZonedTimestampType():
            return lambda value: _short_time(format_timestamp(value, _NANOSECOND_DIGITS).replace(" ", "T"))
        case _:
            return None


def show_values(column: pa.Array, kind: DataType) -> list[str]:
    """Return the texts of values in ids and names of indexes; `null` for NULL."""
    show = _show_as_java(kind)
    if show is not None:
        return ["null" if value is None else show(value) for value in to_values(column, kind)]
    if isinstance(kind, types.IntegralType):
        numbers: list[int | None] = column.to_pylist()
        return ["null" if number is None else str(number) for number in numbers]
    texts: list[str | None] = cast(Any, cast_kernel(kind, _TEXT, Session())(column)).to_pylist()
    return ["null" if text is None else text for text in texts]


@dataclass(frozen=True, slots=True)
class IndexPart:
    """A part of the name of an index that depends on the row or the time.

    Attributes:
        column: the position of the column; None for the time.
        kind: the type of the column, or of the time.
        pattern: how a date or a time is shown; None to show it as in ids.
    """

    column: int | None
    kind: DataType
    pattern: str | None

    def texts(self, columns: pa.RecordBatch, now_ms: int, zone: tzinfo) -> list[str]:
        """Return the text for each row."""
        if self.column is None:
            now = pa.array([now_ms], pa.int64()).view(pa.timestamp("ms"))
            return self._format(now, zone) * int(columns.num_rows)
        column = columns.column(self.column)
        return show_values(column, self.kind) if self.pattern is None else self._format(column, zone)

    def _format(self, column: pa.Array, zone: tzinfo) -> list[str]:
        assert self.pattern is not None
        kind = self.kind
        if isinstance(kind, types.LocalZonedTimestampType):
            local: DataType = types.TimestampType(kind.precision)
            shown: Any = cast_kernel(kind, local, Session(zone))(column)
            column, kind = shown, local
        values = to_values(column, kind)
        if None in values:
            raise TableRuntimeError("a row has NULL in a column that names its index by a date")
        unit = DAY_NS if isinstance(kind, types.DateType) else _MS_NS if isinstance(kind, types.TimeType) else 1
        days, nanos = zip(*(divmod(value * unit, DAY_NS) for value in values), strict=True)
        moments = formatting.Shown(np.array(days, np.int64), np.array(nanos, np.int64))
        texts = formatting.formatter(self.pattern, patterns.Dialect.MODERN)(moments).to_pylist()
        return [str(text) for text in texts]


_PART: Final = re.compile(r"\{([^{}|]*)(?:\|([^{}]*))?\}")
_NOW: Final = re.compile(r"(?i:now)\(\s*\)|(?i:current_timestamp)")
_PATTERNS: Final = {
    types.DateType: "yyyy_MM_dd",
    types.TimeType: "HH_mm_ss",
    types.TimestampType: "yyyy_MM_dd_HH_mm_ss",
    types.LocalZonedTimestampType: "yyyy_MM_dd_HH_mm_ss",
}


@dataclass(frozen=True, slots=True)
class IndexName:
    """The names of rows' indexes: texts, and between them the parts that vary.

    Raises:
        ValidationError: if a part names no column, or has a pattern for a column of a type other than dates and times.
    """

    texts: tuple[str, ...]
    parts: tuple[IndexPart, ...]
    zone: tzinfo = UTC

    @staticmethod
    def parse(text: str, schema: RowSchema, options: TableOptions) -> IndexName:
        """Return the names that an option describes."""
        fixed, parts, end = [], [], 0
        for match in _PART.finditer(text):
            fixed.append(text[end : match.start()])
            parts.append(_index_part(match[1].strip(), match[2], schema, options))
            end = match.end()
        return IndexName((*fixed, text[end:]), tuple(parts), options.zone)

    @property
    def has_time(self) -> bool:
        """Whether names depend on the time."""
        return any(part.column is None for part in self.parts)

    def columns(self) -> set[int]:
        """Return the positions of the columns on which names depend."""
        return {part.column for part in self.parts if part.column is not None}

    def names(self, columns: pa.RecordBatch, now_ms: int) -> list[str]:
        """Return the name for each row."""
        if not self.parts:
            return [self.texts[0]] * columns.num_rows
        shown = [part.texts(columns, now_ms, self.zone) for part in self.parts]
        first, *more = self.texts
        return [
            first + "".join(value + text for value, text in zip(row, more, strict=True))
            for row in zip(*shown, strict=True)
        ]


def _index_part(name: str, pattern: str | None, schema: RowSchema, options: TableOptions) -> IndexPart:
    if _NOW.fullmatch(name):
        now = types.LocalZonedTimestampType(3)
        return IndexPart(None, now, pattern or _PATTERNS[types.LocalZonedTimestampType])
    if name not in schema.names:
        raise options.wrong(INDEX.key(), f"there is no column '{name}'")
    column = schema.names.index(name)
    kind = schema[column].type
    if pattern is None:
        if isinstance(kind, _NO_KEYS):
            raise options.wrong(INDEX.key(), f"column '{name}' is {kind}, which has no text for the name of an index")
        return IndexPart(column, kind, None)
    if not isinstance(kind, _DATES):
        raise options.wrong(INDEX.key(), f"column '{name}' is {kind}, and only dates and times have a pattern")
    try:
        formatting.formatter(pattern or _PATTERNS[type(kind)], patterns.Dialect.MODERN)
    except TableRuntimeError as error:
        raise options.wrong(INDEX.key(), str(error)) from error
    return IndexPart(column, kind, pattern or _PATTERNS[type(kind)])


@dataclass(frozen=True, slots=True)
class Documents:
    """How rows become actions.

    Attributes:
        schema: the columns.
        key: the positions of the primary key columns; empty if documents are appended.
        delimiter: what separates the columns of an id.
        index: the names of indexes.
        version: the position of the column with the external version.
        merges: whether a document keeps its other fields.
        encoder: makes documents of rows.
    """

    schema: RowSchema
    key: tuple[int, ...]
    delimiter: str
    index: IndexName
    version: int | None
    merges: bool
    encoder: MessageEncoder

    def actions(self, columns: pa.RecordBatch, kinds: bytes | None, now_ms: int) -> list[BulkAction]:
        """Return the actions for changes; of several on a document without a version the last one."""
        indexes = self.index.names(columns, now_ms)
        if not self.key:
            documents = self.encoder.encode(columns)
            return [BulkAction.write(*each) for each in zip(indexes, [None] * len(indexes), documents, strict=True)]
        ids, versions = self._ids(columns), self._versions(columns)
        if versions is None:
            last = dict(zip(zip(indexes, ids, strict=True), range(len(ids)), strict=True))
            rows: Sequence[int] = sorted(last.values()) if len(last) < len(ids) else range(len(ids))
        else:
            rows = range(len(ids))
        gone = {row for row in rows if kinds is not None and kinds[row] in (DELETE, UPDATE_BEFORE)}
        written = [row for row in rows if row not in gone]
        is_whole = len(written) == columns.num_rows
        documents = self.encoder.encode(columns if is_whole else columns.take(pa.array(written, pa.int64())))
        of_rows = dict(zip(written, documents, strict=True))
        write = self._merge if self.merges else BulkAction.write
        return [
            BulkAction.delete(indexes[row], ids[row], None if versions is None else versions[row])
            if row in gone
            else write(indexes[row], ids[row], of_rows[row], None if versions is None else versions[row])
            for row in rows
        ]

    def _merge(self, index: str, id: str, document: bytes, version: int | None) -> BulkAction:
        return BulkAction.merge(index, id, document)

    def _ids(self, columns: pa.RecordBatch) -> list[str]:
        return _build_ids(self.key, [self.schema[index].type for index in self.key], self.delimiter, columns.columns)

    def _versions(self, columns: pa.RecordBatch) -> list[int] | None:
        if self.version is None:
            return None
        column = columns.column(self.version)
        if pa.types.is_timestamp(column.type):
            column = column.view(pa.int64())
        versions: list[int | None] = column.to_pylist()
        for version in versions:
            if version is None or version < 0:
                name = self.schema[self.version].name
                raise TableRuntimeError(
                    f"column '{name}' has {'NULL' if version is None else version}, which is no version of a document: "
                    "versions are 0 or above"
                )
        return versions  # type: ignore[return-value]


def _build_ids(
    positions: Sequence[int], kinds: Sequence[DataType], delimiter: str, columns: Sequence[Any]
) -> list[str]:
    """Return the ids of documents, given columns; `places` says which ones are the primary key."""
    parts = [show_values(columns[position], kind) for position, kind in zip(positions, kinds, strict=True)]
    return parts[0] if len(parts) == 1 else list(map(delimiter.join, zip(*parts, strict=True)))


class OpensearchTableSink(BulkSink):
    """Accepts rows as (kind, internal values), or columns.

    Args:
        service: the service.
        settings: the limits.
        failures: what happens to actions that the service rejects or refuses.
        documents: makes actions of rows.
    """

    def __init__(
        self, service: Service, settings: AsyncSinkSettings, failures: FailureHandler, documents: Documents
    ) -> None:
        super().__init__(service, settings, failures)
        self.documents = documents

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, Any]:
        """See `Sink`."""
        return _TableWriter(self, context)


class _TableWriter(AsyncSinkWriter[Any]):
    """Makes actions of columns."""

    def __init__(self, sink: OpensearchTableSink, context: SinkWriterContext) -> None:
        super().__init__(sink, context)
        self._documents = sink.documents

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """See `SinkWriter`."""
        if values:
            schema = self._documents.schema
            self._write(*columns_of_changes(values, schema.names, schema.types))

    def write_columns(self, data: ColumnData, rowtimes: Any) -> None:
        """See `SinkWriter`."""
        self._write(data.columns, None)

    def write_changes(self, data: ColumnData, kinds: bytes, rowtimes: Any) -> None:
        """See `SinkWriter`."""
        self._write(data.columns, kinds)

    def _write(self, columns: pa.RecordBatch, kinds: bytes | None) -> None:
        if columns.num_rows:
            self.add_entries(self._documents.actions(columns, kinds, self._context.now_ms()))


def _text(key: str, description: str) -> ConfigOption[str | None]:
    return ConfigOptions.key(key).string_type().no_default_value().with_description(description)


def _number(key: str, default: int, description: str) -> ConfigOption[int]:
    return ConfigOptions.key(key).int_type().default_value(default).with_description(description)


def _time(key: str, default: int, description: str) -> ConfigOption[int]:
    return ConfigOptions.key(key).duration_type().default_value(default).with_description(description)


def _word(key: str, default: str, words: Sequence[str], description: str) -> ConfigOption[str]:
    return ConfigOption(key, choice(*words), default).with_description(description)


HOSTS: Final = _text("hosts", "The URLs of the nodes, separated by `;`, such as `https://search-1:9200`.")
INDEX: Final = _text(
    "index", "The name of the index; it may contain `{column}`, `{column|pattern}`, `{now()|pattern}`."
)
DELIMITER: Final = (
    ConfigOptions.key("document-id.key-delimiter")
    .string_type()
    .default_value("_")
    .with_description("What separates the columns of the primary key in the id of a document.")
)
USERNAME: Final = _text("username", "The user name.")
PASSWORD: Final = _text("password", "The password.")
FAILURES: Final = _word(
    "failure-handler",
    "fail",
    ("fail", "ignore", "retry-rejected"),
    "`ignore` leaves rejected documents out, with a warning; `retry-rejected` sends refused ones without a limit.",
)
GUARANTEE: Final = _word(
    "sink.delivery-guarantee",
    "at-least-once",
    ("at-least-once", "none"),
    "A checkpoint waits for earlier documents in any case.",
)
ON_CHECKPOINT: Final = (
    ConfigOptions.key("sink.flush-on-checkpoint")
    .boolean_type()
    .default_value(True)
    .with_description("A checkpoint waits for earlier documents in any case.")
)
ACTIONS: Final = _number(
    "sink.bulk-flush.max-actions", 1_000, "The maximum number of actions in a request; `0` for no limit."
)
SIZE: Final = (
    ConfigOptions.key("sink.bulk-flush.max-size")
    .memory_type()
    .default_value(2 << 20)
    .with_description("The maximum size of a request; `0` for no limit. A larger document is sent alone.")
)
INTERVAL: Final = _time(
    "sink.bulk-flush.interval",
    1_000,
    "How long an action waits for others; with `0`, until a request is full or a checkpoint is taken.",
)
BACKOFF: Final = _word(
    "sink.bulk-flush.backoff.strategy",
    "EXPONENTIAL",
    ("EXPONENTIAL", "CONSTANT", "DISABLED"),
    "The delays before refused actions are sent again; `DISABLED` fails at once, as Flink does by default.",
)
RETRIES: Final = _number("sink.bulk-flush.backoff.max-retries", 8, "How often an action is sent again at most.")
DELAY: Final = _time(
    "sink.bulk-flush.backoff.delay", 50, "The delay before an action is sent again for the first time."
)
IN_FLIGHT: Final = ConfigOption("sink.requests.max-inflight", POSITIVE, 4).with_description(
    "How many requests of a subtask are sent at the same time."
)
VERSION: Final = _text(
    "sink.version.column",
    "A column of integers or timestamps: a document is only replaced by one of the same or a greater version.",
)
MODE: Final = _word(
    "sink.write-mode",
    "replace",
    ("replace", "merge"),
    "`replace` writes whole documents; `merge` keeps fields of a document that the table does not have, as Flink does, "
    "and is not exact for decimals of more than 15 digits.",
)
PREFIX: Final = _text("connection.path-prefix", "A prefix of the paths of all requests.")
POOL_TIMEOUT: Final = _time(
    "connection.request-timeout", 0, "Has no effect: a request never waits for a connection of a pool."
)
CONNECT_TIMEOUT: Final = _time("connection.timeout", 10_000, "How long it may take to connect.")
SOCKET_TIMEOUT: Final = _time("socket.timeout", 60_000, "How long a response may take.")
FORMAT: Final = _word("format", "json", ("json",), "The format of documents, whose options begin with `json.`.")
OPTIONAL: Final[tuple[ConfigOption[Any], ...]] = (
    DELIMITER,
    USERNAME,
    PASSWORD,
    FAILURES,
    GUARANTEE,
    ON_CHECKPOINT,
    ACTIONS,
    SIZE,
    INTERVAL,
    BACKOFF,
    RETRIES,
    DELAY,
    IN_FLIGHT,
    VERSION,
    MODE,
    *reading.OPTIONS,
    *LOOKUP_OPTIONS,
    PREFIX,
    POOL_TIMEOUT,
    CONNECT_TIMEOUT,
    SOCKET_TIMEOUT,
    FORMAT,
)


class OpensearchConnector(TableConnector):
    """See the module docstring. `formats`: the formats that `format` may name."""

    name = "opensearch"
    required_options = (HOSTS, INDEX)
    optional_options = OPTIONAL

    def __init__(self, formats: Formats) -> None:
        self._formats = formats

    def more_options(self, options: TableOptions, columns: Sequence[str]) -> Iterable[str]:
        """Return the options of the format."""
        return self._formats.option_keys(_with_format(options))

    def readable_metadata(self, options: TableOptions) -> Mapping[str, DataType]:
        """Return what describes a document besides its content."""
        return reading.METADATA

    def scan(self, scan: Scan, options: TableOptions) -> reading.DocumentScan:
        """Return the scan. Raises `UnsupportedError` for an index whose name depends on the rows."""
        index = options.required(INDEX)
        if _PART.search(index):
            raise UnsupportedError(
                f"table {options.title} cannot be read, since the name of its index depends on the rows: declare "
                f"another table with the indexes to read, such as '{_PART.sub('*', index)}'"
            )
        table_format, below = self._formats.find(_with_format(options))
        return reading.build_scan(scan, read_service(options), index, table_format, below, options)

    def lookup(self, scan: Scan, key: Sequence[int], options: TableOptions) -> TableLookup:
        """Return the look-up: by ids if the keys have the whole primary key, otherwise by fields."""
        to_ids = None
        if scan.key and set(scan.key) <= set(key):
            kinds = [scan.schema[position].type for position in scan.key]
            _check_key_types(kinds, options)
            positions = [list(key).index(position) for position in scan.key]
            to_ids = partial(_build_ids, positions, kinds, options.read(DELIMITER))
        return reading.build_lookup(self.scan(scan, options), key, to_ids)

    def writer(self, write: Write, options: TableOptions) -> TableWriter:
        """Return a writer, which writes by primary key if the table declares one."""
        if write.overwrites:
            raise UnsupportedError(
                f"INSERT OVERWRITE into table {options.title} is not supported: delete its documents first"
            )
        documents = self._documents(write, options)
        sink = OpensearchTableSink(
            read_service(options), read_settings(options), _FAILURES[options.read(FAILURES)], documents
        )
        if not write.key or documents.index.has_time:
            # With the time in its name, the index of a row's former document is not known.
            return TableWriter(sink, INSERTS, takes_columns=True)
        is_by_key = documents.index.columns() <= set(write.key)
        return TableWriter(
            sink,
            ALL,
            wants_before=not is_by_key,
            takes_columns=True,
            deletes_by_key=is_by_key and documents.version is None,
        )

    def _documents(self, write: Write, options: TableOptions) -> Documents:
        schema, key = write.schema, tuple(write.key)
        _check_key_types([schema[index].type for index in key], options)
        table_format, below = self._formats.find(_with_format(options))
        encoder = table_format.encoding(schema, below).messages
        assert encoder is not None
        index = IndexName.parse(options.required(INDEX), schema, options)
        version = _version_column(options, schema, bool(key))
        merges = options.read(MODE) == "merge"
        if merges and version is not None:
            raise options.wrong(MODE.key(), f"the service merges no documents with versions ('{VERSION.key()}')")
        return Documents(schema, key, options.read(DELIMITER), index, version, merges, encoder)


class Elasticsearch7Connector(OpensearchConnector):
    """The same for Elasticsearch 7 and newer."""

    name = "elasticsearch-7"


_FAILURES: Final = {
    "fail": FailureHandler.FAIL,
    "ignore": FailureHandler.IGNORE,
    "retry-rejected": FailureHandler.RETRY_REJECTED,
}
_BACKOFFS: Final = {
    "EXPONENTIAL": FlushBackoffType.EXPONENTIAL,
    "CONSTANT": FlushBackoffType.CONSTANT,
    "DISABLED": FlushBackoffType.NONE,
}


def _check_key_types(kinds: Iterable[DataType], options: TableOptions) -> None:
    illegal = [str(kind) for kind in kinds if isinstance(kind, _NO_KEYS)]
    if illegal:
        raise ValidationError(
            f"The table has a primary key on columns of illegal types: {', '.join(illegal)}, which have no text "
            f"for the id of a document: table {options.title}"
        )


def _with_format(options: TableOptions) -> TableOptions:
    return TableOptions(options.title, {FORMAT.key(): options.read(FORMAT), **options}, zone=options.zone)


def read_service(options: TableOptions) -> Service:
    """Return where the service is. Raises `ValidationError` for hosts or a login that are not valid."""
    hosts = [host.strip() for host in options.required(HOSTS).split(";") if host.strip()]
    try:
        return Service(
            tuple(hosts),
            options.read(USERNAME),
            options.read(PASSWORD),
            options.read(PREFIX) or "",
            options.read(SOCKET_TIMEOUT),
            options.read(CONNECT_TIMEOUT),
        )
    except ConfigurationError as error:
        raise options.wrong(HOSTS.key(), str(error)) from error


def read_settings(options: TableOptions) -> AsyncSinkSettings:
    """Return the limits of the sink."""
    for option in (ACTIONS, RETRIES):
        if options.read(option) < 0:
            raise options.wrong(option.key(), f"it must be 0 or above, not {options.read(option)}")
    return bulk_settings(
        options.read(ACTIONS),
        options.read(SIZE),
        options.read(INTERVAL),
        _BACKOFFS[options.read(BACKOFF)],
        options.read(RETRIES),
        options.read(DELAY),
        options.read(IN_FLIGHT),
        options.read(SOCKET_TIMEOUT),
    )


def _version_column(options: TableOptions, schema: RowSchema, has_key: bool) -> int | None:
    name = options.read(VERSION)
    if name is None:
        return None
    if name not in schema.names:
        raise options.wrong(VERSION.key(), f"there is no column '{name}'")
    if not has_key:
        raise options.wrong(VERSION.key(), "only a table with a primary key has versions of a document")
    column: PlanColumn = schema[schema.names.index(name)]
    if not isinstance(column.type, types.IntegralType | types.TimestampType | types.LocalZonedTimestampType):
        raise options.wrong(VERSION.key(), f"column '{name}' is {column.type}, and not an integer or a timestamp")
    return schema.names.index(name)
