"""`TableFormat`, the interface of table formats, and the messages, files of lines and rows that formats share.

The option `format` selects a format; its own options are prefixed with its name. `MessagesSource` emits columns that a
format decodes from the messages of another source. `LinesFormat` reads files of messages, one per line, as columns, and
`LinesWriterFactory` writes them. `columns_of_rows` and `rows_of_columns` convert between columns and rows of internal
values (see `penstock.sql.data.arrow`), for formats that read messages singly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar, Final, Generic, TypeVar

import pyarrow as pa

from penstock.base.config_options import ConfigOption
from penstock.base.configuration import Configuration
from penstock.base.errors import FormatError, PenstockError, UnsupportedError
from penstock.codecs.column_data import ChangeData, ColumnData
from penstock.codecs.serialization import BAD_RECORD, BadMessage, Deserialized, format_reason
from penstock.connectors.base import refuse_or_skip
from penstock.formats.file_format import BatchWriter, BatchWriterFactory, BulkFormat, LineDecoder, StreamFormat
from penstock.formats.json import MessageLinesDecoder
from penstock.runtime import connector
from penstock.runtime.columns import ColumnBatch
from penstock.runtime.records import Batch
from penstock.sql.data.arrow import to_column, to_values
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.logical.nodes import INSERTS, Changes, RowSchema
from penstock.sql.tables.connector import FORMAT, TableOptions
from penstock.sql.tables.tables import column_names
from penstock.sql.typed import Typed


def decoded(columns: pa.RecordBatch, messages: int, bad: Sequence[BadMessage] = ()) -> Deserialized:
    """Return the result of decoding `messages` messages, each one row or bad. The columns hold the rows in order."""
    positions = None
    if bad:
        wrong = {bad_message.place for bad_message in bad}
        positions = [position for position in range(messages) if position not in wrong]
    return Deserialized(ColumnData(columns), positions, bad)


class MessageDecoder(ABC):
    """Turns messages into rows, many at once."""

    @abstractmethod
    def decode(self, messages: Sequence[bytes]) -> Deserialized:
        """Return the rows as `ColumnData`, with the table's column names, and the invalid messages."""


class MessageEncoder(ABC):
    """Turns rows into messages, many at once."""

    @abstractmethod
    def encode(self, columns: pa.RecordBatch) -> list[bytes]:
        """Return a message for each row."""

    def lines(self, columns: pa.RecordBatch) -> bytes:
        """Return all messages, each followed by a line feed."""
        return b"".join([message + b"\n" for message in self.encode(columns)])

    def encode_changes(self, columns: pa.RecordBatch, kinds: bytes) -> list[bytes]:
        """Return a message for each change, in order; for formats whose `Encoding.accepts` is more than inserts."""
        raise UnsupportedError(f"{type(self).__name__} writes rows that come, and no changes")


