"""Rows in Avro's binary encoding: one record per message, without a file header.

Supported are records, enums, arrays, maps, fixed, unions, all primitive types, named references (including recursive
ones), and the logical types decimal, date, time and timestamp (milliseconds and microseconds). A record is a `Row` with
names; a union takes the first branch that fits the value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.base.errors import FormatError, UnsupportedError, WrongTypeError, shorten
from penstock.base.types import Row
from penstock.codecs.avro_reading import READ_ERRORS, RecordReader
from penstock.codecs.avro_types import parse_record
from penstock.codecs.avro_values import PythonValues
from penstock.codecs.avro_writing import WRITE_ERRORS, RecordWriter
from penstock.codecs.messages import Deserialized, decode_each
from penstock.codecs.row_batches import make_rows
from penstock.codecs.serialization import DeserializationSchema, SerializationSchema

__all__ = ["AvroRowDeserializationSchema", "AvroRowSerializationSchema"]


class AvroRowDeserializationSchema(DeserializationSchema[Row]):
    """Reads rows from Avro records.

    Args:
        record_class: a Java class, which Penstock cannot use.
        avro_schema_string: the schema of the rows, as JSON.
        writer_schema_string: the schema with which the records were written, if it differs. PyFlink has no such
            argument.

    Raises:
        TypeError: if no schema is given.
        NotImplementedError: if a Java class is given.
        FormatError: if a schema is not that of a record, or records of one schema cannot be read as the other.
    """

    def __init__(
        self,
        record_class: str | None = None,
        avro_schema_string: str | None = None,
        writer_schema_string: str | None = None,
    ) -> None:
        self._texts = _schema_text(record_class, avro_schema_string), writer_schema_string
        reader_type = parse_record(self._texts[0])
        written = reader_type if writer_schema_string is None else parse_record(writer_schema_string)
        self._names = tuple(field.name for field in reader_type.fields)
        self._reader = RecordReader(written, reader_type, PythonValues())

    def deserialize(self, message: bytes) -> Row | None:
        """Return the row of a message, or None for a malformed message if those are skipped.

        Raises:
            FormatError: if the message is not such a record, or contains more than one.
        """
        try:
            return self._record(message)
        except ValueError as error:
            if self.on_error == "skip":
                return None
            raise FormatError(f"cannot read Avro {shorten(repr(message))}: {error}") from error

    def deserialize_batch(self, messages: Sequence[bytes]) -> Deserialized:
        """Return the rows of many messages."""
        try:
            return Deserialized(make_rows(self._names, self._reader.many(messages)))
        except READ_ERRORS:
            return decode_each(self._record, messages)

    def _record(self, message: bytes) -> Row:
        try:
            return make_rows(self._names, (self._reader.values(message),))[0]
        except READ_ERRORS as error:
            raise FormatError(self._reader.reason(error)) from error

    def deserialize_many(self, message: bytes, count: int) -> list[Row]:
        """Return the rows of `count` consecutive records.

        Raises:
            FormatError: if the message is not made of such records, or contains more; names the first bad one.
        """
        try:
            return make_rows(self._names, self._reader.block(message, count))
        except ValueError as error:
            raise FormatError(f"cannot read Avro {error}") from error

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (None, *self._texts), self.malformed_handling()


class AvroRowSerializationSchema(SerializationSchema[Any]):
    """Writes rows, tuples, or dicts as Avro records.

    Args:
        record_class: a Java class, which Penstock cannot use.
        avro_schema_string: the schema of the record, as JSON.

    Raises:
        TypeError: if no schema is given.
        NotImplementedError: if a Java class is given.
        FormatError: if the schema is not that of a record.
    """

    def __init__(self, record_class: str | None = None, avro_schema_string: str | None = None) -> None:
        self._schema_text = _schema_text(record_class, avro_schema_string)
        self._writer = RecordWriter(parse_record(self._schema_text), PythonValues())

    def serialize(self, element: Any) -> bytes:
        """Return the message for a record.

        Raises:
            FormatError: if the record does not fit the schema.
        """
        try:
            return self._writer.record(element)
        except WRITE_ERRORS as error:
            raise FormatError(f"cannot write {shorten(repr(element))} as Avro: {error}") from error

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (None, self._schema_text)


def _schema_text(record_class: str | None, avro_schema_string: str | None) -> str:
    if record_class is not None:
        raise UnsupportedError("Avro record classes are Java; give the schema as avro_schema_string")
    if avro_schema_string is None:
        raise WrongTypeError("avro_schema_string must be given")
    return avro_schema_string
