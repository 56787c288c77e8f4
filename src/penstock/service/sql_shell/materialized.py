"""The table that a changelog stands for, as texts: what two rows show alike is one row, as often as it is there."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from threading import Lock


class MaterializedTable:
    """Changes in, rows out. One thread may change it while another looks at it.

    Args:
        rows_max: how many rows are kept; the oldest go first.
    """

    def __init__(self, rows_max: int) -> None:
        self._rows_max = rows_max
        self._counts: dict[tuple[str, ...], int] = {}
        self._total = 0
        self._lock = Lock()
        #: how many changes have come
        self.changes = 0

    def apply(self, kind: str, texts: Sequence[str]) -> None:
        """One change, of a kind such as `+I`. A row that goes may come before the row that it takes back."""
        row = tuple(texts)
        with self._lock:
            self.changes += 1
            before = self._counts.pop(row, 0)
            after = before + (1 if kind in ("+I", "+U") else -1)
            if after:
                self._counts[row] = after
            self._total += max(after, 0) - max(before, 0)
            while self._total > self._rows_max:
                self._drop_oldest()

    def _drop_oldest(self) -> None:
        row = next(row for row, count in self._counts.items() if count > 0)
        self._total -= 1
        self._counts[row] -= 1
        if not self._counts[row]:
            del self._counts[row]

    def __len__(self) -> int:
        return self._total

    def rows(self, last: int | None = None) -> list[tuple[str, ...]]:
        """The rows that are there, those that changed last at the end; with `last`, only so many of them."""
        with self._lock:
            newest = (row for row in reversed(self._counts) for _ in range(self._counts[row]))
            return list(islice(newest, last))[::-1]
