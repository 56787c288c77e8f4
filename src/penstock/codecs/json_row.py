"""Rows as JSON objects: one message, one object.

Dates, times and timestamps are ISO-8601 text, in UTC where no zone is named; bytes are base64; whole and decimal
numbers keep all their digits. The classes are PyFlink's of `datastream.formats.json`; they live here because
`penstock.codecs` offers them and needs only the standard library.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from penstock.base.basic_types import (
    BasicType,
    BasicTypeInfo,
    DateTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TypeInformation,
)
from penstock.base.composite_types import (
    BasicArrayTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
)
from penstock.base.errors import FormatError, WrongTypeError, WrongValueError, shorten
from penstock.base.time import Instant
from penstock.base.types import Row
from penstock.codecs.json_schema import type_of_json_schema
from penstock.codecs.messages import BAD_RECORD, Deserialized, decode_each
from penstock.codecs.serialization import DeserializationSchema, SerializationSchema

__all__ = ["JsonRowDeserializationSchema", "JsonRowSerializationSchema"]

Convert = Callable[[Any], Any]

_ARRAYS = (BasicArrayTypeInfo, ListTypeInfo, ObjectArrayTypeInfo, PrimitiveArrayTypeInfo)
_BYTES = PrimitiveArrayTypeInfo(BasicTypeInfo(BasicType.BYTE))


class JsonRowDeserializationSchema(DeserializationSchema[Row]):
    """Reads rows from JSON objects; make one with `JsonRowDeserializationSchema.builder()`."""

    def __init__(self, row_type: RowTypeInfo, fail_on_missing_field: bool, ignore_parse_errors: bool) -> None:
        self._row_type = row_type
        self._fail_on_missing_field = fail_on_missing_field
        if ignore_parse_errors:
            self.on_error = "skip"
        self._read = _row_reader(row_type, fail_on_missing_field)

    @staticmethod
    def builder() -> JsonRowDeserializationSchema.Builder:
        """Starts a schema."""
        return JsonRowDeserializationSchema.Builder()

    def deserialize(self, message: bytes) -> Row | None:
        """Returns the row of a message, with the fields' names.

        A null is None for every type, and so is a field that is missing. A message that cannot be read is dropped if
        such messages are skipped.

        Raises:
            FormatError: if the message is not a JSON object of the right form.
        """
        try:
            return self._record(message)
        except BAD_RECORD as error:
            if self.on_error == "skip":
                return None
            raise FormatError(f"cannot read JSON {shorten(repr(message))}: {error}") from error

    def deserialize_batch(self, messages: Sequence[bytes]) -> Deserialized:
        """Returns the rows of many messages."""
        return decode_each(self._record, messages)

    def _record(self, message: bytes) -> Row:
        parsed = json.loads(message, parse_float=decimal.Decimal)
        if not isinstance(parsed, dict):
            raise ValueError("not a JSON object")
        row: Row = self._read(parsed)
        return row

    def get_produced_type(self) -> TypeInformation:
        """The type of the rows."""
        return self._row_type

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._row_type, self._fail_on_missing_field, False), self.malformed_handling()

    class Builder:
        """Collects the settings of a `JsonRowDeserializationSchema`."""

        def __init__(self) -> None:
            self._type_info: TypeInformation | None = None
            self._fail_on_missing_field = False
            self._ignore_parse_errors = False

        def type_info(self, type_info: TypeInformation) -> JsonRowDeserializationSchema.Builder:
            """Sets the type of the rows, whose field names are looked up in the objects."""
            self._type_info = type_info
            return self

        def json_schema(self, json_schema: str) -> JsonRowDeserializationSchema.Builder:
            """Derives the type of the rows from a JSON schema.

            Raises:
                TypeError: if the schema is None.
                FormatError: if it is not the JSON schema of an object, or uses what is not supported.
            """
            if json_schema is None:
                raise WrongTypeError("the JSON schema must not be None")
            self._type_info = type_of_json_schema(json_schema)
            return self

        def fail_on_missing_field(self) -> JsonRowDeserializationSchema.Builder:
            """Makes a missing field an error; without this it is None."""
            self._fail_on_missing_field = True
            return self

        def ignore_parse_errors(self) -> JsonRowDeserializationSchema.Builder:
            """Drops messages that cannot be read; without this they are errors."""
            self._ignore_parse_errors = True
            return self

        def build(self) -> JsonRowDeserializationSchema:
            """Returns the schema.

            Raises:
                TypeError: if no row type is set.
                ValueError: if missing fields are to fail while errors are ignored.
            """
            if not isinstance(self._type_info, RowTypeInfo):
                raise WrongTypeError(f"set a row type with type_info or json_schema, not {self._type_info!r}")
            if self._fail_on_missing_field and self._ignore_parse_errors:
                raise WrongValueError("fail_on_missing_field and ignore_parse_errors cannot both be set")
            return JsonRowDeserializationSchema(self._type_info, self._fail_on_missing_field, self._ignore_parse_errors)


class JsonRowSerializationSchema(SerializationSchema[Any]):
    """Writes rows as JSON objects in UTF-8; make one with `JsonRowSerializationSchema.builder()`."""

    def __init__(self, row_type: RowTypeInfo) -> None:
        self._row_type = row_type
        self._write = _writer(row_type)

    @staticmethod
    def builder() -> JsonRowSerializationSchema.Builder:
        """Starts a schema."""
        return JsonRowSerializationSchema.Builder()

    def serialize(self, element: Any) -> bytes:
        """Returns the JSON object for a row, tuple, or dict.

        Raises:
            FormatError: if the record does not fit the row type.
        """
        try:
            return json.dumps(self._write(element), ensure_ascii=False, separators=(",", ":")).encode()
        except (AttributeError, TypeError, ValueError) as error:
            raise FormatError(f"cannot write {shorten(repr(element))} as {self._row_type}: {error}") from error

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._row_type,)

    class Builder:
        """Collects the settings of a `JsonRowSerializationSchema`."""

        def __init__(self) -> None:
            self._type_info: TypeInformation | None = None

        def with_type_info(self, type_info: TypeInformation) -> JsonRowSerializationSchema.Builder:
            """Sets the type of the rows, whose field names become the objects' keys."""
            self._type_info = type_info
            return self

        def build(self) -> JsonRowSerializationSchema:
            """Returns the schema.

            Raises:
                TypeError: if no row type is set, or a field's type cannot be written as JSON.
            """
            if not isinstance(self._type_info, RowTypeInfo):
                raise WrongTypeError(f"set a row type with with_type_info, not {self._type_info!r}")
            return JsonRowSerializationSchema(self._type_info)


