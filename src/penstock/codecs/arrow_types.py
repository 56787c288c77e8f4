"""Conversion between Penstock's and Arrow's types and values."""

from __future__ import annotations

import datetime
import decimal
from typing import Any, Final

import pyarrow as pa

from penstock.base.errors import ConfigurationError
from penstock.base.typeinfo import (
    BasicArrayTypeInfo,
    BasicType,
    BasicTypeInfo,
    DateTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    Types,
)

#: fractional digits of a second in each of Arrow's units
DIGITS: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}
#: nanoseconds in each of Arrow's units
NANOSECONDS: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_BASIC = {
    BasicType.STRING: pa.string(),
    BasicType.CHAR: pa.string(),
    BasicType.BOOLEAN: pa.bool_(),
    BasicType.BYTE: pa.int8(),
    BasicType.SHORT: pa.int16(),
    BasicType.INT: pa.int32(),
    BasicType.LONG: pa.int64(),
    BasicType.FLOAT: pa.float32(),
    BasicType.DOUBLE: pa.float64(),
    BasicType.BIG_INT: pa.decimal128(38, 0),
    BasicType.BIG_DEC: pa.decimal128(38, 18),
}

_PYTHON: dict[Any, Any] = {
    str: pa.string(),
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    bytes: pa.binary(),
    decimal.Decimal: pa.decimal128(38, 18),
    datetime.date: pa.date32(),
    datetime.time: pa.time64("us"),
    datetime.datetime: pa.timestamp("us"),
}


def arrow_type(column_type: Any) -> Any:
    """Return Arrow's type for a Python type or a `TypeInformation`; an Arrow type is returned unchanged.

    Raises:
        ConfigurationError: if Arrow has no such type.
    """
    if isinstance(column_type, pa.DataType):
        return column_type
    if isinstance(column_type, type) and column_type in _PYTHON:
        return _PYTHON[column_type]
    if isinstance(column_type, BasicTypeInfo) and column_type.basic_type in _BASIC:
        return _BASIC[column_type.basic_type]
    if isinstance(column_type, DateTypeInfo):
        return pa.date32()
    if isinstance(column_type, TimeTypeInfo):
        return pa.time64("us")
    if isinstance(column_type, TimestampTypeInfo):
        return pa.timestamp("us")
    if column_type == Types.PRIMITIVE_ARRAY(Types.BYTE()):
        return pa.binary()
    if isinstance(column_type, BasicArrayTypeInfo | ListTypeInfo | ObjectArrayTypeInfo | PrimitiveArrayTypeInfo):
        return pa.list_(arrow_type(column_type.element_type))
    if isinstance(column_type, MapTypeInfo):
        return pa.map_(arrow_type(column_type.key_type_info), arrow_type(column_type.value_type_info))
    if isinstance(column_type, RowTypeInfo):
        return pa.struct(list(arrow_schema(column_type)))
    raise ConfigurationError(f"Arrow has no type for {column_type!r}")


def arrow_schema(row_type: RowTypeInfo) -> pa.Schema:
    """Return the Arrow schema of a row type. Raises ConfigurationError if Arrow has no type for a field."""
    fields = zip(row_type.get_field_names(), row_type.get_field_types(), strict=True)
    return pa.schema([(name, arrow_type(field_type)) for name, field_type in fields])
