"""Functions of arrays and maps.

`Lists` holds a column of lists as NumPy offsets. So each kernel takes the call and whole columns, and processes the
elements of all rows at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.codecs.arrow_columns import get_map_keys, map_array
from penstock.sql.data.arrow import Datum, Kernel, arrow_type, to_full_array, to_values
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.data.types import ArrayType, DataType, MapType, MultisetType, NullType, NumericType, RowField, RowType
from penstock.sql.functions import definition
from penstock.sql.functions.type_rules import BYTES, TEXTS, TIMES, can_cast_implicitly, is_text
from penstock.state.equality import canonical_column, canonical_values

Ints: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Flags: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"


@dataclass(frozen=True, slots=True)
class Lists:
    """The lists of a column: their starts in `values`, their lengths, and whether each is valid (not NULL)."""

    values: pa.Array
    starts: Ints
    lengths: Ints
    valid: Flags

    def parents(self) -> Ints:
        """Return the row of each element."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def places(self) -> Ints:
        """Return the index of each element in `values`."""
        return spans(self.starts, self.lengths)

    def packed(self) -> Lists:
        """Return the same lists, contiguous and in order in `values`."""
        starts = begins(self.lengths)
        total = int(self.lengths.sum())
        if len(self.values) == total and np.array_equal(starts[self.lengths > 0], self.starts[self.lengths > 0]):
            return Lists(self.values, starts, self.lengths, self.valid)
        return Lists(self.values.take(pa.array(self.places())), starts, self.lengths, self.valid)

    def kept(self, mask: Flags) -> Lists:
        """Return packed lists with only the elements of a mask."""
        lengths = np.bincount(self.parents()[mask], minlength=len(self.lengths))
        return Lists(self.values.filter(pa.array(mask)), begins(lengths), lengths, self.valid)

    def with_valid(self, valid: Flags) -> Lists:
        """Return the same lists, with NULL in the rows that are not valid."""
        both = self.valid & valid
        return Lists(self.values, self.starts, np.where(both, self.lengths, 0), both)

    def column(self, data_type: DataType) -> pa.Array:
        """Return the lists as a column of an array type."""
        offsets, mask, packed = self._parts()
        return pa.ListArray.from_arrays(offsets, packed, type=arrow_type(data_type), mask=mask)

    def map_column(self, items: pa.Array, data_type: MapType) -> pa.Array:
        """Return a column of maps with these packed lists as keys. The last of several equal keys wins."""
        keys = self.values
        last = last_of_equals(self.parents(), codes(keys, data_type.key_type))
        if not last.all():
            chosen = pa.array(last)
            return self.kept(last).map_column(items.filter(chosen), data_type)
        offsets, mask, keys = self._parts()
        return map_array(offsets, keys, items, arrow_type(data_type), mask)

    def _parts(self) -> tuple[pa.Array, pa.Array | None, pa.Array]:
        packed = self.packed()
        offsets = pa.array(np.append(packed.starts, packed.lengths.sum()), pa.int32())
        return offsets, None if self.valid.all() else pa.array(~self.valid), packed.values


def to_lists(column: pa.Array) -> Lists:
    """Return the lists of an array column, or the keys of a map column."""
    return _lists(column, get_map_keys(column) if pa.types.is_map(column.type) else column.values)


def to_map_values(column: pa.Array) -> Lists:
    """Return the values of a map column."""
    return _lists(column, column.items)


def _lists(column: pa.Array, values: pa.Array) -> Lists:
    offsets = column.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    valid = get_valid_flags(column)
    return Lists(values, offsets[:-1], np.where(valid, np.diff(offsets), 0), valid)


def get_valid_flags(column: pa.Array) -> Flags:
    """Return which values are not NULL."""
    flags: Flags = column.is_valid().to_numpy(zero_copy_only=False)
    return flags


def begins(lengths: Ints) -> Ints:
    """Return the starts of contiguous lists of these lengths."""
    starts: Ints = np.cumsum(lengths) - lengths
    return starts


