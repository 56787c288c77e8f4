"""Group aggregates whose state and whose keys are columns, on every state backend, for state without a lifetime.

No key becomes a Python object: `IndexedGroups` numbers the keys of a batch by kernels. With RocksDB the columns may be
larger than memory, and on every backend a checkpoint writes the columns of what changed. All calls are computed by
kernels; others, and state that expires, are up to the other operators.

Groups that one of the other operators kept by key are taken over, and they take over the groups of this one.

Groups of a few rows on top of those in columns: rows as tuples, and groups as lists.

For a batch of a few rows, kernels cost more than Python. `FewGroups` reads the groups of such rows from the columns and
goes on with them row by row, by the accumulators of the calls. A group may have many distinct values, so only those of
the rows are read. Groups that changed return to the columns before a large batch, before a checkpoint, and when there
are many groups. After a checkpoint all stay at hand, until columns change without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from penstock.runtime.columns import ColumnBatch
from penstock.runtime.operators.base import StreamOperator, UserCodeError
from penstock.sql.data.arrow import arrow_type, to_column
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.data.row_data import RowData, RowLayout
from penstock.sql.data.types import DataType
from penstock.sql.logical.nodes import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, AggregateCall
from penstock.sql.stream.aggregates.accumulators import build_accumulator
from penstock.sql.stream.aggregates.functions import SingleOperand
from penstock.sql.stream.groups import columnar
from penstock.sql.stream.groups.columnar import ColumnGroupAggregateOperator
from penstock.sql.stream.groups.columns import COUNT, HELD, LAST, IndexedGroups
from penstock.sql.stream.groups.operators import GOES, GROUPS
from penstock.sql.stream.rows.columns import build_key_hash
from penstock.sql.stream.rows.key_index import ABSENT, group_distinct_rows
from penstock.sql.stream.rows.rows import ONLY_KEY, pack_kinds, to_tuples
from penstock.sql.typed import Constant, Field
from penstock.state.equality import build_canonicalizer
from penstock.state.snapshot import StateCapture

#: Further parts of a group: its number in the columns, or `ABSENT`; and by view, the marks of each value.
_NUMBER, VALUES = 3, 4
#: The number of groups and values at which they return to the columns.
ENTRIES_MAX: Final = 1 << 12
#: This many keys or fewer are looked up one by one.
_ONE_BY_ONE_MAX: Final = 8


class FewGroups:
    """See the module docstring.

    Args:
        state: the groups in columns.
        keys: the indexes of the grouping columns.
        calls: the aggregate calls.
        types: the types of the input columns.
        names: the names of the output columns.
        retracts: whether the input may contain retractions.
        sends_before: whether updates include the previous row (UPDATE_BEFORE).
        is_bundled: whether a group emits one change for all rows of a batch.
    """

    def __init__(
        self,
        state: IndexedGroups,
        keys: Sequence[int],
        calls: Sequence[AggregateCall],
        types: Sequence[DataType],
        names: Sequence[str],
        retracts: bool,
        sends_before: bool,
        is_bundled: bool,
    ) -> None:
        self._state = state
        self._places = tuple(keys)
        self._key_types = [types[index] for index in keys]
        self._retracts = retracts
        self._sends_before = sends_before
        self._is_bundled = is_bundled
        self._layout = RowLayout(names, [*self._key_types, *[call.type for call in calls]])
        #: computes the hash of a key; None if only kernels do
        self._hash = build_key_hash([arrow_type(kind) for kind in self._key_types])
        forms = [build_canonicalizer(arrow_type(kind), zeros="merged") for kind in self._key_types]
        self._key_forms = None if forms.count(None) == len(forms) else forms
        accumulators = [build_accumulator(replace(call, is_distinct=False), retracts) for call in calls]
        self._accumulators = accumulators
        self._results = [accumulator.value for accumulator in accumulators]
        #: for each call: its index, how to add and to retract, the operands, and the index of its FILTER or None
        steps: list[tuple[int, Any, Any, Any, int | None]] = []
        for index, (call, accumulator) in enumerate(zip(calls, accumulators, strict=True)):
            condition = call.condition.index if isinstance(call.condition, Field) else None
            if isinstance(accumulator, SingleOperand):
                (operand,) = call.operands
                assert isinstance(operand, Field)
                steps.append((index, accumulator.add_one, accumulator.retract_one, operand.index, condition))
            else:
                assert not any(isinstance(operand, Constant) for operand in call.operands)
                positions = tuple(operand.index for operand in call.operands if isinstance(operand, Field))
                steps.append((index, accumulator.add, accumulator.retract, positions, condition))
        in_views = {index for _, indices in state.views for index in indices}
        self._steps = [step for step in steps if step[0] not in in_views]
        #: for each view: the index of its column, the canonical form of a value, and the steps of its calls
        self._views = []
        for _, indices in state.views:
            operand_index = steps[indices[0]][3]
            form = build_canonicalizer(arrow_type(types[operand_index]), zeros="merged")
            self._views.append((operand_index, form, [steps[index] for index in indices]))
        #: key -> the group, with the parts `COUNT`, `HELD`, `LAST`, ...
        self.groups: dict[tuple[Any, ...], list[Any]] = {}
        #: the keys of the groups that changed, in order
        self._changed: dict[tuple[Any, ...], None] = {}
        self._value_count = 0

    @property
    def are_many(self) -> bool:
        """Whether the groups should return to the columns."""
        return len(self.groups) + self._value_count > ENTRIES_MAX

    def process(self, rows: Sequence[tuple[Any, ...]], kinds: bytes | None) -> ColumnBatch | None:
        """Process rows and return the changes."""
        goes = None if kinds is None or not self._retracts else kinds.translate(GOES)
        positions, forms, groups = self._places, self._key_forms, self.groups
        keys = [tuple([row[position] for position in positions]) for row in rows]
        if forms is not None:
            keys = [
                tuple([value if form is None else form(value) for form, value in zip(forms, key, strict=True)])
                for key in keys
            ]
        missing = [key for key in keys if key not in groups]
        if missing:
            self._load(list(dict.fromkeys(missing)))
        self._changed.update(dict.fromkeys(keys))
        before = {key: groups[key][LAST] for key in keys} if self._is_bundled else None
        sent: list[tuple[Any, ...]] = []
        sent_kinds: list[int] = []
        for index, (key, row) in enumerate(zip(keys, rows, strict=True)):
            group = groups[key]
            is_gone = goes is not None and goes[index] != 0
            group[COUNT] += -1 if is_gone else 1
            self._step(group, row, is_gone)
            if before is None:
                self._change(key, group, group[LAST], sent, sent_kinds)
        if before is not None:
            for key, last in before.items():
                self._change(key, groups[key], last, sent, sent_kinds)
        return ColumnBatch(RowData(self._layout, sent), None, pack_kinds(sent_kinds)) if sent else None

    def _step(self, group: list[Any], row: tuple[Any, ...], is_gone: bool) -> None:
        """Let all calls count a row, or take it back."""
        states = group[HELD]
        for index, add, retract, operand, condition in self._steps:
            if condition is not None and row[condition] is not True:
                continue
            if operand.__class__ is int:
                value = row[operand]
                if value is None:
                    continue
            else:
                value = tuple([row[position] for position in operand])
            states[index] = retract(states[index], value) if is_gone else add(states[index], value)
        for number, (operand, form, steps) in enumerate(self._views):
            value = row[operand]
            if value is None:
                continue
            counting = [
                (position, step) for position, step in enumerate(steps) if step[4] is None or row[step[4]] is True
            ]
            if not counting:
                continue
            if form is not None:
                value = form(value)
            values = group[VALUES][number]
            marks = values.get(value)
            if marks is None:
                marks = values[value] = self._state.views[number][0].find_marks(group[_NUMBER], value)
                self._value_count += 1
            for position, (index, add, retract, _, _) in counting:
                count = marks[position]
                if not self._retracts:
                    if not count:
                        marks[position] = 1
                        states[index] = add(states[index], value)
                elif is_gone:
                    marks[position] = count - 1
                    if count == 1:
                        states[index] = retract(states[index], value)
                else:
                    marks[position] = count + 1
                    if not count:
                        states[index] = add(states[index], value)

    def _change(
        self, key: tuple[Any, ...], group: list[Any], old: Any, sent: list[tuple[Any, ...]], kinds: list[int]
    ) -> None:
        """Set the last result of a group, and add the changes since the old one."""
        new = None
        if group[COUNT] > 0:
            new = tuple([result(state) for result, state in zip(self._results, group[HELD], strict=True)])
        group[LAST] = new
        if old == new:
            return
        if old is not None and (new is None or self._sends_before):
            sent.append(key + old)
            kinds.append(DELETE if new is None else UPDATE_BEFORE)
        if new is not None:
            sent.append(key + new)
            kinds.append(INSERT if old is None else UPDATE_AFTER)

    def _build_keys(self, keys: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return the columns of keys."""
        if not self._places:
            return self._state.build_keys([ONLY_KEY] * len(keys))
        columns = zip(zip(*keys, strict=True), self._key_types, strict=True)
        return [to_column(list(values), kind) for values, kind in columns]

    def _load(self, keys: Sequence[tuple[Any, ...]]) -> None:
        """Read the groups of these keys from the columns, or begin them."""
        numbers = self._find(keys)
        known = [index for index, number in enumerate(numbers) if number != ABSENT]
        if known:
            counts, states = self._state.read_states(np.array([numbers[index] for index in known]))
            for index, count, accumulators in zip(known, counts, states, strict=True):
                last = None
                if count > 0:
                    last = tuple([result(state) for result, state in zip(self._results, accumulators, strict=True)])
                self.groups[keys[index]] = [count, accumulators, last, numbers[index], [{} for _ in self._views]]
        for key, number in zip(keys, numbers, strict=True):
            if number == ABSENT:
                accumulators = [accumulator.create() for accumulator in self._accumulators]
                self.groups[key] = [0, accumulators, None, ABSENT, [{} for _ in self._views]]

    def _find(self, keys: Sequence[tuple[Any, ...]]) -> list[int]:
        """Return the number of each key's group, or `ABSENT`."""
        if self._hash is not None and len(keys) <= _ONE_BY_ONE_MAX:
            numbers = [self._state.find_hash(self._hash(key)) for key in keys]
            if numbers.count(ABSENT) == len(numbers):
                return numbers
        columns = self._build_keys(keys)
        numbers = list(map(int, self._state.find(group_distinct_rows(columns), columns)))
        return numbers

    def put_back(self) -> None:
        """Return the groups that changed to the columns."""
        changed, self._changed = list(self._changed), {}
        if not changed:
            return
        groups = [self.groups[key] for key in changed]
        states = list(zip(*[group[HELD] for group in groups], strict=True))
        numbers = self._state.replace(self._build_keys(changed), [group[COUNT] for group in groups], states)
        for group, number in zip(groups, numbers.tolist(), strict=True):
            group[_NUMBER] = number
        for index, (view, _) in enumerate(self._state.views):
            by_group = [group[VALUES][index] for group in groups]
            lengths = np.fromiter(map(len, by_group), np.int64, len(by_group))
            values = [value for of_group in by_group for value in of_group]
            marks = [of_value for of_group in by_group for of_value in of_group.values()]
            if values:
                view.replace(numbers.repeat(lengths), values, np.array(marks, np.int64))
        self._state.note_changes(numbers, self._retracts)

    def clear(self) -> None:
        """Forget the groups, which have returned to the columns."""
        self.groups.clear()
        self._value_count = 0


