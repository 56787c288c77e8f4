"""Rows stored as columns, in parts or by number, and the keys of rows as 64-bit integers.

`places_in_order` is a stable sort of small numbers, such as the indexes of keys in a batch.

`ColumnParts` stores rows in parts. Rows are numbered in arrival order, and keep their numbers. Access to all parts
merges them first: several parts of similar size become one. So a row is copied a few times at most, and there are few
parts, regardless of the number of rows. Rows that are never read stay in place. So do the columns that they were chosen
from (`UncutRows`), if most rows of these were chosen.

`NumberedRows` lets an operator select the rows to keep with integers, and emit rows without creating Python objects.
Snapshots contain the rows as tuples, like other rows. Once removed rows outnumber the others, they are discarded, and
the others get new numbers.

`key_hashes` maps the keys of rows to integers by kernels: rows with the same key have the same number. The key of a
single integer or temporal column is its own number. Other keys are hashed, once for each distinct value. Then two keys
may share a number, so a lookup by number must also compare the columns (`same_keys`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from penstock.codecs.arrow_columns import NANOSECONDS
from penstock.runtime.columns import ColumnBatch
from penstock.sql.data.types import DataType
from penstock.sql.stream.rows.rows import UncutRows, build_columns, cut, taken, to_tuples
from penstock.state.key_columns import distinct_keys
from penstock.state.keys import key_bytes
from penstock.state.snapshot import Pack

#: NumPy sorts 16-bit numbers by radix sort, several times as fast as larger ones.
_SMALL: Final = 1 << 16


def places_in_order(numbers: Any, end: int) -> Any:
    """Return the indexes that sort integers from 0 (inclusive) to `end` (exclusive). Equal numbers keep their order."""
    return np.argsort(numbers.astype(np.uint16) if end <= _SMALL else numbers, kind="stable")


#: This many parts of similar size become one.
_FACTOR: Final = 8
#: Reading rows from more parts than this at once merges them.
_USED_MAX: Final = 16
#: Rows are added to a last part with fewer rows than this, so that single rows do not become parts.
_FEW: Final = 1 << 10
#: Parts with this many rows are not merged further, because string offsets have 32 bits.
_ROWS_MAX: Final = 1 << 20


#: Replaces columns by equal ones that may be on disk, see `KeyedStateBackend.store_columns`.
Store = Callable[[pa.RecordBatch], pa.RecordBatch]
#: New parts are stored when they have this many bytes together.
_STORED_BYTES: Final = 1 << 22


class ColumnParts:
    """See the module docstring. `first`: the number of the first row; `store`: stores large parts."""

    def __init__(self, first: int = 0, store: Store | None = None) -> None:
        self._store = store
        #: the number of the first row that may not be stored, and the bytes from it on
        self._new_from, self._new_bytes = first, 0
        self.parts: list[pa.RecordBatch | UncutRows] = []
        #: the number of the first row of each part, followed by the number of the next row to arrive
        self.starts = [first]
        #: how many parts, from the first one on, are fully merged
        self._merged = 0

    def __len__(self) -> int:
        return self.starts[-1] - self.starts[0]

    @property
    def end(self) -> int:
        """The number of the next row to arrive."""
        return self.starts[-1]

    def append(self, rows: pa.RecordBatch | UncutRows) -> int:
        """Append rows. Returns the number of the first one."""
        first = self.starts[-1]
        if rows.num_rows:
            if self._store is not None:
                rows = cut(rows)
                self._new_bytes += rows.nbytes
            self.parts.append(rows)
            self.starts.append(first + rows.num_rows)
            if self._new_bytes >= _STORED_BYTES:
                self._store_new()
            elif len(self.parts) > 1 and self.parts[-2].num_rows < _FEW:
                self._join(len(self.parts) - 2)
                self._merged = min(self._merged, len(self.parts) - 1)
        return first

    def _store_new(self) -> None:
        """Join and store the parts from the first row on that may not be stored."""
        begin = int(np.searchsorted(self.starts, self._new_from, side="right")) - 1
        part = self.parts[begin]
        self._join(begin)
        if self.parts[begin] is part:
            self.parts[begin] = self._stored(part)
        self._merged = min(self._merged, begin)
        self._new_from, self._new_bytes = self.starts[-1], 0

    def _stored(self, part: pa.RecordBatch | UncutRows) -> pa.RecordBatch | UncutRows:
        return part if self._store is None else self._store(cut(part))

    def merge(self) -> None:
        """Merge the parts into few."""
        parts, starts = self.parts, self.starts
        while len(parts) > self._merged:
            first = self._merged
            stop = int(np.searchsorted(starts, starts[first] + _ROWS_MAX, side="right")) - 1
            self._join(first, max(stop, first + 1))
            self._merged += 1
            self._merge_last(self._merged)

    def _merge_last(self, stop: int) -> None:
        """Merge the last parts before an index while there are enough of similar size."""
        parts, starts = self.parts, self.starts
        while True:
            size, begin = parts[stop - 1].num_rows * 2, stop
            while begin and parts[begin - 1].num_rows <= size and starts[stop] - starts[begin - 1] <= _ROWS_MAX:
                begin -= 1
            if stop - begin < _FACTOR:
                return
            self._join(begin, stop)
            self._merged = stop = begin + 1

    def _join(self, begin: int, stop: int | None = None) -> None:
        stop = len(self.parts) if stop is None else stop
        if stop - begin > 1:
            joined = pa.concat_batches(list(map(cut, self.parts[begin:stop])))
            self.parts[begin:stop] = [self._stored(joined) if joined.nbytes >= _STORED_BYTES else joined]
            del self.starts[begin + 1 : stop]

    def since(self, number: int) -> list[tuple[pa.RecordBatch | UncutRows, int]]:
        """Return the parts with the rows from a number on, and the index of the first such row in each."""
        pairs = zip(self.starts, self.parts, strict=False)
        return [(part, max(number - start, 0)) for start, part in pairs if start + part.num_rows > number]

    def taken(self, columns: Sequence[int], numbers: Any) -> list[pa.Array]:
        """Return these columns of the rows with these numbers, a NumPy array that must not be empty."""
        parts = np.searchsorted(self.starts, numbers, side="right") - 1
        used = np.flatnonzero(np.bincount(parts, minlength=len(self.parts)))
        if len(used) > _USED_MAX and len(self.parts) > self._merged:
            self.merge()
            return self.taken(columns, numbers)
        if len(used) == 1:
            part = self.parts[used[0]]
            positions = numbers - self.starts[used[0]]
            return [taken(part, column, positions) for column in columns]
        order = places_in_order(parts, len(self.parts))
        ends = np.searchsorted(parts[order], used, side="right").tolist()
        chunks: list[list[pa.Array]] = [[] for _ in columns]
        begin = 0
        for index, end in zip(used.tolist(), ends, strict=True):
            positions = numbers[order[begin:end]] - self.starts[index]
            for chunk, column in zip(chunks, columns, strict=True):
                chunk.append(taken(self.parts[index], column, positions))
            begin = end
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        in_order = pa.array(back)
        return [pa.concat_arrays(chunk).take(in_order) for chunk in chunks]


#: Up to this many removed rows are always tolerated.
ROWS_GONE_MAX: Final = 1 << 16


class NumberedRows:
    """See the module docstring. `names`: the names of the output columns."""

    def __init__(self, types: Sequence[DataType], names: Sequence[str]) -> None:
        self.types = tuple(types)
        self._names = list(names)
        self._places = range(len(self.types))
        self._parts = ColumnParts()

    def add(self, rows: pa.RecordBatch) -> int:
        """Add at least one row. Returns the number of the first one."""
        return self._parts.append(build_part(rows.columns[: len(self.types)], rows.num_rows))

    def restore(self, rows: Sequence[tuple[Any, ...]]) -> int:
        """Add at least one row from a snapshot. Returns the number of the first one."""
        return self._parts.append(build_part(build_columns(rows, self.types), len(rows)))

    def columns(self, numbers: Any, indices: Sequence[int] | None = None) -> list[pa.Array]:
        """Return columns of the rows with these numbers, a NumPy array that must not be empty."""
        return self._parts.taken(self._places if indices is None else indices, numbers)

    def batch(self, numbers: Any, kinds: bytes | None, *more: pa.Array) -> ColumnBatch:
        """Return a batch of the rows with these numbers, at least one, and further columns."""
        arrays = [*self.columns(numbers), *more] or [pa.nulls(len(numbers))]
        return ColumnBatch(pa.RecordBatch.from_arrays(arrays, self._names or ["c0"]), None, kinds)

    def __len__(self) -> int:
        """Return the number of rows, including removed ones."""
        return len(self._parts)

    def is_wasteful(self, live_count: int) -> bool:
        """Return whether removed rows outnumber the other ones, at least `live_count`, by more than `ROWS_GONE_MAX`."""
        return len(self._parts) > 2 * live_count + ROWS_GONE_MAX

    def keep(self, numbers: Any) -> int:
        """Keep only the rows with these numbers. Returns the new number of the first one; the others follow it."""
        compacted = ColumnParts(self._parts.end)
        if len(numbers):
            compacted.append(build_part(self.columns(numbers), len(numbers)))
        first, self._parts = self._parts.end, compacted
        return first

    def as_of_now(self) -> _AsOfNow:
        """Return the current rows, unaffected by later changes."""
        copied = ColumnParts()
        copied.parts, copied.starts = list(self._parts.parts), list(self._parts.starts)
        return _AsOfNow(copied, self.types)


def build_part(columns: Sequence[pa.Array], rows: int) -> pa.RecordBatch:
    """Build a part from rows. Rows without columns get one that counts them."""
    arrays = list(columns) or [pa.nulls(rows)]
    return pa.RecordBatch.from_arrays(arrays, list(map(str, range(len(arrays)))))


@dataclass
class _AsOfNow:
    """An immutable view of rows by number."""

    parts: ColumnParts
    types: tuple[DataType, ...]

    def tuples(self, numbers: Any) -> list[tuple[Any, ...]]:
        """Return the rows with these numbers."""
        if not self.types or not len(numbers):
            return [()] * len(numbers)
        columns = self.parts.taken(range(len(self.types)), numbers)
        return to_tuples(ColumnBatch(build_part(columns, len(numbers))), self.types)


# --- snapshots --------------------------------------------------------------------------------------------------------


@dataclass
class _PackedRows:
    """Packed values that unpack to one row each."""

    rows: _AsOfNow
    numbers: Any

    def unpack(self) -> list[Any]:
        """See `Packed`."""
        return list(self.rows.tuples(self.numbers))


def rows_packed(rows: NumberedRows) -> Pack:
    """Return how to pack values that are the numbers of rows: a snapshot contains the rows."""
    return lambda numbers: _PackedRows(rows.as_of_now(), np.array(numbers, np.int64))


@dataclass
class _PackedLists:
    """Packed values that unpack to the sort keys, the rows and the last number of a group each."""

    rows: _AsOfNow
    keys: list[list[Any]]
    lists: list[list[int]]
    ends: list[int]

    def unpack(self) -> list[Any]:
        """See `Packed`."""
        rows = self.rows.tuples(np.fromiter(chain.from_iterable(self.lists), np.int64))
        stops = list(accumulate(map(len, self.lists)))
        parts = [rows[stop - len(numbers) : stop] for numbers, stop in zip(self.lists, stops, strict=True)]
        return [list(group) for group in zip(self.keys, parts, self.ends, strict=True)]


def lists_packed(rows: NumberedRows) -> Pack:
    """Return how to pack groups of `TopN` with numbers for rows: a snapshot contains the rows."""

    def pack(values: list[Any]) -> _PackedLists:
        keys, lists = ([list(group[index]) for group in values] for index in (0, 1))
        return _PackedLists(rows.as_of_now(), keys, lists, list(map(itemgetter(2), values)))

    return pack


#: mixes the columns of a key
_HASH_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)
_HASH_INTEGER: Final = int(_HASH_FACTOR)
_ALL_BITS: Final = (1 << 64) - 1
_HALF: Final = 1 << 63
_SHIFT: Final = np.uint64(29)
_NULL: Final = 0x5851F42D4C957F2D


def is_own_number(types: Sequence[pa.DataType]) -> bool:
    """Return whether keys of these columns are their own numbers, so that only NULL requires a comparison."""
    return len(types) == 1 and _is_whole(types[0])


def key_hashes(columns: Sequence[pa.Array]) -> Any:
    """Return the number of each row's key, as a NumPy array of int64. Floats must have one form of NaN and of zero."""
    hashes = [_hashes(column) for column in columns]
    if len(hashes) == 1:
        return hashes[0]
    mixed = hashes[0].view(np.uint64)
    for column_hashes in hashes[1:]:
        mixed = (mixed ^ (mixed >> _SHIFT)) * _HASH_FACTOR + column_hashes.view(np.uint64)
    return mixed.view(np.int64)


