"""The state of groups as columns, by the number of the group.

`GroupColumns` has the rows of each group, the state of each call (`aggregates.columns`), and the distinct values of the
calls (`aggregates.distinct`). Its user maps keys to numbers.

`IndexedGroups` maps them itself, with a `KeyIndex` over the columns of the keys. Its checkpoints are also columns: a
row for each group that changed since the last completed one, and a row for each pair of a group and a distinct value
that changed. Of the rows of a group or a pair, the last one counts (`Versions`). A group without rows keeps its number,
and its row says that it is empty. Once these outnumber the others, or values that no group has any more outnumber
the values in use, all groups get new numbers.

`take_over_columns` is for an operator that keeps its groups by key and restores such a checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.runtime.operators.function_context import OperatorContext
from penstock.sql.data.arrow import arrow_type, to_values
from penstock.sql.data.types import BigIntType, DataType
from penstock.sql.logical.nodes import AggregateCall, UserAggregateCall
from penstock.sql.stream.aggregates.accumulators import build_call_column, is_distinct_by_view
from penstock.sql.stream.aggregates.columns import AccumulatorColumn, CallColumn, Captured, GroupedRows
from penstock.sql.stream.aggregates.distinct import CALLS_MAX, CapturedView, DistinctView
from penstock.sql.stream.aggregates.pairs import IN_MEMORY, Changed, Growing, StateMemory, Versions
from penstock.sql.stream.rows.columns import ROWS_GONE_MAX, ColumnParts, build_part, same_keys
from penstock.sql.stream.rows.key_index import ABSENT, Groups, KeyIndex, group_distinct_rows, group_rows
from penstock.sql.stream.rows.rows import ONLY_KEY, RowKeys
from penstock.state.backend import KeyedTable
from penstock.state.equality import canonical_column
from penstock.state.key_columns import ROW_NUMBER, ColumnsCapture, RowMeaning

#: The indexes of the parts of a group's state in a snapshot by key: the number of rows, the states of the calls, and
#: the last result.
COUNT, HELD, LAST = 0, 1, 2
#: The names of the states: the groups, and the distinct values of each view.
GROUP_COLUMNS: Final = "group_columns"
_VALUES: Final = "group_values"
#: the name under which readers see a group's number of rows
_ROWS_LABEL: Final = "rows"
#: Groups are read, or taken over, this many at a time.
_GROUPS_AT_ONCE: Final = 1 << 14


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
        """Return the states in the form of `GroupAggregateOperator`."""
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


class GroupColumns:
    """See the module docstring.

    Args:
        calls: the aggregate calls over columns of the input.
        types: the types of the input columns.
        retracts: whether the input may contain retractions.
        memory: where the state lies.
        has_versions: whether to note which distinct values change.
    """

    def __init__(
        self,
        calls: Sequence[AggregateCall],
        types: Sequence[DataType],
        retracts: bool,
        memory: StateMemory = IN_MEMORY,
        has_versions: bool = False,
    ) -> None:
        self._memory = memory
        self.columns: list[CallColumn] = [build_call_column(call, retracts, memory) for call in calls]
        self.has_accumulators = any(isinstance(column, AccumulatorColumn) for column in self.columns)
        #: the notes of each view about its values
        self._value_versions: list[Versions] = []
        #: the calls of each view of distinct values
        self.views: list[tuple[DistinctView, list[int]]] = []
        for indices in self._shared_views(calls):
            versions = Versions(memory) if has_versions else None
            if versions is not None:
                self._value_versions.append(versions)
            columns = [self.columns[index] for index in indices]
            (operand,) = columns[0].operands
            conditions = [column.condition for column in columns]
            view = DistinctView(operand, types[operand], conditions, retracts, memory, versions)
            self.views.append((view, indices))
        #: the number of rows in each group
        self.counts = Growing(np.int64, memory=memory)

    def _shared_views(self, calls: Sequence[AggregateCall]) -> list[list[int]]:
        """Return the calls that share a view: calls with DISTINCT over the same column."""
        by_operand: dict[int, list[int]] = {}
        for index, call in enumerate(calls):
            if is_distinct_by_view(call) and not isinstance(self.columns[index], AccumulatorColumn):
                by_operand.setdefault(self.columns[index].operands[0], []).append(index)
        return [
            indices[begin : begin + CALLS_MAX]
            for indices in by_operand.values()
            for begin in range(0, len(indices), CALLS_MAX)
        ]

    def __len__(self) -> int:
        """Return how many numbers are in use, including the numbers of dropped groups."""
        return len(self.counts)

    def grow(self, size: int) -> None:
        """Add empty groups up to a number."""
        self.counts.grow(size)
        for column in self.columns:
            column.grow(size)
        for view, _ in self.views:
            view.grow(size)

    def forget(self, number: int) -> None:
        """Drop the objects of a dropped group. Its number is not used again."""
        for column in self.columns:
            column.forget(number)
        for view, _ in self.views:
            view.forget(number)

    def find_spent(self, numbers: Any) -> Any:
        """Return the indexes of the groups that have neither rows nor pending retractions."""
        indices = (self.counts.array[numbers] == 0).nonzero()[0]
        by_view = {index: view for view, calls in self.views for index in calls}
        for index, column in enumerate(self.columns):
            if not len(indices):
                break
            indices = indices[by_view.get(index, column).are_spent(numbers[indices])]
        return indices

    def is_wasteful(self, live_count: int) -> bool:
        """Return whether `keep` is worthwhile. `live_count`: the number of groups that have not gone."""
        return (
            len(self) > 2 * live_count + ROWS_GONE_MAX
            or any(2 * view.gone > len(view) + ROWS_GONE_MAX for view, _ in self.views)
            or any(column.is_wasteful for column in self.columns)
        )

    def keep(self, kept: Any) -> None:
        """Keep only these groups, whose numbers are then 0, 1, ..."""
        numbers = np.full(len(self), -1)
        numbers[kept] = np.arange(len(kept))
        self.counts.keep(kept)
        for column in self.columns:
            column.keep(kept)
        for view, _ in self.views:
            view.keep(numbers, len(kept))

    def run(self, rows: GroupedRows) -> list[pa.Array]:
        """Return the results of each call: the results of the groups before the batch, then after each row."""
        steps: dict[int, Any] = {}
        for view, calls in self.views:
            steps.update(zip(calls, view.steps(rows), strict=True))
        return [
            column.run(rows, steps[index] if index in steps else column.steps(rows))
            for index, column in enumerate(self.columns)
        ]

    def restore(self, states: Sequence[Any]) -> None:
        """Add the groups of a snapshot by key. `recount` follows."""
        first = len(self)
        self.grow(first + len(states))
        self.counts.array[first:] = [state[COUNT] for state in states]
        in_views = {index for _, calls in self.views for index in calls}
        for index, column in enumerate(self.columns):
            of_call = [state[HELD][index] for state in states]
            column.restore(first, [part[0] for part in of_call] if index in in_views else of_call)
        for view, calls in self.views:
            view.restore(first, [[state[HELD][index][1] for state in states] for index in calls])

    def recount(self) -> None:
        """Count the distinct values of each group, after these were restored."""
        for view, _ in self.views:
            view.recount()

    def pack(self, values: Sequence[int]) -> PackedGroups:
        """Take groups for a snapshot, see `KeyedTable.keep_packed`."""
        numbers = np.array(values, np.int64)
        states = [column.capture(numbers) for column in self.columns]
        views = [(view.capture(numbers), calls) for view, calls in self.views]
        results = [(column.results(numbers), column.call.type) for column in self.columns]
        return PackedGroups(self.counts.array[numbers], states, views, results)


def has_only_columns(calls: Sequence[AggregateCall], keys: Sequence[DataType], retracts: bool) -> bool:
    """Return whether kernels compute all calls, and `IndexedGroups` takes the types of the keys."""
    if any(isinstance(call, UserAggregateCall) for call in calls):
        return False
    if any(pa.types.is_nested(arrow_type(kind)) for kind in keys):
        return False
    return not any(isinstance(build_call_column(call, retracts), AccumulatorColumn) for call in calls)


def _describe(call: AggregateCall) -> str:
    operands = ", ".join(str(operand.type) for operand in call.operands)
    return f"{call.function}({'DISTINCT ' if call.is_distinct else ''}{operands}) {call.type}"


def _part_name(index: int) -> str:
    return f"part{index}"


class IndexedGroups(GroupColumns):
    """See the module docstring, and `GroupColumns`.

    Args:
        context: the context of the operator.
        keys: the indexes of the grouping columns.
        calls: the aggregate calls; `has_only_columns` is true.
        types: the types of the input columns.
        retracts: whether the input may contain retractions.
        labels: what users call the grouping columns and the results, for readers of the state.
    """

    def __init__(
        self,
        context: OperatorContext,
        keys: Sequence[int],
        calls: Sequence[AggregateCall],
        types: Sequence[DataType],
        retracts: bool,
        labels: Sequence[str] = (),
    ) -> None:
        super().__init__(calls, types, retracts, StateMemory.of(context.keyed), True)
        self._labels = tuple(labels)
        self._context = context
        self._places = tuple(keys)
        self._key_types = [arrow_type(types[index]) for index in keys] or [arrow_type(BigIntType())]
        self._key_names = tuple(f"key{index}" for index in range(len(self._key_types)))
        listed = ", ".join(map(_describe, calls))
        self._about = f"{'changing' if retracts else 'growing'} groups by {len(keys)} columns of [{listed}]"
        self._versions = Versions(self._memory)
        #: which groups have neither rows nor pending retractions, and how many these are
        self._is_spent = Growing(np.bool_, False, self._memory)
        self._spent_count = 0
        self._begin_keys()
        self._restore_columns()

    # --- keys ---------------------------------------------------------------------------------------------------------

    def _begin_keys(self) -> None:
        #: the columns of the keys, by the number of the group
        self._keys = ColumnParts(0, self._memory.store)
        self._index = KeyIndex(self._memory.zeros)
        self._may_share_hash = False

    def read_keys(self, columns: pa.RecordBatch) -> list[pa.Array]:
        """Return the key columns of rows. Without grouping columns, there is a constant one."""
        if not self._places:
            return [pa.array(np.full(columns.num_rows, ONLY_KEY))]
        return [canonical_column(columns.column(index)) for index in self._places]

    def build_keys(self, keys: Sequence[Any]) -> list[pa.Array]:
        """Return keys of groups in a snapshot as columns."""
        if len(self._key_types) == 1:
            return [canonical_column(pa.array(keys, self._key_types[0]))]
        columns = zip(zip(*keys, strict=True), self._key_types, strict=True)
        return [canonical_column(pa.array(values, kind)) for values, kind in columns]

    def find(self, groups: Groups, keys: Sequence[pa.Array]) -> Any:
        """Return the number of each group, or `ABSENT`."""
        self._may_share_hash |= not groups.is_exact

        def same(positions: Any, numbers: Any) -> Any:
            mine = pa.array(groups.first[positions])
            return same_keys([key.take(mine) for key in keys], self._taken_keys(numbers))

        return self._index.find(groups.hashes, same if self._may_share_hash else None)[0]

    def find_hash(self, hashed: int) -> int:
        """Return the number of a group whose key has a hash, or `ABSENT`. The key may be another one."""
        return self._index.find_hash(hashed)

    def _taken_keys(self, numbers: Any) -> list[pa.Array]:
        return self._keys.taken(range(len(self._key_types)), numbers)

    def number(self, keys: Sequence[pa.Array]) -> tuple[Any, Any]:
        """Return the group of each row, and the number of each group. New groups get the next numbers."""
        groups = group_rows(keys)
        numbers = self.find(groups, keys)
        new = (numbers == ABSENT).nonzero()[0]
        if len(new):
            first = len(self._keys)
            numbers[new] = np.arange(first, first + len(new))
            mine = pa.array(groups.first[new])
            self._keys.append(build_part([key.take(mine) for key in keys], len(new)))
            self._index.insert(groups.hashes[new], numbers[new])
            if first + len(new) > len(self):
                self.grow(first + len(new))
        return groups.codes, numbers

    def grow(self, size: int) -> None:
        """See `GroupColumns`."""
        super().grow(size)
        self._versions.grow(size)
        self._is_spent.grow(size)

    # --- changes ------------------------------------------------------------------------------------------------------

    def note_changes(self, numbers: Any, may_be_spent: bool) -> None:
        """Note that these groups, each once, have changed. `may_be_spent`: whether rows have gone."""
        self._versions.mark(numbers)
        if may_be_spent or self._spent_count:
            spent = np.zeros(len(numbers), np.bool_)
            spent[self.find_spent(numbers)] = True
            self._spent_count += int(spent.sum()) - int(self._is_spent.array[numbers].sum())
            self._is_spent.array[numbers] = spent

    def read_states(self, numbers: Any) -> tuple[list[int], list[list[Any]]]:
        """Return the number of rows of groups, and the state of each call, without distinct values."""
        states = zip(*[column.capture(numbers)() for column in self.columns], strict=True)
        counts = self.counts.array[numbers].tolist()
        return counts, list(map(list, states)) if self.columns else [[] for _ in counts]

    def replace(self, keys: Sequence[pa.Array], counts: Sequence[int], states: Sequence[Sequence[Any]]) -> Any:
        """Set the states of groups, each once, and return their numbers.

        The caller then sets the distinct values, and notes the changes.

        Args:
            keys: the key columns.
            counts: the number of rows in each group.
            states: for each call, the states of the groups as `read_states` returns them.
        """
        codes, numbers = self.number(keys)
        numbers = numbers[codes]
        first = len(self)
        self.counts.array[numbers] = counts
        for column, of_call in zip(self.columns, states, strict=True):
            column.grow(first + len(numbers))
            column.restore(first, of_call)
            column.move_last(numbers)
        return numbers

    def compact_if_worthwhile(self) -> bool:
        """Give all groups new numbers if enough of them, or of their values, have gone. Returns whether it did."""
        if not self.is_wasteful(len(self) - self._spent_count):
            return False
        kept = (~self._is_spent.array).nonzero()[0]
        former = self._keys
        self._begin_keys()
        # A part at a time: together they may be larger than memory.
        for part, start in zip(former.parts, former.starts, strict=False):
            of_part = kept[np.searchsorted(kept, start) : np.searchsorted(kept, start + part.num_rows)]
            if len(of_part):
                rows = pa.array(of_part - start)
                keys = [part.column(index).take(rows) for index in range(len(self._key_types))]
                groups = group_distinct_rows(keys)
                first = len(self._keys)
                self._may_share_hash = True
                self._index.insert(groups.hashes, np.arange(first, first + len(of_part)))
                self._keys.append(build_part(keys, len(of_part)))
        self.keep(kept)
        self._versions.start_again(len(kept))
        self._is_spent = Growing(np.bool_, False, self._memory)
        self._is_spent.grow(len(kept))
        self._spent_count = 0
        return True

    # --- snapshots ----------------------------------------------------------------------------------------------------

    def _names_of_values(self) -> list[str]:
        return [f"{_VALUES}.{index}" for index in range(len(self.views))]

    def _restore_columns(self) -> None:
        columns, about = self._context.columns, self._about
        table = columns.take(GROUP_COLUMNS, about)
        if table is not None:
            self._versions.start_history(columns.first_number(GROUP_COLUMNS, table.num_rows))
            for batch in table.to_batches(max_chunksize=_GROUPS_AT_ONCE):
                self._restore_groups(batch.columns)
        for (view, _), versions, name in zip(self.views, self._value_versions, self._names_of_values(), strict=True):
            table = columns.take(name, about)
            if table is not None:
                versions.start_history(columns.first_number(name, table.num_rows))
                for batch in table.to_batches(max_chunksize=_GROUPS_AT_ONCE):
                    self._restore_values(view, versions, batch.columns)
        if len(self):
            self.recount()
            spent = self.find_spent(np.arange(len(self)))
            self._is_spent.array[spent] = True
            self._spent_count = len(spent)

    def _restore_groups(self, columns: Sequence[pa.Array]) -> None:
        if not len(columns[0]):
            return
        width = len(self._key_types)
        codes, numbers = self.number(list(map(canonical_column, columns[:width])))
        of_rows = numbers[codes]
        self.counts.array[of_rows] = columns[width].to_numpy()
        begin = width + 1
        for column in self.columns:
            column.set_parts(of_rows, columns[begin : begin + column.count_parts()])
            begin += column.count_parts()
        self._versions.continue_history(of_rows, len(of_rows))

    def _restore_values(self, view: DistinctView, versions: Versions, columns: Sequence[pa.Array]) -> None:
        width = len(self._key_types)
        keys = list(map(canonical_column, columns[:width]))
        groups = group_rows(keys)
        numbers = self.find(groups, keys)[groups.codes]
        # A value of a group that is not there any more has gone before it.
        known = (numbers != ABSENT).nonzero()[0]
        elements = np.full(len(numbers), ABSENT)
        parts = [column.take(pa.array(known)) for column in columns[width:]]
        elements[known] = view.set_parts(numbers[known], parts)
        versions.continue_history(elements, len(numbers))

    def take_over(self, items: Iterable[tuple[Any, Any]]) -> None:
        """Take over groups of a snapshot by key: pairs of the key and the state."""
        items = iter(items)
        while chunk := list(islice(items, _GROUPS_AT_ONCE)):
            columns = self.build_keys([key for key, _ in chunk])
            groups = group_distinct_rows(columns)
            self._may_share_hash = True
            first = len(self._keys)
            self._index.insert(groups.hashes, np.arange(first, first + len(chunk)))
            self._keys.append(build_part(columns, len(chunk)))
            self.restore([state for _, state in chunk])
        if len(self):
            self.recount()

    def capture(self, checkpoint_id: int) -> list[ColumnsCapture]:
        """Capture the groups and values that the last completed checkpoint does not have."""
        states = self._context.columns
        captures = []
        changed = self._versions.capture(states, GROUP_COLUMNS, checkpoint_id)
        if changed is not None:
            if not changed.is_addition:
                changed = changed.without(self._is_spent.array[changed.elements])
            parts = [part for column in self.columns for part in column.read_parts(changed.elements)]
            counts = pa.array(self.counts.array[changed.elements])
            captures.append(self._capture(GROUP_COLUMNS, changed, changed.elements, [counts, *parts]))
            captures[-1].meaning = self._describe_groups()
        for (view, _), versions, name in zip(self.views, self._value_versions, self._names_of_values(), strict=True):
            changed = versions.capture(states, name, checkpoint_id)
            if changed is not None:
                if not changed.is_addition:
                    changed = changed.without(~view.are_counted(changed.elements))
                groups, parts = view.read_parts(changed.elements)
                captures.append(self._capture(name, changed, groups, parts))
                captures[-1].meaning = self._describe_values(len(parts) - 1)
        return captures

    def _describe_groups(self) -> RowMeaning:
        """Describe to readers that the newest row of a key is its group, and that a group without rows was dropped."""
        counts = (_part_name(0),) if self._places else ()
        return RowMeaning(self._key_names, counts=counts, labels=self._label_groups())

    def _label_groups(self) -> dict[str, str]:
        keys = len(self._places)
        labels = {**dict(zip(self._key_names, self._labels[:keys], strict=False)), _part_name(0): _ROWS_LABEL}
        index = 1
        for column, label in zip(self.columns, self._labels[keys:], strict=False):
            parts = column.count_parts()
            for part in range(parts):
                labels[_part_name(index + part)] = label if parts == 1 else f"{label}.{part}"
            index += parts
        return labels

    def _describe_values(self, counts: int) -> RowMeaning:
        """Describe to readers that the newest row of a group and a value counts."""
        labels = dict(zip(self._key_names, self._labels[: len(self._places)], strict=False))
        names = tuple(_part_name(index + 1) for index in range(counts))
        labels[_part_name(0)] = "value"
        return RowMeaning((*self._key_names, _part_name(0)), counts=names, labels=labels)

    def _capture(self, name: str, changed: Changed, groups: Any, parts: Sequence[pa.Array]) -> ColumnsCapture:
        keys = self._taken_keys(groups) if len(groups) else [pa.array([], kind) for kind in self._key_types]
        names = [*self._key_names, *map(_part_name, range(len(parts)))]
        arrays = [*keys, *parts]
        if len(groups) < changed.end - changed.first:
            names.append(ROW_NUMBER)
            arrays.append(pa.array(changed.numbers))
        table = pa.Table.from_arrays(arrays, names)
        first, end = changed.first, changed.end
        return ColumnsCapture(name, table, self._key_names, self._about, first, end, changed.is_addition)

    def move(self) -> Iterator[tuple[list[Any], list[Any]]]:
        """Yield the keys and the states of all groups in the form of a snapshot by key, a part at a time."""
        numbers = (~self._is_spent.array).nonzero()[0]
        keys_of = RowKeys(range(len(self._places)))
        for begin in range(0, len(numbers), _GROUPS_AT_ONCE):
            chunk = numbers[begin : begin + _GROUPS_AT_ONCE]
            columns = self._taken_keys(chunk)
            yield keys_of.of(build_part(columns, len(chunk))), self.pack(chunk).unpack()

    def capture_nothing(self) -> list[ColumnsCapture]:
        """Capture the state without groups, for an operator that has moved them elsewhere."""
        empty = np.zeros(0, np.int64)
        nothing = Changed(empty, empty, 0, 0, False)
        parts = [part for column in self.columns for part in column.read_parts(empty)]
        captures = [self._capture(GROUP_COLUMNS, nothing, empty, [pa.array(empty), *parts])]
        for (view, _), name in zip(self.views, self._names_of_values(), strict=True):
            captures.append(self._capture(name, nothing, empty, view.read_parts(empty)[1]))
        return captures


def take_over_columns(
    context: OperatorContext,
    table: KeyedTable,
    keys: Sequence[int],
    calls: Sequence[AggregateCall],
    types: Sequence[DataType],
    retracts: bool,
) -> list[ColumnsCapture]:
    """Put the groups of restored columns into a table by key; state may be evicted from memory after each part.

    Returns the captures of empty columns, for further checkpoints. The other arguments are as for `IndexedGroups`.
    """
    if not context.columns.has_restored(GROUP_COLUMNS):
        return []
    if not has_only_columns(calls, [types[index] for index in keys], retracts):
        return []
    groups = IndexedGroups(context, keys, calls, types, retracts)
    entries = table.entries(None)
    for part, states in groups.move():
        entries.update(zip(part, states, strict=True))
        table.mark(None, part)
        if table.settle is not None:
            table.settle()
    return groups.capture_nothing()
