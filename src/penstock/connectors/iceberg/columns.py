"""Arrow columns in Iceberg's types: type mapping, type compatibility, and conversion of records to columns.

Iceberg has integers of 32 and 64 bits, and timestamps and times of day in microseconds. Narrower types are widened to
these, and types without a counterpart are rejected before anything is written.

Conversion of a table's columns to other types: Iceberg types that SQL lacks, and times with fewer digits.

A uuid is read as bytes, as in Flink's connector, or as text, as in Spark's. Digits of a time beyond the declared
precision are truncated towards the past. All other values are preserved or rejected.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from penstock.base.errors import UnsupportedError
from penstock.base.types import Row
from penstock.codecs.arrow_columns import exact_cast, get_list_offsets, get_map_key_type, map_array
from penstock.codecs.arrow_types import DIGITS, exact_array
from penstock.runtime.connector import RecordError

_PLAIN: Final[dict[pa.DataType, pa.DataType]] = {
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
    pa.uint8(): pa.int32(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
}


def stored_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which an Iceberg table stores a column of this type.

    Raises:
        UnsupportedError: if Iceberg lacks such a type.
    """
    stored = _PLAIN.get(kind)
    if stored is not None:
        return stored
    if pa.types.is_time(kind):
        return pa.time64("us")
    if pa.types.is_timestamp(kind):
        if kind.unit == "ns":
            raise UnsupportedError(f"Iceberg keeps points in time in microseconds, so a column cannot be {kind}")
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if pa.types.is_dictionary(kind):
        return stored_type(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(stored_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(stored_type(get_map_key_type(kind)), stored_type(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, stored_type(field.type), field.nullable) for field in kind])
    if pa.types.is_null(kind) or pa.types.is_duration(kind) or pa.types.is_interval(kind) or pa.types.is_union(kind):
        raise UnsupportedError(f"Iceberg has no type for {kind}")
    return kind


def fits(kind: pa.DataType, other: pa.DataType) -> bool:
    """Return whether every value of one type fits another unchanged. Compares stored types; fields may be NULL."""
    kind, other = stored_type(kind), stored_type(other)
    if pa.types.is_struct(kind) and pa.types.is_struct(other):
        names = [field.name for field in kind] == [field.name for field in other]
        return names and all(fits(field.type, other_field.type) for field, other_field in zip(kind, other, strict=True))
    if pa.types.is_list(kind) and pa.types.is_list(other):
        return fits(kind.value_type, other.value_type)
    if pa.types.is_map(kind) and pa.types.is_map(other):
        return fits(get_map_key_type(kind), get_map_key_type(other)) and fits(kind.item_type, other.item_type)
    if pa.types.is_decimal(kind) and pa.types.is_decimal(other):
        return bool(kind.scale == other.scale and kind.precision <= other.precision)
    wider = {pa.int32(): pa.int64(), pa.float32(): pa.float64()}
    return bool(kind == other or wider.get(kind) == other)


def conformed(columns: pa.Table, schema: pa.Schema, title: str) -> pa.Table:
    """Return the columns in a table's types and order; missing columns become NULL.

    Raises:
        UnsupportedError: for values that a column of the table cannot hold, including NULL in a required column.
    """
    arrays = []
    for field in schema:
        index = columns.schema.get_field_index(field.name)
        if index < 0:
            array: Any = pa.chunked_array([pa.nulls(columns.num_rows, field.type)], field.type)
        else:
            array = columns.column(index)
            if array.type != field.type:
                try:
                    array = exact_cast(array, field.type)
                except pa.ArrowException as error:
                    raise UnsupportedError(
                        f"column '{field.name}' of table {title} is {field.type} and cannot hold all values of "
                        f"{array.type}: {error}"
                    ) from error
        if not field.nullable and array.null_count:
            raise UnsupportedError(
                f"column '{field.name}' of table {title} is required, but {array.null_count} of {len(array)} rows have "
                "no value for it"
            )
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=schema)


def record_columns(schema: pa.Schema) -> Callable[[Sequence[Any]], pa.RecordBatch]:
    """Return a function that converts records to columns: named rows and dicts by name, others by field order."""
    names = schema.names

    def of_record(record: Any) -> Sequence[Any]:
        named = record.as_dict() if isinstance(record, Row) and record.has_field_names else record
        if isinstance(named, dict):
            unknown = named.keys() - set(names)
            if unknown:
                raise _mismatch(record, f"has no column {', '.join(map(repr, sorted(map(str, unknown))))}")
            return [named.get(name) for name in names]
        values = tuple(record) if isinstance(record, Row | tuple | list) else (record,)
        if len(values) != len(names):
            raise _mismatch(record, f"has {len(names)} columns, the record {len(values)} fields")
        return values

    def made(values: Sequence[Any]) -> pa.RecordBatch:
        rows = [of_record(record) for record in values]
        arrays = []
        for field, column in zip(schema, zip(*rows, strict=True), strict=True):
            try:
                arrays.append(exact_array(column, field.type))
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise UnsupportedError(
                    f"column '{field.name}' is {field.type}, and a record has another value there: {error}"
                ) from error
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([field.with_nullable(True) for field in schema]))

    return made


def _mismatch(record: Any, reason: str) -> RecordError:
    error = RecordError(record, "the sink")
    error.__cause__ = UnsupportedError(f"the table {reason}")
    return error


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
