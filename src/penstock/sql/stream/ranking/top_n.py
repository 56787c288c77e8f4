"""Top-N: maintains the first rows of a group in order, and reports how they change.

`EqualRows` finds a row among many with the same sort key without comparing all of them. Rows with the same sort key are
adjacent, in arrival order, and each gets a sequence number. The values of a row determine its number, and binary search
finds the position. The index is built when one of many rows is removed, and is not part of the state.

`TopN` and its variants report changes in two ways. With row numbers, each number whose row changes causes an update.
Without them, only the row that enters and the one that drops out are reported. A range that does not start at 1
requires row numbers, even if they are not output. The state of a group is a list that begins with the sort keys, the
rows, and the last number of the range.

`RankOperator` keeps the first rows of each partition in some order (ROW_NUMBER with an upper bound, ORDER BY with
LIMIT). Its state is the group that `TopN` maintains for each partition.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from penstock.runtime.columns import ColumnBatch, as_columns
from penstock.runtime.records import Batch
from penstock.sql.data.row_data import RowData, RowLayout
from penstock.sql.data.types import BigIntType, DataType
from penstock.sql.logical.nodes import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, SortKey
from penstock.sql.stream.rows.row_log import RowsTakenOver
from penstock.sql.stream.rows.rows import RowEquality, RowKeys, pack_kinds, sort_keys, to_tuples
from penstock.sql.stream.rows.state_ttl import ExpiringOperator
from penstock.state.snapshot import StateCapture

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
        #: whether changes are reported for each row number
        self.is_numbered = shows_number or start > 1
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
        if not self.is_numbered:
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
        if not self.is_numbered:
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
        if not self.is_numbered:
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
        self.unique = tuple(unique)

    def add(self, group: list[Any], key: Any, row: Any, sent: Sent) -> None:
        """See `TopN`."""
        keys, rows = group[:2]
        if not rows:
            keys.append(key)
            rows.append(row)
            sent.add(INSERT, row, 1)
        elif key < keys[0] or (self.unique and key == keys[0] and self._is_update(rows[0], row)):
            before, keys[0], rows[0] = rows[0], key, row
            self._replace(before, row, 1, sent)

    def _is_update(self, before: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
        old, new = self.equality.key(before), self.equality.key(after)
        return all(old[index] == new[index] for index in self.unique) and old != new


#: The name of the state.
PARTITIONS: Final = "partitions"
#: The state of `IndexedTopNOperator`, in columns.
TOP_ROWS: Final = "top_rows"
_NUMBER: Final = BigIntType(False)


def about_top_rows(keys: Sequence[int]) -> str:
    """Return the description of `TOP_ROWS`, see `ColumnStates`."""
    return f"the first rows by {len(keys)} columns"


def build_change_layout(types: Sequence[DataType], names: Sequence[str]) -> RowLayout:
    """Return the layout of changes: the columns of the rows, and the row number if there is a name for it."""
    return RowLayout(names, types if len(names) <= len(types) else (*types, _NUMBER))


def build_change_batch(sent: Sent, layout: RowLayout, shows_number: bool) -> ColumnBatch:
    """Return changes, at least one, with the row number if it is output. Columns are built when they are read."""
    rows = sent.rows
    if shows_number:
        rows = [(*row, number) for row, number in zip(rows, sent.numbers, strict=True)]
    return ColumnBatch(RowData(layout, rows), None, pack_kinds(sent.kinds))


class RowsByPartition(ExpiringOperator):
    """The common part of the operators that keep a group of `TopN` for each partition.

    It takes over the rows of an `IndexedTopNOperator`.
    """

    _partition: RowKeys
    _order: tuple[SortKey, ...]
    _end: int
    _top: TopN
    _types: tuple[DataType, ...]
    _taken: RowsTakenOver | None = None

    def _can_take_over(self) -> bool:
        return type(self._top) is TopN or (type(self._top) is Top1 and not self._top.unique)

    def initialize_state(self) -> None:
        """Take over rows in columns. In the order of the log, they give the groups that they were in."""
        super().initialize_state()
        if not self._can_take_over():
            return
        positions = self._partition.places
        self._taken = RowsTakenOver(self.context, TOP_ROWS, about_top_rows(positions), positions)
        table, top = self.context.keyed.table(PARTITIONS), self._top
        entries = table.entries(None)
        for records in self._taken.move(table):
            sent = Sent()  # these changes were emitted by the previous job
            keys = self._partition.of(records.columns)
            rows = to_tuples(records, self._types)
            for key, order_key, row in zip(keys, sort_keys(self._order, self._types, rows), rows, strict=True):
                group = entries.get(key)
                if group is None:
                    group = entries[key] = top.create(self._end)
                top.add(group, order_key, row, sent)
            table.mark(None, set(keys))

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        """Capture the groups, and the columns that they were taken from, which are empty now."""
        captures = super().snapshot_state(checkpoint_id)
        return captures if self._taken is None else [*captures, *self._taken.capture()]


class RankOperator(RowsByPartition):
    """See the module docstring.

    Args:
        partition: the indexes of the partition columns.
        order: the sort keys; equal rows stay in arrival order.
        end: the last row number of the range, or the index of the column that holds it in a partition's first row.
        ends_in_column: whether `end` is a column index.
        top: maintains the rows of a partition.
        types: the types of the input columns.
        names: the names of the output columns: the input columns, and the row number if it is output.
    """

    def __init__(
        self,
        partition: Sequence[int],
        order: Sequence[SortKey],
        end: int,
        ends_in_column: bool,
        top: TopN,
        types: Sequence[DataType],
        names: Sequence[str],
    ) -> None:
        self._partition = RowKeys(partition)
        self._order = tuple(order)
        self._end = end
        self._ends_in_column = ends_in_column
        self._top = top
        top.equality = RowEquality(types)
        self._types = tuple(types)
        self._layout = build_change_layout(types, names)
        self._shows_number = len(names) > len(self._types)

    def _can_take_over(self) -> bool:
        return super()._can_take_over() and not self._ends_in_column

    def open(self) -> None:
        """Look up the state."""
        table = self.context.keyed.table(PARTITIONS)
        self._entries, self._mark = table.entries(None), table.mark
        self._expire(self._entries, table.mark)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Process rows and emit the resulting changes."""
        records = as_columns(batch, self.context.operator_name)
        keys = self._partition.of(records.columns)
        rows = to_tuples(records, self._types)
        sent = Sent()
        distinct = set(keys)
        self._look(distinct)
        self._rank_rows(keys, rows, records.kinds, sent)
        self._mark(None, distinct)
        self._written(distinct)
        if sent.rows:
            self.output.collect(build_change_batch(sent, self._layout, self._shows_number))

    def _rank_rows(self, keys: list[Any], rows: list[tuple[Any, ...]], kinds: bytes | None, sent: Sent) -> None:
        entries, top, end = self._entries, self._top, self._end
        order_keys = sort_keys(self._order, self._types, rows)
        for index, row in enumerate(rows):
            key = keys[index]
            group = entries.get(key)
            if group is None:
                group = entries[key] = top.create((row[end] or 0) if self._ends_in_column else end)
            elif type(group) is list:
                group = entries[key] = top.resumed(group)
            if kinds is not None and kinds[index] in (UPDATE_BEFORE, DELETE):
                top.remove(group, order_keys[index], row, sent, owes=not self.ttl_ms)
            else:
                top.add(group, order_keys[index], row, sent)
            # The end that a partition's first row sets stays valid after that row is removed.
            if not group[1] and top.is_empty(group) and not self._ends_in_column:
                del entries[key]
