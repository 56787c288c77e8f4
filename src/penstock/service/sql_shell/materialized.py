"""The materialized table of a changelog, as texts. Rows that look alike are one row with a count."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from threading import Lock


class MaterializedTable:
    """Turns changes into rows. One thread may change the table while another reads it.

    Args:
        rows_max: how many rows to keep; the oldest are dropped first.
    """

    def __init__(self, rows_max: int) -> None:
        self._rows_max = rows_max
        self._counts: dict[tuple[str, ...], int] = {}
        self._total = 0
        self._lock = Lock()
        #: how many changes have arrived
        self.changes = 0

    def apply(self, kind: str, texts: Sequence[str]) -> None:
        """Apply a change, of a kind such as `+I`. A retraction may arrive before its insert."""
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
        """Return the current rows, the most recently changed last; with `last`, at most that many of the last rows."""
        with self._lock:
            newest = (row for row in reversed(self._counts) for _ in range(self._counts[row]))
            return list(islice(newest, last))[::-1]
