"""The rows of one side of a join as columns, found by their keys. Rows are never removed, so a row keeps its number.

Rows are looked up by the hashes of their keys (`HashIndex`). No key becomes a Python object, and a row that is never
looked up costs only its hash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.table.streaming.joins.hash_index import HashIndex
from penstock.table.streaming.rows.column_parts import ColumnParts
from penstock.table.streaming.rows.key_hashes import is_own_number, same_keys
from penstock.table.streaming.rows.uncut_rows import UncutRows, cut


class Matches:
    """The stored rows that match the keys of probe rows.

    Args:
        rows: the positions of the probe rows that may have matches; None for all.
        groups: the hash group of each of these rows.
        counts: the number of stored rows in each hash group.
        numbers: the numbers of the stored rows, ordered by hash group.
        same: given pairs as probe positions and row numbers, returns which have equal keys; None if all do.
    """

    def __init__(
        self, rows: Any, groups: Any, counts: Any, numbers: Any, same: Callable[[Any, Any], Any] | None
    ) -> None:
        self._rows = rows
        self._groups = groups
        self._counts = counts
        self._begins = np.cumsum(counts) - counts
        self._numbers = numbers
        self._same = same

    @classmethod
    def of_all(cls, rows: int, stored_rows: int) -> Matches:
        """Match each of `rows` probe rows with each of `stored_rows` stored rows."""
        return cls(None, np.zeros(rows, np.int64), np.array([stored_rows]), np.arange(stored_rows), None)

    def runs(self, pairs_max: int) -> Iterator[tuple[int, int]]:
        """Yield ranges (start, stop) of probe rows with at most about `pairs_max` pairs each."""
        ends = np.cumsum(self._counts[self._groups])
        start = before = 0
        while start < len(ends):
            stop = max(int(np.searchsorted(ends, before + pairs_max, side="right")), start + 1)
            yield start, stop
            start, before = stop, int(ends[stop - 1])

    def pairs(self, start: int, stop: int) -> tuple[Any, Any]:
        """Return the pairs of a range of probe rows, see `runs`: positions of probe rows and numbers of stored rows."""
        groups = self._groups[start:stop]
        of_row = self._counts[groups]
        rows = np.arange(start, stop) if self._rows is None else self._rows[start:stop]
        positions = np.repeat(rows, of_row)
        within = np.arange(len(positions)) - np.repeat(np.cumsum(of_row) - of_row, of_row)
        numbers = self._numbers[np.repeat(self._begins[groups], of_row) + within]
        if self._same is None or not len(positions):
            return positions, numbers
        same = self._same(positions, numbers)
        return positions[same], numbers[same]


class HeldColumns:
    """See the module docstring. `width`: the number of key columns, which come first."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._rows = ColumnParts()
        self._has_null = False
        self._index = HashIndex()

    def __len__(self) -> int:
        return len(self._rows)

    def table(self, first: int) -> Callable[[], pa.Table] | None:
        """Return a function that builds a table of the rows from `first` on, in any thread.

        None if the table is empty.
        """
        parts = self._rows.since(first)
        return partial(_build_table, parts) if parts else None

    def add(self, hashes: Any, rows: pa.RecordBatch | UncutRows) -> None:
        """Add rows. `hashes`: the hashes of their keys."""
        self._has_null |= any(rows.column(index).null_count for index in range(self._width))
        self._rows.append(rows)
        self._index.add(hashes)

    def matches(self, hashes: Any, keys: Sequence[pa.Array]) -> Matches | None:
        """Return the stored rows with these keys, given as hashes and as columns, or None if no row matches."""
        if not len(self._rows) or not len(hashes):
            return None
        rows = self._index.near(hashes)
        probes, groups = np.unique(hashes if rows is None else hashes[rows], return_inverse=True)
        of_key, numbers = self._index.found(probes)
        if not len(numbers):
            return None
        is_exact = is_own_number([key.type for key in keys]) and not self._has_null and not keys[0].null_count
        counts = np.bincount(of_key, minlength=len(probes))
        return Matches(rows, groups, counts, numbers, None if is_exact else partial(self._same, keys))

    def taken(self, columns: Sequence[int], numbers: Any) -> list[pa.Array]:
        """Return these columns of the rows with these numbers. `numbers` must not be empty."""
        return self._rows.taken(columns, numbers)

    def _same(self, keys: Sequence[pa.Array], positions: Any, numbers: Any) -> Any:
        chosen = pa.array(positions)
        return same_keys([key.take(chosen) for key in keys], self.taken(range(self._width), numbers))


def _build_table(parts: Sequence[tuple[pa.RecordBatch | UncutRows, int]]) -> pa.Table:
    return pa.Table.from_batches([cut(part).slice(begin) for part, begin in parts])
