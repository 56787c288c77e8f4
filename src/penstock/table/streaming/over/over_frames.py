"""Frames of OVER windows that end at the current row, and the state of a partition.

An entry is [accumulators, (time, operands) of the rows yet to be retracted, the time of the last rows, the time at
which it ends]. Only bounded frames keep rows, and only bounded RANGE frames end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, TypeAlias

from penstock.core.records import MIN_TIMESTAMP
from penstock.table.streaming.over.over_calls import OverCalls, Row

Entry: TypeAlias = list[Any]
HELD, KEPT, LAST, END = range(4)


class Frame:
    """The rows up to the current one.

    Args:
        calls: the calls to compute.
        is_rows: whether it is a ROWS frame; otherwise it is a RANGE frame, where rows of the same time share a result.
        distance: how many rows, or how many ms, the frame reaches back; None if it is unbounded.
    """

    def __init__(self, calls: OverCalls, is_rows: bool, distance: int | None) -> None:
        self._calls = calls
        self._is_rows = is_rows
        self._distance = distance

    def create(self) -> Entry:
        """Create the entry of a partition without rows."""
        return [self._calls.create(), None if self._distance is None else deque(), MIN_TIMESTAMP, None]

    def results(self, entry: Entry, time: int, rows: Sequence[Row]) -> list[Row]:
        """Add all rows of one time, and return the results of the calls for each of them."""
        entry[LAST] = time
        if self._is_rows:
            return [self._of_row(entry, time, row) for row in rows]
        calls, distance, states, buffered = self._calls, self._distance, entry[HELD], entry[KEPT]
        if distance is not None:
            while buffered and time - buffered[0][0] > distance:
                calls.retract(states, buffered.popleft()[1])
        for row in rows:
            operands = calls.operands(row)
            calls.add(states, operands)
            if distance is not None:
                buffered.append((time, operands))
        return [calls.values(states)] * len(rows)

    def _of_row(self, entry: Entry, time: int, row: Row) -> Row:
        calls, distance, states, buffered = self._calls, self._distance, entry[HELD], entry[KEPT]
        operands = calls.operands(row)
        if distance is not None:
            if len(buffered) > distance:
                calls.retract(states, buffered.popleft()[1])
            buffered.append((time, operands))
        calls.add(states, operands)
        return calls.values(states)
