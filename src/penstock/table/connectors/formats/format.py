"""What a format of tables is. It is chosen by the option `format`, and its own options begin with its name."""

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
    """What so many messages are, each of which is one row or bad. The columns have the rows in order."""
    places = None
    if bad:
        wrong = {one.place for one in bad}
        places = [place for place in range(messages) if place not in wrong]
    return Deserialized(ColumnData(columns), places, bad)


class MessageDecoder(ABC):
    """Turns messages into rows, many at once."""

    @abstractmethod
    def decode(self, messages: Sequence[bytes]) -> Deserialized:
        """The rows, as `ColumnData` under the names of the table, and the messages that are none."""


class MessageEncoder(ABC):
    """Turns rows into messages, many at once."""

    @abstractmethod
    def encode(self, columns: pa.RecordBatch) -> list[bytes]:
        """A message for each row."""

    def lines(self, columns: pa.RecordBatch) -> bytes:
        """All messages, each with a line feed behind it."""
        return b"".join([message + b"\n" for message in self.encode(columns)])

    def encode_changes(self, columns: pa.RecordBatch, kinds: bytes) -> list[bytes]:
        """A message for each change, in order; for formats whose `Encoding.accepts` has more than inserts."""
        raise UnsupportedError(f"{type(self).__name__} writes rows that come, and no changes")


@dataclass(frozen=True, slots=True)
class Decoding:
    """How a format is read. It travels with the job, and decoders are made where they are used.

    Attributes:
        files: reads files, as columns under the names of the table; None where the format has only messages.
        messages: a decoder of messages; None where the format has only files.
        skips_bad: whether messages that are no rows are left out; else they fail the job.
        changes: what rows may be; if they are more than inserts, an update tells the row as it was, too.
    """

    files: StreamFormat[Any] | BulkFormat[Any] | None
    messages: MessageDecoder | None = None
    skips_bad: bool = False
    changes: Changes = INSERTS


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a format is written.

    Attributes:
        files: writes files; None where the format has only messages.
        messages: an encoder of messages; None where the format has only files.
        accepts: which changes can be written. Files take them as `ChangeData`.
    """

    files: BatchWriterFactory[Any] | None
    messages: MessageEncoder | None = None
    accepts: Changes = INSERTS


def only_messages(name: str, title: str) -> ValidationError:
    """The error for files in a format that has none."""
    return ValidationError(f"Format '{name}' has only messages, and no files: table {title}")


class TableFormat:
    """The base of all. A format that is only read, or only written, leaves out the other method."""

    #: what the option `format` says
    name: ClassVar[str]
    #: its options, without its name in front
    options: ClassVar[tuple[ConfigOption[Any], ...]] = ()
    #: whether a row of a column may be read as one with fewer fields, because they have names in files
    has_named_fields: ClassVar[bool] = False

    def decoding(self, schema: RowSchema, wanted: Sequence[int], options: TableOptions) -> Decoding:
        """How rows of these columns are read. `wanted`: the places of the columns that are asked for, in order."""
        raise ValidationError(f"Format '{self.name}' can only be written. It cannot be read: table {options.title}")

    def readable_metadata(self, options: TableOptions) -> Mapping[str, DataType]:
        """The METADATA columns that messages have in this format, by their keys."""
        return {}

    def decoding_with_metadata(
        self, schema: RowSchema, wanted: Sequence[int], options: TableOptions, metadata: Mapping[int, str]
    ) -> Decoding:
        """How rows are read of which some columns are METADATA of messages: their keys, by their places."""
        assert not metadata
        return self.decoding(schema, wanted, options)

    def uses(self, condition: Typed) -> bool:
        """Whether reading can do with less because only rows are wanted for which a condition is true."""
        return False

    def filtered(self, decoding: Decoding, schema: RowSchema, conditions: Sequence[Typed]) -> Decoding:
        """The same, passing over rows for which conditions of use are not true, and perhaps not over all of them."""
        return decoding

    def encoding(self, schema: RowSchema, options: TableOptions) -> Encoding:
        """How rows of these columns are written."""
        raise ValidationError(f"Format '{self.name}' can only be read. It cannot be written: table {options.title}")


class Formats:
    """Formats by their names."""

    def __init__(self, *formats: TableFormat) -> None:
        self._formats = {one.name: one for one in formats}

    def __iter__(self) -> Iterator[TableFormat]:
        return iter(self._formats.values())

    def find(self, options: TableOptions) -> tuple[TableFormat, TableOptions]:
        """The format of a table, and the options of the format. Raises `ValidationError` where there is none."""
        name = options.required(FORMAT)
        if name not in self._formats:
            raise ValidationError(
                f"Could not find any format '{name}' for table {options.title}: there are "
                f"{', '.join(sorted(self._formats))}"
            )
        found, below = self._formats[name], options.below(f"{name}.")
        for option in found.options:
            below.read(option)
        return found, below

    def option_keys(self, options: TableOptions) -> list[str]:
        """The keys of the options of a table's format, with its name in front; none where it is not known."""
        found = self._formats.get(options.get(FORMAT.key(), ""))
        return [] if found is None else [f"{found.name}.{option.key()}" for option in found.options]
