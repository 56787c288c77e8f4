"""Conversion between Penstock's and Arrow's types and values.

Converts between rows and columns.
"""

from __future__ import annotations

import datetime
import decimal
from array import array
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from penstock.base.errors import ConfigurationError, FormatError, WrongValueError, short_repr
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
from penstock.base.types import Row, values_by_names
from penstock.codecs.column_data import ColumnData
from penstock.codecs.serialization import BadMessage, Deserialized, format_reason

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


#: Exceptions that writing an invalid record may raise.
BAD_VALUE: Final = (AttributeError, TypeError, ValueError, ArithmeticError, LookupError)


#: type codes of Python arrays with the same memory layout as Arrow's
_ARRAY_CODES: Final = {pa.int8(): "b", pa.int16(): "h", pa.int32(): "i", pa.int64(): "q"}
#: classes whose values Arrow truncates to integers
_FRACTIONAL: Final = (float, Decimal, np.floating)


def exact_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Build a column from Python values without truncating any of them to an integer.

    `pa.array` truncates 7.9 to 7 for integers, dates and times, also inside lists, maps and structs.

    Raises:
        ValueError: if a value is not integral but the type requires it; the message shows the value.
        TypeError, pyarrow.ArrowException, OverflowError: as `pa.array` raises for other invalid values.
    """
    code = _ARRAY_CODES.get(kind)
    if code is not None:
        try:  # the fastest way, which accepts only integers, no None
            numbers = pa.py_buffer(array(code, values))
        except (TypeError, OverflowError):
            pass
        else:
            return pa.Array.from_buffers(kind, len(values), [None, numbers])
    if _has_whole_numbers(kind):
        _check_whole_numbers(values, kind)
    return pa.array(values, kind)


def _is_whole(kind: pa.DataType) -> bool:
    return bool(kinds.is_integer(kind) or (kinds.is_temporal(kind) and not kinds.is_interval(kind)))


def _has_whole_numbers(kind: pa.DataType) -> bool:
    """Return whether a type is or contains a type stored as integers."""
    return _is_whole(kind) or any(_has_whole_numbers(kind.field(index).type) for index in range(kind.num_fields))


def _check_whole_numbers(values: Sequence[Any], kind: pa.DataType) -> None:
    if _is_whole(kind):
        if not any(issubclass(value_type, _FRACTIONAL) for value_type in set(map(type, values))):
            return
        for value in values:
            if isinstance(value, _FRACTIONAL) and value % 1 != 0:
                raise WrongValueError(f"{short_repr(value)} is not a whole number")
    elif kinds.is_map(kind):
        entries = list(chain.from_iterable(_entries(mapping) for mapping in values))
        for index, part in enumerate((kind.key_type, kind.item_type)):
            if _has_whole_numbers(part):
                _check_whole_numbers([entry[index] for entry in entries], part)
    elif kinds.is_struct(kind):
        rows = [row if isinstance(row, Mapping) else dict(row or ()) for row in values]
        for field in kind:
            if _has_whole_numbers(field.type):
                _check_whole_numbers([row.get(field.name) for row in rows], field.type)
    elif kind.num_fields == 1:  # all list types
        _check_whole_numbers(
            list(chain.from_iterable(items for items in values if items is not None)), kind.field(0).type
        )


def _entries(value: Any) -> Iterable[Any]:
    return value.items() if isinstance(value, Mapping) else value or ()


def columns_by_name(columns: Sequence[Sequence[Any]], schema: pa.Schema) -> ColumnData:
    """Build columns from the values of each field. Raises ValueError, naming the field, for values of another type."""
    arrays = []
    for values, field in zip(columns, schema, strict=True):
        try:
            arrays.append(exact_array(values, field.type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise FormatError(f"field {field.name!r}: {format_reason(error)}") from error
    return ColumnData(pa.RecordBatch.from_arrays(arrays, schema=schema))


def to_columns(deserialized: Deserialized, schema: pa.Schema) -> Deserialized:
    """Convert decoded rows to columns. Rows that do not fit the schema become bad messages."""
    assert isinstance(deserialized.values, list)
    rows: list[Row] = deserialized.values
    try:
        return deserialized._replace(values=columns_by_name(fields_of_rows(rows, schema.names), schema))
    except ValueError:
        positions = range(len(rows)) if deserialized.places is None else deserialized.places
    valid: list[int] = []
    bad = list(deserialized.bad)
    for index, row in enumerate(rows):
        try:
            columns_by_name(fields_of_rows([row], schema.names), schema)
            valid.append(index)
        except ValueError as error:
            bad.append(BadMessage(positions[index], format_reason(error), error))
    columns = columns_by_name(fields_of_rows([rows[index] for index in valid], schema.names), schema)
    return Deserialized(columns, [positions[index] for index in valid], sorted(bad))


def fields_of_rows(records: Sequence[Any] | ColumnData, names: Sequence[str]) -> list[Sequence[Any]]:
    """Return the values of each field: by name from dicts, columns and named rows, by position from other records.

    Raises:
        ValueError: if a record has the wrong number of fields.
        KeyError: if the columns lack a name.
    """
    if isinstance(records, ColumnData):
        return [records.columns.column(name).to_pylist() for name in names]
    ordered = tuple(names)
    rows = [
        values_by_names(record, ordered)
        if record.__class__ is Row
        else [record.get(name) for name in names]
        if isinstance(record, dict)
        else record
        for record in records
    ]
    return list(zip(*rows, strict=True)) if rows else [()] * len(names)
