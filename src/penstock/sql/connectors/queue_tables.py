"""The shared part of the tables `rabbitmq`, `mqtt` and `nats`: rows from messages, messages from rows, and options.

A row is a message. Its columns come from, or go to, the body by the table's format, except METADATA columns, which
describe the message. A format of changes, such as `debezium-json`, makes the table a changelog.

A connector declares its metadata as `MetadataField`s, and has a source and a sink; both are used with the records of
the table: `TableReading` is the reading of a `SubscriptionSource`, `QueueTableSink` takes the place of the sink's own
conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final
from urllib.parse import quote, urlsplit, urlunsplit

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.config_options import POSITIVE, ConfigOption, ConfigOptions, choice
from penstock.base.errors import ConfigurationError, UnsupportedError, WrongValueError
from penstock.codecs.arrow_columns import exact_cast
from penstock.codecs.column_data import ColumnData
from penstock.connectors.async_sink.request_buffer import AsyncSinkSettings
from penstock.connectors.async_sink.sink import AsyncSinkBase, AsyncSinkWriter
from penstock.connectors.base import refuse_or_skip
from penstock.connectors.subscriptions import MessageReading, SubscriptionSource
from penstock.runtime.columns import ColumnBatch
from penstock.runtime.connector import Sink, SinkWriter, SinkWriterContext, SourceReaderContext
from penstock.sql.data import types
from penstock.sql.data.arrow import arrow_type, columns_of_changes, to_column
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.formats.format import Formats, MessageDecoder, MessageEncoder, decode_columns
from penstock.sql.logical.nodes import INSERTS, Changes, RowSchema, Scan, Write
from penstock.sql.tables.connector import TableConnector, TableOptions
from penstock.sql.tables.tables import TableReader, TableWriter, column_names

TEXT: Final = types.VarCharType(types.LENGTH_MAX)
TEXTS: Final = types.MapType(TEXT, TEXT)
TIME: Final = types.LocalZonedTimestampType(3)
_ARROW_TIME: Final = pa.timestamp("ms", "UTC")
_ARROW_TEXTS: Final = pa.map_(pa.string(), pa.string())


@dataclass(frozen=True, slots=True)
class MetadataField:
    """A METADATA column.

    Attributes:
        type: its type: TEXT, TEXTS, TIME, BIGINT, INT or BOOLEAN.
        get: returns its value of a message; a time in ms. None if it is only written.
        is_written: whether the sink accepts it.
    """

    type: DataType
    get: Callable[[Any], Any] | None = None
    is_written: bool = False

    def build_column(self, messages: Sequence[Any], kind: Any) -> pa.Array:
        """Return the values of messages, as a column of a type."""
        assert self.get is not None
        values = list(map(self.get, messages))
        if self.type == TEXTS:
            return to_column([None if value is None else list(value.items()) for value in values], TEXTS).cast(kind)
        own = _ARROW_TIME if self.type == TIME else arrow_type(self.type)
        return pa.array(values, own).cast(kind)

    def read_column(self, column: pa.Array) -> list[Any]:
        """Return the values of a column for messages: times in ms, maps as dictionaries."""
        if self.type == TIME:
            moments = pc.cast(column, pa.timestamp("ms", column.type.tz), safe=False)
            return moments.view(pa.int64()).to_pylist()  # type: ignore[no-any-return]
        if self.type == TEXTS:
            return [None if value is None else dict(value) for value in exact_cast(column, _ARROW_TEXTS).to_pylist()]
        return column.cast(arrow_type(self.type)).to_pylist()  # type: ignore[no-any-return]


Metadata = Mapping[str, MetadataField]


def show_value(value: Any) -> str:
    """Return the text of a header's value."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