def spans(starts: Ints, lengths: Ints) -> Ints:
    """Return the indexes in all spans, one span after another."""
    offsets: Ints = np.repeat(starts - begins(lengths), lengths)
    return offsets + np.arange(len(offsets))


def joined(parts: Sequence[Lists]) -> Lists:
    """Concatenate the lists of all parts, row by row. NULL if any is NULL."""
    valid = np.logical_and.reduce([part.valid for part in parts])
    offsets = begins(np.array([len(part.values) for part in parts]))
    starts = np.stack([part.starts + offset for part, offset in zip(parts, offsets, strict=True)], axis=1)
    lengths = np.stack([np.where(valid, part.lengths, 0) for part in parts], axis=1)
    values = pa.concat_arrays([part.values for part in parts])
    total = lengths.sum(axis=1)
    return Lists(values.take(pa.array(spans(starts.ravel(), lengths.ravel()))), begins(total), total, valid)


def singles(column: pa.Array) -> Lists:
    """Return lists of one element each."""
    rows = np.arange(len(column))
    return Lists(column, rows, np.ones_like(rows), np.ones(len(column), np.bool_))


# --- which values are the same ---------------------------------------------------------------------------------------


def codes(values: pa.Array, data_type: DataType) -> Ints:
    """Return a number for each value: the same for equal values (`penstock.state.equality`), -1 for NULL."""
    if pa.types.is_null(values.type):
        return np.full(len(values), -1, np.int64)
    if pa.types.is_nested(values.type):
        known: dict[object, int] = {None: -1}
        keys = canonical_values(to_values(values, data_type), values.type)
        return np.fromiter((known.setdefault(key, len(known)) for key in keys), np.int64, len(values))
    encoded = canonical_column(values).dictionary_encode()
    numbers: Ints = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def first_of_equals(parents: Ints, element_codes: Ints) -> Flags:
    """Return a mask of the first of equal elements in each row."""
    mask = np.zeros(len(element_codes), np.bool_)
    mask[np.unique(_pairs(parents, element_codes), return_index=True)[1]] = True
    return mask


def last_of_equals(parents: Ints, element_codes: Ints) -> Flags:
    """Return a mask of the last of equal elements in each row."""
    return first_of_equals(parents[::-1], element_codes[::-1])[::-1]


def is_among(
    parents: Ints,
    element_codes: Ints,
    other_parents: Ints,
    among: Ints,
) -> Flags:
    """Return a mask of the elements that are also in `among` in the same row. `other_parents`: the rows of `among`."""
    count = int(max(element_codes.max(initial=-1), among.max(initial=-1))) + 2
    return np.isin(parents * count + element_codes, other_parents * count + among)


def _pairs(parents: Ints, element_codes: Ints) -> Ints:
    return parents * (int(element_codes.max(initial=-1)) + 2) + element_codes


# --- kernels ---------------------------------------------------------------------------------------------------------


def by_columns(make: Callable[[definition.Call], Callable[..., pa.Array]]) -> Callable[[definition.Call], Kernel]:
    """Wrap a function of whole columns: scalar operands are expanded to columns."""

    def bind(call: definition.Call) -> Kernel:
        function = make(call)

        def kernel(*operands: Datum) -> Datum:
            rows = next((len(operand) for operand in operands if isinstance(operand, pa.Array)), None)
            if rows is None:
                return function(*[to_full_array(operand, 1) for operand in operands])[0]
            return function(*[to_full_array(operand, rows) for operand in operands])

        return kernel

    return bind


def _equals(call: definition.Call, haystack: pa.Array, needle: pa.Array) -> tuple[Lists, Flags]:
    """Return the lists of a column, and which elements equal the needle; NULL equals NULL."""
    lists = to_lists(haystack).packed()
    element_codes = codes(pa.concat_arrays([lists.values, needle]), _element(call.types[0]))
    count = len(lists.values)
    return lists, element_codes[:count] == element_codes[count:][lists.parents()]


