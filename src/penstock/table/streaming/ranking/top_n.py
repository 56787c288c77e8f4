"""Maintains the first rows of a group in order, and reports how they change.

There are two ways to report changes. With row numbers, each number whose row changes causes an update. Without them,
only the row that enters and the one that drops out are reported. A range that does not start at 1 requires row numbers,
even if they are not output. The state of a group is a list that begins with the sort keys, the rows, and the last
number of the range.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

from penstock.table.plan.changes import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from penstock.table.streaming.ranking.equal_rows import Group, equal_rows
from penstock.table.streaming.rows.held_rows import RowEquality


class Sent:
    """Changes in order: their kinds, rows and row numbers."""

    __slots__ = ("kinds", "numbers", "rows")

    def __init__(self) -> None:
        self.kinds: list[int] = []
        self.rows: list[Any] = []
        self.numbers: list[int] = []

    def add(self, kind: int, row: Any, number: int) -> None:
        """Add a change."""
        self.kinds.append(kind)
        self.rows.append(row)
        self.numbers.append(number)


class TopN:
    """A top-N of an append-only input: rows after the last number are discarded.

    Args:
        start: the first row number of the range.
        shows_number: whether the row number is output.
        sends_before: whether updates include the previous row (UPDATE_BEFORE).
        newest_first: whether the newest of the rows with the same sort key is the first.
    """

    #: compares rows; the operator sets it for its types
    equality = RowEquality(())

    def __init__(self, start: int, shows_number: bool, sends_before: bool, newest_first: bool = False) -> None:
        self._start = start
        self._is_numbered = shows_number or start > 1
        self._sends_before = sends_before
        self._place_of = bisect_left if newest_first else bisect_right
        self._newest_first = newest_first

    def create(self, end: int) -> list[Any]:
        """Create a group without rows. Row numbers go up to `end`."""
        return [[], [], end]

    def resumed(self, group: list[Any]) -> list[Any]:
        """Prepare a group that was read from state."""
        return group

    def is_empty(self, group: list[Any]) -> bool:
        """Return whether a group can be dropped. A group with an append-only input always has rows."""
        return False

    def add(self, group: list[Any], key: Any, row: Any, sent: Sent) -> None:
        """Add a row with sort key `key`: after the rows with the same key, or before them if `newest_first` is set."""
        keys, rows, end = group[:3]
        index = self._place_of(keys, key)
        if index < end:
            keys.insert(index, key)
            rows.insert(index, row)
            self._has_come(rows, index, end, sent)
            del keys[end:], rows[end:]

    def remove(self, group: list[Any], key: Any, row: Any, sent: Sent, owes: bool = True) -> None:
        """Remove a row. This does nothing here, because the input is append-only."""

    def _has_come(self, rows: list[Any], index: int, end: int, sent: Sent) -> None:
        """Report a row that was inserted."""
        if not self._is_numbered:
            if len(rows) > end:
                sent.add(DELETE, rows[end], 0)
            sent.add(INSERT, rows[index], 0)
            return
        for number in range(max(index + 1, self._start), min(end, len(rows)) + 1):
            if number == len(rows):
                sent.add(INSERT, rows[-1], number)
            else:
                self._replace(rows[number], rows[number - 1], number, sent)

    def _replace(self, before: Any, after: Any, number: int, sent: Sent) -> None:
        if self._sends_before:
            sent.add(UPDATE_BEFORE, before, number)
        sent.add(UPDATE_AFTER, after, number)


class LatestTopN(TopN):
    """A top-N with the newest of the rows with the same sort key first. It reports no changes."""

    def add(self, group: list[Any], key: Any, row: Any, sent: Sent) -> None:
        """See `TopN`."""
        keys, rows, end = group
        index = bisect_left(keys, key)
        keys.insert(index, key)
        rows.insert(index, row)
        del keys[end:], rows[end:]


class RetractableTopN(TopN):
    """A top-N of a changelog. It keeps all rows, and counts retractions that arrived before their rows.

    Of equal rows, the oldest is removed first.
    """

    def create(self, end: int) -> Group:
        """See `TopN`."""
        return Group([[], [], end, {}])

    def resumed(self, group: list[Any]) -> Group:
        """See `TopN`."""
        return Group([*group[:3], {self.equality.current_key(name): count for name, count in group[3].items()}])

    def is_empty(self, group: list[Any]) -> bool:
        """See `TopN`."""
        return not group[1] and not group[3]

    def add(self, group: list[Any], key: Any, row: Any, sent: Sent) -> None:
        """See `TopN`."""
        assert isinstance(group, Group)
        keys, rows, end, missing = group
        if missing and self._count(missing, row, -1):
            return
        index = self._place_of(keys, key)
        keys.insert(index, key)
        rows.insert(index, row)
        if group.many and (equal := group.many.get(key)) is not None:
            try:
                equal.add(row)
            except TypeError:  # an unhashable Python object: search the rows again
                del group.many[key]
        if index < end:
            self._has_come(rows, index, end, sent)

    def _count(self, missing: dict[Any, int], row: tuple[Any, ...], by: int) -> bool:
        """Change how often a row is missing. Returns False if it is not missing."""
        name = self.equality.key(row)
        count = missing.get(name, 0) + by
        if count > 0:
            missing[name] = count
        elif count == 0:
            del missing[name]
        return count >= 0

    def remove(self, group: list[Any], key: Any, row: tuple[Any, ...], sent: Sent, owes: bool = True) -> None:
        """Remove a row, the oldest of equal ones. `owes`: whether a row that is not found is still to arrive."""
        assert isinstance(group, Group)
        keys, rows, end, missing = group
        index = self._place(group, key, row)
        if index is not None:
            # The row as it was sent: equal values may have other forms.
            removed = rows.pop(index)
            del keys[index]
            if index < end:
                self._has_gone(rows, removed, index, end, sent)
        elif owes:
            self._count(missing, row, 1)

    def _place(self, group: Group, key: Any, row: tuple[Any, ...]) -> int | None:
        """Return the position of the row to remove, or None if not found."""
        keys, rows = group[:2]
        first, behind = bisect_left(keys, key), bisect_right(keys, key)
        equal = group.many.get(key) if group.many else None
        if equal is None:
            equal = equal_rows(rows[first:behind], self._newest_first, self.equality.key)
            if equal is None:
                indices = range(first, behind)
                in_order = reversed(indices) if self._newest_first else indices
                return next((candidate for candidate in in_order if self.equality.same(rows[candidate], row)), None)
            group.many[key] = equal
        index = equal.take(row)
        if not equal:
            del group.many[key]
        return None if index is None else first + index

    def _has_gone(self, rows: list[Any], row: tuple[Any, ...], index: int, end: int, sent: Sent) -> None:
        """Report a row that was removed."""
        if not self._is_numbered:
            sent.add(DELETE, row, 0)
            if len(rows) >= end:
                sent.add(INSERT, rows[end - 1], 0)
            return
        before = row
        for number in range(index + 1, min(end, len(rows) + 1) + 1):
            if number > len(rows):
                if number >= self._start:
                    sent.add(DELETE, before, number)
                return
            after = rows[number - 1]
            if number >= self._start:
                self._replace(before, after, number, sent)
            before = after


class UpdatableTopN(TopN):
    """A top-N of updates by a unique key. A row replaces the previous one of its key, and never ranks after it.

    So rows after the last number need not be kept. The state also has the sort key of each unique key.
    """

    def __init__(self, start: int, shows_number: bool, sends_before: bool, unique: Sequence[int]) -> None:
        super().__init__(start, shows_number, sends_before)
        self._unique = tuple(unique)

    def create(self, end: int) -> Group:
        """See `TopN`."""
        return Group([[], [], end, {}])

    def resumed(self, group: list[Any]) -> Group:
        """See `TopN`."""
        keys, rows, end, _ = group
        return Group([keys, rows, end, dict(zip(map(self._name, rows), keys, strict=True))])

    def _name(self, row: tuple[Any, ...]) -> Any:
        name = self.equality.key(row)
        return tuple([name[index] for index in self._unique])

    def add(self, group: list[Any], key: Any, row: Any, sent: Sent) -> None:
        """See `TopN`."""
        keys, rows, end, keys_by_name = group
        name = self._name(row)
        if name in keys_by_name:
            self._update(group, name, key, row, sent)
            return
        index = bisect_right(keys, key)
        if index < end:
            keys_by_name[name] = key
            keys.insert(index, key)
            rows.insert(index, row)
            self._has_come(rows, index, end, sent)
            for dropped in rows[end:]:
                del keys_by_name[self._name(dropped)]
            del keys[end:], rows[end:]

    def _update(self, group: list[Any], name: Any, key: Any, row: tuple[Any, ...], sent: Sent) -> None:
        keys, rows, _, keys_by_name = group
        was = bisect_left(keys, keys_by_name[name])
        while self._name(rows[was]) != name:
            was += 1
        before = rows[was]
        index = was
        if key == keys_by_name[name]:
            rows[was] = row
        else:
            del keys[was], rows[was]
            index = bisect_right(keys, key)
            keys.insert(index, key)
            rows.insert(index, row)
            keys_by_name[name] = key
        if not self._is_numbered:
            self._replace(before, row, 0, sent)
            return
        low, high = min(was, index), max(was, index)
        after = rows[low : high + 1]
        former = after[: index - low] + after[index - low + 1 :]
        former.insert(was - low, before)
        for number, (former_row, other) in enumerate(zip(former, after, strict=True), low + 1):
            if number >= self._start:
                self._replace(former_row, other, number, sent)


class Top1(TopN):
    """The first row alone, if the input is append-only or updates only move rows up. A new first row is an update.

    `unique`: the unique key of rows that replace others, if any.
    """

    def __init__(self, shows_number: bool, sends_before: bool, unique: Sequence[int] = ()) -> None:
        super().__init__(1, shows_number, sends_before)
        self._unique = tuple(unique)

    def add(self, group: list[Any], key: Any, row: Any, sent: Sent) -> None:
        """See `TopN`."""
        keys, rows = group[:2]
        if not rows:
            keys.append(key)
            rows.append(row)
            sent.add(INSERT, row, 1)
        elif key < keys[0] or (self._unique and key == keys[0] and self._is_update(rows[0], row)):
            before, keys[0], rows[0] = rows[0], key, row
            self._replace(before, row, 1, sent)

    def _is_update(self, before: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
        old, new = self.equality.key(before), self.equality.key(after)
        return all(old[index] == new[index] for index in self._unique) and old != new
