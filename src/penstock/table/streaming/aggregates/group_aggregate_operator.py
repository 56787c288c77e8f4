"""Aggregates groups of a changelog. The key of a group is emitted in canonical form, in all its changes.

For each group, the state holds the number of rows, the accumulators, and the last result emitted. A row that does not
change the result emits nothing. The first row of a group emits an insert, and the retraction of the last one a delete.
If state expires, a row that does not change the result emits an update nevertheless, which keeps the group alive in
downstream operators; and a retraction from an unknown group is dropped, because the group may have expired.

A batch is processed call by call instead of row by row: each call returns its result after each row, as a column. The
changes to emit are computed from these columns at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.columns.batch import ColumnBatch
from penstock.core.operators.base import UserCodeError
from penstock.state.equality import canonical_column
from penstock.table.data.errors import TableRuntimeError
from penstock.table.data.logical_types import DataType
from penstock.table.data.values import to_column, to_values
from penstock.table.plan.changes import DELETE, UPDATE_BEFORE
from penstock.table.plan.logical import AggregateCall
from penstock.table.streaming.aggregates.accumulators import Accumulator, build_accumulator
from penstock.table.streaming.aggregates.base import Rows
from penstock.table.streaming.aggregates.bundled import Bundled, BundledColumn
from penstock.table.streaming.aggregates.group_lives import Lives, Sent, differing
from penstock.table.streaming.rows.bundles import BundlingOperator, MiniBatch
from penstock.table.streaming.rows.evaluating import EvaluatingOperator
from penstock.table.streaming.rows.held_rows import RowEquality
from penstock.table.streaming.rows.row_keys import RowKeys
from penstock.table.streaming.rows.row_tuples import pack_kinds
from penstock.table.streaming.rows.sessions import StreamSession
from penstock.table.typed.nodes import Constant, Field

#: The name of the state.
GROUPS = "groups"
#: The indexes of the parts of a group's state.
COUNT, HELD, LAST = 0, 1, 2
#: Below this number of rows, comparing columns takes longer than comparing rows.
FEW_ROWS: Final = 64
#: 1 for retracting row kinds, 0 for others.
_GOES: Final = bytes(kind in (UPDATE_BEFORE, DELETE) for kind in range(256))


class GroupAggregateOperator(EvaluatingOperator, BundlingOperator):
    """See the module docstring.

    Args:
        keys: the indexes of the grouping columns.
        calls: the aggregate calls over columns of the input.
        types: the types of the input columns.
        names: the names of the output columns: keys, then calls.
        retracts: whether the input may contain retractions.
        sends_before: whether updates include the previous row (UPDATE_BEFORE).
        mini_batch: the buffering of rows; a group then emits one change for all rows of a bundle.
        session: the session of the user-defined functions.
    """

    def __init__(
        self,
        keys: Sequence[int],
        calls: Sequence[AggregateCall],
        types: Sequence[DataType],
        names: Sequence[str],
        retracts: bool,
        sends_before: bool,
        mini_batch: MiniBatch | None = None,
        session: StreamSession | None = None,
    ) -> None:
        super().__init__(mini_batch)
        self._groups = RowKeys(keys)
        self._calls = tuple(calls)
        equality = RowEquality([call.type for call in calls])
        self._equality = None if equality.is_plain else equality
        self._types = tuple(types)
        self._names = list(names)
        self._retracts = retracts
        self._sends_before = sends_before
        self._session = session or StreamSession()

    def open(self) -> None:
        """Open the state and the accumulators."""
        # DISTINCT has no calls and emits no updates: its result never changes.
        self._sends_same = self.ttl_ms > 0 and bool(self._calls)
        functions = self.running(self._session).functions
        self._accumulators = [build_accumulator(call, self._retracts, functions) for call in self._calls]
        for index, accumulator in enumerate(self._accumulators):
            accumulator.keep_apart(self.context.keyed, f"{GROUPS}.{index}")
        table = self.context.keyed.table(GROUPS)
        self._entries, self._mark = table.entries(None), table.mark
        self._begin_lifetimes(self._entries, self._forget)

    def process_rows(self, records: ColumnBatch) -> None:
        """Process rows and emit the changes."""
        groups, keys = self._groups.numbered(records.columns)
        self._look(keys)
        if self.ttl_ms and self._retracts and records.kinds is not None:
            known = self._known(records.kinds, groups, keys)
            if len(known) < len(records):
                if not len(known):
                    return
                records = records.take(known)
                groups, keys = self._groups.numbered(records.columns)
        entries = self._entries
        states = [entries.get(key) or self._new(key) for key in keys]
        before = [state[LAST] for state in states]
        lives = self._count(groups, states, records.kinds)
        at_once = self.mini_batch is not None and not self._retracts and len(records) >= FEW_ROWS
        try:
            values = (self._gathered if at_once else self._running)(records, lives, keys, states)
        except TableRuntimeError as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(records)} rows") from error
        rows = list(range(len(keys))) if at_once else lives.last_rows(len(keys))
        self._settle(keys, states, lives, rows, values)
        self._mark(None, keys)
        self._written(keys)
        if self.mini_batch is None:
            self._send(records, lives, before, values)
        else:
            self._send_once(records, lives, before, [state[LAST] for state in states])

    def _known(self, kinds: bytes, groups: Any, keys: list[Any]) -> Any:
        """Return the indexes of the rows, except retractions from groups without rows."""
        counts = [self._entries[key][COUNT] if key in self._entries else 0 for key in keys]
        goes, known = kinds.translate(_GOES), []
        for row, group in enumerate(groups.tolist()):
            if not goes[row]:
                counts[group] += 1
            elif counts[group] > 0:
                counts[group] -= 1
            else:
                continue
            known.append(row)
        return np.array(known, np.int64)

    def _new(self, key: Any) -> list[Any]:
        state = self._entries[key] = [0, [accumulator.create() for accumulator in self._accumulators], None]
        return state

    def _count(self, groups: Any, states: list[list[Any]], kinds: bytes | None) -> Lives:
        """Update the row counts of the groups."""
        if not self._retracts:
            if len(groups) < FEW_ROWS:
                for group in groups.tolist():
                    states[group][COUNT] += 1
            else:
                for state, count in zip(states, np.bincount(groups, minlength=len(states)).tolist(), strict=True):
                    state[COUNT] += count
            return Lives(groups)
        goes = bytes(len(groups)) if kinds is None else kinds.translate(_GOES)
        counts = [state[COUNT] for state in states]
        alive = bytearray(len(groups))
        ends = []
        for row, group in enumerate(groups.tolist()):
            counts[group] = count = counts[group] + (-1 if goes[row] else 1)
            # Below 0, a retraction is still waiting for its row, and the group does not exist yet.
            if count > 0:
                alive[row] = True
            elif count == 0:
                ends.append(row)
        for state, count in zip(states, counts, strict=True):
            state[COUNT] = count
        return Lives(groups, goes if any(goes) else None, frozenset(ends), np.frombuffer(alive, np.bool_))

    def _running(self, records: ColumnBatch, lives: Lives, keys: list[Any], states: list[list[Any]]) -> list[list[Any]]:
        """Return the result of each call after each row."""
        groups = lives.groups.tolist()
        decoded: dict[int, list[Any]] = {}
        results = []
        for index, (call, accumulator) in enumerate(zip(self._calls, self._accumulators, strict=True)):
            call_states = [state[HELD][index] for state in states]
            operands, keeps = self._operands(call, accumulator, records, decoded)
            results.append(
                accumulator.running(Rows(groups, operands, keeps, lives.goes, lives.ends, keys), call_states)
            )
            for state, updated in zip(states, call_states, strict=True):
                state[HELD][index] = updated
        return results

    def _gathered(
        self, records: ColumnBatch, lives: Lives, keys: list[Any], states: list[list[Any]]
    ) -> list[list[Any]]:
        """Return the result of each call for each group after all rows, which are append-only."""
        operands: dict[int, BundledColumn] = {}
        masks: dict[int, Any] = {}
        results = []
        for index, (call, accumulator) in enumerate(zip(self._calls, self._accumulators, strict=True)):
            call_states = [state[HELD][index] for state in states]
            bundle = self._bundled(call, records, lives.groups, len(states), operands, masks)
            if bundle is not None and accumulator.gather(bundle, call_states):
                results.append([accumulator.value(call_state) for call_state in call_states])
            else:
                results.append(self._compute_last_values(call, accumulator, records, lives, keys, call_states))
            for state, updated in zip(states, call_states, strict=True):
                state[HELD][index] = updated
        return results

    def _bundled(
        self,
        call: AggregateCall,
        records: ColumnBatch,
        groups: Any,
        size: int,
        operands: dict[int, BundledColumn],
        masks: dict[int, Any],
    ) -> Bundled | None:
        """Return the rows as a call of at most one column sees them, or None. `operands`, `masks`: shared caches."""
        keeps = None
        if isinstance(call.condition, Field):
            index = call.condition.index
            if index not in masks:
                masks[index] = pc.fill_null(records.columns.column(index), False).to_numpy(zero_copy_only=False)
            keeps = masks[index]
        if not call.operands:
            return Bundled(groups, size, None, keeps)
        operand = call.operands[0]
        if len(call.operands) > 1 or not isinstance(operand, Field):
            return None
        if operand.index not in operands:
            column = records.columns.column(operand.index)
            operands[operand.index] = BundledColumn(groups, column, self._types[operand.index])
        return Bundled(groups, size, operands[operand.index], keeps)

    def _compute_last_values(
        self,
        call: AggregateCall,
        accumulator: Accumulator,
        records: ColumnBatch,
        lives: Lives,
        keys: list[Any],
        call_states: list[Any],
    ) -> list[Any]:
        operands, keeps = self._operands(call, accumulator, records, {})
        given = accumulator.running(
            Rows(lives.groups.tolist(), operands, keeps, lives.goes, lives.ends, keys), call_states
        )
        return [given[row] for row in lives.last_rows(len(call_states))]

    def _operands(
        self, call: AggregateCall, accumulator: Accumulator, records: ColumnBatch, decoded: dict[int, list[Any]]
    ) -> tuple[Sequence[Any], list[bool] | None]:
        """Return a call's operand in each row, and which rows pass its FILTER.

        `decoded`: columns that the calls share.
        """
        rows = len(records)
        keeps = None
        if isinstance(call.condition, Field):
            keeps = pc.fill_null(records.columns.column(call.condition.index), False).to_pylist()
        columns: list[Sequence[Any]] = []
        for operand in call.operands[: 1 if accumulator.takes_one else None]:
            if isinstance(operand, Constant):
                columns.append([operand.value] * rows)
            else:
                assert isinstance(operand, Field)
                index = operand.index
                if index not in decoded:
                    decoded[index] = to_values(records.columns.column(index), self._types[index])
                columns.append(decoded[index])
        if not accumulator.takes_one:
            return list(zip(*columns, strict=True)) if columns else [()] * rows, keeps
        if keeps is not None and accumulator.skips_null:
            return [value if keep else None for value, keep in zip(columns[0], keeps, strict=True)], None
        return columns[0], keeps

    def _settle(
        self, keys: list[Any], states: list[list[Any]], lives: Lives, rows: list[int], values: list[list[Any]]
    ) -> None:
        """Store the current result of each group, found at `rows` of `values`, and drop groups without rows."""
        alive = [True] * len(keys) if lives.alive is None else lives.alive[rows].tolist()
        lasts = (
            zip(*[[call_values[row] for row in rows] for call_values in values], strict=True)
            if values
            else [()] * len(keys)
        )
        for key, state, is_alive, last in zip(keys, states, alive, lasts, strict=True):
            state[LAST] = last if is_alive else None
            if state[COUNT] == 0 and self._is_spent(state[HELD]):
                self._forget(key)

    def _forget(self, key: Any) -> bool:
        """Remove a group from the state."""
        if self._entries.pop(key, None) is not None:
            self._mark(None, (key,))
            for accumulator in self._accumulators:
                accumulator.forget(key)
        return True

    def _is_spent(self, call_states: list[Any]) -> bool:
        return all(
            accumulator.is_spent(part) for accumulator, part in zip(self._accumulators, call_states, strict=True)
        )

    def _send_once(
        self,
        records: ColumnBatch,
        lives: Lives,
        before: list[tuple[Any, ...] | None],
        after: list[tuple[Any, ...] | None],
    ) -> None:
        """Emit the new result of each group that changed since before the batch."""
        of_groups = Lives(np.arange(len(after)), alive=[result is not None for result in after])
        sent, values = of_groups.few_changes(before, after, self._sends_before, self._sends_same, self._equality)
        last = lives.last_rows(len(after))
        self._collect(records, Sent([last[group] for group in sent.rows], (), sent.kinds), self._columns(values))

    def _columns(self, rows: Sequence[tuple[Any, ...]]) -> list[pa.Array]:
        types = [call.type for call in self._calls]
        return [to_column(column, kind) for column, kind in zip(zip(*rows, strict=True), types, strict=bool(rows))]

    def _send(
        self, records: ColumnBatch, lives: Lives, before: list[tuple[Any, ...] | None], values: list[list[Any]]
    ) -> None:
        """Emit the changes."""
        if len(records) < FEW_ROWS:
            after = list(zip(*values, strict=True)) if values else [()] * len(records)
            sent, rows = lives.few_changes(before, after, self._sends_before, self._sends_same, self._equality)
            columns = self._columns(rows)
        else:
            # Each call has a column: the results of the groups before the batch, then those after each row.
            nothing = (None,) * len(values)
            given = [
                to_column([(result or nothing)[index] for result in before] + after, kind)
                for index, (kind, after) in enumerate(zip([call.type for call in self._calls], values, strict=True))
            ]
            was_there = np.array([result is not None for result in before], np.bool_)
            sent = lives.changes(was_there, self._differences(given), self._sends_before)
            indices = pa.array(sent.places)
            columns = [column.take(indices) for column in given]
        self._collect(records, sent, columns)

    def _collect(self, records: ColumnBatch, sent: Sent, columns: list[pa.Array]) -> None:
        if len(sent.rows):
            chosen = pa.array(sent.rows)
            keys = [canonical_column(records.columns.column(index).take(chosen)) for index in self._groups.places]
            batch = pa.RecordBatch.from_arrays([*keys, *columns], self._names)
            self.output.collect(ColumnBatch(batch, None, pack_kinds(sent.kinds)))

    def _differences(self, columns: list[pa.Array]) -> Callable[[Any, Any], Any]:
        """Return a function that tests whether any result differs between two arrays of indexes into `columns`."""

        def differ(indices: Any, other: Any) -> Any:
            if self._sends_same:
                return np.ones(len(indices), np.bool_)
            differences = np.zeros(len(indices), np.bool_)
            for call, column in zip(self._calls, columns, strict=True):
                if not differences.all():
                    differences |= differing(column.take(pa.array(indices)), column.take(pa.array(other)), call.type)
            return differences

        return differ