class IndexedGroupAggregateOperator(ColumnGroupAggregateOperator):
    """See the module docstring, and `GroupAggregateOperator` for the arguments.

    `labels`: what users call the output columns, for readers of the state.
    """

    _state: IndexedGroups

    def __init__(self, *arguments: Any, labels: Sequence[str] = ()) -> None:
        super().__init__(*arguments)
        self._labels = tuple(labels)

    def initialize_state(self) -> None:
        """Load the restored groups."""
        StreamOperator.initialize_state(self)
        arguments = (self._groups.places, self._calls, self._types, self._retracts)
        self._state = IndexedGroups(self.context, *arguments, self._labels)
        if self.context.keyed.has_restored(GROUPS):
            self._state.take_over(self.context.keyed.table(GROUPS).drop(None).items())

    def _open_groups(self) -> None:
        self._few_groups = FewGroups(
            self._state,
            self._groups.places,
            self._calls,
            self._types,
            self._names,
            self._retracts,
            self._sends_before,
            self.mini_batch is not None,
        )

    def process_rows(self, records: ColumnBatch) -> None:
        """Process rows and emit the changes."""
        if not len(records):
            return
        if len(records) < columnar.FEW_ROWS:
            self._process_few_rows(records)
            return
        self._put_few_into_columns()
        self._few_groups.clear()
        groups, numbers = self._state.number(self._state.read_keys(records.columns))
        rows = self._process_groups(records, groups, numbers)
        self._state.note_changes(numbers, rows.goes is not None)
        self._state.compact_if_worthwhile()

    def _process_few_rows(self, records: ColumnBatch) -> None:
        few = self._few_groups
        try:
            changes = few.process(to_tuples(records, self._types), records.kinds)
        except TableRuntimeError as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(records)} rows") from error
        if changes is not None:
            self.output.collect(changes)
        if few.are_many:
            self._put_few_into_columns()
            few.clear()

    def _put_few_into_columns(self) -> None:
        """Put the changed groups into the columns."""
        self._few_groups.put_back()
        if self._state.compact_if_worthwhile():
            self._few_groups.clear()

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        """Capture the groups that are not in the last completed checkpoint."""
        self._put_few_into_columns()
        return [*StreamOperator.snapshot_state(self, checkpoint_id), *self._state.capture(checkpoint_id)]
