"""Rows that an operator keeps as columns, and knows by numbers. Snapshots have them as tuples, as if they were not.

So an operator decides which rows stay with whole numbers, and sends rows without making Python objects of them. What is
kept of rows that are gone goes when it has become more than the rest: the others get new numbers then.
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
from penstock.table.streaming.rows.held_rows import columns_of
from penstock.table.streaming.rows.row_tuples import tuples_of

#: Up to so many rows may be gone.
ROWS_GONE_MAX: Final = 1 << 16


class NumberedRows:
    """See the module's text. `names`: of the columns that it gives."""

    def __init__(self, types: Sequence[DataType], names: Sequence[str]) -> None:
        self.types = tuple(types)
        self._names = list(names)
        self._places = range(len(self.types))
        self._parts = ColumnParts()

    def add(self, rows: pa.RecordBatch) -> int:
        """Take rows in, of which there are some; returns the number of the first one."""
        return self._parts.append(_part(rows.columns[: len(self.types)], rows.num_rows))

    def restore(self, rows: Sequence[tuple[Any, ...]]) -> int:
        """Take the rows of a snapshot in, of which there are some; returns the number of the first one."""
        return self._parts.append(_part(columns_of(rows, self.types), len(rows)))

    def columns(self, numbers: Any, places: Sequence[int] | None = None) -> list[pa.Array]:
        """The columns of the rows with these numbers, a numpy array, of which there must be some."""
        return self._parts.taken(self._places if places is None else places, numbers)

    def batch(self, numbers: Any, kinds: bytes | None, *more: pa.Array) -> ColumnBatch:
        """The rows with these numbers, of which there must be some, and more columns."""
        arrays = [*self.columns(numbers), *more] or [pa.nulls(len(numbers))]
        return ColumnBatch(pa.RecordBatch.from_arrays(arrays, self._names or ["c0"]), None, kinds)

    def __len__(self) -> int:
        """How many rows there are, with those that are gone."""
        return len(self._parts)

    def is_wasteful(self, kept: int) -> bool:
        """Whether rows that are gone are more than the rest, of which there are `kept` at least."""
        return len(self._parts) > 2 * kept + ROWS_GONE_MAX

    def keep(self, numbers: Any) -> int:
        """Keep the rows with these numbers alone; returns the new number of the first one. The others follow it."""
        kept = ColumnParts(self._parts.end)
        if len(numbers):
            kept.append(_part(self.columns(numbers), len(numbers)))
        first, self._parts = self._parts.end, kept
        return first

    def as_of_now(self) -> _AsOfNow:
        """The rows as they are now."""
        kept = ColumnParts()
        kept.parts, kept.starts = list(self._parts.parts), list(self._parts.starts)
        return _AsOfNow(kept, self.types)


def _part(columns: Sequence[pa.Array], rows: int) -> pa.RecordBatch:
    """Rows as a part. Without columns there is one that counts them."""
    arrays = list(columns) or [pa.nulls(rows)]
    return pa.RecordBatch.from_arrays(arrays, list(map(str, range(len(arrays)))))


@dataclass
class _AsOfNow:
    """Rows by numbers that stay as they are."""

    parts: ColumnParts
    types: tuple[DataType, ...]

    def tuples(self, numbers: Any) -> list[tuple[Any, ...]]:
        """The rows with these numbers."""
        if not self.types or not len(numbers):
            return [()] * len(numbers)
        columns = self.parts.taken(range(len(self.types)), numbers)
        return tuples_of(ColumnBatch(_part(columns, len(numbers))), self.types)


# --- snapshots --------------------------------------------------------------------------------------------------------


@dataclass
class _PackedRows:
    """A row for each value."""

    rows: _AsOfNow
    numbers: Any

    def unpack(self) -> list[Any]:
        """See `Packed`."""
        return list(self.rows.tuples(self.numbers))


def rows_packed(rows: NumberedRows) -> Pack:
    """Of values that are the numbers of rows: a snapshot has the rows."""
    return lambda numbers: _PackedRows(rows.as_of_now(), np.array(numbers, np.int64))


@dataclass
class _PackedLists:
    """Lists of sort keys, rows and the last number for each value."""

    rows: _AsOfNow
    keys: list[list[Any]]
    lists: list[list[int]]
    ends: list[int]

    def unpack(self) -> list[Any]:
        """See `Packed`."""
        found = self.rows.tuples(np.fromiter(chain.from_iterable(self.lists), np.int64))
        stops = list(accumulate(map(len, self.lists)))
        parts = [found[stop - len(one) : stop] for one, stop in zip(self.lists, stops, strict=True)]
        return [list(one) for one in zip(self.keys, parts, self.ends, strict=True)]


def lists_packed(rows: NumberedRows) -> Pack:
    """Of values as `TopN` holds them, with numbers for rows: a snapshot has the rows."""

    def pack(values: list[Any]) -> _PackedLists:
        keys, lists = ([list(one[place]) for one in values] for place in (0, 1))
        return _PackedLists(rows.as_of_now(), keys, lists, list(map(itemgetter(2), values)))

    return pack
