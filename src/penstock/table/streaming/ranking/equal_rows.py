"""Where a row is among many that have the same sort key, found without a look at the others.

Rows of the same sort key lie side by side in the order in which they came. Each gets a number that says when, so the
place of one is found by halving, and its number by its values. This is made of the rows when one of many goes, and is
no part of the state.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

#: from so many rows of the same sort key on; fewer are looked at one after the other
MANY: Final = 32


class EqualRows:
    """The rows of a sort key.

    Args:
        rows: the rows, in their order.
        newest_first: whether a new row is ahead of the others.
        key_of: makes a dictionary key of a row.
    """

    __slots__ = ("_key_of", "_newest_first", "_numbers", "_of")

    def __init__(
        self, rows: Sequence[tuple[Any, ...]], newest_first: bool, key_of: Callable[[tuple[Any, ...]], Any]
    ) -> None:
        self._newest_first = newest_first
        self._key_of = key_of
        #: of the rows, in their order
        self._numbers: list[int] = []
        #: by what is in a row: those of all that are the same, the oldest first
        self._of: dict[Any, deque[int]] = {}
        for row in reversed(rows) if newest_first else rows:
            self.add(row)

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, row: tuple[Any, ...]) -> None:
        """Another row comes."""
        numbers = self._numbers
        if self._newest_first:
            number = numbers[0] - 1 if numbers else 0
            numbers.insert(0, number)
        else:
            number = numbers[-1] + 1 if numbers else 0
            numbers.append(number)
        self._of.setdefault(self._key_of(row), deque()).append(number)

    def take(self, row: tuple[Any, ...]) -> int | None:
        """The oldest of the rows that are the same goes: its place, or None if there is none."""
        name = self._key_of(row)
        same = self._of.get(name)
        if same is None:
            return None
        number = same.popleft()
        if not same:
            del self._of[name]
        place = bisect_left(self._numbers, number)
        del self._numbers[place]
        return place


def equal_rows(
    rows: Sequence[tuple[Any, ...]], newest_first: bool, key_of: Callable[[tuple[Any, ...]], Any]
) -> EqualRows | None:
    """An index of many rows of a sort key. None for few rows, and for rows with Python objects that have no hash."""
    if len(rows) < MANY:
        return None
    try:
        return EqualRows(rows, newest_first, key_of)
    except TypeError:
        return None


class Group(list[Any]):
    """What is held for a group, with what is known of its rows by sort key. It is pickled as the list that it is."""

    __slots__ = ("many",)

    def __init__(self, held: Sequence[Any]) -> None:
        super().__init__(held)
        self.many: dict[Any, EqualRows] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)