def contains(call: definition.Call, haystack: pa.Array, needle: pa.Array) -> pa.Array:
    """Return whether an element is in the array."""
    lists, equal = _equals(call, haystack, needle)
    hits = np.bincount(lists.parents()[equal], minlength=len(haystack))
    return pa.array(hits > 0, mask=~lists.valid)


def position(call: definition.Call, haystack: pa.Array, needle: pa.Array) -> pa.Array:
    """Return the first position of an element, from 1; 0 if it is absent."""
    lists, equal = _equals(call, haystack, needle)
    rows, first = np.unique(lists.parents()[equal], return_index=True)
    positions = np.zeros(len(haystack), np.int64)
    positions[rows] = np.flatnonzero(equal)[first] - lists.starts[rows] + 1
    return pa.array(positions, pa.int32(), mask=~(lists.valid & get_valid_flags(needle)))


def remove(call: definition.Call, haystack: pa.Array, needle: pa.Array) -> pa.Array:
    """Return all elements that differ from a given one."""
    lists, equal = _equals(call, haystack, needle)
    return lists.kept(~equal).column(call.result)


def append(call: definition.Call, array: pa.Array, element: pa.Array) -> pa.Array:
    """Append an element."""
    return joined([to_lists(array), singles(element)]).column(call.result)


def prepend(call: definition.Call, array: pa.Array, element: pa.Array) -> pa.Array:
    """Prepend an element."""
    return joined([singles(element), to_lists(array)]).column(call.result)


def concat(call: definition.Call, *arrays: pa.Array) -> pa.Array:
    """Concatenate the elements of all arrays."""
    return joined([to_lists(array) for array in arrays]).column(call.result)


def _once(call: definition.Call, lists: Lists) -> pa.Array:
    element_codes = codes(lists.values, _element(call.types[0]))
    return lists.kept(first_of_equals(lists.parents(), element_codes)).column(call.result)


def distinct(call: definition.Call, array: pa.Array) -> pa.Array:
    """Return each distinct element once."""
    return _once(call, to_lists(array).packed())


def union(call: definition.Call, array: pa.Array, other: pa.Array) -> pa.Array:
    """Return each distinct element of two arrays once."""
    return _once(call, joined([to_lists(array), to_lists(other)]))


def compared(wanted: bool, call: definition.Call, array: pa.Array, other: pa.Array) -> pa.Array:
    """Return once each element that the other array contains, or does not contain."""
    mine, others = to_lists(array), to_lists(other)
    mine, others = mine.with_valid(others.valid).packed(), others.with_valid(mine.valid).packed()
    element_codes = codes(pa.concat_arrays([mine.values, others.values]), _element(call.types[0]))
    count = len(mine.values)
    among = is_among(mine.parents(), element_codes[:count], others.parents(), element_codes[count:])
    return _once(call, mine.kept(among if wanted else ~among))


def reverse(call: definition.Call, array: pa.Array) -> pa.Array:
    """Return the elements from last to first."""
    lists = to_lists(array).packed()
    ends = np.repeat(lists.starts * 2 + lists.lengths - 1, lists.lengths)
    values = lists.values.take(pa.array(ends - np.arange(len(ends))))
    return Lists(values, lists.starts, lists.lengths, lists.valid).column(call.result)