# Reading -------------------------------------------------------------------------------------------------------------


def _reader(type_info: TypeInformation, strict: bool) -> Convert:
    """The function that turns a parsed JSON value, not None, into a value of the type."""
    if isinstance(type_info, RowTypeInfo):
        return _row_reader(type_info, strict)
    if type_info == _BYTES:
        return lambda value: base64.b64decode(value, validate=True)
    if isinstance(type_info, _ARRAYS):
        element = _nullable(_reader(type_info.element_type, strict))
        return lambda value: [element(item) for item in _expect(list, value)]
    if isinstance(type_info, TupleTypeInfo):
        return _tuple_reader([_nullable(_reader(field, strict)) for field in type_info.get_field_types()])
    if isinstance(type_info, MapTypeInfo):
        key, item = _reader(type_info.key_type_info, strict), _nullable(_reader(type_info.value_type_info, strict))
        return lambda value: {key(k): item(v) for k, v in _expect(dict, value).items()}
    if isinstance(type_info, DateTypeInfo):
        return datetime.date.fromisoformat
    if isinstance(type_info, TimeTypeInfo):
        return lambda value: datetime.time.fromisoformat(value).replace(tzinfo=None)
    if isinstance(type_info, TimestampTypeInfo):
        return _read_timestamp
    if isinstance(type_info, BasicTypeInfo):
        return _basic_reader(type_info)
    raise WrongTypeError(f"{type_info!r} cannot be read from JSON")


def _row_reader(row_type: RowTypeInfo, strict: bool) -> Convert:
    names = tuple(row_type.get_field_names())
    readers = [_nullable(_reader(field, strict)) for field in row_type.get_field_types()]

    def read(value: Any) -> Row:
        fields = _expect(dict, value)
        if strict and (missing := [name for name in names if name not in fields]):
            raise ValueError(f"missing {', '.join(missing)}")
        row = Row(*[reader(fields.get(name)) for name, reader in zip(names, readers, strict=True)])
        row.set_field_names(names)
        return row

    return read


def _tuple_reader(readers: list[Convert]) -> Convert:
    def read(value: Any) -> tuple[Any, ...]:
        return tuple(reader(item) for reader, item in zip(readers, _expect(list, value), strict=True))

    return read


