"""One equality and one total order for column values, used for state keys, retractions, grouping and sorting.

NaN equals NaN and is greater than every other number. 0.0 equals -0.0. Maps and multisets are equal if they have the
same entries, in any order. NULL equals NULL. The same holds inside arrays, maps and rows.

Equal values have one canonical form: NaN with one bit pattern (`NAN` as a Python object), 0.0, map entries in the order
of their keys. Look-ups compare values in this form. A value that is passed on keeps its original form, unless it
represents several equal values, like the key of a group: then it has the canonical form.

`canonical_column` converts columns, and `build_canonicalizer` Python values. The type of a column selects both; types
without floats, maps and multisets need neither, and cost nothing.

Python objects have the form that `penstock.sql.data.arrow` uses: arrays are lists, rows are tuples, maps are lists
of pairs.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.codecs import arrow_columns
from penstock.state.keys import NAN, NEGATIVE_ZERO

#: A function of a value, which may be None.
Canonicalizer = Callable[[Any], Any]
#: How -0.0 appears in a canonical value: unchanged, and as a key equal to 0.0; as 0.0; or as `NEGATIVE_ZERO`, a
#: different key.
Zeros = Literal["kept", "merged", "apart"]
#: Types are few, but a long-running process must not collect the types of all its jobs.
_TYPES_MAX: Final = 4096


@lru_cache(_TYPES_MAX)
def needs_canonical(data_type: pa.DataType) -> bool:
    """Return whether equal values of an Arrow type may differ in form: floats, maps, and types that contain them."""
    if pa.types.is_floating(data_type) or pa.types.is_map(data_type):
        return True
    if pa.types.is_dictionary(data_type):
        return needs_canonical(data_type.value_type)
    return any(needs_canonical(data_type.field(index).type) for index in range(data_type.num_fields))


# --- columns ----------------------------------------------------------------------------------------------------------


def canonical_column(column: Any) -> Any:
    """Return a column with the canonical form of each value, or the same column if its type needs no conversion.

    Takes and returns a `pa.Array` or a `pa.ChunkedArray`. Half-precision floats become single-precision ones.
    """
    if not needs_canonical(column.type):
        return column
    if isinstance(column, pa.ChunkedArray):
        chunks = [canonical_column(chunk) for chunk in column.chunks]
        return pa.chunked_array(chunks) if chunks else pa.chunked_array([canonical_column(_empty(column.type))])
    if pa.types.is_floating(column.type):
        return _canonical_floats(column)
    if pa.types.is_dictionary(column.type):
        return canonical_column(column.dictionary_decode())
    if pa.types.is_map(column.type):
        return _canonical_maps(column)
    if pa.types.is_struct(column.type):
        return _canonical_structs(column)
    if pa.types.is_list(column.type):
        values = canonical_column(column.values)
        return pa.ListArray.from_arrays(_offsets(column), values, type=pa.list_(_field(column.type, 0, values)))
    if pa.types.is_large_list(column.type):
        values = canonical_column(column.values)
        kind = pa.large_list(_field(column.type, 0, values))
        return pa.LargeListArray.from_arrays(_offsets(column), values, type=kind)
    values = canonical_column(column.flatten())  # fixed-size lists, and views
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    ends = np.concatenate([[0], np.cumsum(lengths.to_numpy(zero_copy_only=False))])
    return pa.LargeListArray.from_arrays(_with_nulls(pa.array(ends, pa.int64()), column), values)


def _empty(data_type: pa.DataType) -> pa.Array:
    return pa.array([], data_type)


def _canonical_floats(column: pa.Array) -> pa.Array:
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    column = pc.add(column, pa.scalar(0.0, column.type))  # turns -0.0 into 0.0
    return pc.if_else(pc.is_nan(column), pa.scalar(math.nan, column.type), column)


def _canonical_structs(column: pa.Array) -> pa.Array:
    parts = [canonical_column(column.field(index)) for index in range(column.type.num_fields)]
    fields = [_field(column.type, index, part) for index, part in enumerate(parts)]
    return pa.StructArray.from_arrays(parts, fields=fields, mask=column.is_null() if column.null_count else None)


def _canonical_maps(column: pa.Array) -> pa.Array:
    offsets = column.offsets.to_numpy()
    entries = slice(int(offsets[0]), int(offsets[-1]))
    keys, items = (canonical_column(part[entries]) for part in (arrow_columns.get_map_keys(column), column.items))
    rows = np.repeat(np.arange(len(column)), np.diff(offsets))
    ranks = _ranks(keys)
    if len(ranks) > 1 and ((ranks[1:] < ranks[:-1]) & (rows[1:] == rows[:-1])).any():
        in_order = pa.array(np.lexsort((ranks, rows)))
        keys, items = keys.take(in_order), items.take(in_order)
    starts = _with_nulls(pa.array(offsets - offsets[0], pa.int32()), column)
    make_type = arrow_columns.map_type if arrow_columns.has_nullable_keys(column.type) else pa.map_
    return arrow_columns.map_array(starts, keys, items, make_type(keys.type, items.type))


def _ranks(keys: pa.Array) -> Any:
    """Return the rank of each key, as a numpy array; equal keys have equal ranks."""
    if pa.types.is_nested(keys.type):
        values = list(map(_hashable, keys.to_pylist()))
        ranks = {value: rank for rank, value in enumerate(sorted(set(values), key=to_sort_key))}
        return np.fromiter(map(ranks.__getitem__, values), np.int64, len(values))
    encoded = pc.dictionary_encode(keys, null_encoding="encode")
    of_value = np.empty(len(encoded.dictionary), np.int64)
    of_value[pc.array_sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(of_value))
    return of_value[encoded.indices.to_numpy(zero_copy_only=False)]


def _field(data_type: pa.DataType, index: int, values: pa.Array) -> pa.Field:
    """Return the field of a nested type for these values, whose type differs only for half-precision floats."""
    fields = (data_type.key_field, data_type.item_field) if pa.types.is_map(data_type) else data_type
    field: pa.Field = fields[index] if isinstance(fields, tuple) else data_type.field(index)
    return field.with_type(values.type)


def _offsets(column: pa.Array) -> pa.Array:
    """Return the offsets of an array column, with NULL for each NULL."""
    return _with_nulls(column.offsets, column)


def _with_nulls(offsets: pa.Array, column: pa.Array) -> pa.Array:
    if not column.null_count:
        return offsets
    is_valid = pa.concat_arrays([column.is_valid(), pa.array([True])])
    return pc.if_else(is_valid, offsets, pa.scalar(None, offsets.type))


# --- Python values ----------------------------------------------------------------------------------------------------


@lru_cache(_TYPES_MAX)
def build_canonicalizer(data_type: pa.DataType, zeros: Zeros = "kept") -> Canonicalizer | None:
    """Return a function that converts a value to a dictionary key, or to its canonical form; None if the value is both.

    Equal values give equal results with equal hashes. Arrays, rows and maps become tuples, which columns accept like
    the original values.

    Args:
        data_type: the Arrow type of the values.
        zeros: how -0.0 appears. In keys it may stay, because Python's own equality and hash are right for zeros; the
            canonical form has 0.0. Rows that are sent again need "apart".
    """
    if pa.types.is_floating(data_type):
        return _FLOATS[zeros]
    if pa.types.is_map(data_type):
        key = build_canonicalizer(arrow_columns.get_map_key_type(data_type), zeros)
        return partial(_canonical_pairs, key, build_canonicalizer(data_type.item_type, zeros))
    if pa.types.is_struct(data_type):
        fields = [build_canonicalizer(data_type.field(index).type, zeros) for index in range(data_type.num_fields)]
        return partial(_canonical_row, None if fields.count(None) == len(fields) else fields)
    if data_type.num_fields:
        return partial(_canonical_array, build_canonicalizer(data_type.field(0).type, zeros))
    return None


def canonical_values(values: Sequence[Any], data_type: pa.DataType, zeros: Zeros = "kept") -> Sequence[Any]:
    """Return the canonical forms of many values, as dictionary keys; the same sequence if the type needs none."""
    if pa.types.is_floating(data_type) and (zeros == "kept" or 0.0 not in values):
        return [value if value == value else NAN for value in values]
    canonical = build_canonicalizer(data_type, zeros)
    return values if canonical is None else list(map(canonical, values))


def _with_one_nan(value: float | None) -> float | None:
    return value if value == value else NAN


def _canonical_float(value: float | None) -> float | None:
    if value is None:
        return None
    return NAN if _is_nan(value) else value + 0.0


def _bit_for_bit(value: float | None) -> float | None:
    if value == 0 and math.copysign(1.0, value) < 0:
        return NEGATIVE_ZERO
    return value if value == value else NAN


_FLOATS: Final[dict[Zeros, Canonicalizer]] = {
    "kept": _with_one_nan,
    "merged": _canonical_float,
    "apart": _bit_for_bit,
}


def _is_nan(value: Any) -> bool:
    """Return whether a value is NaN. `NAN` equals itself, unlike any other NaN."""
    return value is NAN or value != value


def _canonical_array(element: Canonicalizer | None, value: Sequence[Any] | None) -> tuple[Any, ...] | None:
    if value is None:
        return None
    return tuple(value) if element is None else tuple(map(element, value))


def _canonical_row(fields: list[Canonicalizer | None] | None, value: Sequence[Any] | None) -> tuple[Any, ...] | None:
    if value is None or fields is None:
        return None if value is None else tuple(value)
    parts = zip(fields, value, strict=True)
    return tuple([part if canonical is None else canonical(part) for canonical, part in parts])


def _canonical_pairs(
    key: Canonicalizer | None, item: Canonicalizer | None, value: Sequence[tuple[Any, Any]] | None
) -> tuple[tuple[Any, Any], ...] | None:
    if value is None:
        return None
    pairs = [
        (of_key if key is None else key(of_key), of_item if item is None else item(of_item))
        for of_key, of_item in value
    ]
    if len(pairs) > 1:
        pairs.sort(key=_order_of_key)
    return tuple(pairs)


def _order_of_key(pair: tuple[Any, Any]) -> Any:
    return to_sort_key(pair[0])


def to_sort_key(value: Any) -> tuple[Any, ...]:
    """Return a sort key for canonical values of one type: NULL first, NaN after all numbers."""
    if value is None:
        return (0,)
    if isinstance(value, tuple):
        return 1, tuple(map(to_sort_key, value))
    return (2,) if _is_nan(value) else (1, value)


def _hashable(value: Any) -> Any:
    """Convert an element of a canonical column to a dictionary key: rows to tuples of their values, maps to pairs."""
    if isinstance(value, dict):
        if arrow_columns.NULLABLE_KEY in value:
            return _hashable(value[arrow_columns.NULLABLE_KEY])
        value = value.values()
    elif not isinstance(value, list | tuple):
        return NAN if _is_nan(value) else value
    return tuple(map(_hashable, value))


def hashable_elements(column: pa.Array) -> list[Any]:
    """Return the elements of a canonical column of a nested type as dictionary keys."""
    return list(map(_hashable, column.to_pylist()))


def same_objects(value: Any, other: Any) -> bool:
    """Return whether two Python objects are equal; NaN equals NaN, also inside lists, tuples and dicts."""
    if value == other:
        return True
    if isinstance(value, float):
        return isinstance(other, float) and _is_nan(value) and _is_nan(other)
    if isinstance(value, dict):
        if not isinstance(other, dict) or value.keys() != other.keys():
            return False
        return all(same_objects(item, other[key]) for key, item in value.items())
    if isinstance(value, list | tuple | deque):
        return type(value) is type(other) and len(value) == len(other) and all(map(same_objects, value, other))
    return False
