"""JSON changelogs: `debezium-json`, `canal-json`, `maxwell-json` and `ogg-json`, with Flink's options.

**Changelog messages.** A message describes the changes of some rows. An update message contains the previous and the
new row and is read as two changes: -U and +U. As in Flink, only inserts and deletes are written: an update becomes one
of each. A message is parsed only down to its rows, which stay bytes; the `json` decoder then turns all rows of all
messages into columns at once.

**Formats.** `DebeziumJsonFormat` reads and writes Debezium's change messages of a database, `CanalJsonFormat` Canal's
and `MaxwellJsonFormat` Maxwell's of a MySQL database, and `OggJsonFormat` Oracle GoldenGate's of a database.
"""

from __future__ import annotations

import itertools
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple, Protocol

import msgspec
import pyarrow as pa

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.errors import FormatError
from penstock.codecs.column_data import ColumnData
from penstock.codecs.json_values import check_utf8, normalize_message
from penstock.codecs.serialization import BAD_RECORD, BadMessage, Deserialized, format_reason
from penstock.sql.data import types
from penstock.sql.data.arrow import arrow_type, to_column
from penstock.sql.data.types import DataType
from penstock.sql.formats import format
from penstock.sql.formats.json import CHANGELOG_OPTIONS, JsonMessageDecoder, JsonMessageEncoder, json_rules, switch
from penstock.sql.formats.json_columns import JsonRules, value_reader
from penstock.sql.logical.nodes import ALL, DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, PlanColumn, RowSchema
from penstock.sql.tables.connector import TableOptions


class Change(NamedTuple):
    """One change in a message: its kind, and the row in the form that the row decoder expects."""

    kind: int
    row: Any


class Told(NamedTuple):
    """The content of a message: its changes in order, and the internal values of METADATA columns."""

    changes: Sequence[Change]
    metadata: Sequence[Any] = ()


class RowDecoder(Protocol):
    """Turns the rows in messages into columns. A decoder of messages that are plain rows also qualifies."""

    def decode(self, messages: Sequence[Any], /) -> Deserialized:
        """Return the valid rows as `ColumnData`, and the invalid ones."""
        ...


class Envelope(ABC):
    """The envelope around the rows in changelog messages. It is pickled with the job."""

    @abstractmethod
    def told(self, message: bytes) -> Told | None:
        """Return the content of a message; None if there are no changes.

        Raises one of `BAD_RECORD` if it is invalid.
        """


def changed(before: Any, after: Any) -> list[Change]:
    """Return the changes of an update."""
    return [Change(UPDATE_BEFORE, before), Change(UPDATE_AFTER, after)]


def inserted(row: Any) -> Change:
    """Return the change for a new row."""
    return Change(INSERT, row)


def deleted(row: Any) -> Change:
    """Return the change for a deleted row."""
    return Change(DELETE, row)


def without_before(what: str, of: str = "Debezium PostgreSQL connector") -> FormatError:
    """Return the error for an update or deletion without the previous row."""
    return FormatError(
        f'the "before" field of {what} message is null. If the {of} wrote it, the table must be set to '
        "REPLICA IDENTITY FULL, so that the message has the row as it was"
    )


class ChangelogDecoder(format.MessageDecoder):
    """Reads changelog messages.

    Args:
        envelope: extracts the rows from messages.
        rows: turns them into columns.
        metadata: METADATA columns, which follow the others, and the types of their values in messages.
        order: the columns to return, as indices into the row columns followed by metadata; None for all in this order.
    """

    def __init__(
        self,
        envelope: Envelope,
        rows: RowDecoder,
        metadata: Sequence[tuple[PlanColumn, DataType]] = (),
        order: Sequence[int] | None = None,
    ) -> None:
        self._envelope = envelope
        self._rows = rows
        self._metadata = tuple(metadata)
        self._order = order

    def decode(self, messages: Sequence[bytes]) -> Deserialized:
        """See `MessageDecoder`."""
        bad: list[BadMessage] = []
        rows: list[Any] = []
        kinds: list[int] = []
        positions: list[int] = []
        metadata: dict[int, Sequence[Any]] = {}
        for message_index, message in enumerate(messages):
            try:
                event = self._envelope.told(message)
            except BAD_RECORD as error:
                bad.append(BadMessage(message_index, format_reason(error), error))
                continue
            if event is not None:
                metadata[message_index] = event.metadata
                for kind, row in event.changes:
                    kinds.append(kind)
                    rows.append(row)
                    positions.append(message_index)
        decoded = self._rows.decode(rows)
        columns = decoded.columns
        if decoded.bad:
            wrong = {positions[bad_row.place]: bad_row for bad_row in reversed(decoded.bad)}
            bad = sorted([*bad, *(bad_row._replace(place=position) for position, bad_row in wrong.items())])
            # If one half of an update is bad, skip both.
            remaining = [index for index, position in enumerate(positions) if position not in wrong]
            read = {index: at for at, index in enumerate(decoded.of_records(range(len(rows))))}
            columns = columns.take(pa.array([read[index] for index in remaining], pa.int64()))
            kinds, positions = [kinds[index] for index in remaining], [positions[index] for index in remaining]
        columns = self._with_metadata(columns, [metadata[position] for position in positions])
        return Deserialized(ColumnData(columns), positions, bad, bytes(kinds) if any(kinds) else None)

    def _with_metadata(self, columns: pa.RecordBatch, values: Sequence[Sequence[Any]]) -> pa.RecordBatch:
        if not self._metadata:
            return columns
        arrays = [
            to_column([of_row[index] for of_row in values], kind).cast(arrow_type(column.type))
            for index, (column, kind) in enumerate(self._metadata)
        ]
        names = [*columns.schema.names, *(column.name for column, _ in self._metadata)]
        batch = pa.RecordBatch.from_arrays([*columns.columns, *arrays], names)
        return batch if self._order is None else batch.select(list(self._order))


