"""SUM, AVG, and the variances."""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from penstock.table.data.logical_types import DataType, DecimalType, DoubleType, FloatType, IntegralType
from penstock.table.plan.logical import AggregateCall
from penstock.table.streaming.aggregates.base import Rows, SingleOperand
from penstock.table.streaming.aggregates.bundled import Bundled
from penstock.table.streaming.aggregates.exact_floats import (
    EMPTY,
    NO_MOMENTS,
    Moments,
    Total,
    changed,
    from_float,
    moments_changed,
    restore_moments,
    to_float,
    variance,
)
from penstock.table.streaming.aggregates.numbers import (
    EXACT,
    SUM_OF_WHOLE,
    bounds,
    fitted,
    from_double,
    quotient,
    single,
    wrapped,
)


def _added(kind: DataType) -> Callable[[Any, Any], Any]:
    """Return a function that adds within a type. Sums of decimals keep all their digits, more than the type has."""
    limit = wrapped(kind)
    return EXACT.add if isinstance(kind, DecimalType) else lambda total, value: limit(total + value)


def _subtracted(kind: DataType) -> Callable[[Any, Any], Any]:
    limit = wrapped(kind)
    return EXACT.subtract if isinstance(kind, DecimalType) else lambda total, value: limit(total - value)


def _shown(kind: DataType) -> Callable[[Any], Any]:
    """Return a function that converts a sum to the result: NULL if a decimal has too many digits for its type."""
    if isinstance(kind, DecimalType):
        return lambda total: None if total is None else fitted(total, kind)
    return lambda total: total


def _zero(kind: DataType) -> Any:
    return Decimal(0) if isinstance(kind, DecimalType) else 0 if isinstance(kind, IntegralType) else 0.0


class Sum(SingleOperand):
    """SUM of insert-only rows: the sum, or NULL. SUM0 starts at 0."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._begin = None if call.function == "SUM" else _zero(call.type)
        self._added = _added(call.type)
        self._shown = _shown(call.type)
        self._is_float = isinstance(call.type, DoubleType | FloatType)
        self._bounds = bounds(call.type)
        self._is_whole = isinstance(call.type, IntegralType) and isinstance(call.operands[0].type, IntegralType)
        self._is_plain = self._bounds is not None or not isinstance(call.type, DecimalType | FloatType)

    def create(self) -> Any:
        """See `Accumulator`."""
        return self._begin

    def add_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        if state is None:
            return value + 0.0 if self._is_float else value  # avoids -0.0 as a sum
        return self._added(state, value)

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        return self._shown(state)

    def running(self, rows: Rows, states: list[Any]) -> list[Any]:
        """See `Accumulator`."""
        if not rows.only_come or not self._is_plain:
            return super().running(rows, states)
        results = []
        low, high = self._bounds or (float("-inf"), float("inf"))
        is_bounded, added = self._bounds is not None, self._added
        for group, operand in zip(rows.groups, rows.operands, strict=True):
            total = states[group]
            if operand is not None:
                if total is None:
                    total = operand + 0.0 if self._is_float else operand
                else:
                    new = total + operand
                    total = new if low <= new <= high or not is_bounded else added(total, operand)
                states[group] = total
            results.append(total)
        return results

    def gather(self, bundle: Bundled, states: list[Any]) -> bool:
        """See `Accumulator`. Integers wrap, so their order does not matter."""
        if bundle.operand is None or not self._is_whole:
            return False
        added = self._added
        for group, (total, count) in enumerate(zip(bundle.sums(), bundle.counts(), strict=True)):
            if count:
                state = states[group]
                states[group] = added(0 if state is None else state, total)
        return True


def retractable_sum(call: AggregateCall) -> SingleOperand:
    """Return an accumulator for SUM and SUM0 of rows that may be retracted."""
    return (RetractableFloatSum if isinstance(call.type, DoubleType | FloatType) else RetractableSum)(call)


def retractable_average(call: AggregateCall) -> SingleOperand:
    """Return an accumulator for AVG of rows that may be retracted."""
    return (RetractableFloatAverage if isinstance(call.type, DoubleType | FloatType) else Average)(call)


class RetractableSum(SingleOperand):
    """SUM and SUM0 of whole numbers and decimals that may be retracted: (sum, number of values)."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._nothing = None if call.function == "SUM" else _zero(call.type)
        self._added = _added(call.type)
        self._subtracted = _subtracted(call.type)
        self._shown = _shown(call.type)
        self._zero = _zero(call.type)

    def create(self) -> Any:
        """See `Accumulator`."""
        return self._zero, 0

    def add_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return self._added(self._total(state), value), state[1] + 1

    def retract_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return self._subtracted(self._total(state), value), state[1] - 1

    def _total(self, state: Any) -> Any:
        """Return the sum. An earlier release stored NULL after an overflow, and restarted from there."""
        return self._zero if state[0] is None else state[0]

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        return self._shown(state[0]) if state[1] else self._nothing

    def is_spent(self, state: Any) -> bool:
        """See `Accumulator`."""
        return not state[0] and not state[1]


