"""The interface of table formats. The option `format` selects one; its own options are prefixed with its name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from penstock.base.config_options import ConfigOption
from penstock.base.errors import UnsupportedError
from penstock.codecs.column_data import ColumnData
from penstock.codecs.messages import BadMessage, Deserialized
from penstock.formats.bulk_format import BatchWriterFactory, BulkFormat
from penstock.formats.stream_format import StreamFormat
from penstock.table.connectors.table_options import FORMAT, TableOptions
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import DataType
from penstock.table.plan.changes import INSERTS, Changes
from penstock.table.plan.row_schema import RowSchema
from penstock.table.typed.nodes import Typed


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


class Formats:
    """Formats by name."""

    def __init__(self, *formats: TableFormat) -> None:
        self._formats = {table_format.name: table_format for table_format in formats}

    def __iter__(self) -> Iterator[TableFormat]:
        return iter(self._formats.values())

    def find(self, options: TableOptions) -> tuple[TableFormat, TableOptions]:
        """Return the format of a table, and the format's options. Raises `ValidationError` for an unknown format."""
        name = options.required(FORMAT)
        if name not in self._formats:
            raise ValidationError(
                f"Could not find any format '{name}' for table {options.title}: there are "
                f"{', '.join(sorted(self._formats))}"
            )
        table_format, below = self._formats[name], options.below(f"{name}.")
        for option in table_format.options:
            below.read(option)
        return table_format, below

    def option_keys(self, options: TableOptions) -> list[str]:
        """Return the prefixed option keys of a table's format; empty if the format is unknown."""
        table_format = self._formats.get(options.get(FORMAT.key(), ""))
        return (
            [] if table_format is None else [f"{table_format.name}.{option.key()}" for option in table_format.options]
        )
