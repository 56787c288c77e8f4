"""Finds a row among many with the same sort key without comparing all of them.

Rows with the same sort key are adjacent, in arrival order, and each gets a sequence number. The values of a row
determine its number, and binary search finds the position. The index is built when one of many rows is removed, and is
not part of the state.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

#: the minimum number of rows with the same sort key for an index; fewer are searched one by one
MANY: Final = 32


class EqualRows:
    """The rows with one sort key.

    Args:
        rows: the rows, in order.
        newest_first: whether new rows go before the others.
        key_of: makes a dictionary key from a row.
    """

    __slots__ = ("_key_of", "_newest_first", "_numbers", "_of")

    def __init__(
        self, rows: Sequence[tuple[Any, ...]], newest_first: bool, key_of: Callable[[tuple[Any, ...]], Any]
    ) -> None:
        self._newest_first = newest_first
        self._key_of = key_of
        #: the sequence numbers of the rows, in the order of the rows
        self._numbers: list[int] = []
        #: row key -> the sequence numbers of equal rows, the oldest first
        self._of: dict[Any, deque[int]] = {}
        for row in reversed(rows) if newest_first else rows:
            self.add(row)

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, row: tuple[Any, ...]) -> None:
        """Add a row."""
        numbers = self._numbers
        if self._newest_first:
            number = numbers[0] - 1 if numbers else 0
            numbers.insert(0, number)
        else:
            number = numbers[-1] + 1 if numbers else 0
            numbers.append(number)
        self._of.setdefault(self._key_of(row), deque()).append(number)

    def take(self, row: tuple[Any, ...]) -> int | None:
        """Remove the oldest row that equals this one. Returns its position, or None if not found."""
        name = self._key_of(row)
        same = self._of.get(name)
        if same is None:
            return None
        number = same.popleft()
        if not same:
            del self._of[name]
        index = bisect_left(self._numbers, number)
        del self._numbers[index]
        return index


def equal_rows(
    rows: Sequence[tuple[Any, ...]], newest_first: bool, key_of: Callable[[tuple[Any, ...]], Any]
) -> EqualRows | None:
    """Index the rows of a sort key. Returns None for few rows, and for rows with unhashable Python objects."""
    if len(rows) < MANY:
        return None
    try:
        return EqualRows(rows, newest_first, key_of)
    except TypeError:
        return None


class Group(list[Any]):
    """The state of a group, with indexes of its rows by sort key. It is pickled as a plain list."""

    __slots__ = ("many",)

    def __init__(self, values: Sequence[Any]) -> None:
        super().__init__(values)
        self.many: dict[Any, EqualRows] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)