@dataclass(frozen=True, slots=True)
class Decoding:
    """How a format is read. Pickled with the job; decoders are created where they are used.

    Attributes:
        files: reads files, as columns with the table's names; None if the format supports only messages.
        messages: a decoder of messages; None if the format supports only files.
        skips_bad: whether invalid messages are skipped; otherwise they fail the job.
        changes: the kinds of changes that are read; if they are more than inserts, updates include the previous row.
    """

    files: StreamFormat[Any] | BulkFormat[Any] | None
    messages: MessageDecoder | None = None
    skips_bad: bool = False
    changes: Changes = INSERTS


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a format is written.

    Attributes:
        files: writes files; None if the format supports only messages.
        messages: an encoder of messages; None if the format supports only files.
        accepts: the changes that can be written. Files take them as `ChangeData`.
    """

    files: BatchWriterFactory[Any] | None
    messages: MessageEncoder | None = None
    accepts: Changes = INSERTS


def only_messages(name: str, title: str) -> ValidationError:
    """Return the error for files in a format that does not support them."""
    return ValidationError(f"Format '{name}' has only messages, and no files: table {title}")


class TableFormat:
    """Base class of table formats. A format that is only read or only written leaves out the other method."""

    #: the value of the option `format`
    name: ClassVar[str]
    #: its options, without the prefix of its name
    options: ClassVar[tuple[ConfigOption[Any], ...]] = ()
    #: whether a row column can be read with fewer fields, because files store field names
    has_named_fields: ClassVar[bool] = False

    def decoding(self, schema: RowSchema, wanted: Sequence[int], options: TableOptions) -> Decoding:
        """Return how rows of these columns are read. `wanted`: the indices of the columns to read, in order."""
        raise ValidationError(f"Format '{self.name}' can only be written. It cannot be read: table {options.title}")

    def readable_metadata(self, options: TableOptions) -> Mapping[str, DataType]:
        """Return the METADATA columns that messages have in this format, by key."""
        return {}

    def decoding_with_metadata(
        self, schema: RowSchema, wanted: Sequence[int], options: TableOptions, metadata: Mapping[int, str]
    ) -> Decoding:
        """Return how rows are read. `metadata`: the keys of the METADATA columns, by column index."""
        assert not metadata
        return self.decoding(schema, wanted, options)

    def uses(self, condition: Typed) -> bool:
        """Return whether a condition lets the reader skip data."""
        return False

    def filtered(self, decoding: Decoding, schema: RowSchema, conditions: Sequence[Typed]) -> Decoding:
        """Return a decoding that may skip rows that do not satisfy the conditions. `uses` must accept each of them."""
        return decoding

    def encoding(self, schema: RowSchema, options: TableOptions) -> Encoding:
        """Return how rows of these columns are written."""
        raise ValidationError(f"Format '{self.name}' can only be read. It cannot be written: table {options.title}")


def decode_columns(
    table_format: TableFormat,
    schema: RowSchema,
    wanted: Sequence[int],
    options: TableOptions,
    metadata: Mapping[int, str] | None = None,
) -> Decoding:
    """Return how messages are read that hold some columns of a table and no others.

    Formats such as CSV and Avro go by position. The columns that a connector fills, such as a topic or a time, are in
    no message, so the format must not see them.

    Args:
        table_format: the format.
        schema: the columns of the table.
        wanted: the indices of the columns that messages hold, in order.
        options: the options of the format.
        metadata: the keys of METADATA columns that the format fills, by column index.
    """
    columns = RowSchema(tuple(schema[index] for index in wanted))
    keys = {list(wanted).index(index): key for index, key in (metadata or {}).items()}
    return table_format.decoding_with_metadata(columns, range(len(columns)), options, keys)


class Formats:
    """Formats by name.

    Args:
        built_in: creates the format of a name when a table first uses it.
    """

    def __init__(self, built_in: Mapping[str, Callable[[], TableFormat]]) -> None:
        self._built_in = built_in
        self._formats: dict[str, TableFormat] = {}

    def __iter__(self) -> Iterator[TableFormat]:
        return (table_format for name in self._built_in if (table_format := self._get(name)) is not None)

    def _get(self, name: str) -> TableFormat | None:
        if name not in self._formats and name in self._built_in:
            self._formats[name] = self._built_in[name]()
        return self._formats.get(name)

    def find(self, options: TableOptions) -> tuple[TableFormat, TableOptions]:
        """Return the format of a table, and the format's options. Raises `ValidationError` for an unknown format."""
        name = options.required(FORMAT)
        if (table_format := self._get(name)) is None:
            raise ValidationError(
                f"Could not find any format '{name}' for table {options.title}: there are "
                f"{', '.join(sorted(self._built_in))}"
            )
        below = options.below(f"{name}.")
        for option in table_format.options:
            below.read(option)
        return table_format, below

    def option_keys(self, options: TableOptions) -> list[str]:
        """Return the prefixed option keys of a table's format; empty if the format is unknown."""
        table_format = self._get(options.get(FORMAT.key(), ""))
        return (
            [] if table_format is None else [f"{table_format.name}.{option.key()}" for option in table_format.options]
        )


SplitT = TypeVar("SplitT")


