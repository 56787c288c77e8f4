"""Converts single values between parsed JSON and row types, in both directions.

Dates, times and timestamps are ISO-8601 text, in UTC unless a zone is given; bytes are base64; integers and decimals
keep all their digits.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from collections.abc import Callable
from typing import Any, Final

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
from penstock.base.errors import FormatError, WrongTypeError
from penstock.base.time import Instant
from penstock.base.types import Row, values_by_names
from penstock.codecs.json_text import NumberText, convert_to_float
from penstock.codecs.messages import BAD_RECORD, format_reason
from penstock.codecs.number_text import number_text, read_decimal
from penstock.codecs.row_batches import make_rows

Convert = Callable[[Any], Any]

ARRAYS: Final = (BasicArrayTypeInfo, ListTypeInfo, ObjectArrayTypeInfo, PrimitiveArrayTypeInfo)
BYTES: Final = PrimitiveArrayTypeInfo(BasicTypeInfo(BasicType.BYTE))

# Reading -------------------------------------------------------------------------------------------------------------


def reader(type_info: TypeInformation, strict: bool) -> Convert:
    """Return a function that converts a parsed JSON value, not None, to a value of the type."""
    if isinstance(type_info, RowTypeInfo):
        return row_reader(type_info, strict)
    if type_info == BYTES:
        return lambda value: base64.b64decode(value, validate=True)
    if isinstance(type_info, ARRAYS):
        element = nullable(reader(type_info.element_type, strict))
        return lambda value: [element(item) for item in _expect(list, value)]
    if isinstance(type_info, TupleTypeInfo):
        return _tuple_reader([nullable(reader(field, strict)) for field in type_info.get_field_types()])
    if isinstance(type_info, MapTypeInfo):
        key, item = reader(type_info.key_type_info, strict), nullable(reader(type_info.value_type_info, strict))
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


def row_reader(row_type: RowTypeInfo, strict: bool) -> Convert:
    """Return a function that converts a parsed JSON object to a row; its errors name the field."""
    names = tuple(row_type.get_field_names())
    readers = [nullable(reader(field, strict)) for field in row_type.get_field_types()]

    def read(value: Any) -> Row:
        fields = _expect(dict, value)
        if strict and (missing := [name for name in names if name not in fields]):
            raise FormatError(f"missing {', '.join(missing)}")
        values = []
        for name, read_field in zip(names, readers, strict=True):
            try:
                values.append(read_field(fields.get(name)))
            except BAD_RECORD as error:
                raise FormatError(f"field {name!r}: {format_reason(error)}") from error
        return make_rows(names, (values,))[0]

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
        return lambda value: float(value) if isinstance(_scalar(value), str) else convert_to_float(value)
    if kind is BasicType.BIG_DEC:
        return lambda value: read_decimal(value) if isinstance(value, str) else decimal.Decimal(_scalar(value))
    if kind is BasicType.INSTANT:
        return _read_instant

    def read_integer(value: Any) -> int:
        number = int(_scalar(value))
        if number != decimal.Decimal(_scalar(value)) or not type_info.accepts(number):
            raise FormatError(f"{value!r} is not of type {type_info}")
        return number

    return read_integer


def _read_boolean(value: Any) -> bool:
    text = value if isinstance(value, bool) else {"true": True, "false": False}.get(str(value).strip().lower())
    if text is None:
        raise FormatError(f"{value!r} is not a Boolean")
    return text


def _read_text(value: Any) -> str:
    """Return strings unchanged, and any other JSON value as its JSON text."""
    if isinstance(value, NumberText):
        return value.text
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=float)


def _read_timestamp(value: Any) -> datetime.datetime:
    """Parse a timestamp without a zone; text with a zone is converted to UTC."""
    moment = datetime.datetime.fromisoformat(value)
    return moment if moment.tzinfo is None else moment.astimezone(datetime.UTC).replace(tzinfo=None)


def _read_instant(value: Any) -> Instant:
    elapsed = _read_timestamp(value) - datetime.datetime(1970, 1, 1)
    return Instant(elapsed // datetime.timedelta(seconds=1), elapsed.microseconds * 1_000)


def _scalar(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float, str, decimal.Decimal)):
        raise FormatError(f"{value!r} is not a number")
    if isinstance(value, str):
        return number_text(value)
    return value


def _expect(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise FormatError(f"{value!r} is not {'an object' if kind is dict else 'an array'}")
    return value


def nullable(convert: Convert) -> Convert:
    """Return a converter that also accepts None."""
    return lambda value: None if value is None else convert(value)


# Writing -------------------------------------------------------------------------------------------------------------


def writer(type_info: TypeInformation) -> Convert:
    """Return a function that converts a value of the type, not None, to one that `json.dumps` accepts."""
    if isinstance(type_info, RowTypeInfo):
        return _row_writer(type_info)
    if type_info == BYTES:
        return lambda value: base64.b64encode(bytes(b & 0xFF for b in value)).decode()
    if isinstance(type_info, ARRAYS):
        element = nullable(writer(type_info.element_type))
        return lambda value: [element(item) for item in value]
    if isinstance(type_info, TupleTypeInfo):
        writers = [nullable(writer(field)) for field in type_info.get_field_types()]
        return lambda value: [writer(item) for writer, item in zip(writers, value, strict=True)]
    if isinstance(type_info, MapTypeInfo):
        item = nullable(writer(type_info.value_type_info))
        return lambda value: {str(k): item(v) for k, v in value.items()}
    if isinstance(type_info, (DateTypeInfo, TimeTypeInfo)):
        return lambda value: value.isoformat()
    if isinstance(type_info, TimestampTypeInfo):
        return lambda value: value.isoformat() + ("" if value.tzinfo else "Z")
    if isinstance(type_info, BasicTypeInfo):
        return _basic_writer(type_info)
    raise WrongTypeError(f"{type_info!r} cannot be written as JSON")


def _row_writer(row_type: RowTypeInfo) -> Convert:
    names = tuple(row_type.get_field_names())
    writers = [nullable(writer(field)) for field in row_type.get_field_types()]

    def write(value: Any) -> dict[str, Any]:
        values = [value.get(name) for name in names] if isinstance(value, dict) else value
        if isinstance(value, Row):
            values = values_by_names(value, names)
        return {name: writer(item) for name, writer, item in zip(names, writers, values, strict=True)}

    return write


def _basic_writer(type_info: BasicTypeInfo) -> Convert:
    if type_info.basic_type is BasicType.INSTANT:
        return _write_instant

    def write(value: Any) -> Any:
        if not type_info.accepts(value):
            raise FormatError(f"{value!r} is not of type {type_info}")
        if isinstance(value, decimal.Decimal):
            return _plain_number(value)
        # JSON has no NaN or infinity; they are written as text, which the reader accepts.
        return str(value) if isinstance(value, float) and not math.isfinite(value) else value

    return write


def _plain_number(value: decimal.Decimal) -> Any:
    """Return a decimal as a JSON number if no digit is lost, else as text, which the reader also accepts."""
    if value.is_finite() and value == value.to_integral_value():
        return int(value)
    return float(value) if value.is_finite() and decimal.Decimal(repr(float(value))) == value else str(value)


def _write_instant(value: Instant) -> str:
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(
        seconds=value.seconds, microseconds=value.nanos // 1_000
    )
    return moment.isoformat() + "Z"
