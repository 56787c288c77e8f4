"""Aggregates of groups, and table aggregates, of a changelog.

`Lives` is the life cycle of groups within a batch: after which rows each group exists, and the changes that result.

`GroupAggregateOperator` emits the key of a group in canonical form, in all its changes. For each group, the state holds
the number of rows, the accumulators, and the last result emitted. A row that does not change the result emits nothing.
The first row of a group emits an insert, and the retraction of the last one a delete. If state expires, a row that does
not change the result emits an update nevertheless, which keeps the group alive in downstream operators; and a
retraction from an unknown group is dropped, because the group may have expired. A batch is processed call by call
instead of row by row: each call returns its result after each row, as a column. The changes to emit are computed from
these columns at once.

`TableAggregateOperator` has the state of group aggregates; the last result of a group is a list of rows. A row that
changes the list retracts all rows of the old list and emits all rows of the new one, as deletes and inserts. If state
expires, an unchanged list is emitted again, which keeps its rows alive in downstream operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.columns import ColumnBatch
from penstock.runtime.operators.base import UserCodeError
from penstock.sql.data.arrow import to_column, to_values
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.data.types import ArrayType, DataType, MapType, MultisetType, RawType, RowType, VariantType
from penstock.sql.logical.nodes import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    AggregateCall,
    UserAggregateCall,
)
from penstock.sql.stream.aggregates.accumulators import Accumulator, build_accumulator
from penstock.sql.stream.aggregates.functions import Bundled, BundledColumn, Rows, read_batch_operands
from penstock.sql.stream.groups.columns import COUNT, HELD, LAST, take_over_columns
from penstock.sql.stream.rows.rows import RowEquality, RowKeys, pack_kinds
from penstock.sql.stream.rows.state_ttl import BundlingOperator, EvaluatingOperator, MiniBatch, StreamSession
from penstock.sql.typed import Field
from penstock.state.equality import canonical_column, canonical_values
from penstock.state.snapshot import StateCapture

#: types whose columns Arrow cannot compare
_BY_VALUE: Final = (ArrayType, MapType, MultisetType, RowType, VariantType, RawType)


@dataclass(frozen=True, slots=True)
class Sent:
    """Changes to emit: for each, the row of the batch, the index of its values, and its row kind."""

    rows: Sequence[int]
    places: Sequence[int]
    kinds: Sequence[int]


@dataclass(frozen=True, slots=True)
class Lives:
    """The rows of a batch, as arrays with one entry for each row."""

    #: the group number of each row
    groups: Any
    #: nonzero for retractions; None if there are none
    goes: bytes | None = None
    #: rows after which their group is empty
    ends: frozenset[int] = field(default_factory=frozenset)
    #: whether the group has rows after each row; None if all have
    alive: Any = None

    def last_rows(self, groups: int) -> list[int]:
        """Return the last row of each group."""
        rows = np.zeros(groups, np.int64)
        rows[self.groups] = np.arange(len(self.groups))
        return rows.tolist()

    def _rows_before(self) -> Any:
        """Return the previous row of the same group for each row; -1 if there is none."""
        order = np.argsort(self.groups, kind="stable")
        ordered = self.groups[order]
        previous = np.full(len(order), -1, np.int64)
        previous[order[1:]] = np.where(ordered[1:] == ordered[:-1], order[:-1], -1)
        return previous

    def changes(self, was_there: Any, differ: Callable[[Any, Any], Any], sends_before: bool) -> Sent:
        """Return the changes that the rows cause.

        Args:
            was_there: whether each group existed before the batch.
            differ: tests whether the results at two arrays of indexes differ. The indexes count the groups before the
                batch, and then the rows.
            sends_before: whether updates include the previous row (UPDATE_BEFORE).
        """
        rows = np.arange(len(self.groups))
        prior = self._rows_before()
        is_first = prior < 0
        old = np.where(is_first, self.groups, prior + len(was_there))
        new = rows + len(was_there)
        had = np.where(is_first, was_there[self.groups], True if self.alive is None else self.alive[prior])
        has = np.ones(len(rows), np.bool_) if self.alive is None else self.alive
        both = np.flatnonzero(had & has)
        updated = np.zeros(len(rows), np.bool_)
        updated[both] = differ(old[both], new[both])
        # Each row has a slot for a retraction and one for an addition; unused slots are filtered out.
        goes = (had & ~has) | (updated if sends_before else False)
        comes = (has & ~had) | updated
        used = np.column_stack((goes, comes)).ravel()
        kinds = np.column_stack((np.where(updated, UPDATE_BEFORE, DELETE), np.where(updated, UPDATE_AFTER, INSERT)))
        return Sent(
            np.repeat(rows, 2)[used], np.column_stack((old, new)).ravel()[used], kinds.astype(np.uint8).ravel()[used]
        )

    def few_changes(
        self,
        before: Sequence[tuple[Any, ...] | None],
        after: Sequence[tuple[Any, ...] | None],
        sends_before: bool,
        sends_same: bool = False,
        equality: RowEquality | None = None,
    ) -> tuple[Sent, list[tuple[Any, ...]]]:
        """Like `changes`, but row by row, for results as tuples. Returns the results to emit instead of their indexes.

        Args:
            before: the previous result of each group.
            after: the result of each row's group after the row.
            sends_before: as in `changes`.
            sends_same: whether a row that does not change the result emits an update.
            equality: the equality of results; None if tuples compare directly.
        """
        now = list(before)
        rows, kinds, sent = [], [], []
        for row, (group, values) in enumerate(zip(self.groups.tolist(), after, strict=True)):
            old, new = now[group], values if self.alive is None or self.alive[row] else None
            is_same = old == new if equality is None else equality.same(old, new)
            if is_same and not (sends_same and new is not None):
                continue
            now[group] = new
            if old is not None and (new is None or sends_before):
                rows.append(row)
                kinds.append(DELETE if new is None else UPDATE_BEFORE)
                sent.append(old)
            if new is not None:
                rows.append(row)
                kinds.append(INSERT if old is None else UPDATE_AFTER)
                sent.append(new)
        return Sent(rows, (), kinds), sent


def differing(array: pa.Array, other: pa.Array, data_type: DataType) -> Any:
    """Return where two columns differ under Penstock's equality (`penstock.state.equality`); NULL equals NULL."""
    if isinstance(data_type, _BY_VALUE):
        lists = (canonical_values(to_values(column, data_type), column.type) for column in (array, other))
        return np.array([value != another for value, another in zip(*lists, strict=True)], np.bool_)
    differences = pc.fill_null(pc.not_equal(array, other), False)
    if pa.types.is_floating(array.type):
        differences = pc.and_not(differences, pc.fill_null(pc.and_(pc.is_nan(array), pc.is_nan(other)), False))
    if array.null_count or other.null_count:
        differences = pc.or_(differences, pc.xor(pc.is_null(array), pc.is_null(other)))
    return differences.to_numpy(zero_copy_only=False)