def _numbers(column: pa.Array) -> Ints:
    numbers: Ints = pc.fill_null(column, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def slice_array(call: definition.Call, array: pa.Array, start: pa.Array, end: pa.Array | None = None) -> pa.Array:
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
    call: definition.Call, array: pa.Array, ascending: pa.Array | None = None, nulls_first: pa.Array | None = None
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


def extreme(greatest: bool, call: definition.Call, array: pa.Array) -> pa.Array:
    """Return the greatest element, or the least."""
    lists = to_lists(array).packed()
    lists = lists.kept(get_valid_flags(lists.values))
    ranks, parents = _order(lists), lists.parents()
    order = np.lexsort((-ranks if greatest else ranks, parents))
    first = np.where(lists.lengths > 0, lists.starts, 0)
    indices = np.append(order, 0)[np.minimum(first, len(order))]
    return lists.values.take(pa.array(indices, mask=lists.lengths == 0))


def join(call: definition.Call, array: pa.Array, delimiter: pa.Array, replacement: pa.Array | None = None) -> pa.Array:
    """Join the elements. NULL is left out, unless there is a replacement."""
    lists = to_lists(array).packed()
    if replacement is None:
        lists = lists.kept(get_valid_flags(lists.values))
    else:
        instead = replacement.take(pa.array(lists.parents()))
        lists = Lists(pc.coalesce(lists.values, pc.fill_null(instead, "")), lists.starts, lists.lengths, lists.valid)
        lists = lists.with_valid(get_valid_flags(replacement))
    return pc.binary_join(lists.column(ArrayType(definition.STRING)), delimiter)


# --- types -----------------------------------------------------------------------------------------------------------


def _is_array(data_type: DataType) -> bool:
    return isinstance(data_type, ArrayType) and not isinstance(data_type, MultisetType)


def _element(data_type: DataType) -> DataType:
    assert isinstance(data_type, ArrayType)
    return data_type.element_type


def _any_array(call: definition.Operands, index: int) -> DataType | None:
    return call.types[index] if _is_array(call.types[index]) else None


def _ordered_array(call: definition.Operands, index: int) -> DataType | None:
    data_type = call.types[index]
    ordered = (NumericType, NullType, *TEXTS, *BYTES, *TIMES)
    return data_type if _is_array(data_type) and isinstance(_element(data_type), ordered) else None


def _array_of_text(call: definition.Operands, index: int) -> DataType | None:
    data_type = call.types[index]
    return data_type if _is_array(data_type) and is_text(_element(data_type)) else None


def _needle(call: definition.Operands, index: int) -> DataType | None:
    """Accept an element, which is cast to the type of the array's elements."""
    if not _is_array(call.types[0]):
        return None
    element, data_type = _element(call.types[0]), call.types[index]
    if not can_cast_implicitly(data_type, element):
        return None
    if is_text(element) and is_text(data_type):
        return data_type  # casting a text to another length would change it
    return element.nullable() if data_type.is_nullable else element.not_null()


def find_common_type(is_wanted: Callable[[DataType], bool], call: definition.Operands, index: int) -> DataType | None:
    """Accept one of several operands of a kind, which are all cast to their common type."""
    return call.once(definition.all_in_common) if is_wanted(call.types[index]) else None


def _extended(call: definition.Operands) -> DataType:
    """Return the type of an array with one more element."""
    array, added = call.types
    element = _element(array)
    nullable = call.any_nullable()
    if added.is_nullable and not element.is_nullable:
        return ArrayType(element.nullable(), nullable)
    return array.nullable() if nullable else array.not_null()


def _by_first(result_type: DataType | None = None) -> Callable[[definition.Operands], DataType]:
    """Return a rule whose result is nullable only if the first operand is."""

    def rule(call: definition.Operands) -> DataType:
        result = call.types[0] if result_type is None else result_type
        return result.nullable() if call.types[0].is_nullable else result.not_null()

    return rule


_ARRAY = definition.where("<ARRAY>", _any_array)
_ORDERED = definition.where("<ARRAY<COMPARABLE>>", _ordered_array)
_TEXTS = definition.where("ARRAY<STRING>", _array_of_text)
_NEEDLE = definition.where("<ARRAY ELEMENT>", _needle)
_COMMON = definition.where("<COMMON>", partial(find_common_type, _is_array))


def _define(
    name: str, operands: Any, result: Any, function: Callable[..., pa.Array], usage: str, summary: str, **more: object
) -> definition.ScalarFunction:
    kernel = by_columns(lambda call: partial(function, call))
    return definition.scalar(
        name, operands, result, kernel, summary, section="collection", usage=f"{name}({usage})", **more
    )


def _nullable_element(call: definition.Operands) -> DataType:
    return _element(call.types[0]).nullable()


ARRAYS_FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    _define(
        "ARRAY_APPEND",
        definition.takes(_ARRAY, _NEEDLE),
        _extended,
        append,
        "array, element",
        "Appends the element to the array.",
    ),
    _define(
        "ARRAY_PREPEND",
        definition.takes(_ARRAY, _NEEDLE),
        _extended,
        prepend,
        "array, element",
        "Prepends the element to the array.",
    ),
    _define(
        "ARRAY_CONTAINS",
        definition.takes(_ARRAY, _NEEDLE),
        _by_first(definition.BOOLEAN_TYPE),
        contains,
        "array, element",
        "Returns TRUE if the array contains the element, which may be NULL.",
    ),
    _define(
        "ARRAY_POSITION",
        definition.takes(_ARRAY, _NEEDLE),
        definition.returns(definition.INT),
        position,
        "array, element",
        "Returns the position of the element's first occurrence, counted from 1, or 0 if it is not found.",
    ),
    _define(
        "ARRAY_REMOVE",
        definition.takes(_ARRAY, _NEEDLE),
        _by_first(),
        remove,
        "array, element",
        "Removes all elements equal to the given one from the array.",
    ),
    _define(
        "ARRAY_DISTINCT",
        definition.takes(_ARRAY),
        definition.returns_operand(0),
        distinct,
        "array",
        "Removes duplicates from the array, keeping the first occurrence of each element.",
    ),
    _define(
        "ARRAY_REVERSE",
        definition.takes(_ARRAY),
        definition.returns_operand(0),
        reverse,
        "array",
        "Reverses the array.",
    ),
    _define(
        "ARRAY_SLICE",
        definition.takes(_ARRAY, definition.AS_INT, definition.AS_INT, optional=1),
        definition.returns_operand(0),
        slice_array,
        "array, start[, end]",
        "Returns the elements from `start` to `end`, both inclusive; negative positions count from the end.",
    ),
    _define(
        "ARRAY_SORT",
        definition.takes(_ORDERED, definition.AS_BOOLEAN, definition.AS_BOOLEAN, optional=2),
        definition.returns_operand(0),
        sort,
        "array[, ascending[, nulls_first]]",
        "Sorts the array in ascending order, or in descending order if the second argument is FALSE.",
    ),
    _define(
        "ARRAY_CONCAT",
        definition.takes(_COMMON, repeated=1),
        definition.returns_common,
        concat,
        "array, ...",
        "Concatenates the arrays.",
    ),
    _define(
        "ARRAY_UNION",
        definition.takes(_COMMON, _COMMON),
        definition.returns_common,
        union,
        "array1, array2",
        "Returns the distinct elements of both arrays.",
    ),
    _define(
        "ARRAY_EXCEPT",
        definition.takes(_COMMON, _COMMON),
        definition.returns_common,
        partial(compared, False),
        "array1, array2",
        "Returns the distinct elements of array1 that are not in array2.",
    ),
    _define(
        "ARRAY_INTERSECT",
        definition.takes(_COMMON, _COMMON),
        definition.returns_common,
        partial(compared, True),
        "array1, array2",
        "Returns the distinct elements that are in both arrays.",
    ),
    _define(
        "ARRAY_MAX",
        definition.takes(_ORDERED),
        _nullable_element,
        partial(extreme, True),
        "array",
        "Returns the greatest element, or NULL for an empty array.",
    ),
    _define(
        "ARRAY_MIN",
        definition.takes(_ORDERED),
        _nullable_element,
        partial(extreme, False),
        "array",
        "Returns the least element, or NULL for an empty array.",
    ),
    _define(
        "ARRAY_JOIN",
        definition.takes(_TEXTS, definition.TEXT, definition.TEXT, optional=1),
        definition.returns(definition.STRING),
        join,
        "array, delimiter[, replacement]",
        "Joins the strings of the array with the delimiter; NULL elements become the replacement or are omitted.",
    ),
)