class TableReading(MessageReading):
    """Reads messages as columns named c0, c1 and so on.

    Args:
        name: the name of the queue, for errors.
        decoder: decodes bodies.
        places: the positions of the decoded columns in the table.
        metadata: the METADATA columns: by position their field and Arrow type.
        get_body: returns the body of a message.
        get_timestamp: returns the time (ms) of a message, if all have one.
        skips_bad: whether malformed messages are skipped.
    """

    def __init__(
        self,
        name: str,
        decoder: MessageDecoder,
        positions: Sequence[int],
        metadata: Mapping[int, tuple[MetadataField, Any]],
        get_body: Callable[[Any], bytes],
        skips_bad: bool,
    ) -> None:
        self._name, self._decoder, self._places = name, decoder, tuple(positions)
        self._metadata, self._get_body = dict(metadata), get_body
        self._skips_bad = skips_bad

    def read(self, messages: Sequence[Any], context: SourceReaderContext) -> ColumnBatch | None:
        """See `MessageReading`."""
        bodies = list(map(self._get_body, messages))
        decoded = self._decoder.decode(bodies)
        if decoded.bad:
            name = self._name
            on_error: Any = "skip" if self._skips_bad else "fail"
            refuse_or_skip(decoded.bad, bodies, lambda position: (name, position), context, on_error)
        if not len(decoded.values):
            return None
        columns = dict(zip(self._places, decoded.columns.columns, strict=True))
        if self._metadata:
            rows = decoded.of_records(messages)
            for position, (field, kind) in self._metadata.items():
                columns[position] = field.build_column(rows, kind)
        arrays = [columns[position] for position in range(len(columns))]
        return ColumnBatch(pa.RecordBatch.from_arrays(arrays, column_names(len(arrays))), None, decoded.kinds)


@dataclass(frozen=True, slots=True)
class RowMessages:
    """How rows become messages.

    Attributes:
        schema: the columns of the table.
        encoder: encodes bodies.
        places: the positions of the columns in the body.
        metadata: the METADATA columns: by position their key and field.
        build: returns the message to send, for a body and its metadata by key; values may be None.
    """

    schema: RowSchema
    encoder: MessageEncoder
    places: tuple[int, ...]
    metadata: tuple[tuple[int, str, MetadataField], ...]
    build: Callable[[bytes, Mapping[str, Any]], Any]

    def build_entries(self, columns: pa.RecordBatch, kinds: bytes | None) -> list[Any]:
        """Return the entries of rows."""
        names = self.schema.names
        in_body = pa.RecordBatch.from_arrays(
            [columns.column(position) for position in self.places], [names[position] for position in self.places]
        )
        bodies = self.encoder.encode_changes(in_body, kinds) if kinds and any(kinds) else self.encoder.encode(in_body)
        if not self.metadata:
            return [self.build(body, {}) for body in bodies]
        keys = [key for _, key, _ in self.metadata]
        values = [field.read_column(columns.column(position)) for position, _, field in self.metadata]
        return [
            self.build(body, dict(zip(keys, row, strict=True)))
            for body, row in zip(bodies, zip(*values, strict=True), strict=True)
        ]


class QueueTableSink(Sink[Any]):
    """Accepts rows as (kind, internal values), or columns, and sends them with a sink of messages.

    Args:
        inner: the sink, which converts entries to themselves.
        messages: makes entries of rows.
    """

    def __init__(self, inner: AsyncSinkBase[Any, Any], messages: RowMessages) -> None:
        self._inner, self._messages = inner, messages

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, Any]:
        """See `Sink`."""
        return _QueueTableWriter(self._inner, self._messages, context)


class _QueueTableWriter(AsyncSinkWriter[Any]):
    def __init__(self, inner: AsyncSinkBase[Any, Any], messages: RowMessages, context: SinkWriterContext) -> None:
        super().__init__(inner, context)
        self._messages = messages

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """See `SinkWriter`."""
        if values:
            schema = self._messages.schema
            self._write(*columns_of_changes(values, schema.names, schema.types))

    def write_columns(self, data: ColumnData, rowtimes: Any) -> None:
        """See `SinkWriter`."""
        self._write(data.columns, None)

    def write_changes(self, data: ColumnData, kinds: bytes, rowtimes: Any) -> None:
        """See `SinkWriter`."""
        self._write(data.columns, kinds)

    def _write(self, columns: pa.RecordBatch, kinds: bytes | None) -> None:
        if columns.num_rows:
            self.add_entries(self._messages.build_entries(columns, kinds))


