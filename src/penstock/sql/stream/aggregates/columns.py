"""Aggregates of many groups as columns: the state of a call by group number, and its results in a batch by kernels.

`GroupedRows` has the rows of a batch in the order of their groups. Then the rows of a group are a segment, and results
after each row are sums or maxima within segments. All columns of results have this order.

A `CallColumn` has the state of one call for all groups. `ColumnCount`, `ColumnSum`, `ColumnAverage` and `ColumnExtreme`
compute whole numbers, times and texts by kernels. They give what the accumulators of the call (`numbers`, `values`)
give row by row. `AccumulatorColumn` has the states of any other accumulator, and calls it.

The *steps* of a call say how each row counts: 1 if it counts, -1 if it takes back a row, else 0. None stands for 1 in
all rows. DISTINCT is a matter of steps too: see `distinct`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.codecs.pickling import dumps_named, loads_named
from penstock.runtime.columns import ColumnBatch
from penstock.sql.data import types
from penstock.sql.data.arrow import arrow_type, as_mask, flat_values, from_flat, to_column, to_values, truths
from penstock.sql.logical.nodes import AggregateCall
from penstock.sql.stream.aggregates.functions import Accumulator, Rows, read_batch_operands
from penstock.sql.stream.aggregates.pairs import IN_MEMORY, Growing, StateMemory, ValueCodes
from penstock.sql.stream.rows.columns import ROWS_GONE_MAX, places_in_order
from penstock.sql.typed import Field


class GroupedRows:
    """See the module docstring.

    Args:
        records: the rows in arrival order.
        column_types: the types of their columns.
        groups: the index of each row's group, as a NumPy array.
        numbers: the number of each group in state, as a NumPy array. Each group has a row.
        goes: nonzero for retractions; None if there are none.
        is_running: whether the results after each row are needed, or only those after the last row of each group.
    """

    def __init__(
        self,
        records: ColumnBatch,
        column_types: Sequence[types.DataType],
        groups: Any,
        numbers: Any,
        goes: bytes | None,
        is_running: bool,
    ) -> None:
        self.records = records
        self.column_types = column_types
        self.groups = groups
        self.numbers = numbers
        self.goes = goes
        self.is_running = is_running
        #: the arrival number of each row
        self.order = np.arange(len(groups)) if len(numbers) == 1 else places_in_order(groups, len(numbers))
        self.lengths = np.bincount(groups, minlength=len(numbers))
        #: where the rows of each group begin and end
        self.ends = np.cumsum(self.lengths)
        self.starts = self.ends - self.lengths
        #: 1, or -1 for retractions; None if there are none
        self.signs = None
        if goes is not None:
            self.signs = np.where(np.frombuffer(goes, np.uint8)[self.order], -1, 1)
        #: for accumulators: the rows after which their group is empty, by arrival number, and columns as values
        self.emptied: frozenset[int] = frozenset()
        self.decoded: dict[int, list[Any]] = {}
        self._indices = pa.array(self.order)
        self._columns: dict[int, pa.Array] = {}
        self._whole: dict[int, Any] = {}
        self._valid: dict[int, Any] = {}
        self._masks: dict[int, Any] = {}
        self._counted: dict[Any, Any] = {}

    def __len__(self) -> int:
        return len(self.order)

    def column(self, index: int) -> pa.Array:
        """Return a column."""
        column = self._columns.get(index)
        if column is None:
            column = self.records.columns.column(index)
            column = self._columns[index] = column if len(self.numbers) == 1 else column.take(self._indices)
        return column

    def whole(self, index: int) -> Any:
        """Return a column of integers or times as a NumPy array of int64. The values at NULLs are arbitrary."""
        values = self._whole.get(index)
        if values is None:
            values = self._whole[index] = flat_values(self.records.columns.column(index)).astype(np.int64)[self.order]
        return values

    def valid(self, index: int) -> Any:
        """Return a mask of the rows where a column is not NULL; None for all rows."""
        if index not in self._valid:
            column = self.records.columns.column(index)
            self._valid[index] = None if not column.null_count else as_mask(pc.is_valid(column))[self.order]
        return self._valid[index]

    def mask(self, index: int) -> Any:
        """Return a mask of the rows where a condition holds."""
        mask = self._masks.get(index)
        if mask is None:
            mask = self._masks[index] = as_mask(truths(self.records.columns.column(index)))[self.order]
        return mask

    def counted(self, operands: tuple[int, ...], condition: int | None) -> Any:
        """Return a mask of the rows that satisfy a condition and have these columns; None for all rows."""
        key = operands, condition
        if key not in self._counted:
            counted = None if condition is None else self.mask(condition)
            for valid in map(self.valid, operands):
                if valid is not None:
                    counted = valid if counted is None else counted & valid
            self._counted[key] = counted
        return self._counted[key]

    def steps(self, operands: tuple[int, ...], condition: int | None) -> Any:
        """Return the steps of a call, see the module docstring."""
        counted = self.counted(operands, condition)
        if self.signs is None or counted is None:
            return self.signs if counted is None else counted
        return np.where(counted, self.signs, 0)

    def added(self, steps: Any, before: Any) -> Any:
        """Return the sums of the steps after each row, or after all rows, on top of those before the batch."""
        if self.is_running:
            return self.added_by_row(steps, before)
        return before + (self.lengths if steps is None else np.add.reduceat(steps, self.starts, dtype=np.int64))

    def added_by_row(self, steps: Any, before: Any) -> Any:
        """Return the sums of the steps after each row."""
        if steps is None:
            return np.arange(1, len(self) + 1) + (before - self.starts).repeat(self.lengths)
        sums = steps.cumsum(dtype=np.int64)
        first = self.starts
        return sums + np.repeat(before - (sums[first] - steps[first]), self.lengths)

    def last(self, results: Any) -> Any:
        """Return the result of each group after its last row."""
        return results[self.ends - 1] if self.is_running else results

    def highest(self, values: Any, counted: Any, before: Any, had: Any) -> tuple[Any, Any]:
        """Return the greatest values likewise, and where there are any. `had`: which groups had one before."""
        if not self.is_running:
            values = values if counted is None else np.where(counted, values, np.iinfo(np.int64).min)
            highest = np.maximum.reduceat(values, self.starts)
            has = np.ones(len(had), np.bool_) if counted is None else np.logical_or.reduceat(counted, self.starts)
            return np.where(has & had, np.maximum(highest, before), np.where(has, highest, before)), has | had
        highest, has = before.repeat(self.lengths), had.repeat(self.lengths)
        is_higher = (values > highest) | ~has
        if counted is not None:
            is_higher &= counted
        rows = is_higher.nonzero()[0]
        if not len(rows):
            return highest, has
        # Only rows above the value before the batch count. A base for each group lets one scan pass through all.
        tops = values[rows]
        least, most = int(tops.min()), int(tops.max())
        distinct = None
        if (most - least + 1) * len(self.starts) >= 1 << 63:
            distinct, tops = np.unique(tops, return_inverse=True)
            least, most = 0, len(distinct) - 1
        base = np.repeat(np.arange(len(self.starts)), self.lengths)[rows] * (most - least + 1) - least
        tops = np.maximum.accumulate(tops + base) - base
        if distinct is not None:
            tops = distinct[tops]
        passed = is_higher.cumsum()
        is_above = passed > np.repeat((passed - is_higher)[self.starts], self.lengths)
        highest = np.where(is_above, tops[np.maximum(passed - 1, 0)], highest)
        return highest, has | is_above


def _build_column(values: Any, valid: Any, kind: pa.DataType) -> pa.Array:
    """Return whole numbers as a column of a type, to which they wrap. `valid`: a mask; None for all."""
    bits = None if valid is None or valid.all() else np.packbits(valid, bitorder="little")
    return from_flat(values, kind, bits)


#: Returns states in the form of snapshots.
Captured = Callable[[], list[Any]]


class CallColumn(ABC):
    """See the module docstring. `numbers` are those of groups, as a NumPy array."""

    def __init__(self, call: AggregateCall, memory: StateMemory = IN_MEMORY) -> None:
        self.call = call
        self.operands = tuple(operand.index for operand in call.operands if isinstance(operand, Field))
        self.condition = call.condition.index if isinstance(call.condition, Field) else None
        self._arrow_type = arrow_type(call.type)
        #: the parts of the state
        self._arrays: list[Growing] = []

    def grow(self, size: int) -> None:
        """Add empty groups up to a number."""
        for array in self._arrays:
            array.grow(size)

    def keep(self, numbers: Any) -> None:
        """Keep only these groups, whose numbers are then 0, 1, ..."""
        for array in self._arrays:
            array.keep(numbers)

    def steps(self, rows: GroupedRows) -> Any:
        """Return the steps of the rows without DISTINCT."""
        return rows.steps(self.operands, self.condition)

    @abstractmethod
    def results(self, numbers: Any) -> pa.Array:
        """Return the present results of groups."""

    @abstractmethod
    def run(self, rows: GroupedRows, steps: Any) -> pa.Array:
        """Process rows and return the results: of the groups before the batch, then after each row.

        If only the last results are needed, those after the last row of each group follow instead.
        """

    @abstractmethod
    def capture(self, numbers: Any) -> Captured:
        """Take the states of groups for a snapshot, in the form of the accumulator's."""

    @abstractmethod
    def restore(self, first: int, states: Sequence[Any]) -> None:
        """Set the states of groups with consecutive numbers."""

    def read_parts(self, numbers: Any) -> list[pa.Array]:
        """Return the parts of the states of groups, as columns."""
        return [pa.array(array.array[numbers]) for array in self._arrays]

    def set_parts(self, numbers: Any, parts: Sequence[pa.Array]) -> None:
        """Set the parts of the states of groups. If a number is there several times, the last one counts."""
        for array, part in zip(self._arrays, parts, strict=True):
            array.array[numbers] = part.to_numpy(zero_copy_only=False)

    def count_parts(self) -> int:
        """Return the number of parts."""
        return len(self._arrays)

    def move_last(self, numbers: Any) -> None:
        """Move the states of the last groups, whose numbers disappear, to these groups."""
        first = len(self._arrays[0]) - len(numbers)
        for array in self._arrays:
            array.array[numbers] = array.array[first:]
            array.shrink(first)

    @property
    def is_wasteful(self) -> bool:
        """Whether `keep` frees memory even if it keeps all groups."""
        return False

    @abstractmethod
    def are_spent(self, numbers: Any) -> Any:
        """Return a mask of the groups whose state is empty, see `Accumulator.is_spent`."""

    def forget(self, number: int) -> None:  # noqa: B027 - columns of numbers keep nothing alive
        """Drop what the number of a dropped group would keep alive."""


