"""Stores rows as columns, in parts. Rows are numbered in arrival order, and keep their numbers.

Access to all parts merges them first: several parts of similar size become one. So a row is copied a few times at most,
and there are few parts, regardless of the number of rows. Rows that are never read stay in place. So do the columns
that they were chosen from (`UncutRows`), if most rows of these were chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.table.streaming.rows.small_numbers import places_in_order
from penstock.table.streaming.rows.uncut_rows import UncutRows, cut, taken

#: This many parts of similar size become one.
_FACTOR: Final = 8
#: Reading rows from more parts than this at once merges them.
_USED_MAX: Final = 16
#: Rows are added to a last part with fewer rows than this, so that single rows do not become parts.
_FEW: Final = 1 << 10
#: Parts with this many rows are not merged further, because string offsets have 32 bits.
_ROWS_MAX: Final = 1 << 20


class ColumnParts:
    """See the module docstring. `first`: the number of the first row."""

    def __init__(self, first: int = 0) -> None:
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
            self.parts.append(rows)
            self.starts.append(first + rows.num_rows)
            if len(self.parts) > 1 and self.parts[-2].num_rows < _FEW:
                self._join(len(self.parts) - 2)
                self._merged = min(self._merged, len(self.parts) - 1)
        return first

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
            self.parts[begin:stop] = [pa.concat_batches(list(map(cut, self.parts[begin:stop])))]
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
