"""Rows in Avro's binary encoding: one record per message, without a file header.

Supported are records, enums, arrays, maps, fixed, unions, all primitive types, named references (including recursive
ones), and the logical types decimal, date, time and timestamp (milliseconds and microseconds). A record is a `Row` with
names; a union takes the first branch that fits the value.

`PythonValues` converts Avro's logical types to values of Python's own classes, and back; a nested record is a `Row`.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from penstock.base.errors import FormatError, UnsupportedError, WrongTypeError, shorten
from penstock.base.types import Row
from penstock.codecs.avro_reading import READ_ERRORS, AvroType, RecordReader, parse_record
from penstock.codecs.avro_writing import WRITE_ERRORS, Logical, RecordWriter
from penstock.codecs.pickling import make_rows
from penstock.codecs.serialization import DeserializationSchema, Deserialized, SerializationSchema, decode_each

_EPOCH: Final = datetime.datetime(1970, 1, 1)
_DAY_ONE: Final = _EPOCH.date()
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)


class PythonValues:
    """Python values for `RecordReader` and `RecordWriter`; see the module's docstring."""

    def lift(self, logical: AvroType) -> Callable[[Any], Any] | None:
        """See `Values`."""
        match logical.logical:
            case "date":
                return lambda days: _DAY_ONE + datetime.timedelta(days=days)
            case "time-millis" | "time-micros" as name:
                time_unit = _unit(name)
                return lambda count: (_EPOCH + count * time_unit).time()
            case "timestamp-millis" | "timestamp-micros" | "local-timestamp-millis" | "local-timestamp-micros" as name:
                unit = _unit(name)
                return lambda count: _EPOCH + count * unit
            case "decimal":
                scale = logical.scale
                return lambda data: decode_decimal(data, scale)
        return None

    def record(self, fields: Sequence[str]) -> Callable[[list[Any]], Any]:
        """See `Values`."""
        names = tuple(fields)
        return lambda values: make_rows(names, (values,))[0]

    def mapping(self, entries: dict[str, Any]) -> Any:
        """See `Values`."""
        return entries

    def lower(self, logical: AvroType) -> Logical | None:
        """See `Lowers`."""
        match logical.logical:
            case "date":
                return Logical(
                    lambda v: isinstance(v, datetime.date) and not isinstance(v, datetime.datetime),
                    lambda v: (v - _DAY_ONE).days,
                )
            case "time-millis" | "time-micros" as name:
                time_unit = _unit(name)
                return Logical(
                    lambda v: isinstance(v, datetime.time),
                    lambda v: _since_midnight(v) // time_unit,
                    lambda v: not _since_midnight(v) % time_unit,
                )
            case "timestamp-millis" | "timestamp-micros" | "local-timestamp-millis" | "local-timestamp-micros" as name:
                unit = _unit(name)
                return Logical(
                    lambda v: isinstance(v, datetime.datetime),
                    lambda v: (_utc(v) - _EPOCH) // unit,
                    lambda v: not (_utc(v) - _EPOCH) % unit,
                )
            case "decimal":
                return decimals(logical)
        return None

    def entries(self, value: Any) -> Iterable[tuple[Any, Any]] | None:
        """See `Lowers`."""
        return value.items() if isinstance(value, dict) else None


def decode_decimal(data: bytes, scale: int) -> decimal.Decimal:
    """Return the decimal for the bytes of its unscaled value."""
    unscaled = int.from_bytes(data, "big", signed=True)
    digits = tuple(map(int, str(abs(unscaled))))
    return decimal.Decimal((int(unscaled < 0), digits, -scale))


def decimals(logical: AvroType) -> Logical:
    """Return how to write decimals: in as few bytes as the digits need, or in the size of a fixed."""
    scale, size = logical.scale, logical.size

    def lower(value: decimal.Decimal) -> bytes:
        sign, digits, exponent = value.as_tuple()
        if not isinstance(exponent, int) or exponent < -scale:
            raise FormatError(f"{value} has more than {scale} decimals")
        unscaled: int = int("".join(map(str, digits))) * 10 ** (exponent + scale) * (-1 if sign else 1)
        return unscaled.to_bytes(size or unscaled.bit_length() // 8 + 1, "big", signed=True)

    return Logical(lambda value: isinstance(value, decimal.Decimal), lower)


def _unit(logical: str) -> datetime.timedelta:
    return _MILLISECOND if logical.endswith("millis") else _MICROSECOND


def _since_midnight(value: datetime.time) -> datetime.timedelta:
    return datetime.datetime.combine(_EPOCH, value.replace(tzinfo=None)) - _EPOCH


def _utc(value: datetime.datetime) -> datetime.datetime:
    return value if value.tzinfo is None else value.astimezone(datetime.UTC).replace(tzinfo=None)


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

    Examples:
        >>> from penstock.common import AvroRowDeserializationSchema, AvroRowSerializationSchema
        >>> schema = '{"type": "record", "name": "Cup", "fields": [{"name": "drink", "type": "string"}]}'
        >>> message = AvroRowSerializationSchema(avro_schema_string=schema).serialize({"drink": "tea"})
        >>> AvroRowDeserializationSchema(avro_schema_string=schema).deserialize(message)
        Row(drink='tea')
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

    Examples:
        >>> from penstock.common import AvroRowSerializationSchema, Row
        >>> schema = '{"type": "record", "name": "Cup", "fields": [{"name": "drink", "type": "string"}]}'
        >>> len(AvroRowSerializationSchema(avro_schema_string=schema).serialize(Row(drink="tea")))
        4
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