class ColumnCount(CallColumn):
    """COUNT."""

    def __init__(self, call: AggregateCall, memory: StateMemory = IN_MEMORY) -> None:
        super().__init__(call)
        self._counts = Growing(np.int64, memory=memory)
        self._arrays = [self._counts]

    def results(self, numbers: Any) -> pa.Array:
        """See `CallColumn`."""
        return _build_column(self._counts.array[numbers], None, self._arrow_type)

    def run(self, rows: GroupedRows, steps: Any) -> pa.Array:
        """See `CallColumn`."""
        counts = self._counts.array
        before = counts[rows.numbers]
        after = rows.added(steps, before)
        counts[rows.numbers] = rows.last(after)
        return _build_column(np.concatenate((before, after)), None, self._arrow_type)

    def capture(self, numbers: Any) -> Captured:
        """See `CallColumn`."""
        counts: Captured = self._counts.array[numbers].tolist
        return counts

    def restore(self, first: int, states: Sequence[Any]) -> None:
        """See `CallColumn`."""
        self._counts.array[first : first + len(states)] = states

    def are_spent(self, numbers: Any) -> Any:
        """See `CallColumn`."""
        return self._counts.array[numbers] == 0


class _ColumnTotal(CallColumn):
    """The base class of SUM and AVG of integers."""

    def __init__(self, call: AggregateCall, memory: StateMemory = IN_MEMORY) -> None:
        super().__init__(call)
        #: the sums, modulo 2 ** 64
        self._totals = Growing(np.int64, memory=memory)
        #: how many values there are
        self._counts = Growing(np.int64, memory=memory)
        self._arrays = [self._totals, self._counts]

    @abstractmethod
    def _build_results(self, totals: Any, counts: Any) -> pa.Array:
        """Return the results of these sums."""

    def results(self, numbers: Any) -> pa.Array:
        """See `CallColumn`."""
        return self._build_results(self._totals.array[numbers], self._counts.array[numbers])

    def run(self, rows: GroupedRows, steps: Any) -> pa.Array:
        """See `CallColumn`."""
        values = rows.whole(self.operands[0])
        if steps is not None:
            values = np.where(steps, values, 0) if steps.dtype == np.bool_ else values * steps
        given = []
        for state, added in ((self._totals.array, values), (self._counts.array, steps)):
            before = state[rows.numbers]
            after = rows.added(added, before)
            state[rows.numbers] = rows.last(after)
            given.append(np.concatenate((before, after)))
        return self._build_results(*given)

    def _captured(self, numbers: Any) -> tuple[Any, Any]:
        """Return the sums and counts of groups."""
        return self._totals.array[numbers], self._counts.array[numbers]

    def capture(self, numbers: Any) -> Captured:
        """See `CallColumn`."""
        totals, counts = self._captured(numbers)
        return lambda: list(zip(totals.tolist(), counts.tolist(), strict=True))

    def restore(self, first: int, states: Sequence[Any]) -> None:
        """See `CallColumn`. An earlier release stored NULL as the sum after an overflow, and restarted from there."""
        if states:
            totals, counts = zip(*states, strict=True)
            self._totals.array[first : first + len(states)] = [total or 0 for total in totals]
            self._counts.array[first : first + len(states)] = counts

    def are_spent(self, numbers: Any) -> Any:
        """See `CallColumn`."""
        totals, counts = self._captured(numbers)
        return (totals == 0) & (counts == 0)


