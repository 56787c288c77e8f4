"""The calls over one window: their operands in a row, and their accumulators."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, TypeAlias

import pyarrow as pa

from penstock.core.columns.batch import ColumnBatch
from penstock.state.equality import build_canonicalizer
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.logical_types import DataType
from penstock.table.data.values import to_column, to_values
from penstock.table.plan.logical import AggregateCall
from penstock.table.streaming.over.over_functions import RANKS, build_over_accumulator
from penstock.table.typed.nodes import Constant, Field
from penstock.table.user_functions.opened import OpenFunctions

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