#: The name of the state.
GROUPS = "groups"
#: Below this number of rows, comparing columns takes longer than comparing rows.
FEW_ROWS: Final = 64
#: 1 for retracting row kinds, 0 for others.
GOES: Final = bytes(kind in (UPDATE_BEFORE, DELETE) for kind in range(256))


def known_rows(kinds: bytes, groups: Any, counts: list[int]) -> Any:
    """Return the indexes of the rows, except retractions from groups without rows. `counts`: of each group's rows."""
    counts, goes, known = list(counts), kinds.translate(GOES), []
    for row, group in enumerate(groups.tolist()):
        if not goes[row]:
            counts[group] += 1
        elif counts[group] > 0:
            counts[group] -= 1
        else:
            continue
        known.append(row)
    return np.array(known, np.int64)


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

    def initialize_state(self) -> None:
        """Take over the groups of an `IndexedGroupAggregateOperator`."""
        super().initialize_state()
        table, keys = self.context.keyed.table(GROUPS), self._groups.places
        self._nothing = take_over_columns(self.context, table, keys, self._calls, self._types, self._retracts)

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        """Capture the groups by key, and the columns that they were taken from, which are empty now."""
        return [*super().snapshot_state(checkpoint_id), *self._nothing]

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
        self.process_groups(records, groups, keys)

    def process_groups(self, records: ColumnBatch, groups: Any, keys: list[Any]) -> None:
        """Process rows whose groups are known, see `RowKeys.numbered`."""
        entries = self._entries
        if self.ttl_ms and self._retracts and records.kinds is not None:
            counts = [entries[key][COUNT] if key in entries else 0 for key in keys]
            known = known_rows(records.kinds, groups, counts)
            if len(known) < len(records):
                if not len(known):
                    return
                records = records.take(known)
                groups, keys = self._groups.numbered(records.columns)
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
        goes = bytes(len(groups)) if kinds is None else kinds.translate(GOES)
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
            operands, keeps = read_batch_operands(call, accumulator, records.columns, self._types, decoded)
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
        operands, keeps = read_batch_operands(call, accumulator, records.columns, self._types, {})
        given = accumulator.running(
            Rows(lives.groups.tolist(), operands, keeps, lives.goes, lives.ends, keys), call_states
        )
        return [given[row] for row in lives.last_rows(len(call_states))]

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


class TableAggregateOperator(GroupAggregateOperator):
    """See the module docstring.

    Args:
        keys: the indexes of the grouping columns.
        call: the aggregate call over columns of the input.
        types: the types of the input columns.
        names: the names of the output columns: keys, then the function's columns.
        retracts: whether the input may contain retractions.
        session: the session of the function.
    """

    def __init__(
        self,
        keys: Sequence[int],
        call: UserAggregateCall,
        types: Sequence[DataType],
        names: Sequence[str],
        retracts: bool,
        session: StreamSession,
    ) -> None:
        super().__init__(keys, (call,), types, names, retracts, True, None, session)
        assert isinstance(call.type, RowType)
        self._column_types = call.type.field_types()
        self._row_equality = RowEquality(self._column_types)

    def _send(
        self, records: ColumnBatch, lives: Lives, before: list[tuple[Any, ...] | None], values: list[list[Any]]
    ) -> None:
        """Emit the changes."""
        now: list[list[Any]] = [[] if result is None else result[0] for result in before]
        rows: list[int] = []
        kinds = bytearray()
        sent: list[tuple[Any, ...]] = []
        for row, (group, emitted) in enumerate(zip(lives.groups.tolist(), values[0], strict=True)):
            old, new = now[group], emitted if lives.alive is None or lives.alive[row] else []
            is_same = len(old) == len(new) and all(map(self._row_equality.same, old, new))
            if is_same and not (self._sends_same and new):
                continue
            now[group] = new
            rows += [row] * (len(old) + len(new))
            kinds += bytes((DELETE,)) * len(old) + bytes((INSERT,)) * len(new)
            sent += [*old, *new]
        if sent:
            chosen = pa.array(rows)
            keys = [canonical_column(records.columns.column(index).take(chosen)) for index in self._groups.places]
            columns = [
                to_column(list(column), kind)
                for column, kind in zip(zip(*sent, strict=True), self._column_types, strict=True)
            ]
            batch = pa.RecordBatch.from_arrays([*keys, *columns], self._names)
            self.output.collect(ColumnBatch(batch, None, pack_kinds(kinds)))