def _any_map(call: definition.Operands, index: int) -> DataType | None:
    data_type = call.types[index]
    return data_type if isinstance(data_type, MapType) else None


def _keys_type(call: definition.Operands) -> DataType:
    return ArrayType(_map_type(call).key_type, call.any_nullable())


def _values_type(call: definition.Operands) -> DataType:
    return ArrayType(_map_type(call).value_type, call.any_nullable())


def _entries_type(call: definition.Operands) -> DataType:
    map_type = _map_type(call)
    row = RowType([RowField("key", map_type.key_type), RowField("value", map_type.value_type)])
    return ArrayType(row, call.any_nullable())


def _map_type(call: definition.Operands) -> MapType:
    map_type = call.types[0]
    assert isinstance(map_type, MapType)  # checked by the signature
    return map_type


def _from_arrays_type(call: definition.Operands) -> DataType:
    key, item = call.types
    assert isinstance(key, ArrayType)
    assert isinstance(item, ArrayType)
    return MapType(key.element_type, item.element_type, call.any_nullable())


def _keys(call: definition.Call, column: pa.Array) -> pa.Array:
    return to_lists(column).column(call.result)


def _values(call: definition.Call, column: pa.Array) -> pa.Array:
    return to_map_values(column).column(call.result)


def _entries(call: definition.Call, column: pa.Array) -> pa.Array:
    assert isinstance(call.result, ArrayType)
    keys, items = to_lists(column).packed(), to_map_values(column).packed()
    fields = list(arrow_type(call.result.element_type))
    rows = pa.StructArray.from_arrays([keys.values, items.values], fields=fields)
    return Lists(rows, keys.starts, keys.lengths, keys.valid).column(call.result)