# --- options ----------------------------------------------------------------------------------------------------------


def text_option(key: str, description: str) -> ConfigOption[str | None]:
    """Return an option of text without a default."""
    return ConfigOptions.key(key).string_type().no_default_value().with_description(description)


def default_option(key: str, default: str, description: str) -> ConfigOption[str]:
    """Return an option of text with a default."""
    return ConfigOptions.key(key).string_type().default_value(default).with_description(description)


def flag_option(key: str, default: bool, description: str) -> ConfigOption[bool]:
    """Return an option of type BOOLEAN."""
    return ConfigOptions.key(key).boolean_type().default_value(default).with_description(description)


def word_option(key: str, default: str, words: Sequence[str], description: str) -> ConfigOption[str]:
    """Return an option with these values."""
    return ConfigOption(key, choice(*words), default).with_description(description)


def number_option(key: str, default: int, description: str) -> ConfigOption[int]:
    """Return an option that is a positive number."""
    return ConfigOption(key, POSITIVE, default).with_description(description)


def time_option(key: str, default_ms: int, description: str) -> ConfigOption[int]:
    """Return an option that is a time."""
    return ConfigOptions.key(key).duration_type().default_value(default_ms).with_description(description)


def add_account(
    options: TableOptions,
    url: ConfigOption[str | None],
    username: ConfigOption[str | None],
    password: ConfigOption[str | None],
) -> str:
    """Return a URL with the user and the password of two further options."""
    address, user, word = options.required(url), options.read(username), options.read(password)
    if user is None and word is None:
        return address
    parts = urlsplit(address)
    if "@" in parts.netloc:
        raise options.wrong(url.key(), "it has a user, and so do username or password: give one of them")
    account = f"{quote(user or '', safe='')}:{quote(word or '', safe='')}@"
    return urlunsplit(parts._replace(netloc=account + parts.netloc))


def sink_options(settings: AsyncSinkSettings) -> tuple[ConfigOption[int], ...]:
    """Return the options of the limits of a sink, by Flink's names; `settings` are the defaults."""
    return (
        number_option("sink.batch.max-size", settings.max_batch_size, "The maximum number of messages in a request."),
        time_option("sink.flush-buffer.timeout", settings.max_time_in_buffer_ms, "How long rows wait for others."),
        number_option(
            "sink.requests.max-inflight", settings.max_in_flight_requests, "The maximum number of requests at a time."
        ),
        number_option(
            "sink.requests.max-buffered", settings.max_buffered_requests, "The number of waiting rows that stops input."
        ),
        number_option("sink.max-attempts", settings.max_attempts, "How often a row is sent before the job fails."),
    )


def read_settings(settings: AsyncSinkSettings, options: TableOptions) -> AsyncSinkSettings:
    """Return the limits of a table's sink. Raises `ValidationError` if they contradict each other."""
    size, timeout, in_flight, buffered, attempts = map(options.read, sink_options(settings))
    try:
        return replace(
            settings,
            max_batch_size=size,
            max_time_in_buffer_ms=timeout,
            max_in_flight_requests=in_flight,
            max_buffered_requests=buffered,
            max_attempts=attempts,
        )
    except WrongValueError as error:
        raise ValidationError(f"Invalid options of table {options.title}: {error}") from error


