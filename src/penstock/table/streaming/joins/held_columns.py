"""The rows of one side of a join as columns, found by their keys. Rows only come, so each has a number for good.

Rows are found by the hashes of their keys, which lie in order in a few runs. A run is made of the rows that have come
when somebody asks, and runs of one size become one. So no key becomes a Python object, a row that nobody asks for costs
nothing but its hash, and a question takes two binary searches in each run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.table.streaming.rows.column_parts import ColumnParts
from penstock.table.streaming.rows.key_hashes import is_own_number, same_keys
from penstock.table.streaming.rows.small_numbers import places_in_order

#: So many runs of a size become one.
_FACTOR: Final = 8
#: A run with so many rows stays as it is, or a question would wait too long for it.
_ROWS_MAX: Final = 1 << 22
#: Of up to so many new rows those with the same hash stay in the order in which they came; more are sorted faster.
_STABLE_MAX: Final = 1 << 12
_NONE: Final = np.zeros(0, np.int64)


class Matches:
    """The rows that are held of asked rows' keys.

    Args:
        groups: the number of each asked row's hash.
        counts: how many rows are held with each of these.
        numbers: of the rows that are held, by hash.
        same: of pairs, as places of asked rows and numbers, which have the same key; None where all have.
    """

    def __init__(self, groups: Any, counts: Any, numbers: Any, same: Callable[[Any, Any], Any] | None) -> None:
        self._groups = groups
        self._counts = counts
        self._begins = np.cumsum(counts) - counts
        self._numbers = numbers
        self._same = same

    def counts(self) -> Any:
        """How many pairs there may be of each asked row."""
        return self._counts[self._groups]

    def pairs(self, start: int, stop: int) -> tuple[Any, Any]:
        """The pairs of asked rows, from `start` up to `stop`, with held ones: places and numbers."""
        groups = self._groups[start:stop]
        of_row = self._counts[groups]
        places = np.repeat(np.arange(start, stop), of_row)
        within = np.arange(len(places)) - np.repeat(np.cumsum(of_row) - of_row, of_row)
        numbers = self._numbers[np.repeat(self._begins[groups], of_row) + within]
        if self._same is None or not len(places):
            return places, numbers
        same = self._same(places, numbers)
        return places[same], numbers[same]


class HeldColumns:
    """See the module's text. `width`: how many columns the key has; they come first."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._rows = ColumnParts()
        self._has_null = False
        #: hashes in order, and the numbers of their rows
        self._runs: list[tuple[Any, Any]] = []
        #: the hashes of rows that have come since
        self._new: list[Any] = []

    def __len__(self) -> int:
        return len(self._rows)

    def table(self, first: int) -> pa.Table | None:
        """The rows from a number on; None if there are none."""
        parts = self._rows.since(first)
        return pa.Table.from_batches(parts) if parts else None

    def add(self, hashes: Any, rows: pa.RecordBatch) -> None:
        """Take rows in. `hashes`: of their keys."""
        self._has_null |= any(column.null_count for column in rows.columns[: self._width])
        self._rows.append(rows)
        self._new.append(hashes)

    def matches(self, hashes: Any, keys: Sequence[pa.Array]) -> Matches | None:
        """The rows that are held of these keys, given as hashes and as columns; None when there are none."""
        if not len(self._rows) or not len(hashes):
            return None
        asked, groups = np.unique(hashes, return_inverse=True)
        of_key, numbers = self._found(asked)
        if not len(numbers):
            return None
        is_exact = is_own_number([key.type for key in keys]) and not self._has_null and not keys[0].null_count
        return Matches(
            groups, np.bincount(of_key, minlength=len(asked)), numbers, None if is_exact else partial(self._same, keys)
        )

    def taken(self, columns: Sequence[int], numbers: Any) -> list[pa.Array]:
        """These columns of the rows with these numbers, of which there must be some."""
        return self._rows.taken(columns, numbers)

    def _same(self, keys: Sequence[pa.Array], places: Any, numbers: Any) -> Any:
        chosen = pa.array(places)
        return same_keys([key.take(chosen) for key in keys], self.taken(range(self._width), numbers))

    def _found(self, asked: Any) -> tuple[Any, Any]:
        """The rows with these hashes, which are in order: of which one each row is, and its number, by hash."""
        self._put_in_order()
        of_key, numbers = [], []
        for hashes, rows in self._runs:
            begins = np.searchsorted(hashes, asked)
            hits = np.flatnonzero(hashes[np.minimum(begins, len(hashes) - 1)] == asked)
            if not len(hits):
                continue
            begins = begins[hits]
            counts = np.searchsorted(hashes, asked[hits], side="right") - begins
            within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
            numbers.append(rows[np.repeat(begins, counts) + within])
            of_key.append(np.repeat(hits, counts))
        if len(of_key) < 2:
            return (of_key[0], numbers[0]) if of_key else (_NONE, _NONE)
        of_all, all_numbers = np.concatenate(of_key), np.concatenate(numbers)
        by_key = places_in_order(of_all, len(asked))
        return of_all[by_key], all_numbers[by_key]

    def _put_in_order(self) -> None:
        """Make a run of the rows that have come, and one of several where they are of about one size."""
        runs = self._runs
        if self._new:
            hashes = np.concatenate(self._new) if len(self._new) > 1 else self._new[0]
            end = self._rows.end
            self._new.clear()
            is_small = len(hashes) <= _STABLE_MAX
            order = np.argsort(hashes, kind="stable" if is_small else "quicksort")
            runs.append((hashes[order], np.arange(end - len(hashes), end)[order]))
        while True:
            size, begin, rows = len(runs[-1][0]) * 2, len(runs), 0
            while begin and len(runs[begin - 1][0]) <= size and rows + len(runs[begin - 1][0]) <= _ROWS_MAX:
                begin -= 1
                rows += len(runs[begin][0])
            if len(runs) - begin < _FACTOR:
                return
            hashes, numbers = (np.concatenate(arrays) for arrays in zip(*runs[begin:], strict=True))
            # Which merges, since each run is in order.
            order = np.argsort(hashes, kind="stable")
            runs[begin:] = [(hashes[order], numbers[order])]
