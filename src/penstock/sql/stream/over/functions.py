"""The calls of OVER windows: functions whose value depends on the order of rows, accumulators, and frames.

These functions are row numbers, ranks, and values of certain rows. All other functions use the accumulators of group
aggregates. Rows are retracted in the order in which they arrived, and only if the frame is bounded.

`OverCalls` has the calls over one window: their operands in a row, and their accumulators.

`Frame` is a frame that ends at the current row, and the state of a partition. An entry is [accumulators, (time,
operands) of the rows yet to be retracted, the time of the last rows, the time at which it ends]. Only bounded frames
keep rows, and only bounded RANGE frames end.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, Final, TypeAlias

import pyarrow as pa

from penstock.runtime.columns import ColumnBatch
from penstock.runtime.records import MIN_TIMESTAMP
from penstock.sql.data.arrow import arrow_type, to_column, to_values
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.logical.nodes import AggregateCall, UserAggregateCall
from penstock.sql.stream.aggregates.accumulators import Accumulator, build_accumulator, check_call, check_unbounded
from penstock.sql.stream.aggregates.numbers import CountRows
from penstock.sql.typed import Constant, Field
from penstock.sql.user_functions.definition import OpenFunctions
from penstock.state.equality import build_canonicalizer

_NOT_IN_STREAMS: Final = ("LEAD", "NTILE", "PERCENT_RANK", "CUME_DIST")
#: Functions whose operand is the column that rows are ordered by.
RANKS: Final = ("RANK", "DENSE_RANK")


class Rank(Accumulator):
    """RANK: (rank, number of rows, sort value of the last row)."""

    def create(self) -> Any:
        """See `Accumulator`."""
        return 0, 0, None

    def add(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        rank, rows, last = state
        return (rank if rows and values == last else rows + 1), rows + 1, values

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        return state[0]


class DenseRank(Rank):
    """DENSE_RANK, with the same state as `Rank`."""

    def add(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        rank, rows, last = state
        return (rank if rows and values == last else rank + 1), rows + 1, values


class Lag(Accumulator):
    """LAG: (offset, default, the last offset + 1 values)."""

    def create(self) -> Any:
        """See `Accumulator`."""
        return 1, None, ()

    def add(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        offset = state[0] if len(values) < 2 else values[1]
        if offset < 0:
            raise TableRuntimeError(f"Offset({offset}) should be positive.")
        default = values[2] if len(values) > 2 else None
        return offset, default, (*state[2], values[0])[-offset - 1 :]

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        offset, default, values = state
        return values[0] if len(values) > offset else default


class FirstValue(Accumulator):
    """FIRST_VALUE without retraction: the first value that is not NULL."""

    def create(self) -> Any:
        """See `Accumulator`."""
        return None

    def add(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        return values[0] if state is None else state


class LastValue(FirstValue):
    """LAST_VALUE without retraction: the last value that is not NULL."""

    def add(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        return state if values[0] is None else values[0]


class EndValue(Accumulator):
    """FIRST_VALUE and LAST_VALUE with retraction of the oldest rows: all values that are not NULL."""

    def create(self) -> Any:
        """See `Accumulator`."""
        return deque()

    def add(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        if values[0] is not None:
            state.append(values[0])
        return state

    def retract(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        if values[0] is not None:
            state.popleft()
        return state

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        if not state:
            return None
        return state[0] if self.call.function == "FIRST_VALUE" else state[-1]


_ORDERED: Final[dict[str, type[Accumulator]]] = {
    "ROW_NUMBER": CountRows,
    "RANK": Rank,
    "DENSE_RANK": DenseRank,
    "LAG": Lag,
    "FIRST_VALUE": FirstValue,
    "LAST_VALUE": LastValue,
}


def check_over(call: AggregateCall, retracts: bool) -> None:
    """Raise for a call that is not supported over a window. `retracts`: whether the oldest rows are retracted."""
    if not isinstance(call, UserAggregateCall):
        build_over_accumulator(call, retracts)
    elif retracts:
        check_call(call, True)
    else:
        check_unbounded(call, False)


def build_over_accumulator(call: AggregateCall, retracts: bool, functions: OpenFunctions | None = None) -> Accumulator:
    """Return the accumulator of a call over a window. `retracts`: whether the oldest rows are retracted."""
    if call.function in _NOT_IN_STREAMS:
        raise ValidationError(f"{call.function} Function is not supported in stream mode.")
    kind = _ORDERED.get(call.function)
    if kind is None or call.is_distinct:
        return build_accumulator(call, retracts, functions)
    return (EndValue if retracts and kind in (FirstValue, LastValue) else kind)(call)


#: The values of a row, one for each column.
Row: TypeAlias = tuple[Any, ...]
#: The operands of each call, or None if its FILTER excludes the row.
Operands: TypeAlias = tuple["tuple[Any, ...] | None", ...]


class OverCalls:
    """See the module docstring.

    Args:
        calls: the calls, over columns of the input.
        order: the column that rows are ordered by.
        types: the types of the input columns.
        retracts: whether the oldest rows are retracted.
        functions: the user-defined functions.
        counts_sums: whether the accumulator of a sum counts its values, so that each value changes the accumulator.
    """

    def __init__(
        self,
        calls: Sequence[AggregateCall],
        order: int,
        types: Sequence[DataType],
        retracts: bool,
        functions: OpenFunctions | None,
        counts_sums: bool = False,
    ) -> None:
        self._calls = tuple(calls)
        self._types = tuple(types)
        self._accumulators = [
            build_over_accumulator(call, retracts or (counts_sums and call.function == "SUM"), functions)
            for call in calls
        ]
        self._getters = [_getter(call, order, types[order]) for call in calls]
        self._needed = {order}.union(*(_collect_columns(call) for call in calls))

    def rows(self, records: ColumnBatch, is_whole: bool) -> list[Row]:
        """Return the rows of a batch. If not `is_whole`, values that no call needs are None."""
        count = len(records)
        columns = [
            to_values(column, kind) if is_whole or index in self._needed else repeat(None, count)
            for index, (column, kind) in enumerate(zip(records.columns.columns, self._types, strict=True))
        ]
        return list(zip(*columns, strict=True))

    def operands(self, row: Row) -> Operands:
        """Return the operands of the calls in a row."""
        return tuple([getter(row) for getter in self._getters])

    def create(self) -> list[Any]:
        """Create empty accumulators."""
        return [accumulator.create() for accumulator in self._accumulators]

    def add(self, states: list[Any], operands: Operands) -> None:
        """Add a row to the accumulators."""
        for index, values in enumerate(operands):
            if values is not None:
                states[index] = self._accumulators[index].add(states[index], values)

    def retract(self, states: list[Any], operands: Operands) -> None:
        """Retract the oldest row."""
        for index, values in enumerate(operands):
            if values is not None:
                states[index] = self._accumulators[index].retract(states[index], values)

    def values(self, states: list[Any]) -> Row:
        """Return the results of the calls."""
        return tuple([accumulator.value(state) for accumulator, state in zip(self._accumulators, states, strict=True)])

    def columns(self, values: Sequence[Row]) -> list[pa.Array]:
        """Return the results of the calls as columns, one for each call."""
        return [to_column([row[index] for row in values], call.type) for index, call in enumerate(self._calls)]

    def row_columns(self, rows: Sequence[Row]) -> list[pa.Array]:
        """Return whole rows as the columns of the input."""
        return [to_column(values, kind) for values, kind in zip(zip(*rows, strict=True), self._types, strict=True)]


def copied(states: list[Any]) -> list[Any]:
    """Copy accumulators, so that a change to the copy does not reach the original."""
    return [copy.deepcopy(state) if isinstance(state, list | dict | deque) else state for state in states]


def _collect_columns(call: AggregateCall) -> set[int]:
    return {expression.index for expression in (*call.operands, call.condition) if isinstance(expression, Field)}


def _getter(call: AggregateCall, order: int, order_type: DataType) -> Callable[[Row], tuple[Any, ...] | None]:
    """Return a function that extracts the operands of a call from a row. The operand of ranks is the sort value."""
    if call.function in RANKS:
        canonical = build_canonicalizer(arrow_type(order_type))
        return (lambda row: (row[order],)) if canonical is None else (lambda row: (canonical(row[order]),))
    indices = [operand.index if isinstance(operand, Field) else None for operand in call.operands]
    constants = [operand.value if isinstance(operand, Constant) else None for operand in call.operands]
    condition = call.condition.index if isinstance(call.condition, Field) else None
    if condition is None and None not in indices:
        if len(indices) < 2:
            return lambda row: tuple([row[index] for index in indices if index is not None])
        return itemgetter(*indices)

    def get(row: Row) -> tuple[Any, ...] | None:
        if condition is not None and not row[condition]:
            return None
        return tuple([value if index is None else row[index] for index, value in zip(indices, constants, strict=True)])

    return get


Entry: TypeAlias = list[Any]
HELD, KEPT, LAST, END = range(4)


class Frame:
    """The rows up to the current one.

    Args:
        calls: the calls to compute.
        is_rows: whether it is a ROWS frame; otherwise it is a RANGE frame, where rows of the same time share a result.
        distance: how many rows, or how many ms, the frame reaches back; None if it is unbounded.
    """

    def __init__(self, calls: OverCalls, is_rows: bool, distance: int | None) -> None:
        self._calls = calls
        self._is_rows = is_rows
        self._distance = distance

    def create(self) -> Entry:
        """Create the entry of a partition without rows."""
        return [self._calls.create(), None if self._distance is None else deque(), MIN_TIMESTAMP, None]

    def results(self, entry: Entry, time: int, rows: Sequence[Row]) -> list[Row]:
        """Add all rows of one time, and return the results of the calls for each of them."""
        entry[LAST] = time
        if self._is_rows:
            return [self._of_row(entry, time, row) for row in rows]
        calls, distance, states, buffered = self._calls, self._distance, entry[HELD], entry[KEPT]
        if distance is not None:
            while buffered and time - buffered[0][0] > distance:
                calls.retract(states, buffered.popleft()[1])
        for row in rows:
            operands = calls.operands(row)
            calls.add(states, operands)
            if distance is not None:
                buffered.append((time, operands))
        return [calls.values(states)] * len(rows)

    def _of_row(self, entry: Entry, time: int, row: Row) -> Row:
        calls, distance, states, buffered = self._calls, self._distance, entry[HELD], entry[KEPT]
        operands = calls.operands(row)
        if distance is not None:
            if len(buffered) > distance:
                calls.retract(states, buffered.popleft()[1])
            buffered.append((time, operands))
        calls.add(states, operands)
        return calls.values(states)
