"""Converts between columns of a Spark data frame and records, whole columns at a time.

In records, integers, floats, booleans, text, bytes, decimals and dates have the types that Arrow converts them to. A
TIMESTAMP is a `datetime` in UTC, a TIMESTAMP_NTZ one without a zone. An array is a list, a map a dict, a struct a `Row`
with names. The reverse direction accepts the same types, and for a struct also a tuple or a dict.

Builds Arrow columns from buffers.

`pyarrow.array` checks whether its argument comes from pandas, and imports pandas for that: half a second of processor
time in every Python worker. Building a column from its buffers avoids this, and is otherwise no slower.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.base.errors import ConfigurationError, FormatError, shorten
from penstock.base.typeinfo import BasicTypeInfo, PickledBytesTypeInfo, RowTypeInfo, TupleTypeInfo, TypeInformation
from penstock.base.types import Row
from penstock.formats.columns import assembler
from penstock.formats.file_format import get_field_values

ROW: Final = "row"
TUPLE: Final = "tuple"
VALUE: Final = "value"
_UTC = pa.timestamp("us", tz="UTC")

Convert = Callable[[Any], Any]


@dataclass(frozen=True)
class RecordShape:
    """The shape of a frame's records: rows with these names, tuples, or the values of the only column."""

    kind: str
    names: tuple[str, ...]


def build_record_shape(type_info: TypeInformation | None, names: Sequence[str]) -> RecordShape:
    """Return the shape for a type; without a type, rows with the names of the columns.

    Raises:
        ConfigurationError: if the type does not fit the columns.
    """
    if type_info is None or isinstance(type_info, PickledBytesTypeInfo):
        return RecordShape(ROW, tuple(names))
    if isinstance(type_info, RowTypeInfo | TupleTypeInfo):
        if len(type_info.get_field_types()) != len(names):
            raise ConfigurationError(
                f"the data frame has {len(names)} columns ({', '.join(names)}), but {type_info} has "
                f"{len(type_info.get_field_types())} fields"
            )
        if isinstance(type_info, RowTypeInfo):
            return RecordShape(ROW, tuple(type_info.get_field_names()))
        return RecordShape(TUPLE, tuple(names))
    if len(names) != 1:
        raise ConfigurationError(
            f"the data frame has {len(names)} columns ({', '.join(names)}), so its records are rows or tuples, "
            f"not {type_info}"
        )
    return RecordShape(VALUE, tuple(names))


def to_records(columns: Sequence[Any], shape: RecordShape) -> list[Any]:
    """Convert Arrow columns to records."""
    values = [_to_python_values(column) for column in columns]
    return values[0] if shape.kind == VALUE else assembler(shape.names, shape.kind)(values)


def to_record_batch(records: list[Any], schema: Any, owner: str) -> Any:
    """Convert records to a record batch of an Arrow schema; `owner` is the operator that errors name.

    Raises:
        FormatError: if a record does not fit.
    """
    rows = _fields_of_all(records, schema.names, owner)
    columns: list[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [()] * len(schema.names)
    arrays = []
    for field, column in zip(schema, columns, strict=True):
        convert = _from_python(field.type)
        try:
            values = column if convert is None else [None if v is None else convert(v) for v in column]
            arrays.append(pa.array(values, field.type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise FormatError(
                f"{owner}: a record does not fit the schema: column {field.name!r} as {field.type}: {error}"
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _fields_of_all(records: list[Any], names: list[str], owner: str) -> list[Sequence[Any]]:
    size = len(names)
    kinds = set(map(type, records))
    if kinds == {tuple} and set(map(len, records)) == {size}:
        return records
    rows: list[Sequence[Any]] = []
    for record in records:
        try:
            if isinstance(record, dict | tuple | list | Row):
                rows.append(get_field_values(record, names))
            elif size == 1:
                rows.append((record,))
            else:
                raise ValueError(f"a {type(record).__name__} is not a row of {size} columns")
        except ValueError as error:
            raise FormatError(
                f"{owner}: the record {shorten(repr(record))} does not fit the columns {', '.join(names)}: {error}"
            ) from error
    return rows


# --- values that Arrow and Penstock have different notions of ---------------------------------------------------------


def _to_python_values(column: Any) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(_UTC if column.type.tz else pa.timestamp("us"), safe=False)
    values = column.to_pylist()
    convert = _to_python(column.type)
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _to_python(kind: Any) -> Convert | None:
    """Return the function to apply to a value of `to_pylist`; None if the value needs no conversion."""
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        converts = [(field.name, _optional(_to_python(field.type))) for field in fields]
        return lambda value: Row(**{name: convert(value[name]) for name, convert in converts})
    if pa.types.is_map(kind):
        key, item = _optional(_to_python(kind.key_type)), _optional(_to_python(kind.item_type))
        return lambda value: {key(k): item(v) for k, v in value}
    if _is_list(kind) and (element := _to_python(kind.value_type)) is not None:
        convert = _optional(element)
        return lambda value: [convert(item) for item in value]
    return None


def _from_python(kind: Any) -> Convert | None:
    """Return the function to apply to a value for `pyarrow.array`; None if the value needs no conversion."""
    if pa.types.is_struct(kind):
        names = [kind.field(i).name for i in range(kind.num_fields)]
        converts = [_optional(_from_python(kind.field(i).type)) for i in range(kind.num_fields)]

        def to_dict(value: Any) -> dict[str, Any]:
            return {n: c(v) for n, c, v in zip(names, converts, get_field_values(value, names), strict=True)}

        return to_dict
    if pa.types.is_map(kind):
        key, item = _optional(_from_python(kind.key_type)), _optional(_from_python(kind.item_type))
        return lambda value: [(key(k), item(v)) for k, v in value.items()]
    if _is_list(kind) and (element := _from_python(kind.value_type)) is not None:
        convert = _optional(element)
        return lambda value: [convert(item) for item in value]
    return None


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _optional(convert: Convert | None) -> Convert:
    if convert is None:
        return lambda value: value
    return lambda value: None if value is None else convert(value)


# --- schemas ----------------------------------------------------------------------------------------------------------


def field_types(type_info: TypeInformation) -> list[tuple[str, TypeInformation]] | None:
    """Return names and types of the columns for records of a type; None if the type does not determine them."""
    if isinstance(type_info, RowTypeInfo):
        return list(zip(type_info.get_field_names(), type_info.get_field_types(), strict=True))
    if isinstance(type_info, TupleTypeInfo):
        return [(f"f{i}", field) for i, field in enumerate(type_info.get_field_types())]
    if isinstance(type_info, PickledBytesTypeInfo):
        return None
    return [("f0", type_info)] if isinstance(type_info, BasicTypeInfo) else None


def numbers(values: Any) -> pa.Array:
    """Return a column that shares the memory of a NumPy array of numbers."""
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def numbers_or_null(values: Sequence[int | None]) -> pa.Array:
    """Return a column of integers (int64) with nulls for None."""
    try:
        return numbers(np.array(values, np.int64))
    except TypeError:  # NumPy has no null integers
        is_valid = np.fromiter((value is not None for value in values), np.bool_, len(values))
        filled = np.fromiter((0 if value is None else value for value in values), np.int64, len(values))
        validity = pa.py_buffer(np.packbits(is_valid, bitorder="little"))
        return pa.Array.from_buffers(pa.int64(), len(values), [validity, pa.py_buffer(filled)])


def binary(items: Sequence[bytes]) -> pa.Array:
    """Return a column of bytes."""
    offsets = array("i", accumulate(map(len, items), initial=0))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(items))]
    return pa.Array.from_buffers(pa.binary(), len(items), buffers)