def build_key_hash(types: Sequence[pa.DataType]) -> Callable[[Sequence[Any]], int] | None:
    """Return a function that computes what `key_hashes` does for the key of one row, without kernels.

    The function takes internal values (`penstock.sql.data.arrow`). Returns None if a type needs the kernels.
    """
    known = [_factor_of_values(kind) for kind in types]
    factors = [factor for factor in known if factor is not None]
    if not factors or len(factors) < len(known):
        return None

    def hash_value(value: Any, factor: int) -> int:
        return _NULL if value is None else _hash(value) if not factor else value if factor == 1 else value // factor

    def hash_key(values: Sequence[Any]) -> int:
        hashes = map(hash_value, values, factors)
        mixed = next(hashes)
        for hashed in hashes:
            mixed &= _ALL_BITS
            mixed = (mixed ^ (mixed >> 29)) * _HASH_INTEGER + hashed
        return (mixed + _HALF & _ALL_BITS) - _HALF

    return hash_key


def _factor_of_values(kind: pa.DataType) -> int | None:
    """Return by what internal values are divided for their hash; 0 for texts and bytes, None for other types."""
    if pa.types.is_timestamp(kind):
        return NANOSECONDS[kind.unit]
    if pa.types.is_signed_integer(kind) or pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return 1
    return 0 if pa.types.is_string(kind) or pa.types.is_binary(kind) else None