class QueueConnector(TableConnector):
    """The base of the connectors. `formats`: the formats that the option `format` may name."""

    #: the METADATA columns, by key
    metadata: ClassVar[Metadata] = {}

    def __init__(self, formats: Formats) -> None:
        self._formats = formats

    def more_options(self, options: TableOptions, columns: Sequence[str]) -> Iterable[str]:
        """Return the options of the format."""
        return self._formats.option_keys(options)

    def readable_metadata(self, options: TableOptions) -> Mapping[str, DataType]:
        """Return the metadata of messages, and that of the format with the prefix `value.`."""
        of_messages = {key: field.type for key, field in self.metadata.items() if field.get is not None}
        table_format, of_format = self._formats.find(options)
        return {
            **{f"value.{key}": kind for key, kind in table_format.readable_metadata(of_format).items()},
            **of_messages,
        }

    def writable_metadata(self, options: TableOptions) -> Mapping[str, DataType]:
        """Return the metadata that messages are written with."""
        return {key: field.type for key, field in self.metadata.items() if field.is_written}

    def build_reader(
        self,
        scan: Scan,
        options: TableOptions,
        name: str,
        source: Callable[[], SubscriptionSource],
        get_body: Callable[[Any], bytes],
    ) -> TableReader:
        """Return the reader of a table.

        Args:
            scan: the table.
            options: its options.
            name: the name of the queue.
            source: creates the source, whose reading is replaced.
            get_body: returns the body of a message.
        """
        table_format, of_format = self._formats.find(options)
        own = {index: key for index, key in scan.metadata if key in self.metadata}
        inner = {index: key.removeprefix("value.") for index, key in scan.metadata if key not in self.metadata}
        positions = [index for index in range(len(scan.schema)) if index not in own]
        decoding = decode_columns(table_format, scan.schema, positions, of_format, inner)
        if decoding.messages is None:
            raise ValidationError(
                f"Format '{table_format.name}' has only files, and no messages: table {options.title}"
            )
        _check_key(scan.key, decoding.changes, table_format.name, options)
        metadata = {index: (self.metadata[key], arrow_type(scan.schema[index].type)) for index, key in own.items()}
        reader = build_connection(options, source)
        reader.reading = TableReading(name, decoding.messages, positions, metadata, get_body, decoding.skips_bad)
        return TableReader(reader, decoding.changes, has_before=decoding.changes != INSERTS)

    def build_writer(
        self,
        write: Write,
        options: TableOptions,
        sink: Callable[[], AsyncSinkBase[Any, Any]],
        build: Callable[[bytes, Mapping[str, Any]], Any],
    ) -> TableWriter:
        """Return the writer of a table.

        Args:
            write: the table.
            options: its options.
            sink: creates the sink, which converts entries to themselves.
            build: see `RowMessages`.
        """
        if write.overwrites:
            raise UnsupportedError(f"INSERT OVERWRITE into table {options.title} is not supported: queues only grow")
        table_format, of_format = self._formats.find(options)
        about = dict(write.metadata)
        positions = tuple(index for index in range(len(write.schema)) if index not in about)
        encoding = table_format.encoding(RowSchema(tuple(write.schema[index] for index in positions)), of_format)
        if encoding.messages is None:
            raise ValidationError(
                f"Format '{table_format.name}' has only files, and no messages: table {options.title}"
            )
        _check_key(write.key, encoding.accepts, table_format.name, options)
        metadata = tuple((index, key, self.metadata[key]) for index, key in about.items())
        messages = RowMessages(write.schema, encoding.messages, positions, metadata, build)
        table_sink = QueueTableSink(build_connection(options, sink), messages)
        return TableWriter(table_sink, encoding.accepts, takes_columns=True, follows_query=encoding.accepts != INSERTS)


def _check_key(key: Sequence[int], changes: Changes, name: str, options: TableOptions) -> None:
    if key and changes == INSERTS:
        raise ValidationError(
            f"table {options.title} declares a PRIMARY KEY, but format '{name}' only appends messages, so rows of a "
            "key may repeat: leave out the PRIMARY KEY, or use a format of changes such as debezium-json"
        )


def build_connection(options: TableOptions, build: Callable[[], Any]) -> Any:
    """Return what `build` does, which raises `ConfigurationError` for invalid options; the error names the table."""
    try:
        return build()
    except ConfigurationError as error:
        raise ValidationError(f"Invalid options of table {options.title}: {error}") from error
