"""The versions of one key of a versioned table: how changes affect them, and which one is valid at a time.

A version begins at the time of its row and lasts until the next one. The key's state entry has two lists in time order:
the times, and the data of the version that begins at each time. Changes may arrive in any order of their times, within
the limits of the watermark.

There are two kinds of versioned tables:

- The table has one row for each key at a time, such as a table with a primary key (`TableVersions`). An insert or
  update begins a version, and a deletion ends one.
- The table is a view that keeps the last of several rows of each key, `ROW_NUMBER() OVER (PARTITION BY key ORDER BY
  time DESC) = 1`, over a table with updates or deletions (`ViewVersions`). An update does not end a version before
  the time of its new row, and a deleted row has no version: the last preceding row is valid instead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from typing import Any, TypeAlias

from penstock.table.plan.changes import DELETE, UPDATE_BEFORE
from penstock.table.streaming.rows.held_rows import RowEquality

Row: TypeAlias = tuple[Any, ...]
#: fields of a version of a view
_PRESENT, _REPLACED, _FORGOTTEN = range(3)


class Versions(ABC):
    """Applies the changes of a versioned table to the versions of a key."""

    @abstractmethod
    def note(self, times: list[int], versions: list[Any], time: int, kind: int, row: Row, is_shown: bool) -> None:
        """Apply a change.

        Args:
            times: the times of the key's versions, in ms.
            versions: the data of these versions; both lists are changed in place.
            time: the time of the row, in ms.
            kind: the kind of the change, see `plan.changes`.
            row: the values of the row.
            is_shown: whether the row passes the view's filters; otherwise its version is empty.
        """

    @abstractmethod
    def shown(self, versions: list[Any], position: int) -> Row | None:
        """Return the row of the version at a position of the list; None for an empty version."""

    def valid(self, times: list[int], versions: list[Any], time: int) -> Row | None:
        """Return the row of the version that is valid at a time, or None."""
        position = bisect_right(times, time)
        return self.shown(versions, position - 1) if position else None

    def clean(self, times: list[int], versions: list[Any], time: int) -> None:
        """Drop the versions that ended before a time."""
        first = max(0, bisect_right(times, time) - 1)
        del times[:first], versions[:first]


class TableVersions(Versions):
    """The versions of a table with one row for each key at a time. A version is its row, or None if it is empty.

    Args:
        ends_by_before: whether the UPDATE_BEFORE of an update ends a version, because a filter may drop the new row;
            otherwise the new row ends it.
    """

    def __init__(self, ends_by_before: bool) -> None:
        self._ends_by_before = ends_by_before

    def note(self, times: list[int], versions: list[Any], time: int, kind: int, row: Row, is_shown: bool) -> None:
        """See `Versions`."""
        if kind == UPDATE_BEFORE and not self._ends_by_before:
            return
        version = row if is_shown and kind not in (UPDATE_BEFORE, DELETE) else None
        if not times or time > times[-1]:
            times.append(time)
            versions.append(version)
            return
        position = bisect_left(times, time)
        if times[position] == time:
            versions[position] = version
        else:
            times.insert(position, time)
            versions.insert(position, version)

    def shown(self, versions: list[Any], position: int) -> Row | None:
        """See `Versions`."""
        row: Row | None = versions[position]
        return row


class ViewVersions(Versions):
    """The versions of a view that keeps the last of several rows of each key.

    A version is a list of three: the rows of its time in the table, in arrival order, each with whether it is shown;
    the last row that an update replaced, or None; and the last row in the table among the dropped versions, or None.

    Args:
        ends_by_before: see `TableVersions`.
        equality: compares rows.
    """

    def __init__(self, ends_by_before: bool, equality: RowEquality) -> None:
        self._ends_by_before = ends_by_before
        self._equality = equality

    def note(self, times: list[int], versions: list[Any], time: int, kind: int, row: Row, is_shown: bool) -> None:
        """See `Versions`."""
        position = bisect_left(times, time)
        is_known = position < len(times) and times[position] == time
        if kind not in (UPDATE_BEFORE, DELETE):
            if not is_known:
                times.insert(position, time)
                versions.insert(position, [[], None, None])
            versions[position][_PRESENT].append((row, is_shown))
        elif is_known:  # otherwise its version was dropped already
            self._remove(versions[position], row, kind == UPDATE_BEFORE and not self._ends_by_before)

    def _remove(self, version: list[Any], row: Row, is_replaced: bool) -> None:
        present, same_rows = version[_PRESENT], self._equality.same
        same = next((index for index, (other, _) in enumerate(present) if same_rows(other, row)), None)
        if same is not None:
            removed = present.pop(same)
            version[_REPLACED] = removed if is_replaced and not present else None

    def shown(self, versions: list[Any], position: int) -> Row | None:
        """See `Versions`."""
        present, replaced, _ = versions[position]
        last = present[-1] if present else replaced or self._last_present(versions, position)
        return last[0] if last is not None and last[1] else None

    def _last_present(self, versions: list[Any], position: int) -> tuple[Row, bool] | None:
        """Return the last row in the table, up to and including a version."""
        for index in range(position, -1, -1):
            present, _, forgotten = versions[index]
            if present or forgotten:
                last: tuple[Row, bool] = present[-1] if present else forgotten
                return last
        return None

    def clean(self, times: list[int], versions: list[Any], time: int) -> None:
        """See `Versions`. Keeps the last row in the table, because a later version may be deleted."""
        first = max(0, bisect_right(times, time) - 1)
        if first:
            versions[first][_FORGOTTEN] = self._last_present(versions, first - 1)
        super().clean(times, versions, time)