class MessagesSource(connector.Source[Any, SplitT], Generic[SplitT]):
    """Emits columns named c0, c1 and so on, decoded from the messages (text or bytes) of another source.

    Args:
        inner: the source of the messages.
        decoder: turns messages into columns.
        name: the name of the source in errors.
        skips_bad: whether invalid messages are skipped and counted; otherwise they fail the job.
    """

    def __init__(
        self, inner: connector.Source[Any, SplitT], decoder: MessageDecoder, name: str, *, skips_bad: bool
    ) -> None:
        self._inner = inner
        self._decoder = decoder
        self._name = name
        self._skips_bad = skips_bad
        self.replayable = inner.replayable
        self.restarts_by_reader = inner.restarts_by_reader

    @property
    def boundedness(self) -> connector.Boundedness:
        """The boundedness of the message source."""
        return self._inner.boundedness

    def max_parallelism(self) -> int | None:
        """Return the maximum parallelism of the message source."""
        return self._inner.max_parallelism()

    def check_execution_mode(self, mode: str, is_local: bool) -> None:
        """Check the execution mode against the message source."""
        self._inner.check_execution_mode(mode, is_local)

    def configure(self, configuration: Configuration) -> None:
        """Configure the message source."""
        self._inner.configure(configuration)
        self.replayable = self._inner.replayable

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[SplitT], restored: Any | None
    ) -> connector.SplitEnumerator[SplitT]:
        """Create the enumerator of the message source."""
        return self._inner.create_enumerator(context, restored)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[Any, SplitT]:
        """Create a reader."""
        inner = self._inner.create_reader(context)
        return _MessagesReader(context, inner, self._decoder, self._name, self._skips_bad)


class _MessagesReader(connector.SourceReader[Any, SplitT]):
    def __init__(
        self,
        context: connector.SourceReaderContext,
        inner: connector.SourceReader[Any, SplitT],
        decoder: MessageDecoder,
        name: str,
        skips_bad: bool,
    ) -> None:
        self._context = context
        self._inner = inner
        self._decoder = decoder
        self._name = name
        self._skips_bad = skips_bad
        self._seen = 0

    def start(self) -> None:
        self._inner.start()

    def poll_next(self, max_records: int) -> Batch | connector.InputStatus:
        answer = self._inner.poll_next(max_records)
        if not isinstance(answer, Batch):
            return answer
        messages = [message.encode() if isinstance(message, str) else message for message in answer.values]
        decoded = self._decoder.decode(messages)
        first_offset = self._seen
        if decoded.bad:
            refuse_or_skip(
                decoded.bad,
                messages,
                lambda position: (self._name, first_offset + position),
                self._context,
                "skip" if self._skips_bad else "fail",
            )
        self._seen += len(messages)
        if not decoded.values:
            return connector.InputStatus.NOTHING_AVAILABLE
        columns = decoded.columns
        named = pa.RecordBatch.from_arrays(columns.columns, column_names(columns.num_columns))
        batch = ColumnBatch(named, None, decoded.kinds)
        name, positions = self._name, decoded.places
        batch.origin = lambda index: (
            f"{name}, offset {first_offset + (index if positions is None else positions[index])}"
        )
        return batch

    def add_splits(self, splits: Sequence[SplitT]) -> None:
        self._inner.add_splits(splits)

    def no_more_splits(self) -> None:
        self._inner.no_more_splits()

    def snapshot_state(self, checkpoint_id: int) -> list[SplitT]:
        return self._inner.snapshot_state(checkpoint_id)

    def retry_after_ms(self) -> int:
        return self._inner.retry_after_ms()

    def held_back_ms(self) -> int | None:
        return self._inner.held_back_ms()

    def begin_at(self, time_ms: int) -> None:
        self._inner.begin_at(time_ms)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._inner.notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._inner.notify_checkpoint_aborted(checkpoint_id)

    def close(self) -> None:
        self._inner.close()


class LinesFormat(StreamFormat[Any]):
    """Reads lines as columns.

    Args:
        decoder: turns lines into rows.
        skips_empty: whether empty lines are skipped.
        skips_bad: whether invalid lines are skipped.
        splittable: whether several readers may share a file.
    """

    def __init__(self, decoder: MessageDecoder, *, skips_empty: bool, skips_bad: bool, splittable: bool = True) -> None:
        super().__init__("skip" if skips_bad else "fail")
        self.splittable = splittable
        self._decoder = decoder
        self._skips_empty = skips_empty

    def create_decoder(self, header: bytes) -> LineDecoder[Any]:
        """See `StreamFormat`."""
        return MessageLinesDecoder(self._decoder.decode, self._skips_empty)


