"""Rows that an operator keeps as columns and refers to by number. Snapshots contain them as tuples, like other rows.

So an operator can select the rows to keep with integers, and emit rows without creating Python objects. Once removed
rows outnumber the others, they are discarded, and the others get new numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.core.columns.batch import ColumnBatch
from penstock.state.frozen import Pack
from penstock.table.data.logical_types import DataType
from penstock.table.streaming.rows.column_parts import ColumnParts
from penstock.table.streaming.rows.held_rows import build_columns
from penstock.table.streaming.rows.row_tuples import to_tuples

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
        return self._parts.append(_part(rows.columns[: len(self.types)], rows.num_rows))

    def restore(self, rows: Sequence[tuple[Any, ...]]) -> int:
        """Add at least one row from a snapshot. Returns the number of the first one."""
        return self._parts.append(_part(build_columns(rows, self.types), len(rows)))

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
            compacted.append(_part(self.columns(numbers), len(numbers)))
        first, self._parts = self._parts.end, compacted
        return first

    def as_of_now(self) -> _AsOfNow:
        """Return the current rows, unaffected by later changes."""
        copied = ColumnParts()
        copied.parts, copied.starts = list(self._parts.parts), list(self._parts.starts)
        return _AsOfNow(copied, self.types)


def _part(columns: Sequence[pa.Array], rows: int) -> pa.RecordBatch:
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
        return to_tuples(ColumnBatch(_part(columns, len(numbers))), self.types)


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