class ColumnSum(_ColumnTotal):
    """SUM and SUM0 of integers, which wrap at the end of their type.

    Without retractions, the accumulator's state is the sum alone. Then the count of a restored group only says that
    there are values.
    """

    def __init__(self, call: AggregateCall, retracts: bool, memory: StateMemory = IN_MEMORY) -> None:
        super().__init__(call, memory)
        self._retracts = retracts
        self._is_never_null = call.function != "SUM"

    def _build_results(self, totals: Any, counts: Any) -> pa.Array:
        if not self._is_never_null:
            return _build_column(totals, counts != 0, self._arrow_type)
        return _build_column(np.where(counts != 0, totals, 0), None, self._arrow_type)

    def _captured(self, numbers: Any) -> tuple[Any, Any]:
        totals, counts = super()._captured(numbers)
        return flat_values(_build_column(totals, None, self._arrow_type)), counts

    def capture(self, numbers: Any) -> Captured:
        """See `CallColumn`."""
        if self._retracts:
            return super().capture(numbers)
        totals, counts = self._captured(numbers)
        if self._is_never_null:
            return totals.tolist  # type: ignore[no-any-return]
        return lambda: [total if count else None for total, count in zip(totals.tolist(), counts.tolist(), strict=True)]

    def restore(self, first: int, states: Sequence[Any]) -> None:
        """See `CallColumn`."""
        super().restore(first, states if self._retracts else [(state, state is not None) for state in states])


