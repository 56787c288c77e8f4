"""Converts SQL values to JSON.

Rows and maps become objects with sorted keys, arrays become arrays, and bytes become base64 strings. Temporal values
become strings such as `1990-06-02T13:37:42.001`, with a trailing `Z` for TIMESTAMP_LTZ.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.table.data.errors import TableRuntimeError, ValidationError
from penstock.table.data.logical_types import (
    LENGTH_MAX,
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    LocalZonedTimestampType,
    MapType,
    MultisetType,
    NullType,
    NumericType,
    RowType,
    TimestampType,
    VarCharType,
    VariantType,
)
from penstock.table.data.temporal_text import format_timestamp
from penstock.table.data.values import Datum
from penstock.table.functions.definition import Session
from penstock.table.functions.java_numbers import double_text
from penstock.table.functions.json_documents import key_order, storable, text_in_quotes
from penstock.table.functions.kernels import value_kernel
from penstock.table.functions.type_rules import BYTES, TEXTS
from penstock.table.functions.variants import Variant

#: writes a value that is not NULL
Writer = Callable[[Any], str]

_TEXT: Final = VarCharType(LENGTH_MAX)
_PLAIN: Final = (
    *TEXTS,
    *BYTES,
    BooleanType,
    NumericType,
    TimestampType,
    LocalZonedTimestampType,
    VariantType,
    NullType,
)
#: the characters that JSON escapes
_NEEDS_ESCAPES: Final = r'["\\\x00-\x1f]'


def becomes_json(data_type: DataType) -> bool:
    """Return whether values of a type can be written as JSON."""
    if isinstance(data_type, MapType):
        return isinstance(data_type.key_type, TEXTS) and becomes_json(data_type.value_type)
    if isinstance(data_type, MultisetType):
        return isinstance(data_type.element_type, TEXTS)
    if isinstance(data_type, ArrayType | RowType):
        return all(map(becomes_json, data_type.children()))
    return isinstance(data_type, _PLAIN)


def json_text(value: Any, data_type: DataType, session: Session) -> str:
    """Write a value as JSON. Raises `ValidationError` for types without a JSON form."""
    return "null" if value is None else storable(json_writer(data_type)(value))


@lru_cache(maxsize=256)
def json_writer(data_type: DataType) -> Writer:
    """Return the writer for a type. Raises `ValidationError` for types without a JSON form."""
    match data_type:
        case BooleanType():
            return lambda value: "true" if value else "false"
        case DoubleType() | FloatType():
            return _floating
        case DecimalType() | IntegralType():
            return str
        case TimestampType():
            return lambda value: f'"{_timestamp(value)}"'
        case LocalZonedTimestampType():
            return lambda value: f'"{_timestamp(value)}Z"'
        case VariantType():
            return _variant
        case NullType():
            return lambda value: "null"
        case MultisetType(element_type=element) if isinstance(element, TEXTS):
            return _object(str)
        case ArrayType(element_type=element) if not isinstance(data_type, MultisetType):
            return _array(json_writer(element))
        case MapType(key_type=key, value_type=item) if isinstance(key, TEXTS):
            return _object(json_writer(item))
        case RowType():
            return _row(data_type)
        case _ if isinstance(data_type, TEXTS):
            return text_in_quotes
        case _ if isinstance(data_type, BYTES):
            return lambda value: f'"{base64.b64encode(value).decode()}"'
    raise ValidationError(f"Type {data_type} is not scalar or cannot be converted into JSON.")


def json_column(column: Datum, data_type: DataType) -> Datum:
    """Convert a column to JSON, writing each distinct value once. NULL stays NULL."""
    if isinstance(data_type, NullType):
        return pa.scalar(None, pa.string())
    if isinstance(data_type, IntegralType):
        return column.cast(pa.string())
    if isinstance(data_type, BooleanType):
        return pc.if_else(column, "true", "false")
    if isinstance(data_type, TEXTS) and not pc.any(pc.match_substring_regex(_as_array(column), _NEEDS_ESCAPES)).as_py():
        return pc.binary_join_element_wise('"', column, '"', "")
    writer = json_writer(data_type)
    return value_kernel(lambda value: storable(writer(value)), (data_type,), _TEXT)(column)


def _as_array(column: Datum) -> pa.Array:
    return pa.array([column.as_py()], column.type) if isinstance(column, pa.Scalar) else column


def _floating(value: float) -> str:
    """Write a DOUBLE as Java's BigDecimal prints it. FLOAT is widened to DOUBLE; NaN and infinities become strings."""
    text = double_text(value + 0.0)  # -0.0 becomes 0.0
    return str(Decimal(text)) if math.isfinite(value) else f'"{text}"'


def _timestamp(nanoseconds: int) -> str:
    day, _, time = format_timestamp(nanoseconds, 9).partition(" ")
    clock, _, fraction = time.partition(".")
    fraction = fraction.rstrip("0")
    return f"{day}T{clock}.{fraction}" if fraction else f"{day}T{clock}"


def _variant(value: Variant) -> str:
    return value.json()


def _or_null(write: Writer, value: Any) -> str:
    return "null" if value is None else write(value)


def _array(write: Writer) -> Writer:
    return lambda values: f"[{','.join(['null' if value is None else write(value) for value in values])}]"


def _object(write: Writer) -> Writer:
    def text(pairs: Sequence[tuple[str | None, Any]]) -> str:
        by_key: dict[str, Any] = {}
        for index, (key, value) in enumerate(pairs):
            if key is None:
                raise TableRuntimeError(
                    f"Key at index {index} was null. This is not supported during conversion to JSON."
                )
            by_key[key] = value
        ordered = sorted(by_key.items(), key=lambda pair: key_order(pair[0]))
        return "{" + ",".join([f"{text_in_quotes(key)}:{_or_null(write, value)}" for key, value in ordered]) + "}"

    return text


def _row(row: RowType) -> Writer:
    indices = sorted(range(len(row.fields)), key=lambda index: key_order(row.fields[index].name))
    parts = [
        (f"{text_in_quotes(row.fields[index].name)}:", index, json_writer(row.fields[index].data_type))
        for index in indices
    ]

    def text(values: Sequence[Any]) -> str:
        return "{" + ",".join([name + _or_null(write, values[index]) for name, index, write in parts]) + "}"

    return text
