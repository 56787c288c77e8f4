"""OVER windows ordered by a column other than a time attribute: results are updated as rows are inserted and retracted.

The state of a partition has its rows in order, in groups: with ROWS each row is a group, with RANGE all rows of one
sort value are a group. A group is [sort value, rows, accumulators up to its end]. Inserting or retracting a row changes
the results of all rows after it, up to the first group whose accumulators stay the same.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa

from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.operators.base import UserCodeError
from penstock.core.records import Batch
from penstock.state.equality import same_objects
from penstock.table.data.errors import TableRuntimeError
from penstock.table.data.logical_types import DataType
from penstock.table.plan.changes import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from penstock.table.plan.logical import AggregateCall
from penstock.table.streaming.over.over_calls import OverCalls, Row, copied
from penstock.table.streaming.rows.evaluating import EvaluatingOperator
from penstock.table.streaming.rows.held_rows import RowEquality
from penstock.table.streaming.rows.row_keys import RowKeys
from penstock.table.streaming.rows.row_tuples import pack_kinds
from penstock.table.streaming.rows.sessions import StreamSession
from penstock.table.streaming.rows.state_times import ExpiringOperator

#: The name of the state.
SORTED: Final = "over_sorted"
_ORDER, _ROWS, _HELD = range(3)
_by_order: Final[Callable[[Any], Any]] = itemgetter(_ORDER)


class OverInOrderOperator(EvaluatingOperator, ExpiringOperator):
    """Emits rows with the results of the calls over all rows up to them, as a changelog.

    Args:
        partition: the columns that rows are partitioned by.
        order: the column that they are ordered by, ascending.
        nulls_first: whether NULL sorts before all values; otherwise it sorts last.
        calls: the calls, over columns of the input.
        types: the types of the input columns.
        names: the names of the output columns: the input's, then the calls'.
        is_rows: whether it is a ROWS frame; otherwise it is a RANGE frame.
        session: the session of user-defined functions.
    """

    def __init__(
        self,
        partition: Sequence[int],
        order: int,
        nulls_first: bool,
        calls: Sequence[AggregateCall],
        types: Sequence[DataType],
        names: Sequence[str],
        is_rows: bool,
        session: StreamSession | None = None,
    ) -> None:
        self._partition = RowKeys(partition)
        self._order = order
        self._null = (-1,) if nulls_first else (2,)
        self._call_list = tuple(calls)
        self._types = tuple(types)
        self._equality = RowEquality(types)
        self._names = list(names)
        self._is_rows = is_rows
        self._session = session or StreamSession()

    def open(self) -> None:
        """Open the state."""
        functions = self.running(self._session).functions
        self._calls = OverCalls(self._call_list, self._order, self._types, False, functions, counts_sums=True)
        table = self.context.keyed.table(SORTED)
        self._entries, self._mark = table.entries(None), table.mark
        self._expire(self._entries, table.mark)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Apply changes, and emit the changed results."""
        records = as_columns(batch, self.context.operator_name)
        keys = self._partition.of(records.columns)
        distinct = set(keys)
        self._look(distinct)
        kinds = records.kinds or bytes(len(records))
        self._rows: list[Row] = []
        self._values: list[Row] = []
        self._kinds = bytearray()
        try:
            for key, row, kind in zip(keys, self._calls.rows(records, True), kinds, strict=True):
                self._change(key, row, kind)
        except TableRuntimeError as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(records)} rows") from error
        self._mark(None, distinct)
        self._written(distinct)
        if self._rows:
            arrays = [*self._calls.row_columns(self._rows), *self._calls.columns(self._values)]
            sent = pack_kinds(self._kinds)
            self.output.collect(ColumnBatch(pa.RecordBatch.from_arrays(arrays, self._names), None, sent))

    def _change(self, key: Any, row: Row, kind: int) -> None:
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = [[], {}]
        # A retraction that arrives before its insert is owed.
        groups, owed = entry
        if kind in (INSERT, UPDATE_AFTER):
            if owed and (name := self._owed_name(owed, row)) in owed:
                _count(owed, name, -1)
            else:
                self._insert(groups, row, kind)
        elif not self._remove(groups, row) and not self.ttl_ms:
            _count(owed, self._equality.key(row), 1)
        if not groups and not owed:
            del self._entries[key]

    def _owed_name(self, owed: dict[Any, int], row: Row) -> Row:
        """Return the key of a row among the owed rows."""
        name = self._equality.key(row)
        return name if name in owed else self._equality.find(row, owed) or name

    def _place(self, value: Any) -> tuple[Any, ...]:
        """Return the sort value of a column value."""
        return self._null if value is None else _place(value)

    def _insert(self, groups: list[Any], row: Row, kind: int) -> None:
        sort_value, operands = self._place(row[self._order]), self._calls.operands(row)
        if self._is_rows:
            index = bisect_right(groups, sort_value, key=_by_order)
        else:
            index = bisect_left(groups, sort_value, key=_by_order)
            if index < len(groups) and groups[index][_ORDER] == sort_value:
                group = groups[index]
                states = copied(group[_HELD])
                self._calls.add(states, operands)
                self._replace(group, states, group[_ROWS])
                group[_ROWS].append(row)
                self._send(kind, row, self._calls.values(states))
                self._go_on(groups, index + 1, states)
                return
        states = self._held_before(groups, index)
        self._calls.add(states, operands)
        groups.insert(index, [sort_value, [row], states])
        self._send(kind, row, self._calls.values(states))
        self._go_on(groups, index + 1, states)

    def _remove(self, groups: list[Any], row: Row) -> bool:
        """Remove a row. Returns whether it existed."""
        sort_value = self._place(row[self._order])
        index = bisect_left(groups, sort_value, key=_by_order)
        at = None
        while index < len(groups) and groups[index][_ORDER] == sort_value:
            group = groups[index]
            at = self._find_index(row, group[_ROWS])
            if at is not None:
                break
            index += 1
        if at is None:
            return False
        rows: list[Row] = group[_ROWS]
        # Retract the row as it was emitted: equal values may have other forms.
        self._send(DELETE, rows.pop(at), self._calls.values(group[_HELD]))
        states = self._held_before(groups, index)
        if rows:
            self._add_all(states, rows)
            self._replace(group, states, rows)
            index += 1
        else:
            del groups[index]
        self._go_on(groups, index, states)
        return True

    def _find_index(self, row: Row, rows: list[Row]) -> int | None:
        if self._equality.is_plain:
            return rows.index(row) if row in rows else None
        return next((index for index, other in enumerate(rows) if self._equality.same(row, other)), None)

    def _held_before(self, groups: list[Any], index: int) -> list[Any]:
        return copied(groups[index - 1][_HELD]) if index else self._calls.create()

    def _add_all(self, states: list[Any], rows: Sequence[Row]) -> None:
        for row in rows:
            self._calls.add(states, self._calls.operands(row))

    def _replace(self, group: list[Any], states: list[Any], rows: Sequence[Row]) -> bool:
        """Replace the accumulators of a group, and emit updates of these rows.

        Returns whether the accumulators differ.
        """
        if same_objects(states, group[_HELD]):
            return False
        before, after = self._calls.values(group[_HELD]), self._calls.values(states)
        for row in rows:
            self._send(UPDATE_BEFORE, row, before)
            self._send(UPDATE_AFTER, row, after)
        group[_HELD] = states
        return True

    def _go_on(self, groups: list[Any], index: int, states: list[Any]) -> None:
        """Recompute the groups from an index on. `states`: the accumulators of the previous group."""
        for group in groups[index:]:
            states = copied(states)
            self._add_all(states, group[_ROWS])
            if not self._replace(group, states, group[_ROWS]):
                return

    def _send(self, kind: int, row: Row, values: Row) -> None:
        self._kinds.append(kind)
        self._rows.append(row)
        self._values.append(values)


def _place(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (-1,)
    if isinstance(value, list | tuple):
        return (0, tuple(map(_place, value)))
    return (1,) if value != value else (0, value)  # NaN sorts after all numbers


def _count(counts: dict[Any, int], key: Any, by: int) -> None:
    counts[key] = counts.get(key, 0) + by
    if not counts[key]:
        del counts[key]
