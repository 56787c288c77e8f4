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
    """What adds within a type; NULL where a decimal has too many digits."""
    limit = wrapped(kind)
    if isinstance(kind, DecimalType):
        return lambda one, other: None if one is None else fitted(EXACT.add(one, other), kind)
    return lambda one, other: limit(one + other)


def _zero(kind: DataType) -> Any:
    return Decimal(0) if isinstance(kind, DecimalType) else 0 if isinstance(kind, IntegralType) else 0.0


def _is_spent(held: tuple[Any, int]) -> bool:
    """Whether a sum of no value may be forgotten; that of floating-point numbers may be a bit off from 0."""
    total, count = held
    return count == 0 and (not total or isinstance(total, float))


class Sum(SingleOperand):
    """SUM of rows that only come: the sum, or NULL. SUM0 begins with 0."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._begin = None if call.function == "SUM" else _zero(call.type)
        self._is_sum = call.function == "SUM"
        self._added = _added(call.type)
        self._bounds = bounds(call.type)
        self._is_whole = isinstance(call.type, IntegralType) and isinstance(call.operands[0].type, IntegralType)
        self._is_plain = self._bounds is not None or not isinstance(call.type, DecimalType | FloatType)

    def create(self) -> Any:
        """See `Accumulator`."""
        return self._begin

    def add_one(self, held: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        # After too many digits SUM begins anew, and SUM0 does not, as in Flink.
        return value if held is None and self._is_sum else self._added(held, value)

    def running(self, rows: Rows, held: list[Any]) -> list[Any]:
        """See `Accumulator`."""
        if not rows.only_come or not self._is_plain:
            return super().running(rows, held)
        found = []
        low, high = self._bounds or (float("-inf"), float("inf"))
        is_bounded, added = self._bounds is not None, self._added
        for group, operand in zip(rows.groups, rows.operands, strict=True):
            total = held[group]
            if operand is not None:
                if total is None:
                    total = operand
                else:
                    new = total + operand
                    total = new if low <= new <= high or not is_bounded else added(total, operand)
                held[group] = total
            found.append(total)
        return found

    def gather(self, bundle: Bundled, held: list[Any]) -> bool:
        """See `Accumulator`. Whole numbers wrap, so it is all the same in which order they are added."""
        if bundle.operand is None or not self._is_whole:
            return False
        added = self._added
        for group, (total, count) in enumerate(zip(bundle.sums(), bundle.counts(), strict=True)):
            if count:
                one = held[group]
                held[group] = added(0 if one is None else one, total)
        return True


class RetractableSum(SingleOperand):
    """SUM and SUM0 where rows may go: (sum, number of values)."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._is_sum = call.function == "SUM"
        self._nothing = None if self._is_sum else _zero(call.type)
        self._added = _added(call.type)
        self._zero = _zero(call.type)

    def create(self) -> Any:
        """See `Accumulator`."""
        return self._zero, 0

    def add_one(self, held: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return self._changed(held[0], value), held[1] + 1

    def retract_one(self, held: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return self._changed(held[0], -value), held[1] - 1

    def _changed(self, total: Any, value: Any) -> Any:
        return value if total is None and self._is_sum else self._added(total, value)

    def value(self, held: Any) -> Any:
        """See `Accumulator`."""
        return held[0] if held[1] else self._nothing

    def is_spent(self, held: Any) -> bool:
        """See `Accumulator`."""
        return _is_spent(held)


class Average(SingleOperand):
    """AVG: (sum, number of values). That of whole numbers is one, cut towards 0."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        kind = call.type
        self._zero = _zero(kind)
        self._is_whole = isinstance(kind, IntegralType) and isinstance(call.operands[0].type, IntegralType)
        self._added: Callable[[Any, Any], Any] = operator.add
        self._value: Callable[[Any, int], Any] = operator.truediv
        if isinstance(kind, DecimalType):
            total = DecimalType(38, call.operands[0].type.scale)  # type: ignore[attr-defined]
            self._added, self._value = _added(total), lambda one, count: fitted(quotient(one, count), kind)
        elif isinstance(kind, IntegralType):
            limit = wrapped(kind)
            self._added = _added(SUM_OF_WHOLE)
            self._value = lambda one, count: limit(one // count if one >= 0 else -(-one // count))
        elif isinstance(kind, FloatType):
            self._value = lambda one, count: single(one / count)

    def create(self) -> Any:
        """See `Accumulator`."""
        return self._zero, 0

    def add_one(self, held: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        total, count = held
        return self._added(total, value), count + 1

    def retract_one(self, held: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        total, count = held
        return self._added(total, -value), count - 1

    def value(self, held: Any) -> Any:
        """See `Accumulator`."""
        total, count = held
        return None if total is None or not count else self._value(total, count)

    def is_spent(self, held: Any) -> bool:
        """See `Accumulator`."""
        return _is_spent(held)

    def running(self, rows: Rows, held: list[Any]) -> list[Any]:
        """See `Accumulator`."""
        if not rows.only_come or not isinstance(self.call.type, DoubleType):
            return super().running(rows, held)
        found = []
        for group, operand in zip(rows.groups, rows.operands, strict=True):
            total, count = held[group]
            if operand is not None:
                total, count = held[group] = total + operand, count + 1
            found.append(total / count if count else None)
        return found

    def gather(self, bundle: Bundled, held: list[Any]) -> bool:
        """See `Accumulator`."""
        if bundle.operand is None or not self._is_whole:
            return False
        added = self._added
        for group, (total, count) in enumerate(zip(bundle.sums(), bundle.counts(), strict=True)):
            if count:
                before, times = held[group]
                held[group] = added(before, total), times + count
        return True


class Variance(SingleOperand):
    """VAR_* and STDDEV_*, by Welford's method: (number of values, mean, sum of squared distances from the mean)."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._is_root = call.function.startswith("STDDEV")
        self._is_sample = not call.function.endswith("_POP")
        self._given = from_double(call.type)

    def create(self) -> Any:
        """See `Accumulator`."""
        return 0, 0.0, 0.0

    def add_one(self, held: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        count, mean, squares = held
        count += 1
        if count <= 0:
            return count, mean, squares
        number = float(value)
        distance = number - mean
        mean += distance / count
        return count, mean, squares + distance * (number - mean)

    def retract_one(self, held: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        count, mean, squares = held
        count -= 1
        if count <= 0:
            return (0, 0.0, 0.0) if count == 0 else (count, mean, squares)
        number = float(value)
        distance = number - mean
        mean -= distance / count
        return count, mean, squares - (number - mean) * distance

    def value(self, held: Any) -> Any:
        """See `Accumulator`."""
        count, _, squares = held
        if count <= 0 or squares < 0:  # below 0 for rows that went without having come
            return None
        if self._is_sample:
            if count == 1:
                return None
            count -= 1
        variance = squares / count
        return self._given(variance**0.5 if self._is_root else variance)
