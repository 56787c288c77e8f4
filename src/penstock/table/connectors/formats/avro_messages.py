"""Rows as Avro messages, read and written directly in the internal representation of values."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa

from penstock.base.errors import FormatError
from penstock.codecs.avro_reading import READ_ERRORS, RecordReader
from penstock.codecs.avro_types import AvroType
from penstock.codecs.avro_values import decimals, decode_decimal
from penstock.codecs.avro_writing import WRITE_ERRORS, Logical, RecordWriter
from penstock.codecs.messages import Deserialized
from penstock.formats.avro_schema import AvroSchema
from penstock.table.connectors.formats.format import MessageDecoder, MessageEncoder, decoded
from penstock.table.connectors.formats.held_rows import columns_of_rows, decode_rows, rows_of_columns
from penstock.table.plan.row_schema import RowSchema

#: nanoseconds in one Avro unit of a timestamp
_TIMESTAMP_NS: Final = {"millis": 1_000_000, "micros": 1_000, "nanos": 1}
_MICROSECONDS: Final = 1_000


class HeldValues:
    """Converts Avro values to and from the form in `data.values`, for `RecordReader` and `RecordWriter`."""

    def lift(self, logical: AvroType) -> Callable[[Any], Any] | None:
        """See `Values`."""
        name = str(logical.logical)
        if name == "decimal":
            scale = logical.scale
            return lambda data: decode_decimal(data, scale)
        if name == "time-micros":
            return lambda value: value // _MICROSECONDS
        if (unit := _unit(name)) is not None:
            return lambda value: value * unit
        return None

    def record(self, fields: Sequence[str]) -> Callable[[list[Any]], Any]:
        """See `Values`."""
        return tuple

    def mapping(self, entries: dict[str, Any]) -> Any:
        """See `Values`."""
        return list(entries.items())

    def lower(self, logical: AvroType) -> Logical | None:
        """See `Lowers`."""
        name = str(logical.logical)
        if name == "decimal":
            return decimals(logical)
        if name == "time-micros":
            return Logical(_is_whole, lambda value: value * _MICROSECONDS)
        if name == "uuid" and logical.kind == "fixed":
            return Logical(lambda value: isinstance(value, str | bytes), _uuid_bytes)
        if (unit := _unit(name)) is not None:
            return Logical(_is_whole, lambda value: value // unit, lambda value: value % unit == 0)
        return None

    def entries(self, value: Any) -> Iterable[tuple[Any, Any]] | None:
        """See `Lowers`."""
        return value if isinstance(value, list) else None


def _unit(logical: str) -> int | None:
    kind, _, unit = logical.rpartition("-")
    return _TIMESTAMP_NS.get(unit) if kind in ("timestamp", "local-timestamp") else None


def _uuid_bytes(value: str | bytes) -> bytes:
    return uuid.UUID(value).bytes if isinstance(value, str) else value


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class RecordsReader(Protocol):
    """Reads the records in messages as lists of values, in the order of a table's columns."""

    def values(self, message: bytes, /) -> list[Any]:
        """Return the values of one message. Raises one of `BAD_RECORD`, with the field, if it is not a valid record."""
        ...

    def many(self, messages: Sequence[bytes], /) -> list[list[Any]] | None:
        """Return the values of many messages; None if they must be read one by one.

        Raises one of `READ_ERRORS` if a message is not a valid record.
        """
        ...


class PlainRecords:
    """Records without an envelope, all of one schema."""

    def __init__(self, written: AvroSchema, reader_schema: AvroSchema) -> None:
        self._parts = written, reader_schema
        self._reader = RecordReader(written.record, reader_schema.record, HeldValues(), narrows=True)

    def values(self, message: bytes) -> list[Any]:
        """See `RecordsReader`."""
        try:
            return self._reader.values(message)
        except READ_ERRORS as error:
            raise FormatError(self._reader.reason(error)) from error

    def many(self, messages: Sequence[bytes]) -> list[list[Any]] | None:
        """See `RecordsReader`."""
        return self._reader.many(messages)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts


class AvroMessageDecoder(MessageDecoder):
    """Reads messages of one record each as rows of these columns."""

    def __init__(self, schema: RowSchema, records: RecordsReader) -> None:
        self._schema = schema
        self._records = records

    def decode(self, messages: Sequence[bytes]) -> Deserialized:
        """See `MessageDecoder`."""
        try:
            rows = self._records.many(messages)
            if rows is not None:
                return decoded(columns_of_rows(rows, self._schema), len(messages))
        except (*READ_ERRORS, FormatError):
            pass
        return decode_rows(messages, self._records.values, self._schema)


class RecordsWriter(Protocol):
    """Writes rows of internal values."""

    def messages(self, rows: Sequence[Any], /) -> list[bytes]:
        """Return the message of each row. Raises FormatError for a row that does not fit the schema."""
        ...


class PlainWriting:
    """Writes records without an envelope."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._writer = RecordWriter(schema.record, HeldValues())

    def messages(self, rows: Sequence[Any]) -> list[bytes]:
        """See `RecordsWriter`."""
        return written(lambda records: list(map(self._writer.record, records)), rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._schema,)


class AvroMessageEncoder(MessageEncoder):
    """Writes each row as a record."""

    def __init__(self, schema: RowSchema, writing: RecordsWriter) -> None:
        self._schema = schema
        self._writing = writing

    def encode(self, columns: pa.RecordBatch) -> list[bytes]:
        """See `MessageEncoder`."""
        return self._writing.messages(rows_of_columns(columns, self._schema))


def written(write: Callable[[Sequence[Any]], list[bytes]], rows: Sequence[Any]) -> list[bytes]:
    """Return the messages that a function writes for rows. Raises FormatError instead of one of `WRITE_ERRORS`."""
    try:
        return write(rows)
    except WRITE_ERRORS as error:
        raise FormatError(f"a row cannot be written as Avro: {error}") from error
