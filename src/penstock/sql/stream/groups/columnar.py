"""Group aggregates whose state is in columns.

`ColumnGroupAggregateOperator` gives each group a number, by which columns have its state: its rows, the state of each
call (`aggregates.columns`), and the distinct values of its calls (`aggregates.distinct`). A batch is put in the order
of its groups, each call computes its results after each row by kernels, and so are the changes that result. If state is
outside memory, `GroupAggregateOperator` runs instead; both emit the same changes in the same order. A snapshot has the
groups one by one in the form that `GroupAggregateOperator` stores, so either one can restore the other's state, but
its distinct values are packed.

The numbers of dropped groups are not used again. Once these outnumber the others, or values that no group has any more
outnumber those that one has, all groups get new numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.runtime.columns import ColumnBatch
from penstock.runtime.operators.base import UserCodeError
from penstock.sql.data.arrow import to_values
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.data.types import DataType
from penstock.sql.logical.nodes import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    AggregateCall,
    UserAggregateCall,
)
from penstock.sql.stream.aggregates.accumulators import build_call_column, is_distinct_by_view
from penstock.sql.stream.aggregates.columns import AccumulatorColumn, Captured, GroupedRows
from penstock.sql.stream.aggregates.distinct import CALLS_MAX, CapturedView, DistinctView
from penstock.sql.stream.aggregates.pairs import Growing
from penstock.sql.stream.groups.operators import COUNT, GOES, GROUPS, HELD, differing, known_rows
from penstock.sql.stream.rows.columns import ROWS_GONE_MAX
from penstock.sql.stream.rows.rows import RowKeys, pack_kinds
from penstock.sql.stream.rows.state_ttl import BundlingOperator, MiniBatch
from penstock.state.equality import canonical_column


def has_columns(calls: Sequence[AggregateCall]) -> bool:
    """Return whether kernels compute any of these calls, and none is user-defined; or whether there are no calls."""
    if any(isinstance(call, UserAggregateCall) for call in calls):
        return False
    return not calls or not all(isinstance(build_call_column(call, True), AccumulatorColumn) for call in calls)


class ColumnGroupAggregateOperator(BundlingOperator):
    """See the module docstring, and `GroupAggregateOperator` for the arguments."""

    def __init__(
        self,
        keys: Sequence[int],
        calls: Sequence[AggregateCall],
        types: Sequence[DataType],
        names: Sequence[str],
        retracts: bool,
        sends_before: bool,
        mini_batch: MiniBatch | None = None,
    ) -> None:
        super().__init__(mini_batch)
        self._groups = RowKeys(keys)
        self._calls = tuple(calls)
        self._types = tuple(types)
        self._names = list(names)
        self._retracts = retracts
        self._sends_before = sends_before

    # --- state --------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the state and the columns."""
        # DISTINCT has no calls and emits no updates: its result never changes.
        self._sends_same = self.ttl_ms > 0 and bool(self._calls)
        self._columns = [build_call_column(call, self._retracts) for call in self._calls]
        self._has_accumulators = any(isinstance(column, AccumulatorColumn) for column in self._columns)
        #: the calls, counts first: these differ after most rows, and then no other call is compared
        self._compared = sorted(range(len(self._calls)), key=lambda index: self._calls[index].function != "COUNT")
        #: the calls of each view of distinct values
        self._views = [(self._build_view(calls), calls) for calls in self._shared_views()]
        #: the number of rows in each group
        self._counts = Growing(np.int64)
        table = self.context.keyed.table(GROUPS)
        #: key -> the number of the group
        self._entries, self._mark = table.entries(None), table.mark
        self._restore()
        table.keep_packed(self._pack)
        self._begin_lifetimes(self._entries, self._forget)

    def _shared_views(self) -> list[list[int]]:
        """Return the calls that share a view: those with DISTINCT over the same column."""
        by_operand: dict[int, list[int]] = {}
        for index, call in enumerate(self._calls):
            if is_distinct_by_view(call) and not isinstance(self._columns[index], AccumulatorColumn):
                by_operand.setdefault(self._columns[index].operands[0], []).append(index)
        return [
            calls[begin : begin + CALLS_MAX]
            for calls in by_operand.values()
            for begin in range(0, len(calls), CALLS_MAX)
        ]

    def _build_view(self, calls: list[int]) -> DistinctView:
        columns = [self._columns[index] for index in calls]
        (operand,) = columns[0].operands
        return DistinctView(operand, self._types[operand], [column.condition for column in columns], self._retracts)

    def _grow(self, size: int) -> None:
        """Add empty groups up to a number."""
        self._counts.grow(size)
        for column in self._columns:
            column.grow(size)
        for view, _ in self._views:
            view.grow(size)

    def _number(self, keys: list[Any]) -> Any:
        """Return the number of each group, as a NumPy array. New groups get the next numbers."""
        entries = self._entries
        numbers = list(map(entries.get, keys))
        if None in numbers:
            size = len(self._counts)
            for index, number in enumerate(numbers):
                if number is None:
                    numbers[index] = entries[keys[index]] = size
                    size += 1
            self._grow(size)
        return np.array(numbers, np.int64)

    def _forget(self, key: Any) -> bool:
        """Remove a group from the state."""
        number = self._entries.pop(key, None)
        if number is not None:
            self._mark(None, (key,))
            for column in self._columns:
                column.forget(number)
            for view, _ in self._views:
                view.forget(number)
        return True

    def _drop_spent(self, keys: list[Any], rows: GroupedRows) -> None:
        """Drop the groups of a batch that have neither rows nor pending retractions."""
        indices = (self._counts.array[rows.numbers] == 0).nonzero()[0]
        by_view = {index: view for view, calls in self._views for index in calls}
        for index, column in enumerate(self._columns):
            if not len(indices):
                return
            indices = indices[by_view.get(index, column).are_spent(rows.numbers[indices])]
        for index in indices.tolist():
            self._forget(keys[index])

    def _throw_out(self) -> None:
        """Give all groups new numbers if dropped groups outnumber the others, or their values those of the others."""
        size = len(self._counts)
        is_wasteful = size > 2 * len(self._entries) + ROWS_GONE_MAX
        if not is_wasteful and not any(2 * view.gone > len(view) + ROWS_GONE_MAX for view, _ in self._views):
            return
        kept = np.fromiter(self._entries.values(), np.int64, len(self._entries))
        self._entries.update(zip(list(self._entries), range(len(kept)), strict=True))
        numbers = np.full(size, -1)
        numbers[kept] = np.arange(len(kept))
        self._counts.keep(kept)
        for column in self._columns:
            column.keep(kept)
        for view, _ in self._views:
            view.keep(numbers, len(kept))

    # --- snapshots ----------------------------------------------------------------------------------------------------

    def _restore(self) -> None:
        """Take over the groups of a snapshot."""
        states = list(self._entries.values())
        if not states:
            return
        self._grow(len(states))
        self._counts.array[:] = [state[COUNT] for state in states]
        in_views = {index for _, calls in self._views for index in calls}
        for index, column in enumerate(self._columns):
            of_call = [state[HELD][index] for state in states]
            column.restore(0, [part[0] for part in of_call] if index in in_views else of_call)
        for view, calls in self._views:
            view.restore(0, [[state[HELD][index][1] for state in states] for index in calls])
        self._entries.update(zip(list(self._entries), range(len(states)), strict=True))

    def _pack(self, values: list[int]) -> PackedGroups:
        """Take groups for a snapshot, see `KeyedTable.keep_packed`."""
        numbers = np.array(values, np.int64)
        states = [column.capture(numbers) for column in self._columns]
        views = [(view.capture(numbers), calls) for view, calls in self._views]
        results = [(column.results(numbers), column.call.type) for column in self._columns]
        return PackedGroups(self._counts.array[numbers], states, views, results)

    # --- rows ---------------------------------------------------------------------------------------------------------

    def process_rows(self, records: ColumnBatch) -> None:
        """Process rows and emit the changes."""
        if not len(records):
            return
        groups, keys = self._groups.numbered(records.columns)
        self._look(keys)
        if self.ttl_ms and self._retracts and records.kinds is not None:
            known = self._known(records.kinds, groups, keys)
            if len(known) < len(records):
                if not len(known):
                    return
                records = records.take(known)
                groups, keys = self._groups.numbered(records.columns)
        numbers = self._number(keys)
        goes = None if records.kinds is None or not self._retracts else records.kinds.translate(GOES)
        if goes is not None and not any(goes):
            goes = None
        rows = GroupedRows(records, self._types, groups, numbers, goes, self.mini_batch is None)
        counts = self._counts.array
        was_there = counts[numbers] > 0
        after = rows.added(rows.signs, counts[numbers])
        if self._has_accumulators and goes is not None:
            by_row = rows.added_by_row(rows.signs, counts[numbers])
            rows.emptied = frozenset(rows.order[by_row == 0].tolist())
        counts[numbers] = rows.last(after)
        try:
            results = self._run(rows)
        except TableRuntimeError as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(records)} rows") from error
        if self._retracts:
            self._drop_spent(keys, rows)
        self._mark(None, keys)
        self._written(keys)
        self._send(rows, was_there, after > 0, results)
        self._throw_out()

    def _known(self, kinds: bytes, groups: Any, keys: list[Any]) -> Any:
        """Return the indexes of the rows, except retractions from groups without rows."""
        numbers, counts = map(self._entries.get, keys), self._counts.array
        return known_rows(kinds, groups, [0 if number is None else int(counts[number]) for number in numbers])

    def _run(self, rows: GroupedRows) -> list[pa.Array]:
        """Return the results of each call: those of the groups before the batch, then those after each row."""
        steps: dict[int, Any] = {}
        for view, calls in self._views:
            steps.update(zip(calls, view.steps(rows), strict=True))
        return [
            column.run(rows, steps[index] if index in steps else column.steps(rows))
            for index, column in enumerate(self._columns)
        ]

    def _send(self, rows: GroupedRows, was_there: Any, has: Any, results: list[pa.Array]) -> None:
        """Emit the changes. In arrays, each row has an entry, or each group if only the last results are needed."""
        size = len(was_there)
        is_running = rows.is_running
        new = np.arange(len(has)) + size
        old = new - 1 if is_running else np.arange(size)
        had = np.append(False, has[:-1]) if is_running else was_there
        if is_running:
            old[rows.starts], had[rows.starts] = np.arange(size), was_there
        both = had & has
        updated = both & self._differ(results, old, new, both)
        goes = (had & ~has) | (updated if self._sends_before else False)
        comes = (has & ~had) | updated
        # Each row has a slot for a retraction and one for an addition, in arrival order; unused slots are left out.
        order = rows.order if is_running else np.arange(size)
        used, slots, kinds = (np.empty((len(has), 2), kind) for kind in (np.bool_, np.int64, np.uint8))
        used[order, 0], used[order, 1] = goes, comes
        slots[order, 0], slots[order, 1] = old, new
        kinds[order, 0] = np.where(updated, UPDATE_BEFORE, DELETE)
        kinds[order, 1] = np.where(updated, UPDATE_AFTER, INSERT)
        sent = used.ravel().nonzero()[0]
        if not len(sent):
            return
        of_rows = sent >> 1 if is_running else rows.order[rows.ends - 1][sent >> 1]
        columns, of_rows = rows.records.columns, pa.array(of_rows)
        keys = [canonical_column(columns.column(index).take(of_rows)) for index in self._groups.places]
        of_results = pa.array(slots.ravel()[sent])
        batch = pa.RecordBatch.from_arrays([*keys, *[column.take(of_results) for column in results]], self._names)
        self.output.collect(ColumnBatch(batch, None, pack_kinds(kinds.ravel()[sent].tobytes())))

    def _differ(self, results: list[pa.Array], old: Any, new: Any, both: Any) -> Any:
        """Return where any result differs between two arrays of indexes, of those that are in `both`."""
        if self._sends_same:
            return np.ones(len(both), np.bool_)
        differences = ~both
        old, new = pa.array(old), pa.array(new)
        for index in self._compared:
            if differences.all():
                break
            column = results[index]
            differences |= differing(column.take(old), column.take(new), self._calls[index].type)
        return differences


@dataclass
class PackedGroups:
    """Groups as of a snapshot; see `Packed`."""

    counts: Any
    states: list[Captured]
    #: the distinct values, and the calls that they belong to
    views: list[tuple[CapturedView, list[int]]]
    #: for each call, the results and their type
    results: list[tuple[pa.Array, DataType]]

    def unpack(self) -> list[Any]:
        """Return the states as `GroupAggregateOperator` has them."""
        columns: list[list[Any]] = [captured() for captured in self.states]
        for view, calls in self.views:
            for index, parts in zip(calls, view.unpack(), strict=True):
                columns[index] = list(map(list, zip(columns[index], parts, strict=True)))
        counts = self.counts.tolist()
        states = zip(*columns, strict=True) if columns else [()] * len(counts)
        values = [to_values(column, kind) for column, kind in self.results]
        lasts = zip(*values, strict=True) if values else [()] * len(counts)
        return [
            [count, list(of_group), last if count > 0 else None]
            for count, of_group, last in zip(counts, states, lasts, strict=True)
        ]
