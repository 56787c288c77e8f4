"""Conversion of a table's columns to other types: Iceberg types that SQL lacks, and times with fewer digits.

A uuid is read as bytes, as in Flink's connector, or as text, as in Spark's. Digits of a time beyond the declared
precision are truncated towards the past. All other values are preserved or rejected.
"""

from __future__ import annotations

import uuid
from typing import Any, Final

import pyarrow as pa

from penstock.codecs.arrow_types import DIGITS
from penstock.codecs.column_leaves import offsets_of
from penstock.codecs.exact_cast import exact_cast
from penstock.codecs.map_columns import key_type_of, map_array
from penstock.connectors.iceberg.columns import fits, stored_type

_ADVICE: Final = "declare it as {}"


def is_readable(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a column can be read as another type. Values that this type cannot hold fail later."""
    types = pa.types
    if is_uuid(kind):
        return bool(types.is_binary(wanted) or types.is_string(wanted) or wanted == pa.binary(16))
    if types.is_null(kind):
        return True
    if types.is_time(kind) and types.is_time(wanted):
        return True
    if types.is_timestamp(kind) and types.is_timestamp(wanted):
        return (kind.tz is None) == (wanted.tz is None)
    if types.is_struct(kind) and types.is_struct(wanted):
        names = [one.name for one in kind] == [one.name for one in wanted]
        return names and all(is_readable(one.type, two.type) for one, two in zip(kind, wanted, strict=True))
    if _is_list(kind) and _is_list(wanted):
        return is_readable(kind.value_type, wanted.value_type)
    if types.is_map(kind) and types.is_map(wanted):
        return is_readable(key_type_of(kind), key_type_of(wanted)) and is_readable(kind.item_type, wanted.item_type)
    return isinstance(kind, pa.DataType) and not isinstance(kind, pa.BaseExtensionType) and fits(kind, wanted)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column without a declared type; raises `UnsupportedError` if SQL lacks such a type."""
    if is_uuid(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return kind
    return stored_type(kind)


def describe(kind: pa.DataType) -> str:
    """Return a description of a type for error messages, with advice on how to declare the column."""
    types = pa.types
    if is_uuid(kind):
        return f"uuid: {_ADVICE.format('BYTES or STRING')}"
    if types.is_timestamp(kind):
        name = "TIMESTAMP" if kind.tz is None else "TIMESTAMP_LTZ"
        return f"{kind}: {_ADVICE.format(f'{name}({DIGITS[kind.unit]})')}"
    if types.is_time(kind):
        return f"{kind}: {_ADVICE.format('TIME')}"
    return f"{kind}: declare it as it is"


def read_column(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Convert a column as `is_readable` allows; raises `pa.ArrowException` for values that the type cannot hold."""
    kind, types = column.type, pa.types
    if kind == wanted:
        return column
    if is_uuid(kind):
        return _read_uuids(column.storage, wanted)
    if types.is_null(kind):
        return pa.nulls(len(column), wanted)
    if types.is_nested(kind) and not types.is_dictionary(kind):
        return _read_nested(column, wanted)
    return exact_cast(column, wanted)


def _read_uuids(storage: pa.Array, wanted: pa.DataType) -> pa.Array:
    if not pa.types.is_string(wanted):
        return storage.cast(wanted)
    return pa.array([None if one is None else str(uuid.UUID(bytes=one)) for one in storage.to_pylist()], wanted)


def _read_nested(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    whole: Any = column.take(pa.array(range(len(column)), pa.int64()))  # drops values outside of a slice
    nulls = whole.is_null() if whole.null_count else None
    if pa.types.is_struct(wanted):
        parts = [read_column(part, field.type) for part, field in zip(whole.flatten(), wanted, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(wanted), mask=nulls)
    offsets = offsets_of(whole).cast(pa.int32())
    if pa.types.is_map(wanted):
        keys, items = read_column(whole.keys, key_type_of(wanted)), read_column(whole.items, wanted.item_type)
        return map_array(offsets, keys, items, wanted)
    return pa.ListArray.from_arrays(offsets, read_column(whole.values, wanted.value_type), type=wanted)


def is_uuid(kind: pa.DataType) -> bool:
    """Return whether a column of the table has Iceberg's type uuid."""
    return isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.uuid"


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
