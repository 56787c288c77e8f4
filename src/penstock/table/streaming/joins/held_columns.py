"""The rows of one side of a join as columns, by their keys. Rows only come, so each has a number for good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

#: Fewer rows than this are put together with the next ones before a third part comes.
_FEW: Final = 1 << 12


class HeldColumns:
    """Parts of columns, each one's rows numbered after those of the part before, and the numbers of each key's rows."""

    def __init__(self) -> None:
        self._parts: list[pa.RecordBatch] = []
        #: the number of the first row of each part, and at the end how many rows there are
        self._starts = [0]
        self._numbers: dict[Any, list[int]] = {}

    def __len__(self) -> int:
        return self._starts[-1]

    def table(self) -> pa.Table | None:
        """All rows; None as long as there was none."""
        return pa.Table.from_batches(self._parts) if self._parts else None

    def add(self, codes: Any, keys: Sequence[Any], rows: pa.RecordBatch) -> None:
        """Take rows in. `codes`: of each row the place of its key in `keys`; none is left out."""
        if not rows.num_rows:
            return
        first = self._starts[-1]
        self._append(rows)
        order = np.argsort(codes, kind="stable")
        counts = np.bincount(codes, minlength=len(keys)).tolist()
        numbers = (order + first).tolist()
        held, begin = self._numbers, 0
        for key, count in zip(keys, counts, strict=True):
            end = begin + count
            if count:
                found = held.get(key)
                if found is None:
                    held[key] = numbers[begin:end]
                else:
                    found.extend(numbers[begin:end])
            begin = end

    def _append(self, rows: pa.RecordBatch) -> None:
        """Parts are put together when the last is as large as the one before: each row moves a few times at most."""
        parts, starts = self._parts, self._starts
        parts.append(rows)
        starts.append(starts[-1] + rows.num_rows)
        while len(parts) > 1 and (parts[-2].num_rows <= 2 * parts[-1].num_rows or parts[-2].num_rows < _FEW):
            last = parts.pop()
            del starts[-2]
            parts[-1] = pa.concat_batches([parts[-1], last])

    def matches(self, codes: Any, keys: Sequence[Any]) -> tuple[Any, Any]:
        """The pairs of rows with those that are held: places in `codes`, in order, and numbers."""
        held = self._numbers
        found = [held.get(key, ()) for key in keys]
        counts = np.fromiter(map(len, found), np.int64, len(found))
        of_row = counts[codes]
        total = int(of_row.sum())
        if not total:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        numbers = np.fromiter((number for one in found for number in one), np.int64, int(counts.sum()))
        places = np.repeat(np.arange(len(codes)), of_row)
        # Where each row's matches begin among all numbers, and how far into them each pair is.
        begins = (np.cumsum(counts) - counts)[codes]
        within = np.arange(total) - np.repeat(np.cumsum(of_row) - of_row, of_row)
        return places, numbers[np.repeat(begins, of_row) + within]

    def count_matches(self, codes: Any, keys: Sequence[Any]) -> Any:
        """How many rows are held of each row's key."""
        held = self._numbers
        return np.fromiter((len(held.get(key, ())) for key in keys), np.int64, len(keys))[codes]

    def taken(self, columns: Sequence[int], numbers: Any) -> list[Any]:
        """These columns of the rows with these numbers, of which there must be some."""
        parts = np.searchsorted(self._starts, numbers, side="right") - 1
        used = np.unique(parts)
        if len(used) == 1:
            part = self._parts[used[0]]
            places = pa.array(numbers - self._starts[used[0]])
            return [part.column(column).take(places) for column in columns]
        order = np.argsort(parts, kind="stable")
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        chunks: list[list[Any]] = [[] for _ in columns]
        for index in used.tolist():
            places = pa.array(numbers[parts == index] - self._starts[index])
            for chunk, column in zip(chunks, columns, strict=True):
                chunk.append(self._parts[index].column(column).take(places))
        in_order = pa.array(back)
        return [pa.concat_arrays(chunk).take(in_order) for chunk in chunks]
