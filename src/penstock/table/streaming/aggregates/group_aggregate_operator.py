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
from penstock.table.data.values import column_of, values_of
from penstock.table.plan.changes import DELETE, UPDATE_BEFORE
from penstock.table.plan.logical import AggregateCall
from penstock.table.streaming.aggregates.accumulators import Accumulator, accumulator_of
from penstock.table.streaming.aggregates.base import Rows
from penstock.table.streaming.aggregates.bundled import Bundled, BundledColumn
from penstock.table.streaming.aggregates.group_lives import Lives, Sent, differing
from penstock.table.streaming.rows.bundles import BundlingOperator, MiniBatch
from penstock.table.streaming.rows.evaluating import EvaluatingOperator
from penstock.table.streaming.rows.held_rows import RowEquality
from penstock.table.streaming.rows.row_keys import RowKeys
from penstock.table.streaming.rows.row_tuples import kinds_of
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
        self._accumulators = [accumulator_of(call, self._retracts, functions) for call in self._calls]
        for place, accumulator in enumerate(self._accumulators):
            accumulator.keep_apart(self.context.keyed, f"{GROUPS}.{place}")
        table = self.context.keyed.table(GROUPS)
        self._entries, self._mark = table.entries(None), table.mark
        self._begin_lifetimes(self._entries, self._forget)

    def take_in(self, taken: ColumnBatch) -> None:
        """Process rows and emit the changes."""
        groups, keys = self._groups.numbered(taken.columns)
        self._look(keys)
        if self.ttl_ms and self._retracts and taken.kinds is not None:
            known = self._known(taken.kinds, groups, keys)
            if len(known) < len(taken):
                if not len(known):
                    return
                taken = taken.take(known)
                groups, keys = self._groups.numbered(taken.columns)
        entries = self._entries
        states = [entries.get(key) or self._new(key) for key in keys]
        before = [state[LAST] for state in states]
        lives = self._count(groups, states, taken.kinds)
        at_once = self.mini_batch is not None and not self._retracts and len(taken) >= FEW_ROWS
        try:
            values = (self._gathered if at_once else self._running)(taken, lives, keys, states)
        except TableRuntimeError as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(taken)} rows") from error
        rows = list(range(len(keys))) if at_once else lives.last_rows(len(keys))
        self._settle(keys, states, lives, rows, values)
        self._mark(None, keys)
        self._written(keys)
        if self.mini_batch is None:
            self._send(taken, lives, before, values)
        else:
            self._send_once(taken, lives, before, [state[LAST] for state in states])

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
        found = self._entries[key] = [0, [one.create() for one in self._accumulators], None]
        return found

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

    def _running(self, taken: ColumnBatch, lives: Lives, keys: list[Any], states: list[list[Any]]) -> list[list[Any]]:
        """Return the result of each call after each row."""
        groups = lives.groups.tolist()
        decoded: dict[int, list[Any]] = {}
        found = []
        for place, (call, accumulator) in enumerate(zip(self._calls, self._accumulators, strict=True)):
            held = [state[HELD][place] for state in states]
            operands, keeps = self._operands(call, accumulator, taken, decoded)
            found.append(accumulator.running(Rows(groups, operands, keeps, lives.goes, lives.ends, keys), held))
            for state, one in zip(states, held, strict=True):
                state[HELD][place] = one
        return found

    def _gathered(self, taken: ColumnBatch, lives: Lives, keys: list[Any], states: list[list[Any]]) -> list[list[Any]]:
        """Return the result of each call for each group after all rows, which are append-only."""
        operands: dict[int, BundledColumn] = {}
        masks: dict[int, Any] = {}
        found = []
        for place, (call, accumulator) in enumerate(zip(self._calls, self._accumulators, strict=True)):
            held = [state[HELD][place] for state in states]
            bundle = self._bundled(call, taken, lives.groups, len(states), operands, masks)
            if bundle is not None and accumulator.gather(bundle, held):
                found.append([accumulator.value(one) for one in held])
            else:
                found.append(self._last_of(call, accumulator, taken, lives, keys, held))
            for state, one in zip(states, held, strict=True):
                state[HELD][place] = one
        return found

    def _bundled(
        self,
        call: AggregateCall,
        taken: ColumnBatch,
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
                masks[index] = pc.fill_null(taken.columns.column(index), False).to_numpy(zero_copy_only=False)
            keeps = masks[index]
        if not call.operands:
            return Bundled(groups, size, None, keeps)
        operand = call.operands[0]
        if len(call.operands) > 1 or not isinstance(operand, Field):
            return None
        if operand.index not in operands:
            column = taken.columns.column(operand.index)
            operands[operand.index] = BundledColumn(groups, column, self._types[operand.index])
        return Bundled(groups, size, operands[operand.index], keeps)

    def _last_of(
        self,
        call: AggregateCall,
        accumulator: Accumulator,
        taken: ColumnBatch,
        lives: Lives,
        keys: list[Any],
        held: list[Any],
    ) -> list[Any]:
        operands, keeps = self._operands(call, accumulator, taken, {})
        given = accumulator.running(Rows(lives.groups.tolist(), operands, keeps, lives.goes, lives.ends, keys), held)
        return [given[row] for row in lives.last_rows(len(held))]

    def _operands(
        self, call: AggregateCall, accumulator: Accumulator, taken: ColumnBatch, decoded: dict[int, list[Any]]
    ) -> tuple[Sequence[Any], list[bool] | None]:
        """Return a call's operand in each row, and which rows pass its FILTER.

        `decoded`: columns that the calls share.
        """
        rows = len(taken)
        keeps = None
        if isinstance(call.condition, Field):
            keeps = pc.fill_null(taken.columns.column(call.condition.index), False).to_pylist()
        columns: list[Sequence[Any]] = []
        for operand in call.operands[: 1 if accumulator.takes_one else None]:
            if isinstance(operand, Constant):
                columns.append([operand.value] * rows)
            else:
                assert isinstance(operand, Field)
                index = operand.index
                if index not in decoded:
                    decoded[index] = values_of(taken.columns.column(index), self._types[index])
                columns.append(decoded[index])
        if not accumulator.takes_one:
            return list(zip(*columns, strict=True)) if columns else [()] * rows, keeps
        if keeps is not None and accumulator.skips_null:
            return [one if keep else None for one, keep in zip(columns[0], keeps, strict=True)], None
        return columns[0], keeps

    def _settle(
        self, keys: list[Any], states: list[list[Any]], lives: Lives, rows: list[int], values: list[list[Any]]
    ) -> None:
        """Store the current result of each group, found at `rows` of `values`, and drop groups without rows."""
        alive = [True] * len(keys) if lives.alive is None else lives.alive[rows].tolist()
        lasts = zip(*[[one[row] for row in rows] for one in values], strict=True) if values else [()] * len(keys)
        for key, state, is_alive, last in zip(keys, states, alive, lasts, strict=True):
            state[LAST] = last if is_alive else None
            if state[COUNT] == 0 and self._is_spent(state[HELD]):
                self._forget(key)

    def _forget(self, key: Any) -> bool:
        """Remove a group from the state."""
        if self._entries.pop(key, None) is not None:
            self._mark(None, (key,))
            for one in self._accumulators:
                one.forget(key)
        return True

    def _is_spent(self, held: list[Any]) -> bool:
        return all(one.is_spent(part) for one, part in zip(self._accumulators, held, strict=True))

    def _send_once(
        self,
        taken: ColumnBatch,
        lives: Lives,
        before: list[tuple[Any, ...] | None],
        after: list[tuple[Any, ...] | None],
    ) -> None:
        """Emit the new result of each group that changed since before the batch."""
        of_groups = Lives(np.arange(len(after)), alive=[one is not None for one in after])
        sent, values = of_groups.few_changes(before, after, self._sends_before, self._sends_same, self._equality)
        last = lives.last_rows(len(after))
        self._collect(taken, Sent([last[group] for group in sent.rows], (), sent.kinds), self._columns(values))

    def _columns(self, rows: Sequence[tuple[Any, ...]]) -> list[pa.Array]:
        types = [call.type for call in self._calls]
        return [column_of(one, kind) for one, kind in zip(zip(*rows, strict=True), types, strict=bool(rows))]

    def _send(
        self, taken: ColumnBatch, lives: Lives, before: list[tuple[Any, ...] | None], values: list[list[Any]]
    ) -> None:
        """Emit the changes."""
        if len(taken) < FEW_ROWS:
            after = list(zip(*values, strict=True)) if values else [()] * len(taken)
            sent, rows = lives.few_changes(before, after, self._sends_before, self._sends_same, self._equality)
            columns = self._columns(rows)
        else:
            # Each call has a column: the results of the groups before the batch, then those after each row.
            nothing = (None,) * len(values)
            given = [
                column_of([(one or nothing)[place] for one in before] + after, kind)
                for place, (kind, after) in enumerate(zip([call.type for call in self._calls], values, strict=True))
            ]
            was_there = np.array([one is not None for one in before], np.bool_)
            sent = lives.changes(was_there, self._differences(given), self._sends_before)
            places = pa.array(sent.places)
            columns = [column.take(places) for column in given]
        self._collect(taken, sent, columns)

    def _collect(self, taken: ColumnBatch, sent: Sent, columns: list[pa.Array]) -> None:
        if len(sent.rows):
            chosen = pa.array(sent.rows)
            keys = [canonical_column(taken.columns.column(index).take(chosen)) for index in self._groups.places]
            batch = pa.RecordBatch.from_arrays([*keys, *columns], self._names)
            self.output.collect(ColumnBatch(batch, None, kinds_of(sent.kinds)))

    def _differences(self, columns: list[pa.Array]) -> Callable[[Any, Any], Any]:
        """Return a function that tests whether any result differs between two arrays of indexes into `columns`."""

        def differ(one: Any, other: Any) -> Any:
            if self._sends_same:
                return np.ones(len(one), np.bool_)
            found = np.zeros(len(one), np.bool_)
            for call, column in zip(self._calls, columns, strict=True):
                if not found.all():
                    found |= differing(column.take(pa.array(one)), column.take(pa.array(other)), call.type)
            return found

        return differ
