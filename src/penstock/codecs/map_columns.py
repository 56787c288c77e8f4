"""Map columns with nullable keys, which Arrow's own maps do not allow.

The key of such a map is a struct with a single nullable field. Tables store all their maps and multisets this way;
other programs exchange plain maps. `exact_cast` converts between the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as kinds

from penstock.codecs.column_leaves import get_list_offsets

#: The name of the single field of a key.
NULLABLE_KEY: Final = "nullable key"
_TYPES_MAX: Final = 4096


def map_type(key: pa.DataType, item: pa.DataType) -> pa.DataType:
    """Return the type of a map with nullable keys."""
    return pa.map_(pa.struct([pa.field(NULLABLE_KEY, key)]), item)


def get_map_key_type(kind: pa.DataType) -> pa.DataType:
    """Return the key type of a map type, with or without nullable keys."""
    return kind.key_type.field(0).type if _is_key(kind.key_type) else kind.key_type


def get_map_keys(column: pa.Array) -> pa.Array:
    """Return all keys of a map column, with or without nullable keys. Like `pa.MapArray.keys`, it ignores slices."""
    return column.keys.field(0) if _is_key(column.type.key_type) else column.keys


def map_array(
    offsets: pa.Array, keys: pa.Array, items: pa.Array, kind: pa.DataType, mask: pa.Array | None = None
) -> pa.Array:
    """Build a map column.

    Args:
        offsets: the offset at which each row's entries begin, and the end of the last row; NULL for a NULL row.
        keys: the keys of all rows.
        items: the values of the entries.
        kind: the map type, with or without nullable keys.
        mask: which rows are NULL, if `offsets` does not say so.

    Raises:
        pa.ArrowInvalid: if a key is NULL and the map type does not allow it.
    """
    if _is_key(kind.key_type):
        keys = pa.StructArray.from_arrays([keys], fields=[kind.key_type.field(0)])
    elif keys.null_count:
        raise pa.ArrowInvalid("a key of a map is NULL, which maps of Arrow cannot have")
    return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=mask)


@lru_cache(_TYPES_MAX)
def has_nullable_keys(kind: pa.DataType) -> bool:
    """Return whether a type is or contains a map with nullable keys."""
    if kinds.is_map(kind) and _is_key(kind.key_type):
        return True
    return any(has_nullable_keys(kind.field(index).type) for index in range(kind.num_fields))


@lru_cache(_TYPES_MAX)
def plain_type(kind: pa.DataType) -> pa.DataType:
    """Replace maps with nullable keys in a type by plain maps, for other programs."""
    return _with_keys(kind, pa.map_) if has_nullable_keys(kind) else kind


def plain_column(column: Any) -> Any:
    """Convert a column to plain maps. Raises `pa.ArrowInvalid` if a key is NULL."""
    return _convert_keys(column, plain_type(column.type))


def nullable_key_column(column: Any) -> Any:
    """Convert a column to maps with nullable keys, as tables store it."""
    return _convert_keys(column, _nullable_key_type(column.type))


def nullable_key_table(table: pa.Table) -> pa.Table:
    """Convert a table to maps with nullable keys."""
    return _with_columns(table, map(nullable_key_column, table.columns))


def plain_table(table: pa.Table) -> pa.Table:
    """Convert a table to plain maps. Raises `pa.ArrowInvalid` if a key is NULL."""
    return _with_columns(table, map(plain_column, table.columns))


def with_keys_like(column: Any, kind: pa.DataType) -> Any:
    """Convert a column's maps to the kind that a type uses: plain maps or maps with nullable keys.

    Raises:
        pa.ArrowInvalid: if a key is NULL and the type uses plain maps.
    """
    if has_nullable_keys(column.type) == has_nullable_keys(kind):
        return column
    make_map = map_type if has_nullable_keys(kind) else pa.map_
    return _convert_keys(column, _with_keys(column.type, make_map))


def _with_columns(table: pa.Table, columns: Iterable[Any]) -> pa.Table:
    return pa.Table.from_arrays(list(columns), table.column_names).replace_schema_metadata(table.schema.metadata)


@lru_cache(_TYPES_MAX)
def _nullable_key_type(kind: pa.DataType) -> pa.DataType:
    return _with_keys(kind, map_type)


def _is_key(kind: pa.DataType) -> bool:
    return bool(kinds.is_struct(kind) and kind.num_fields == 1 and kind.field(0).name == NULLABLE_KEY)


def _with_keys(kind: pa.DataType, make_map: Any) -> pa.DataType:
    if kinds.is_map(kind):
        return make_map(_with_keys(get_map_key_type(kind), make_map), _with_keys(kind.item_type, make_map))
    if kinds.is_struct(kind):
        return pa.struct([field.with_type(_with_keys(field.type, make_map)) for field in kind])
    if kinds.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_keys(kind.value_type, make_map)))
    if kinds.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_with_keys(kind.value_type, make_map)))
    if kinds.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_with_keys(kind.value_type, make_map)), kind.list_size)
    return kind


def _convert_keys(column: Any, kind: pa.DataType) -> Any:
    if column.type == kind:
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([_convert_keys(chunk, kind) for chunk in column.chunks], kind)
    if kinds.is_struct(kind):
        parts = [_convert_keys(column.field(index), field.type) for index, field in enumerate(kind)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())
    if column.offset or column.null_count:  # NULL rows, and rows outside a slice, may still have entries
        column = column.take(pa.array(range(len(column)), pa.int64()))
    if kinds.is_fixed_size_list(kind):
        values = _convert_keys(column.values, kind.value_type)
        return pa.FixedSizeListArray.from_arrays(values, type=kind, mask=column.is_null())
    offsets = get_list_offsets(column)
    if kinds.is_map(kind):
        keys = _convert_keys(get_map_keys(column), get_map_key_type(kind))
        return map_array(offsets, keys, _convert_keys(column.items, kind.item_type), kind)
    of_lists = pa.LargeListArray if kinds.is_large_list(kind) else pa.ListArray
    return of_lists.from_arrays(offsets, _convert_keys(column.values, kind.value_type), type=kind)