def _basic_reader(type_info: BasicTypeInfo) -> Convert:
    kind = type_info.basic_type
    if kind is BasicType.BOOLEAN:
        return _read_boolean
    if kind in (BasicType.STRING, BasicType.CHAR):
        return _read_text
    if kind in (BasicType.FLOAT, BasicType.DOUBLE):
        return lambda value: float(_scalar(value))
    if kind is BasicType.BIG_DEC:
        return lambda value: decimal.Decimal(_scalar(value))
    if kind is BasicType.INSTANT:
        return _read_instant

    def read_integer(value: Any) -> int:
        number = int(_scalar(value))
        if number != decimal.Decimal(_scalar(value)) or not type_info.accepts(number):
            raise ValueError(f"{value!r} is not of type {type_info}")
        return number

    return read_integer


def _read_boolean(value: Any) -> bool:
    text = value if isinstance(value, bool) else {"true": True, "false": False}.get(str(value).strip().lower())
    if text is None:
        raise ValueError(f"{value!r} is not a Boolean")
    return text


def _read_text(value: Any) -> str:
    """Text as it is; any other JSON value as it is written."""
    if isinstance(value, (str, decimal.Decimal)):
        return str(value)
    return json.dumps(value, ensure_ascii=False, default=float)


def _read_timestamp(value: Any) -> datetime.datetime:
    """A timestamp without zone; text that names a zone is brought to UTC."""
    moment = datetime.datetime.fromisoformat(value)
    return moment if moment.tzinfo is None else moment.astimezone(datetime.UTC).replace(tzinfo=None)


def _read_instant(value: Any) -> Instant:
    elapsed = _read_timestamp(value) - datetime.datetime(1970, 1, 1)
    return Instant(elapsed // datetime.timedelta(seconds=1), elapsed.microseconds * 1_000)


def _scalar(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float, str, decimal.Decimal)):
        raise ValueError(f"{value!r} is not a number")
    return value.strip() if isinstance(value, str) else value


def _expect(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{value!r} is not {'an object' if kind is dict else 'an array'}")
    return value


def _nullable(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


# Writing -------------------------------------------------------------------------------------------------------------


def _writer(type_info: TypeInformation) -> Convert:
    """The function that turns a value of the type, not None, into one that `json.dumps` takes."""
    if isinstance(type_info, RowTypeInfo):
        return _row_writer(type_info)
    if type_info == _BYTES:
        return lambda value: base64.b64encode(bytes(b & 0xFF for b in value)).decode()
    if isinstance(type_info, _ARRAYS):
        element = _nullable(_writer(type_info.element_type))
        return lambda value: [element(item) for item in value]
    if isinstance(type_info, TupleTypeInfo):
        writers = [_nullable(_writer(field)) for field in type_info.get_field_types()]
        return lambda value: [writer(item) for writer, item in zip(writers, value, strict=True)]
    if isinstance(type_info, MapTypeInfo):
        item = _nullable(_writer(type_info.value_type_info))
        return lambda value: {str(k): item(v) for k, v in value.items()}
    if isinstance(type_info, (DateTypeInfo, TimeTypeInfo)):
        return lambda value: value.isoformat()
    if isinstance(type_info, TimestampTypeInfo):
        return lambda value: value.isoformat() + ("" if value.tzinfo else "Z")
    if isinstance(type_info, BasicTypeInfo):
        return _basic_writer(type_info)
    raise WrongTypeError(f"{type_info!r} cannot be written as JSON")


def _row_writer(row_type: RowTypeInfo) -> Convert:
    names = row_type.get_field_names()
    writers = [_nullable(_writer(field)) for field in row_type.get_field_types()]

    def write(value: Any) -> dict[str, Any]:
        values = [value.get(name) for name in names] if isinstance(value, dict) else value
        return {name: writer(item) for name, writer, item in zip(names, writers, values, strict=True)}

    return write


def _basic_writer(type_info: BasicTypeInfo) -> Convert:
    if type_info.basic_type is BasicType.INSTANT:
        return _write_instant

    def write(value: Any) -> Any:
        if not type_info.accepts(value):
            raise ValueError(f"{value!r} is not of type {type_info}")
        if isinstance(value, decimal.Decimal):
            return _plain_number(value)
        # JSON has no NaN and no infinity; as text they read back.
        return str(value) if isinstance(value, float) and not math.isfinite(value) else value

    return write


def _plain_number(value: decimal.Decimal) -> Any:
    """A decimal as a JSON number if that loses no digit, else as text, which the reader accepts too."""
    if value.is_finite() and value == value.to_integral_value():
        return int(value)
    return float(value) if value.is_finite() and decimal.Decimal(repr(float(value))) == value else str(value)


def _write_instant(value: Instant) -> str:
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(
        seconds=value.seconds, microseconds=value.nanos // 1_000
    )
    return moment.isoformat() + "Z"
