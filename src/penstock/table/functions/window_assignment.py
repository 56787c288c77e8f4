"""Assigns rows to the windows of TUMBLE, HOP and CUMULATE. All times are in ms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

#: for each row and window: the row number (None if each row has one window), the start and the end of the window
Assigned = tuple[Any, Any, Any]


def _tumble(times: Any, sizes: Sequence[int], offset: int) -> Assigned:
    (size,) = sizes
    starts = times - (times - offset) % size
    return None, starts, starts + size


def _hop(times: Any, sizes: Sequence[int], offset: int) -> Assigned:
    slide, size = sizes
    last = times - (times - offset) % slide
    rows, starts = [], []
    for back in range(0, size, slide):
        start = last - back
        among = np.flatnonzero(start + size > times)
        rows.append(among)
        starts.append(start[among])
    return _in_order(rows, starts, size)


def _in_order(rows: list[Any], starts: list[Any], size: int) -> Assigned:
    """Sort windows by row, and then by start."""
    all_rows, all_starts = np.concatenate(rows), np.concatenate(starts)
    order = np.lexsort((all_starts, all_rows))
    return all_rows[order], all_starts[order], all_starts[order] + size


def _cumulate(times: Any, sizes: Sequence[int], offset: int) -> Assigned:
    step, size = sizes
    start = times - (times - offset) % size
    first = start + ((times - start) // step + 1) * step
    counts = (start + size - first) // step + 1
    rows = np.repeat(np.arange(len(times)), counts)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    return rows, start[rows], first[rows] + within * step


#: assigns windows by function: from times, the function's sizes, and the offset
ASSIGN: Final[dict[str, Callable[[Any, Sequence[int], int], Assigned]]] = {
    "TUMBLE": _tumble,
    "HOP": _hop,
    "CUMULATE": _cumulate,
}