def _from_arrays(call: definition.Call, keys: pa.Array, items: pa.Array) -> pa.Array:
    assert isinstance(call.result, MapType)
    key_lists, other = to_lists(keys), to_lists(items)
    key_lists, other = key_lists.with_valid(other.valid).packed(), other.with_valid(key_lists.valid).packed()
    differs = (key_lists.lengths != other.lengths).nonzero()[0]
    if len(differs):
        row = differs[0]
        raise TableRuntimeError(
            f"Invalid function MAP_FROM_ARRAYS call: the length of the keys array {key_lists.lengths[row]} "
            f"is not equal to the length of the values array {other.lengths[row]}"
        )
    return key_lists.map_column(other.values, call.result)


def _union(call: definition.Call, *maps: pa.Array) -> pa.Array:
    """Merge maps. For equal keys the last map wins."""
    assert isinstance(call.result, MapType)
    items = joined([to_map_values(column) for column in maps])
    return joined([to_lists(column) for column in maps]).map_column(items.values, call.result)


_MAP = definition.where("<MAP>", _any_map)
_COMMON_MAP = definition.where("<COMMON>", partial(find_common_type, lambda data_type: isinstance(data_type, MapType)))


MAPS_FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    _define("MAP_KEYS", definition.takes(_MAP), _keys_type, _keys, "map", "Returns the keys of the map as an array."),
    _define(
        "MAP_VALUES", definition.takes(_MAP), _values_type, _values, "map", "Returns the values of the map as an array."
    ),
    _define(
        "MAP_ENTRIES",
        definition.takes(_MAP),
        _entries_type,
        _entries,
        "map",
        "Returns the entries of the map as an array of rows.",
    ),
    _define(
        "MAP_FROM_ARRAYS",
        definition.takes(_ARRAY, _ARRAY),
        _from_arrays_type,
        _from_arrays,
        "keys, values",
        "Creates a map from an array of keys and an array of values.",
        can_fail=True,
    ),
    _define(
        "MAP_UNION",
        definition.takes(_COMMON_MAP, repeated=1),
        definition.returns_common,
        _union,
        "map, ...",
        "Merges the maps; if several have the same key, the last one wins.",
    ),
)


FUNCTIONS: tuple[definition.ScalarFunction, ...] = (*ARRAYS_FUNCTIONS, *MAPS_FUNCTIONS)