class ColumnAverage(_ColumnTotal):
    """AVG of integers, truncated towards 0."""

    def _build_results(self, totals: Any, counts: Any) -> pa.Array:
        # As unsigned numbers, so that the negative of the least integer has a place. A count is below 0 while
        # retractions wait for their rows; the quotient is then rounded away from 0.
        amounts = np.where(totals < 0, np.negative(totals), totals).view(np.uint64)
        divisors = np.maximum(np.abs(counts), 1).view(np.uint64)
        quotients = amounts // divisors
        if (counts < 0).any():
            up = quotients + (amounts % divisors > 0)
            quotients = np.where(counts < 0, np.negative(up.view(np.int64)).view(np.uint64), quotients)
        signed = quotients.view(np.int64)
        return _build_column(np.where(totals < 0, np.negative(signed), signed), counts != 0, self._arrow_type)


class ColumnExtreme(CallColumn):
    """MIN and MAX of insert-only integers and times."""

    def __init__(self, call: AggregateCall, memory: StateMemory = IN_MEMORY) -> None:
        super().__init__(call)
        self._is_least = call.function == "MIN"
        #: the greatest values; for MIN of the complements, whose order is the opposite
        self._highest = Growing(np.int64, memory=memory)
        self._has = Growing(np.bool_, False, memory)
        self._arrays = [self._highest, self._has]

    def _results(self, highest: Any, has: Any) -> pa.Array:
        return _build_column(~highest if self._is_least else highest, has, self._arrow_type)

    def results(self, numbers: Any) -> pa.Array:
        """See `CallColumn`."""
        return self._results(self._highest.array[numbers], self._has.array[numbers])

    def run(self, rows: GroupedRows, steps: Any) -> pa.Array:
        """See `CallColumn`."""
        values = rows.whole(self.operands[0])
        before = self._highest.array[rows.numbers], self._has.array[rows.numbers]
        after = rows.highest(~values if self._is_least else values, steps, *before)
        self._highest.array[rows.numbers], self._has.array[rows.numbers] = map(rows.last, after)
        return self._results(*map(np.concatenate, zip(before, after, strict=True)))

    def capture(self, numbers: Any) -> Captured:
        """See `CallColumn`."""
        results, kind = self.results(numbers), self.call.type
        return lambda: to_values(results, kind)

    def restore(self, first: int, states: Sequence[Any]) -> None:
        """See `CallColumn`."""
        column, end = to_column(states, self.call.type), first + len(states)
        values = flat_values(column).astype(np.int64)
        self._highest.array[first:end] = ~values if self._is_least else values
        self._has.array[first:end] = as_mask(pc.is_valid(column))

    def are_spent(self, numbers: Any) -> Any:
        """See `CallColumn`."""
        return ~self._has.array[numbers]