class ChangelogEncoder(format.MessageEncoder):
    """Writes changes.

    Args:
        rows: writes rows.
        came: the message for an inserted row, with %s in place of the row.
        went: the message for a deleted row.
    """

    def __init__(self, rows: format.MessageEncoder, came: bytes, went: bytes) -> None:
        self._rows = rows
        self._came = came
        self._went = went

    def encode(self, columns: pa.RecordBatch) -> list[bytes]:
        """See `MessageEncoder`."""
        came = self._came
        return [came % row for row in self._rows.encode(columns)]

    def encode_changes(self, columns: pa.RecordBatch, kinds: bytes) -> list[bytes]:
        """See `MessageEncoder`."""
        rows = self._rows.encode(columns)
        forms = [self._came if kind in (INSERT, UPDATE_AFTER) else self._went for kind in kinds]
        return [form % row for form, row in zip(forms, rows, strict=True)]


def changelog_decoding(decoder: format.MessageDecoder, ignores_errors: bool) -> format.Decoding:
    """Return the decoding of a changelog. One reader reads a whole file, because its lines are in order."""
    files = format.LinesFormat(decoder, skips_empty=True, skips_bad=ignores_errors, splittable=False)
    return format.Decoding(files, decoder, ignores_errors, changes=ALL)


def changelog_encoding(encoder: format.MessageEncoder, schema: RowSchema) -> format.Encoding:
    """Return the encoding of a changelog, also into files."""
    return format.Encoding(format.LinesWriterFactory(encoder, schema), encoder, accepts=ALL)


#: the value of a field that is null or missing
NOTHING: Final = msgspec.Raw(b"null")
_MILLISECOND_NS: Final = 1_000_000
_TEXT: Final = types.VarCharType(types.LENGTH_MAX)


class Known(NamedTuple):
    """A METADATA column of a format: its type, its path in a message, and the conversion to an internal value."""

    type: DataType
    path: tuple[str, ...]
    held: Callable[[Any], Any]


def text_field(*path: str) -> Known:
    """Return a string column."""
    return Known(_TEXT, path, str)


def texts_field(*path: str) -> Known:
    """Return a column of string arrays."""
    return Known(
        types.ArrayType(_TEXT), path, lambda value: [None if element is None else str(element) for element in value]
    )


def milliseconds_field(*path: str) -> Known:
    """Return a TIMESTAMP_LTZ column, given in milliseconds since 1970."""
    return Known(types.LocalZonedTimestampType(3), path, lambda value: int(value) * _MILLISECOND_NS)


def timestamp_field(*path: str) -> Known:
    """Return a TIMESTAMP_LTZ column, given as text in UTC."""
    read = value_reader(types.TimestampType(6), JsonRules(), "metadata")
    return Known(types.LocalZonedTimestampType(6), path, lambda value: read(value.replace("T", " ").removesuffix("Z")))


def map_field(of: DataType, convert: Callable[[Any], Any], *path: str) -> Known:
    """Return a column of maps with string keys."""
    return Known(
        types.MapType(_TEXT, of),
        path,
        lambda value: [(name, None if item is None else convert(item)) for name, item in value.items()],
    )