def same_keys(columns: Sequence[pa.Array], other: Sequence[pa.Array]) -> Any:
    """Return a mask of the rows with equal keys in both, which are columns in canonical form. NULL equals NULL."""
    same = np.ones(len(columns[0]), np.bool_)
    for left, right in zip(columns, other, strict=True):
        if pa.types.is_floating(left.type):
            # Compare the bits, so that NaN equals NaN.
            equal = pa.array(_bits(left) == _bits(right), mask=_nothing(left) | _nothing(right))
        elif pa.types.is_nested(left.type):
            codes, _ = distinct_keys([pa.concat_arrays([left, right])])
            equal = pa.array(codes[: len(left)] == codes[len(left) :])
        else:
            equal = pc.equal(left, right)
        equal = pc.fill_null(equal, False).to_numpy(zero_copy_only=False)
        same &= equal | (_nothing(left) & _nothing(right))
    return same


def _nothing(column: pa.Array) -> Any:
    return column.is_null().to_numpy(zero_copy_only=False)


def _bits(column: pa.Array) -> Any:
    return column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False).view(np.int64)


def _is_whole(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_signed_integer(kind)
        or types.is_timestamp(kind)
        or types.is_date(kind)
        or types.is_time(kind)
        or types.is_duration(kind)
    )


def _hashes(column: pa.Array) -> Any:
    kind = column.type
    if _is_whole(kind):
        if not pa.types.is_integer(kind):
            column = column.view(pa.int64() if kind.bit_width == 64 else pa.int32())
        hashes = (column.fill_null(0) if column.null_count else column).to_numpy(zero_copy_only=False)
        hashes = hashes.astype(np.int64, copy=False)
    elif pa.types.is_floating(kind):
        hashes = _bits(column)
    else:
        codes, values = distinct_keys([column])
        hashes = np.fromiter(map(_hash, values), np.int64, len(values))[codes]
    if column.null_count:
        hashes = np.where(_nothing(column), _NULL, hashes)
    return hashes


def _hash(value: Any) -> int:
    return xxhash.xxh3_64_intdigest(key_bytes(value)) - (1 << 63)