#: The code of no text.
_NO_TEXT: Final = -1


class ColumnTextExtreme(CallColumn):
    """MIN and MAX of insert-only texts. A text that a group has replaced stays until `keep`."""

    def __init__(self, call: AggregateCall, memory: StateMemory = IN_MEMORY) -> None:
        super().__init__(call)
        self._is_least = call.function == "MIN"
        self._texts = ValueCodes(call.type, memory)
        self._codes = Growing(np.int64, _NO_TEXT, memory)
        self._arrays = [self._codes]

    def keep(self, numbers: Any) -> None:
        """See `CallColumn`."""
        super().keep(numbers)
        has = (self._codes.array != _NO_TEXT).nonzero()[0]
        self._texts, codes = self._texts.kept(self._codes.array[has])
        self._codes.array[has] = codes

    @property
    def is_wasteful(self) -> bool:
        """See `CallColumn`."""
        return len(self._texts) > 2 * len(self._codes) + ROWS_GONE_MAX

    def results(self, numbers: Any) -> pa.Array:
        """See `CallColumn`."""
        codes = self._codes.array[numbers]
        has = codes != _NO_TEXT
        if has.all():
            return self._texts.column(codes)
        return self._texts.column(codes[has]).take(pa.array(has.cumsum() - 1, mask=~has))

    def _set(self, numbers: Any, texts: pa.Array) -> None:
        codes = np.full(len(texts), _NO_TEXT)
        has = as_mask(pc.is_valid(texts))
        codes[has] = self._texts.of(texts.drop_null())
        self._codes.array[numbers] = codes

    def run(self, rows: GroupedRows, steps: Any) -> pa.Array:
        """See `CallColumn`."""
        before = self.results(rows.numbers)
        encoded = pa.concat_arrays([before, rows.column(self.operands[0])]).dictionary_encode()
        in_order = pc.array_sort_indices(encoded.dictionary)
        ranks = np.empty(len(in_order) + 1, np.int64)
        ranks[in_order.to_numpy()] = np.arange(len(in_order))
        ranks[-1] = 0  # stands for NULL, which does not count
        codes = ranks[encoded.indices.fill_null(len(in_order)).to_numpy()]
        if self._is_least:
            codes = ~codes
        groups = len(rows.numbers)
        had = as_mask(pc.is_valid(before))
        after = rows.highest(codes[groups:], steps, codes[:groups], had)
        highest, has = map(np.concatenate, zip((codes[:groups], had), after, strict=True))
        texts = encoded.dictionary.take(in_order)
        results = texts.take(pa.array(~highest if self._is_least else highest, mask=~has))
        last = rows.last(np.arange(groups, len(results)))
        changed = (has[last] & ((highest[last] != codes[:groups]) | ~had)).nonzero()[0]
        if len(changed):
            self._set(rows.numbers[changed], results.take(pa.array(last[changed])))
        return results

    def capture(self, numbers: Any) -> Captured:
        """See `CallColumn`."""
        texts: Captured = self.results(numbers).to_pylist
        return texts

    def restore(self, first: int, states: Sequence[Any]) -> None:
        """See `CallColumn`."""
        self._set(slice(first, first + len(states)), pa.array(states, self._arrow_type))

    def read_parts(self, numbers: Any) -> list[pa.Array]:
        """See `CallColumn`."""
        return [self.results(numbers)]

    def set_parts(self, numbers: Any, parts: Sequence[pa.Array]) -> None:
        """See `CallColumn`."""
        self._set(numbers, parts[0])

    def are_spent(self, numbers: Any) -> Any:
        """See `CallColumn`."""
        return self._codes.array[numbers] == _NO_TEXT