class JsonEnvelope(Envelope):
    """The envelope of JSON changelog messages.

    Args:
        keys: the METADATA columns to read.
        settings: further options, for formats that have them.
    """

    #: parses a message down to its rows
    decoder: msgspec.json.Decoder[Any]
    #: the available METADATA columns
    known: ClassVar[Mapping[str, Known]] = {}

    def __init__(self, keys: Sequence[str] = (), settings: Any = None) -> None:
        self._parts = tuple(keys), settings
        self._wanted = [self.known[key] for key in keys]
        self.settings = settings

    @abstractmethod
    def changes(self, message: Any) -> Sequence[Change] | None:
        """Return the changes in a message parsed by `decoder`; None if it describes no row changes."""

    def told(self, message: bytes) -> Told | None:
        """See `Envelope`. An empty or null message is a tombstone: earlier messages of its key are no longer needed."""
        message, parsed = self._parse(message) if message else (message, None)
        changes = None if parsed is None else self.changes(parsed)
        if changes is None:
            return None
        return Told(changes, self._metadata(msgspec.json.decode(message)) if self._wanted else ())

    def _parse(self, message: bytes) -> tuple[bytes, Any]:
        """Return the message in a form that msgspec can parse, and the parsed message."""
        check_utf8(message)
        try:
            return message, self.decoder.decode(message)
        except (msgspec.MsgspecError, RecursionError):
            message = normalize_message(message)
        try:
            return message, self.decoder.decode(message)
        except RecursionError as error:
            raise FormatError("JSON is malformed: objects and arrays are nested too deeply") from error

    def where_metadata_is(self, parsed: Any) -> Any:
        """Return the part of a message, as dicts, that contains the METADATA values."""
        return parsed

    def _metadata(self, parsed: Any) -> list[Any]:
        parsed = self.where_metadata_is(parsed)
        values = []
        for field in self._wanted:
            value = parsed
            for name in field.path:
                value = value.get(name) if isinstance(value, dict) else None
            values.append(None if value is None else field.held(value))
        return values

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts


class JsonChangelogFormat(format.TableFormat):
    """Base class of JSON changelog formats. A subclass defines its envelope and its messages."""

    options: ClassVar[tuple[ConfigOption[Any], ...]] = CHANGELOG_OPTIONS
    envelope: ClassVar[type[JsonEnvelope]]
    #: messages for an inserted row and for a deleted row
    came: ClassVar[bytes]
    went: ClassVar[bytes]

    def settings(self, options: TableOptions) -> Any:
        """Return the options that the envelope needs."""
        return None

    def decoding(self, schema: RowSchema, wanted: Sequence[int], options: TableOptions) -> format.Decoding:
        """See `TableFormat`."""
        return self.decoding_with_metadata(schema, wanted, options, {})

    def decoding_with_metadata(
        self, schema: RowSchema, wanted: Sequence[int], options: TableOptions, metadata: Mapping[int, str]
    ) -> format.Decoding:
        """See `TableFormat`."""
        rules = json_rules(options)
        of_rows = [position for position in wanted if position not in metadata]
        of_messages = [position for position in wanted if position in metadata]
        come = [*of_rows, *of_messages]
        decoder = ChangelogDecoder(
            self.envelope([metadata[position] for position in of_messages], self.settings(options)),
            JsonMessageDecoder(RowSchema(tuple(schema[position] for position in of_rows)), rules, takes_arrays=False),
            [(schema[position], self.envelope.known[metadata[position]].type) for position in of_messages],
            None if come == list(wanted) else [come.index(position) for position in wanted],
        )
        return changelog_decoding(decoder, rules.ignores_errors)

    def readable_metadata(self, options: TableOptions) -> Mapping[str, DataType]:
        """See `TableFormat`."""
        return {key: known.type for key, known in self.envelope.known.items()}

    def encoding(self, schema: RowSchema, options: TableOptions) -> format.Encoding:
        """See `TableFormat`."""
        encoder = ChangelogEncoder(JsonMessageEncoder(schema, json_rules(options)), self.came, self.went)
        return changelog_encoding(encoder, schema)


def given(row: msgspec.Raw, what: str) -> bytes:
    """Return the bytes of a row. Raises FormatError if it is null."""
    raw = bytes(row)
    if raw == b"null":
        raise FormatError(f"{what} is null")
    return raw


def with_old(row: Mapping[str, msgspec.Raw], old: Mapping[str, msgspec.Raw]) -> bytes:
    """Return the previous row, from the new row and the old values of the changed fields."""
    return msgspec.json.encode({**row, **old})


