"""Group aggregates whose state is in columns.

`ColumnGroupAggregateOperator` gives each group a number, the index of its state in columns: its rows, the state of each
call (`aggregates.columns`), and the distinct values of its calls (`aggregates.distinct`). A batch is put in the order
of its groups, each call computes its results after each row by kernels, and so are the changes that result. Its groups
are in memory, and some calls may have accumulators, or state expires; otherwise an `IndexedGroupAggregateOperator` runs
(`indexed`). With RocksDB `GroupAggregateOperator` takes its place. All emit the same changes in the same order. A
snapshot has the groups one by one in the form that `GroupAggregateOperator` stores, so either one can restore the
other's state, but its distinct values are packed.

For a batch of a few rows, kernels cost more than Python. Its groups become entries of a small dictionary, which
`GroupAggregateOperator` looks up and changes. The changed groups return to the columns, under new numbers, before a
large batch and before a checkpoint. This does not apply to calls with distinct values, since a group may have many.

The numbers of dropped groups are not used again. Once these outnumber the others, or values that no group has any more
outnumber the values in use, all groups get new numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.runtime.columns import ColumnBatch
from penstock.runtime.operators.base import Output, UserCodeError
from penstock.runtime.operators.function_context import OperatorContext
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
from penstock.sql.stream.aggregates.accumulators import build_accumulator, build_call_column
from penstock.sql.stream.aggregates.columns import AccumulatorColumn, GroupedRows
from penstock.sql.stream.groups.columns import GroupColumns, take_over_columns
from penstock.sql.stream.groups.operators import GOES, GROUPS, GroupAggregateOperator, differing, known_rows
from penstock.sql.stream.rows.rows import RowKeys, pack_kinds
from penstock.sql.stream.rows.state_ttl import BundlingOperator, MiniBatch
from penstock.state.equality import canonical_column
from penstock.state.snapshot import StateCapture

#: Batches of fewer rows are processed by accumulators.
FEW_ROWS = 64
#: The number of entries at which they return to the columns.
_GROUPS_MAX: Final = 1 << 12


class _GroupsOfFewRows(GroupAggregateOperator):
    """Groups on top of those in columns, as entries: key -> the state of the group."""

    def begin(self, context: OperatorContext, output: Output, ttl_ms: int) -> None:
        """Begin without groups. The lifetimes of groups are up to the operator with the columns."""
        self.context, self.output, self.ttl_ms = context, output, ttl_ms
        self._sends_same = ttl_ms > 0 and bool(self._calls)
        self._accumulators = [build_accumulator(call, self._retracts) for call in self._calls]
        self.groups: dict[Any, Any] = {}
        #: the keys of the groups that changed or were dropped
        changed: set[Any] = set()
        # A method would refer to this object, which then stayed in memory until Python looks for cycles.
        self.changed, self._mark = changed, lambda namespace, keys: changed.update(keys)
        self._entries = self.groups

    def take(self) -> tuple[dict[Any, Any], list[Any]]:
        """Remove and return the groups, and the keys of changed and dropped groups, in a fixed order."""
        groups, changed = dict(self.groups), list(dict.fromkeys([*self.groups, *self.changed]))
        changed = [key for key in changed if key in self.changed]
        self.groups.clear()
        self.changed.clear()
        return groups, changed


def has_columns(calls: Sequence[AggregateCall]) -> bool:
    """Return whether kernels compute any of these calls, and all are built in; or whether there are no calls."""
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

    def initialize_state(self) -> None:
        """Take over the groups of an `IndexedGroupAggregateOperator`."""
        super().initialize_state()
        table, keys = self.context.keyed.table(GROUPS), self._groups.places
        self._nothing = take_over_columns(self.context, table, keys, self._calls, self._types, self._retracts)

    def open(self) -> None:
        """Open the state and the columns."""
        # DISTINCT has no calls and emits no updates: its result never changes.
        self._sends_same = self.ttl_ms > 0 and bool(self._calls)
        #: the calls, counts first: these differ after most rows, and then no other call is compared
        self._compared = sorted(range(len(self._calls)), key=lambda index: self._calls[index].function != "COUNT")
        self._open_groups()

    def _open_groups(self) -> None:
        self._state = GroupColumns(self._calls, self._types, self._retracts)
        table = self.context.keyed.table(GROUPS)
        #: key -> the number of the group
        self._entries, self._mark = table.entries(None), table.mark
        self._restore()
        table.keep_packed(self._state.pack)
        self._begin_lifetimes(self._entries, self._forget)
        self._few = None if self._state.views else self._build_few()

    def _build_few(self) -> _GroupsOfFewRows:
        few = _GroupsOfFewRows(
            self._groups.places,
            self._calls,
            self._types,
            self._names,
            self._retracts,
            self._sends_before,
            self.mini_batch,
        )
        few.begin(self.context, self.output, self.ttl_ms)
        return few

    def _number(self, keys: list[Any]) -> Any:
        """Return the number of each group, as a NumPy array. New groups get the next numbers."""
        entries = self._entries
        numbers = list(map(entries.get, keys))
        if None in numbers:
            size = len(self._state)
            for index, number in enumerate(numbers):
                if number is None:
                    numbers[index] = entries[keys[index]] = size
                    size += 1
            self._state.grow(size)
        return np.array(numbers, np.int64)

    def _forget(self, key: Any) -> bool:
        """Remove a group from the state."""
        number = self._entries.pop(key, None)
        if self._few is not None and self._few.groups.pop(key, None) is not None and number is None:
            self._few.changed.discard(key)
        if number is not None:
            self._mark(None, (key,))
            self._state.forget(number)
        return True

    def _throw_out(self) -> None:
        """Give all groups new numbers if dropped groups outnumber the others, or if their values do."""
        if not self._state.is_wasteful(len(self._entries)):
            return
        kept = np.fromiter(self._entries.values(), np.int64, len(self._entries))
        self._entries.update(zip(list(self._entries), range(len(kept)), strict=True))
        self._state.keep(kept)

    def _restore(self) -> None:
        """Take over the groups of a snapshot."""
        states = list(self._entries.values())
        if states:
            self._state.restore(states)
            self._state.recount()
            self._entries.update(zip(list(self._entries), range(len(states)), strict=True))

    # --- rows ---------------------------------------------------------------------------------------------------------

    def process_rows(self, records: ColumnBatch) -> None:
        """Process rows and emit the changes."""
        if not len(records):
            return
        groups, keys = self._groups.numbered(records.columns)
        self._look(keys)
        if self._few is not None:
            if len(records) < FEW_ROWS:
                self._process_few(self._few, records, groups, keys)
                return
            self._put_few_into_columns()
        if self.ttl_ms and self._retracts and records.kinds is not None:
            known = self._known(records.kinds, groups, keys)
            if len(known) < len(records):
                if not len(known):
                    return
                records = records.take(known)
                groups, keys = self._groups.numbered(records.columns)
        rows = self._process_groups(records, groups, self._number(keys))
        if self._retracts:
            for index in self._state.find_spent(rows.numbers).tolist():
                self._forget(keys[index])
        self._mark(None, keys)
        self._written(keys)
        self._throw_out()

    def _process_groups(self, records: ColumnBatch, groups: Any, numbers: Any) -> GroupedRows:
        """Process the rows of groups with these numbers."""
        goes = None if records.kinds is None or not self._retracts else records.kinds.translate(GOES)
        if goes is not None and not any(goes):
            goes = None
        rows = GroupedRows(records, self._types, groups, numbers, goes, self.mini_batch is None)
        counts = self._state.counts.array
        was_there = counts[numbers] > 0
        after = rows.added(rows.signs, counts[numbers])
        if self._state.has_accumulators and goes is not None:
            by_row = rows.added_by_row(rows.signs, counts[numbers])
            rows.emptied = frozenset(rows.order[by_row == 0].tolist())
        counts[numbers] = rows.last(after)
        try:
            results = self._state.run(rows)
        except TableRuntimeError as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(records)} rows") from error
        self._send(rows, was_there, after > 0, results)
        return rows

    def _process_few(self, few: _GroupsOfFewRows, records: ColumnBatch, groups: Any, keys: list[Any]) -> None:
        """Process a few rows by accumulators."""
        missing = [key for key in keys if key in self._entries and key not in few.changed and key not in few.groups]
        if missing:
            states = self._state.pack([self._entries[key] for key in missing]).unpack()
            few.groups.update(zip(missing, states, strict=True))
        few.process_groups(records, groups, keys)
        self._written(keys)
        if len(few.groups) > _GROUPS_MAX:
            self._put_few_into_columns()

    def _put_few_into_columns(self) -> None:
        """Replace the changed groups in the columns, and forget the entries."""
        few = self._few
        if few is None:
            return
        groups, changed = few.take()
        for key in changed:
            self._forget(key)
        kept = {key: state for key, state in groups.items() if key in changed}
        if kept:
            size = len(self._state)
            self._state.restore(list(kept.values()))
            self._entries.update(zip(kept, range(size, size + len(kept)), strict=True))
            self._mark(None, list(kept))
        self._throw_out()

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        """Capture all groups."""
        self._put_few_into_columns()
        return [*super().snapshot_state(checkpoint_id), *self._nothing]

    def _known(self, kinds: bytes, groups: Any, keys: list[Any]) -> Any:
        """Return the indexes of the rows, except retractions from groups without rows."""
        numbers, counts = map(self._entries.get, keys), self._state.counts.array
        return known_rows(kinds, groups, [0 if number is None else int(counts[number]) for number in numbers])

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
        """Return where any result differs between two arrays of indexes, among the groups in `both`."""
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