class AccumulatorColumn(CallColumn):
    """Any other call: the states of its accumulator, which goes through the rows in arrival order."""

    def __init__(self, call: AggregateCall, accumulator: Accumulator) -> None:
        super().__init__(call)
        self._accumulator = accumulator
        self._states: list[Any] = []
        self._results: list[Any] = []

    def grow(self, size: int) -> None:
        """See `CallColumn`."""
        more = size - len(self._states)
        self._states += [self._accumulator.create() for _ in range(more)]
        self._results += [None] * more

    def keep(self, numbers: Any) -> None:
        """See `CallColumn`."""
        kept = numbers.tolist()
        self._states = [self._states[number] for number in kept]
        self._results = [self._results[number] for number in kept]

    def steps(self, rows: GroupedRows) -> Any:
        """Return None: the accumulator looks at the rows itself."""
        return None

    def results(self, numbers: Any) -> pa.Array:
        """See `CallColumn`."""
        return to_column([self._results[number] for number in numbers.tolist()], self.call.type)

    def run(self, rows: GroupedRows, steps: Any) -> pa.Array:
        """See `CallColumn`."""
        accumulator, numbers = self._accumulator, rows.numbers.tolist()
        operands, keeps = read_batch_operands(
            self.call, accumulator, rows.records.columns, rows.column_types, rows.decoded
        )
        states, before = [self._states[number] for number in numbers], [self._results[number] for number in numbers]
        given = accumulator.running(Rows(rows.groups.tolist(), operands, keeps, rows.goes, rows.emptied), states)
        last_rows = rows.order[rows.ends - 1].tolist()
        for number, state, row in zip(numbers, states, last_rows, strict=True):
            self._states[number], self._results[number] = state, given[row]
        after = rows.order.tolist() if rows.is_running else last_rows
        return to_column(before + [given[row] for row in after], self.call.type)

    def capture(self, numbers: Any) -> Captured:
        """See `CallColumn`. The states change later, so they are pickled at once."""
        name = f"the state of {self.call}"
        pickled = dumps_named([self._states[number] for number in numbers.tolist()], name)
        return lambda: loads_named(pickled, name)

    def restore(self, first: int, states: Sequence[Any]) -> None:
        """See `CallColumn`."""
        self._states[first : first + len(states)] = states
        self._results[first : first + len(states)] = map(self._accumulator.value, states)

    def are_spent(self, numbers: Any) -> Any:
        """See `CallColumn`."""
        spent = [self._accumulator.is_spent(self._states[number]) for number in numbers.tolist()]
        return np.array(spent, np.bool_)

    def forget(self, number: int) -> None:
        """See `CallColumn`."""
        self._states[number] = self._results[number] = None