SCHEMA_INCLUDE: Final = switch(
    "schema-include", "Whether messages include their schema, as Kafka Connect writes them by default."
)


class _Payload(msgspec.Struct, gc=False):
    op: str
    before: msgspec.Raw = NOTHING
    after: msgspec.Raw = NOTHING


class _WithSchema(msgspec.Struct, gc=False):
    payload: _Payload | None


_WITH_SCHEMA: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(_WithSchema | None)


def _property(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class DebeziumEnvelope(JsonEnvelope):
    """Debezium's message envelope. The setting is whether messages include a schema."""

    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_Payload | None)
    known: ClassVar[Mapping[str, Known]] = {
        "schema": text_field("schema"),
        "ingestion-timestamp": milliseconds_field("ts_ms"),
        "source.timestamp": milliseconds_field("source", "ts_ms"),
        "source.database": text_field("source", "db"),
        "source.schema": text_field("source", "schema"),
        "source.table": text_field("source", "table"),
        "source.properties": map_field(_TEXT, _property, "source"),
    }

    def __init__(self, keys: Sequence[str] = (), settings: Any = None) -> None:
        super().__init__(keys, settings)
        if settings:
            self.decoder = _WITH_SCHEMA

    def changes(self, message: _Payload | _WithSchema) -> Sequence[Change] | None:
        """See `JsonEnvelope`."""
        if isinstance(message, _WithSchema):
            return None if message.payload is None else self.changes(message.payload)
        match message.op:
            case "c" | "r":
                return [inserted(given(message.after, f'the "after" field of an INSERT ({message.op!r}) message'))]
            case "u":
                before = _before(message.before, "an UPDATE")
                return changed(before, given(message.after, 'the "after" field of an UPDATE message'))
            case "d":
                return [deleted(_before(message.before, "a DELETE"))]
            case other:
                raise FormatError(f'unknown "op" value {other!r}: it is one of c, r, u and d')

    def where_metadata_is(self, parsed: Any) -> Any:
        """See `JsonEnvelope`. The schema is returned as text."""
        if not self.settings:
            return parsed
        schema = parsed.get("schema")
        text = None if schema is None else msgspec.json.encode(schema).decode()
        return {**parsed["payload"], "schema": text}


def _before(row: msgspec.Raw, kind: str) -> bytes:
    raw = bytes(row)
    if raw == b"null":
        raise without_before(kind)
    return raw


class DebeziumJsonFormat(JsonChangelogFormat):
    """See the module docstring."""

    name = "debezium-json"
    options = (SCHEMA_INCLUDE, *CHANGELOG_OPTIONS)
    envelope = DebeziumEnvelope
    came = b'{"before":null,"after":%s,"op":"c"}'
    went = b'{"before":%s,"after":null,"op":"d"}'

    def settings(self, options: TableOptions) -> Any:
        """Return whether messages include a schema."""
        return options.read(SCHEMA_INCLUDE)

    def encoding(self, schema: RowSchema, options: TableOptions) -> format.Encoding:
        """See `TableFormat`."""
        if options.read(SCHEMA_INCLUDE):
            raise options.wrong(SCHEMA_INCLUDE.key(), "it is for reading alone: rows are written without a schema")
        return super().encoding(schema, options)


DATABASE_INCLUDE: Final = (
    ConfigOptions.key("database.include")
    .string_type()
    .no_default_value()
    .with_description("A regular expression for databases; changes of others are skipped.")
)
TABLE_INCLUDE: Final = (
    ConfigOptions.key("table.include")
    .string_type()
    .no_default_value()
    .with_description("A regular expression for tables; changes of others are skipped.")
)

_Row = dict[str, msgspec.Raw]


class _CanalMessage(msgspec.Struct, gc=False):
    type: str
    data: list[_Row] | None = None
    old: list[_Row | None] | None = None
    database: str | None = None
    table: str | None = None