class LinesWriterFactory(BatchWriterFactory[Any]):
    """Writes each row as a line. `schema`: the columns of rows that arrive one by one."""

    def __init__(self, encoder: MessageEncoder, schema: RowSchema) -> None:
        self._encoder = encoder
        self._schema = schema

    def create(self, stream: BinaryIO) -> BatchWriter[Any]:
        """See `BatchWriterFactory`."""
        return _LinesWriter(self._encoder, self._schema, stream)


class ColumnsWriter(BatchWriter[Any]):
    """Base class of writers that take columns. Rows are tuples of internal values; see `penstock.sql.data.arrow`."""

    def __init__(self, schema: RowSchema) -> None:
        self._schema = schema

    def add_elements(self, elements: Sequence[Any]) -> None:
        """Turn rows into columns and write them."""
        columns = list(zip(*elements, strict=True))
        arrays = [to_column(values, kind) for values, kind in zip(columns, self._schema.types, strict=True)]
        self.add_columns(ColumnData(pa.RecordBatch.from_arrays(arrays, self._schema.names)))

    def flush(self) -> None:
        """Do nothing: rows are not buffered."""

    def finish(self) -> None:
        """Do nothing: all data is already written."""


class _LinesWriter(ColumnsWriter):
    def __init__(self, encoder: MessageEncoder, schema: RowSchema, stream: BinaryIO) -> None:
        super().__init__(schema)
        self._encoder = encoder
        self._stream = stream

    def add_columns(self, data: ColumnData) -> None:
        if isinstance(data, ChangeData):
            changes = self._encoder.encode_changes(data.columns, data.kinds)
            self._stream.write(b"".join([change + b"\n" for change in changes]))
        else:
            self._stream.write(self._encoder.lines(data.columns))


_UNFIT: Final = (pa.ArrowException, PenstockError, TypeError, ValueError, OverflowError)


class HeldRows:
    """Turns rows into columns, for changelogs."""

    def __init__(self, schema: RowSchema) -> None:
        self._schema = schema

    def decode(self, rows: Sequence[Any]) -> Deserialized:
        """See `RowDecoder`."""
        return decode_rows(rows, lambda row: row, self._schema)


def decode_rows(messages: Sequence[Any], read: Callable[[Any], Sequence[Any]], schema: RowSchema) -> Deserialized:
    """Decode messages with a function that reads one row, or raises one of `BAD_RECORD` for an invalid message."""
    try:
        return decoded(columns_of_rows(list(map(read, messages)), schema), len(messages))
    except BAD_RECORD:
        pass
    rows: list[Sequence[Any]] = []
    bad: list[BadMessage] = []
    for index, message in enumerate(messages):
        try:
            row = read(message)
            columns_of_rows([row], schema)
            rows.append(row)
        except BAD_RECORD as error:
            bad.append(BadMessage(index, format_reason(error), error))
    return decoded(columns_of_rows(rows, schema), len(messages), bad)


def columns_of_rows(rows: Sequence[Sequence[Any]], schema: RowSchema) -> pa.RecordBatch:
    """Return rows as columns. Raises FormatError, with the column, for values that do not fit its type."""
    values = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = []
    for column, of_rows in zip(schema, values, strict=True):
        try:
            arrays.append(to_column(of_rows, column.type))
        except _UNFIT as error:
            reason = f"column '{column.name}' cannot be read as {column.type}: {format_reason(error)}"
            raise FormatError(reason) from error
    return pa.RecordBatch.from_arrays(arrays, schema.names)


def rows_of_columns(columns: pa.RecordBatch, schema: RowSchema) -> list[tuple[Any, ...]]:
    """Return columns as rows."""
    values = [to_values(column, kind) for column, kind in zip(columns.columns, schema.types, strict=True)]
    return list(zip(*values, strict=True))
