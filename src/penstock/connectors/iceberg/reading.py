"""Conversion of a table's columns to other types: Iceberg types that SQL lacks, and times with fewer digits.

A uuid is read as bytes, as in Flink's connector, or as text, as in Spark's. Digits of a time beyond the declared
precision are truncated towards the past. All other values are preserved or rejected.
"""

from __future__ import annotations

import uuid
from typing import Any, Final

import pyarrow as pa

from penstock.codecs.arrow_types import DIGITS
from penstock.codecs.column_leaves import get_list_offsets
from penstock.codecs.exact_cast import exact_cast
from penstock.codecs.map_columns import get_map_key_type, map_array
from penstock.connectors.iceberg.columns import fits, stored_type

_ADVICE: Final = "declare it as {}"


def is_readable(kind: pa.DataType, target: pa.DataType) -> bool:
    """Return whether a column can be read as another type. Values that this type cannot hold fail later."""
    types = pa.types
    if is_uuid(kind):
        return bool(types.is_binary(target) or types.is_string(target) or target == pa.binary(16))
    if types.is_null(kind):
        return True
    if types.is_time(kind) and types.is_time(target):
        return True
    if types.is_timestamp(kind) and types.is_timestamp(target):
        return (kind.tz is None) == (target.tz is None)
    if types.is_struct(kind) and types.is_struct(target):
        names = [field.name for field in kind] == [field.name for field in target]
        return names and all(
            is_readable(field.type, target_field.type) for field, target_field in zip(kind, target, strict=True)
        )
    if _is_list(kind) and _is_list(target):
        return is_readable(kind.value_type, target.value_type)
    if types.is_map(kind) and types.is_map(target):
        return is_readable(get_map_key_type(kind), get_map_key_type(target)) and is_readable(
            kind.item_type, target.item_type
        )
    return isinstance(kind, pa.DataType) and not isinstance(kind, pa.BaseExtensionType) and fits(kind, target)


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


def read_column(column: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert a column as `is_readable` allows; raises `pa.ArrowException` for values that the type cannot hold."""
    kind, types = column.type, pa.types
    if kind == target:
        return column
    if is_uuid(kind):
        return _read_uuids(column.storage, target)
    if types.is_null(kind):
        return pa.nulls(len(column), target)
    if types.is_nested(kind) and not types.is_dictionary(kind):
        return _read_nested(column, target)
    return exact_cast(column, target)


def _read_uuids(storage: pa.Array, target: pa.DataType) -> pa.Array:
    if not pa.types.is_string(target):
        return storage.cast(target)
    return pa.array([None if value is None else str(uuid.UUID(bytes=value)) for value in storage.to_pylist()], target)


def _read_nested(column: pa.Array, target: pa.DataType) -> pa.Array:
    trimmed: Any = column.take(pa.array(range(len(column)), pa.int64()))  # drops values outside of a slice
    nulls = trimmed.is_null() if trimmed.null_count else None
    if pa.types.is_struct(target):
        parts = [read_column(part, field.type) for part, field in zip(trimmed.flatten(), target, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(target), mask=nulls)
    offsets = get_list_offsets(trimmed).cast(pa.int32())
    if pa.types.is_map(target):
        keys, items = read_column(trimmed.keys, get_map_key_type(target)), read_column(trimmed.items, target.item_type)
        return map_array(offsets, keys, items, target)
    return pa.ListArray.from_arrays(offsets, read_column(trimmed.values, target.value_type), type=target)


def is_uuid(kind: pa.DataType) -> bool:
    """Return whether a column of the table has Iceberg's type uuid."""
    return isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.uuid"


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