class CanalEnvelope(JsonEnvelope):
    """Canal's message envelope. The settings are the patterns of databases and tables to read; None for any."""

    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_CanalMessage | None)
    known: ClassVar[Mapping[str, Known]] = {
        "database": text_field("database"),
        "table": text_field("table"),
        "sql-type": map_field(types.IntType(), int, "sqlType"),
        "pk-names": texts_field("pkNames"),
        "ingestion-timestamp": milliseconds_field("ts"),
        "event-timestamp": milliseconds_field("es"),
    }

    def changes(self, message: _CanalMessage) -> Sequence[Change] | None:
        """See `JsonEnvelope`. A message may describe many rows. CREATE concerns a table and is skipped."""
        if not self._counts(message):
            return None
        rows = message.data or []
        match message.type:
            case "INSERT":
                return [inserted(msgspec.json.encode(row)) for row in rows]
            case "DELETE":
                return [deleted(msgspec.json.encode(row)) for row in rows]
            case "UPDATE":
                old = message.old or []
                if len(old) != len(rows):
                    raise FormatError(f'an UPDATE message has {len(rows)} rows in "data" and {len(old)} in "old"')
                updates = zip(rows, old, strict=True)
                pairs = [changed(with_old(row, was or {}), msgspec.json.encode(row)) for row, was in updates]
                return list(itertools.chain.from_iterable(pairs))
            case "CREATE":
                return None
            case other:
                raise FormatError(f'unknown "type" value {other!r}: it is one of INSERT, UPDATE, DELETE and CREATE')

    def _counts(self, message: _CanalMessage) -> bool:
        database, table = self.settings or (None, None)
        return _matches(database, message.database) and _matches(table, message.table)


def _matches(pattern: str | None, name: str | None) -> bool:
    return pattern is None or (name is not None and re.fullmatch(pattern, name) is not None)


class CanalJsonFormat(JsonChangelogFormat):
    """See the module docstring."""

    name = "canal-json"
    options = (*CHANGELOG_OPTIONS, DATABASE_INCLUDE, TABLE_INCLUDE)
    envelope = CanalEnvelope
    came = b'{"data":[%s],"type":"INSERT"}'
    went = b'{"data":[%s],"type":"DELETE"}'

    def settings(self, options: TableOptions) -> Any:
        """Return the patterns of databases and tables to read."""
        return _pattern(DATABASE_INCLUDE, options), _pattern(TABLE_INCLUDE, options)


def _pattern(option: ConfigOption[str | None], options: TableOptions) -> str | None:
    pattern = options.read(option)
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise options.wrong(option.key(), f"it is no regular expression: {error}") from error
    return pattern


class _MaxwellMessage(msgspec.Struct, gc=False):
    type: str
    data: _Row
    old: _Row | None = None


class MaxwellEnvelope(JsonEnvelope):
    """Maxwell's message envelope."""

    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_MaxwellMessage | None)
    known: ClassVar[Mapping[str, Known]] = {
        "database": text_field("database"),
        "table": text_field("table"),
        "primary-key-columns": texts_field("primary_key_columns"),
        "ingestion-timestamp": milliseconds_field("ts"),
    }

    def changes(self, message: _MaxwellMessage) -> Sequence[Change]:
        """See `JsonEnvelope`."""
        row = msgspec.json.encode(message.data)
        match message.type:
            case "insert":
                return [inserted(row)]
            case "update":
                return changed(with_old(message.data, message.old or {}), row)
            case "delete":
                return [deleted(row)]
            case other:
                raise FormatError(f'unknown "type" value {other!r}: it is one of insert, update and delete')


class MaxwellJsonFormat(JsonChangelogFormat):
    """See the module docstring."""

    name = "maxwell-json"
    envelope = MaxwellEnvelope
    came = b'{"data":%s,"type":"insert"}'
    went = b'{"data":%s,"type":"delete"}'


class _OggMessage(msgspec.Struct, gc=False):
    op_type: str
    before: msgspec.Raw = NOTHING
    after: msgspec.Raw = NOTHING


class OggEnvelope(JsonEnvelope):
    """GoldenGate's message envelope."""

    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_OggMessage | None)
    known: ClassVar[Mapping[str, Known]] = {
        "table": text_field("table"),
        "primary-keys": texts_field("primary_keys"),
        "ingestion-timestamp": timestamp_field("current_ts"),
        "event-timestamp": timestamp_field("op_ts"),
    }

    def changes(self, message: _OggMessage) -> Sequence[Change]:
        """See `JsonEnvelope`."""
        match message.op_type:
            case "I":
                return [inserted(given(message.after, 'the "after" field of an INSERT message'))]
            case "U":
                before = given(message.before, 'the "before" field of an UPDATE message')
                return changed(before, given(message.after, 'the "after" field of an UPDATE message'))
            case "D":
                return [deleted(given(message.before, 'the "before" field of a DELETE message'))]
            case other:
                raise FormatError(f'unknown "op_type" value {other!r}: it is one of I, U and D')


class OggJsonFormat(JsonChangelogFormat):
    """See the module docstring."""

    name = "ogg-json"
    envelope = OggEnvelope
    came = b'{"before":null,"after":%s,"op_type":"I"}'
    went = b'{"before":%s,"after":null,"op_type":"D"}'
