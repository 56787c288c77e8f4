"""MIN and MAX, and PERCENTILE, which also needs the values in order."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from itertools import accumulate
from typing import Any, Final

from penstock.table.data.errors import TableRuntimeError
from penstock.table.data.logical_types import (
    ArrayType,
    CharType,
    DateType,
    DoubleType,
    FloatType,
    IntegralType,
    LocalZonedTimestampType,
    TimestampType,
    VarCharType,
)
from penstock.table.plan.logical import AggregateCall
from penstock.table.streaming.aggregates.base import NAN, Accumulator, Rows, SingleOperand, changed_count, to_key
from penstock.table.streaming.aggregates.bundled import Bundled
from penstock.table.typed.nodes import Constant

#: types whose values Arrow orders as Penstock does
_IN_ORDER: Final = (IntegralType, CharType, VarCharType, DateType, TimestampType, LocalZonedTimestampType)


class Extreme(SingleOperand):
    """MIN and MAX of insert-only rows: the best value. NaN is the greatest number, and 0.0 stands for both zeros."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._is_least = call.function == "MIN"
        self._is_float = isinstance(call.operands[0].type, DoubleType | FloatType)

    def add_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        if self._is_float:
            return _better(state, value + 0.0, self._is_least)
        if state is None:
            return value
        return value if (value < state if self._is_least else value > state) else state

    def running(self, rows: Rows, states: list[Any]) -> list[Any]:
        """See `Accumulator`."""
        if not rows.only_come or self._is_float:
            return super().running(rows, states)
        is_least = self._is_least
        results = []
        for group, operand in zip(rows.groups, rows.operands, strict=True):
            best = states[group]
            if operand is not None and (best is None or (operand < best if is_least else operand > best)):
                states[group] = best = operand
            results.append(best)
        return results

    def gather(self, bundle: Bundled, states: list[Any]) -> bool:
        """See `Accumulator`. Floats are processed one by one, because Flink orders NaN differently from Arrow."""
        if bundle.operand is None or not isinstance(self.call.operands[0].type, _IN_ORDER):
            return False
        is_least = self._is_least
        for group, value in zip(*bundle.extremes("min" if is_least else "max"), strict=True):
            best = states[group]
            if best is None or (value < best if is_least else value > best):
                states[group] = value
        return True


def _better(best: float | None, value: float, is_least: bool) -> float:
    """Return the lesser or the greater of two numbers, where NaN is the greatest."""
    if best is None:
        return value
    if is_least:
        return value if value < best or best != best else best
    return value if value > best or value != value else best


class RetractableExtreme(SingleOperand):
    """MIN and MAX of rows that may be retracted: [the values in order, {value: count}].

    NaN is greater than all numbers, and is counted separately. 0.0 represents both zeros.
    """

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._place = 0 if call.function == "MIN" else -1
        self._key = to_key(call.type)
        self._is_float = isinstance(call.type, DoubleType | FloatType)

    def create(self) -> Any:
        """See `Accumulator`."""
        return [[], {}]

    def add_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        key = value if self._key is None else self._key(value)
        if changed_count(state[1], key, 1) == 1 and key is not NAN:
            insort(state[0], value)
        return state

    def retract_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        key = value if self._key is None else self._key(value)
        if changed_count(state[1], key, -1) == 0 and key is not NAN:
            del state[0][bisect_left(state[0], value)]
        return state

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        values, counts = state
        if self._key is not None and counts.get(NAN, 0) > 0 and (self._place or not values):
            return math.nan
        if not values:
            return None
        return values[self._place] + 0.0 if self._is_float else values[self._place]


class Percentile(Accumulator):
    """PERCENTILE: [the values in order, {value: count}, the requested percentages].

    NaN is greater than all numbers, and is counted separately. 0.0 represents both zeros.
    """

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._is_list = isinstance(call.type, ArrayType)
        share = call.operands[1]
        self._shares = self._check_shares(share.value) if isinstance(share, Constant) else None

    def create(self) -> Any:
        """See `Accumulator`."""
        return [[], {}, self._shares]

    def add(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        return self._changed(state, values, 1)

    def retract(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        return self._changed(state, values, -1)

    def _changed(self, state: Any, operands: tuple[Any, ...], sign: int) -> Any:
        value = operands[0]
        if state[2] is None:
            state[2] = self._check_shares(operands[1])
        weight = operands[2] if len(operands) > 2 else 1
        if value is None or weight is None or weight <= 0:
            return state
        number = float(value) + 0.0
        key = number if number == number else NAN
        before = state[1].get(key, 0)
        after = changed_count(state[1], key, sign * weight)
        if key is NAN:
            return state
        if before <= 0 < after:
            insort(state[0], number)
        elif after <= 0 < before:
            del state[0][bisect_left(state[0], number)]
        return state

    def _check_shares(self, value: Any) -> list[float]:
        shares = [float(share) for share in (value if self._is_list else [value])]
        for share in shares:
            if not 0 <= share <= 1:
                raise TableRuntimeError(f"PERCENTILE takes shares from 0 to 1, not {share}")
        return shares

    def is_spent(self, state: Any) -> bool:
        """See `Accumulator`."""
        return not state[1]

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        values, counts, shares = state
        ends = list(accumulate(map(counts.__getitem__, values)))  # cumulative counts
        if counts.get(NAN, 0) > 0:
            values = [*values, math.nan]
            ends.append((ends[-1] if ends else 0) + counts[NAN])
        if not values or not shares:
            return None
        percentiles = [self._interpolate(values, ends, share * (ends[-1] - 1) + 1) for share in shares]
        return percentiles if self._is_list else percentiles[0]

    @staticmethod
    def _interpolate(values: list[float], ends: list[int], position: float) -> float:
        """Return the value at a position, counted from 1, with linear interpolation between two values."""
        lower, higher = math.floor(position), math.ceil(position)
        index = bisect_left(ends, lower)
        if ends[index] >= higher:
            return values[index]
        return (higher - position) * values[index] + (position - lower) * values[index + 1]
