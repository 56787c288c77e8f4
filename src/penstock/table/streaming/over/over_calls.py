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
from penstock.state.equality import canonicalizer_of
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.logical_types import DataType
from penstock.table.data.values import column_of, values_of
from penstock.table.plan.logical import AggregateCall
from penstock.table.streaming.over.over_functions import RANKS, over_accumulator_of
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
            over_accumulator_of(call, retracts or (counts_sums and call.function == "SUM"), functions) for call in calls
        ]
        self._getters = [_getter(call, order, types[order]) for call in calls]
        self._needed = {order}.union(*(_columns_of(call) for call in calls))

    def rows(self, taken: ColumnBatch, is_whole: bool) -> list[Row]:
        """Return the rows of a batch. If not `is_whole`, values that no call needs are None."""
        count = len(taken)
        columns = [
            values_of(column, kind) if is_whole or index in self._needed else repeat(None, count)
            for index, (column, kind) in enumerate(zip(taken.columns.columns, self._types, strict=True))
        ]
        return list(zip(*columns, strict=True))

    def operands(self, row: Row) -> Operands:
        """Return the operands of the calls in a row."""
        return tuple([getter(row) for getter in self._getters])

    def create(self) -> list[Any]:
        """Create empty accumulators."""
        return [one.create() for one in self._accumulators]

    def add(self, held: list[Any], operands: Operands) -> None:
        """Add a row to the accumulators."""
        for index, values in enumerate(operands):
            if values is not None:
                held[index] = self._accumulators[index].add(held[index], values)

    def retract(self, held: list[Any], operands: Operands) -> None:
        """Retract the oldest row."""
        for index, values in enumerate(operands):
            if values is not None:
                held[index] = self._accumulators[index].retract(held[index], values)

    def values(self, held: list[Any]) -> Row:
        """Return the results of the calls."""
        return tuple([one.value(state) for one, state in zip(self._accumulators, held, strict=True)])

    def columns(self, values: Sequence[Row]) -> list[pa.Array]:
        """Return the results of the calls as columns, one for each call."""
        return [column_of([row[index] for row in values], call.type) for index, call in enumerate(self._calls)]

    def row_columns(self, rows: Sequence[Row]) -> list[pa.Array]:
        """Return whole rows as the columns of the input."""
        return [column_of(values, kind) for values, kind in zip(zip(*rows, strict=True), self._types, strict=True)]


def copied(held: list[Any]) -> list[Any]:
    """Copy accumulators, so that a change to the copy does not reach the original."""
    return [copy.deepcopy(one) if isinstance(one, list | dict | deque) else one for one in held]


def _columns_of(call: AggregateCall) -> set[int]:
    return {one.index for one in (*call.operands, call.condition) if isinstance(one, Field)}


def _getter(call: AggregateCall, order: int, order_type: DataType) -> Callable[[Row], tuple[Any, ...] | None]:
    """Return a function that extracts the operands of a call from a row. The operand of ranks is the sort value."""
    if call.function in RANKS:
        canonical = canonicalizer_of(arrow_type(order_type))
        return (lambda row: (row[order],)) if canonical is None else (lambda row: (canonical(row[order]),))
    places = [one.index if isinstance(one, Field) else None for one in call.operands]
    constants = [one.value if isinstance(one, Constant) else None for one in call.operands]
    condition = call.condition.index if isinstance(call.condition, Field) else None
    if condition is None and None not in places:
        if len(places) < 2:
            return lambda row: tuple([row[place] for place in places if place is not None])
        return itemgetter(*places)

    def get(row: Row) -> tuple[Any, ...] | None:
        if condition is not None and not row[condition]:
            return None
        return tuple([value if place is None else row[place] for place, value in zip(places, constants, strict=True)])

    return get
