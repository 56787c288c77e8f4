"""Columns of lists as NumPy offsets, so that functions on arrays and maps process all rows at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.codecs.map_columns import get_map_keys, map_array
from penstock.state.equality import canonical_column, canonical_values
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.logical_types import DataType, MapType
from penstock.table.data.values import Datum, Kernel, to_full_array, to_values
from penstock.table.functions.definition import Call

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


def by_columns(make: Callable[[Call], Callable[..., pa.Array]]) -> Callable[[Call], Kernel]:
    """Wrap a function of whole columns: scalar operands are expanded to columns."""

    def bind(call: Call) -> Kernel:
        function = make(call)

        def kernel(*operands: Datum) -> Datum:
            rows = next((len(operand) for operand in operands if isinstance(operand, pa.Array)), None)
            if rows is None:
                return function(*[to_full_array(operand, 1) for operand in operands])[0]
            return function(*[to_full_array(operand, rows) for operand in operands])

        return kernel

    return bind
