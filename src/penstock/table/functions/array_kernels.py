"""The kernels of array functions: each takes the call and whole columns, and processes all elements at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.table.data.logical_types import ArrayType, DataType
from penstock.table.functions.definition import Call
from penstock.table.functions.lists import (
    Flags,
    Ints,
    Lists,
    codes,
    first_of_equals,
    get_valid_flags,
    is_among,
    joined,
    singles,
    to_lists,
)
from penstock.table.functions.signatures import STRING


def _element(call: Call) -> DataType:
    array_type = call.types[0]
    assert isinstance(array_type, ArrayType)
    return array_type.element_type


def _equals(call: Call, haystack: pa.Array, needle: pa.Array) -> tuple[Lists, Flags]:
    """Return the lists of a column, and which elements equal the needle; NULL equals NULL."""
    lists = to_lists(haystack).packed()
    element_codes = codes(pa.concat_arrays([lists.values, needle]), _element(call))
    count = len(lists.values)
    return lists, element_codes[:count] == element_codes[count:][lists.parents()]


def contains(call: Call, haystack: pa.Array, needle: pa.Array) -> pa.Array:
    """Return whether an element is in the array."""
    lists, equal = _equals(call, haystack, needle)
    hits = np.bincount(lists.parents()[equal], minlength=len(haystack))
    return pa.array(hits > 0, mask=~lists.valid)


def position(call: Call, haystack: pa.Array, needle: pa.Array) -> pa.Array:
    """Return the first position of an element, from 1; 0 if it is absent."""
    lists, equal = _equals(call, haystack, needle)
    rows, first = np.unique(lists.parents()[equal], return_index=True)
    positions = np.zeros(len(haystack), np.int64)
    positions[rows] = np.flatnonzero(equal)[first] - lists.starts[rows] + 1
    return pa.array(positions, pa.int32(), mask=~(lists.valid & get_valid_flags(needle)))


def remove(call: Call, haystack: pa.Array, needle: pa.Array) -> pa.Array:
    """Return all elements that differ from a given one."""
    lists, equal = _equals(call, haystack, needle)
    return lists.kept(~equal).column(call.result)


def append(call: Call, array: pa.Array, element: pa.Array) -> pa.Array:
    """Append an element."""
    return joined([to_lists(array), singles(element)]).column(call.result)


def prepend(call: Call, array: pa.Array, element: pa.Array) -> pa.Array:
    """Prepend an element."""
    return joined([singles(element), to_lists(array)]).column(call.result)


def concat(call: Call, *arrays: pa.Array) -> pa.Array:
    """Concatenate the elements of all arrays."""
    return joined([to_lists(array) for array in arrays]).column(call.result)


def _once(call: Call, lists: Lists) -> pa.Array:
    element_codes = codes(lists.values, _element(call))
    return lists.kept(first_of_equals(lists.parents(), element_codes)).column(call.result)


def distinct(call: Call, array: pa.Array) -> pa.Array:
    """Return each distinct element once."""
    return _once(call, to_lists(array).packed())


def union(call: Call, array: pa.Array, other: pa.Array) -> pa.Array:
    """Return each distinct element of two arrays once."""
    return _once(call, joined([to_lists(array), to_lists(other)]))


def compared(wanted: bool, call: Call, array: pa.Array, other: pa.Array) -> pa.Array:
    """Return once each element that the other array contains, or does not contain."""
    mine, others = to_lists(array), to_lists(other)
    mine, others = mine.with_valid(others.valid).packed(), others.with_valid(mine.valid).packed()
    element_codes = codes(pa.concat_arrays([mine.values, others.values]), _element(call))
    count = len(mine.values)
    among = is_among(mine.parents(), element_codes[:count], others.parents(), element_codes[count:])
    return _once(call, mine.kept(among if wanted else ~among))


def reverse(call: Call, array: pa.Array) -> pa.Array:
    """Return the elements from last to first."""
    lists = to_lists(array).packed()
    ends = np.repeat(lists.starts * 2 + lists.lengths - 1, lists.lengths)
    values = lists.values.take(pa.array(ends - np.arange(len(ends))))
    return Lists(values, lists.starts, lists.lengths, lists.valid).column(call.result)


def _numbers(column: pa.Array) -> Ints:
    numbers: Ints = pc.fill_null(column, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def slice_array(call: Call, array: pa.Array, start: pa.Array, end: pa.Array | None = None) -> pa.Array:
    """Return the elements between two positions, inclusive; negative ones count from the end, zero means one."""
    lists = to_lists(array).with_valid(
        get_valid_flags(start) if end is None else get_valid_flags(start) & get_valid_flags(end)
    )
    size = lists.lengths
    first, last = _numbers(start), size if end is None else _numbers(end)
    first = np.maximum(np.where(first < 0, first + size + 1, first), 1)
    last = np.where(last < 0, last + size + 1, last)
    last = np.where(last == 0, np.minimum(size, 1), np.minimum(last, size))
    lengths = np.maximum(last - first + 1, 0)
    return Lists(lists.values, lists.starts + first - 1, lengths, lists.valid).column(call.result)


def _order(lists: Lists) -> Ints:
    """Return the rank of each element of packed lists, including NULL."""
    ranks: Ints = pc.rank(lists.values, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    return ranks


def sort(
    call: Call, array: pa.Array, ascending: pa.Array | None = None, nulls_first: pa.Array | None = None
) -> pa.Array:
    """Sort the elements. NULL comes first in ascending order, else last, unless an operand decides."""
    rows = len(array)
    rises = _flags(ascending, rows)
    before = rises if nulls_first is None else _flags(nulls_first, rows)
    lists = to_lists(array)
    for flags in (ascending, nulls_first):
        lists = lists if flags is None else lists.with_valid(get_valid_flags(flags))
    lists = lists.packed()
    parents, missing = lists.parents(), ~get_valid_flags(lists.values)
    ranks = _order(lists)
    ranks = np.where(missing, 0, np.where(rises[parents], ranks, -ranks))
    nulls = np.where(missing, np.where(before[parents], -1, 1), 0)
    order = np.lexsort((ranks, nulls, parents))
    return Lists(lists.values.take(pa.array(order)), lists.starts, lists.lengths, lists.valid).column(call.result)


def _flags(column: pa.Array | None, rows: int) -> Flags:
    if column is None:
        return np.ones(rows, np.bool_)
    flags: Flags = pc.fill_null(column, True).to_numpy(zero_copy_only=False)
    return flags


def extreme(greatest: bool, call: Call, array: pa.Array) -> pa.Array:
    """Return the greatest element, or the least."""
    lists = to_lists(array).packed()
    lists = lists.kept(get_valid_flags(lists.values))
    ranks, parents = _order(lists), lists.parents()
    order = np.lexsort((-ranks if greatest else ranks, parents))
    first = np.where(lists.lengths > 0, lists.starts, 0)
    indices = np.append(order, 0)[np.minimum(first, len(order))]
    return lists.values.take(pa.array(indices, mask=lists.lengths == 0))


def join(call: Call, array: pa.Array, delimiter: pa.Array, replacement: pa.Array | None = None) -> pa.Array:
    """Join the elements. NULL is left out, unless there is a replacement."""
    lists = to_lists(array).packed()
    if replacement is None:
        lists = lists.kept(get_valid_flags(lists.values))
    else:
        instead = replacement.take(pa.array(lists.parents()))
        lists = Lists(pc.coalesce(lists.values, pc.fill_null(instead, "")), lists.starts, lists.lengths, lists.valid)
        lists = lists.with_valid(get_valid_flags(replacement))
    return pc.binary_join(lists.column(ArrayType(STRING)), delimiter)
