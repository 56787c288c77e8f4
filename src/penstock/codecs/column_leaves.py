"""Helpers for the leaf columns of nested list, map and struct columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from penstock.base.errors import UnsupportedError


def leaf_types(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Yield the leaf types of a type; yield the type itself if it is not nested."""
    if not kinds.is_nested(kind):
        yield kind
    for index in range(kind.num_fields):
        yield from leaf_types(kind.field(index).type)


def has_times(kind: pa.DataType) -> bool:
    """Return whether a type is or contains a timestamp."""
    return any(kinds.is_timestamp(leaf) for leaf in leaf_types(kind))


def has_dates(kind: pa.DataType) -> bool:
    """Return whether a type is or contains a date."""
    return any(kinds.is_date32(leaf) for leaf in leaf_types(kind))


def has_decimals(kind: pa.DataType) -> bool:
    """Return whether a type is or contains a decimal."""
    return any(kinds.is_decimal(leaf) for leaf in leaf_types(kind))


def convert_leaves(convert: Callable[..., pa.Array], *columns: pa.Array) -> pa.Array:
    """Apply `convert` to the leaf values of a column and return a column of the same shape.

    Args:
        convert: takes one leaf of each column and returns an array of the same length.
        columns: columns of the same shape. The result has the nulls and lengths of the first one.

    Raises:
        UnsupportedError: for a list type that file readers do not produce.
    """
    first = columns[0]
    kind = first.type
    if not kinds.is_nested(kind):
        return convert(*columns)
    if kinds.is_struct(kind):
        parts = [
            convert_leaves(convert, *[column.field(index) for column in columns]) for index in range(kind.num_fields)
        ]
        fields = [kind.field(index).with_type(part.type) for index, part in enumerate(parts)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=first.is_null())
    if first.offset:  # a slice shares the values of the whole column
        columns = tuple(column.take(pa.array(np.arange(len(column)))) for column in columns)
        first = columns[0]
    if kinds.is_map(kind):
        keys = convert_leaves(convert, *[column.keys for column in columns])
        items = convert_leaves(convert, *[column.items for column in columns])
        return pa.MapArray.from_arrays(get_list_offsets(first), keys, items)
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        values = convert_leaves(convert, *[column.values for column in columns])
        field = kind.value_field.with_type(values.type)
        if kinds.is_large_list(kind):
            return pa.LargeListArray.from_arrays(get_list_offsets(first), values, type=pa.large_list(field))
        return pa.ListArray.from_arrays(get_list_offsets(first), values, type=pa.list_(field))
    raise UnsupportedError(f"values inside of {kind} cannot be converted")


def get_list_offsets(column: pa.Array) -> pa.Array:
    """Return the start offset of each list, or NULL where the list is NULL."""
    missing = np.append(column.is_null().to_numpy(zero_copy_only=False), False)
    offsets = column.offsets
    return pa.array(offsets.to_numpy(), offsets.type, mask=missing) if missing.any() else offsets