class RetractableFloatSum(SingleOperand):
    """SUM and SUM0 of floats that may be retracted: (exact total, number of values), see `exact_floats`."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._nothing = None if call.function == "SUM" else 0.0
        self._given = single if isinstance(call.type, FloatType) else float

    def create(self) -> Any:
        """See `Accumulator`."""
        return EMPTY, 0

    def add_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return changed(self._total(state), value, 1), state[1] + 1

    def retract_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return changed(self._total(state), value, -1), state[1] - 1

    def _total(self, state: Any) -> Total:
        """Return the total. An earlier release stored a float."""
        total = state[0]
        return from_float(total) if isinstance(total, float) else total

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        return self._given(to_float(self._total(state))) if state[1] else self._nothing

    def is_spent(self, state: Any) -> bool:
        """See `Accumulator`."""
        # In state of an earlier release, an empty sum may differ slightly from 0.
        return not state[1] and (state[0] == EMPTY or isinstance(state[0], float))


class RetractableFloatAverage(RetractableFloatSum):
    """AVG of floats that may be retracted, like `RetractableFloatSum`."""

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        return self._given(to_float(self._total(state), state[1])) if state[1] else None


class Average(SingleOperand):
    """AVG: (sum, number of values). The average of integers is an integer, truncated towards 0.

    It also supports retractions of integers and decimals.
    """

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        kind = call.type
        self._zero = _zero(kind)
        self._is_whole = isinstance(kind, IntegralType) and isinstance(call.operands[0].type, IntegralType)
        self._added: Callable[[Any, Any], Any] = operator.add
        self._subtracted: Callable[[Any, Any], Any] = operator.sub
        self._value: Callable[[Any, int], Any] = operator.truediv
        if isinstance(kind, DecimalType):
            self._added, self._subtracted = EXACT.add, EXACT.subtract
            self._value = lambda total, count: fitted(quotient(total, count), kind)
        elif isinstance(kind, IntegralType):
            limit = wrapped(kind)
            self._added, self._subtracted = _added(SUM_OF_WHOLE), _subtracted(SUM_OF_WHOLE)
            self._value = lambda total, count: limit(total // count if total >= 0 else -(-total // count))
        elif isinstance(kind, FloatType):
            self._value = lambda total, count: single(total / count)

    def create(self) -> Any:
        """See `Accumulator`."""
        return self._zero, 0

    def add_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        total, count = state
        return None if total is None else self._added(total, value), count + 1

    def retract_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        total, count = state
        return None if total is None else self._subtracted(total, value), count - 1

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        total, count = state
        return None if total is None or not count else self._value(total, count)

    def is_spent(self, state: Any) -> bool:
        """See `Accumulator`."""
        return not state[0] and not state[1]

    def running(self, rows: Rows, states: list[Any]) -> list[Any]:
        """See `Accumulator`."""
        if not rows.only_come or not isinstance(self.call.type, DoubleType):
            return super().running(rows, states)
        results = []
        for group, operand in zip(rows.groups, rows.operands, strict=True):
            total, count = states[group]
            if operand is not None:
                total, count = states[group] = total + operand, count + 1
            results.append(total / count if count else None)
        return results

    def gather(self, bundle: Bundled, states: list[Any]) -> bool:
        """See `Accumulator`."""
        if bundle.operand is None or not self._is_whole:
            return False
        added = self._added
        for group, (total, count) in enumerate(zip(bundle.sums(), bundle.counts(), strict=True)):
            if count:
                before, times = states[group]
                states[group] = added(before, total), times + count
        return True


class _VarianceBase(SingleOperand):
    """VAR_* and STDDEV_*."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._is_root = call.function.startswith("STDDEV")
        self._is_sample = not call.function.endswith("_POP")
        self._given = from_double(call.type)

    def _result(self, variance: float | None) -> Any:
        if variance is None:
            return None
        return self._given(variance**0.5 if self._is_root else variance)


class Variance(_VarianceBase):
    """Variance of insert-only rows, by Welford's method: (count, mean, sum of squared distances from the mean)."""

    def create(self) -> Any:
        """See `Accumulator`."""
        return 0, 0.0, 0.0

    def add_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        count, mean, squares = state
        count += 1
        number = float(value)
        distance = number - mean
        mean += distance / count
        return count, mean, squares + distance * (number - mean)

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        count, _, squares = state
        degrees = count - 1 if self._is_sample else count
        return self._result(squares / degrees if degrees > 0 else None)


class RetractableVariance(_VarianceBase):
    """Variance of rows that may be retracted: exact sums of the values and of their squares, see `exact_floats`."""

    def create(self) -> Any:
        """See `Accumulator`."""
        return NO_MOMENTS

    def add_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return moments_changed(self._moments(state), float(value), 1)

    def retract_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return moments_changed(self._moments(state), float(value), -1)

    def _moments(self, state: Any) -> Moments:
        """Return the moments. An earlier release stored the mean, and the sum of squared distances from it."""
        return state if len(state) == len(NO_MOMENTS) else restore_moments(*state)  # type: ignore[no-any-return]

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        return self._result(variance(self._moments(state), self._is_sample))

    def is_spent(self, state: Any) -> bool:
        """See `Accumulator`."""
        return state == NO_MOMENTS or (not state[0] and len(state) < len(NO_MOMENTS))
