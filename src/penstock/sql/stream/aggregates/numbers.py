"""SUM, AVG, the variances, COUNT and SINGLE_VALUE, with their arithmetic.

**Exact sums.** Sums of floating-point numbers support retraction. A float that is added and retracted leaves no trace:
neither a rounding error, nor NaN after an infinity. Flink adds and subtracts floats, so one infinity, or one number
that is much greater than the others, corrupts its sums permanently.

A finite float is a whole number divided by a power of two. A total holds the exact sum of such fractions, and counts
NaN and the infinities separately: (numerator, exponent of the power of two, counts of NaN, inf and -inf). The counts
are an empty tuple while there are none.

**Other numbers.** Integers wrap as in Java, decimals have a scale and a maximum precision.

**Counts.** SINGLE_VALUE also counts its rows.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from operator import add
from typing import Any, Final

from penstock.sql.data import types
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.logical.nodes import AggregateCall
from penstock.sql.stream.aggregates.functions import Accumulator, Bundled, Rows, SingleOperand

#: (numerator, exponent, counts of NaN, inf and -inf)
Total = tuple[int, int, tuple[int, ...]]
EMPTY: Final[Total] = (0, 0, ())
#: A count that no number of retractions can bring back to 0.
_PERMANENT: Final = 1 << 62


def changed(total: Total, value: float, sign: int) -> Total:
    """Return a total after adding (`sign` 1) or subtracting (`sign` -1) a value."""
    numerator, exponent, specials = total
    try:
        part, divisor = value.as_integer_ratio()
    except (OverflowError, ValueError):
        return numerator, exponent, _counted(specials, value, sign)
    shift = divisor.bit_length() - 1 - exponent
    if shift > 0:
        numerator <<= shift
        exponent += shift
    elif shift < 0:
        part <<= -shift
    numerator += part if sign > 0 else -part
    return (numerator, exponent, specials) if numerator else (0, 0, specials)


def _counted(specials: tuple[int, ...], value: float, sign: int) -> tuple[int, ...]:
    counts = list(specials or (0, 0, 0))
    counts[0 if math.isnan(value) else 1 if value > 0 else 2] += sign
    return tuple(counts) if any(counts) else ()


def sum_specials(specials: tuple[int, ...]) -> float | None:
    """Return the sum of the non-finite values, or None without any.

    Retractions that came first have negative counts.
    """
    if not specials:
        return None
    nans, positives, negatives = (count > 0 for count in specials)
    if nans or (positives and negatives):
        return math.nan
    return math.inf if positives else -math.inf if negatives else None


def to_float(total: Total, divisor: int = 1) -> float:
    """Return the float nearest to a total divided by a nonzero whole number; an infinity if it is out of range."""
    numerator, exponent, specials = total
    special = sum_specials(specials)
    return ratio(numerator, divisor << exponent) if special is None else special


def ratio(numerator: int, divisor: int) -> float:
    """Return the float nearest to a fraction; an infinity if it is out of range."""
    try:
        return numerator / divisor
    except OverflowError:
        return math.inf if (numerator > 0) == (divisor > 0) else -math.inf


def from_float(value: float) -> Total:
    """Convert a sum that an earlier release stored as a float. NaN and infinities stay: the finite part is lost."""
    total = changed(EMPTY, value, 1)
    return total if math.isfinite(value) else (total[0], total[1], tuple(count * _PERMANENT for count in total[2]))


#: (count, sum, sum of squares, exponent of the sum, counts as in `Total`); the squares have twice the exponent
Moments = tuple[int, int, int, int, tuple[int, ...]]
NO_MOMENTS: Final[Moments] = (0, 0, 0, 0, ())


def moments_changed(moments: Moments, value: float, sign: int) -> Moments:
    """Return the moments after adding (`sign` 1) or subtracting (`sign` -1) a value."""
    count, total, squares, exponent, specials = moments
    count += sign
    try:
        part, divisor = value.as_integer_ratio()
    except (OverflowError, ValueError):
        return count, total, squares, exponent, _counted(specials, value, sign)
    shift = divisor.bit_length() - 1 - exponent
    if shift > 0:
        total <<= shift
        squares <<= 2 * shift
        exponent += shift
    elif shift < 0:
        part <<= -shift
    total += part if sign > 0 else -part
    squares += part * part if sign > 0 else -part * part
    return (count, total, squares, exponent, specials) if squares else (count, total, 0, exponent, specials)


def variance(moments: Moments, is_sample: bool) -> float | None:
    """Return the variance; None for too few values, or while retractions precede their values."""
    count, total, squares, exponent, specials = moments
    if count <= (1 if is_sample else 0):
        return None
    if sum_specials(specials) is not None:
        return math.nan
    distances = count * squares - total * total
    if distances < 0:
        return None
    return ratio(distances, count * (count - 1 if is_sample else count) << 2 * exponent)


def restore_moments(count: int, mean: float, squares: float) -> Any:
    """Convert the state of an earlier release, the mean and the sum of squared distances from it, to moments."""
    if not (math.isfinite(mean) and math.isfinite(squares)):
        return count, 0, 0, 0, (_PERMANENT, 0, 0)
    part, divisor = mean.as_integer_ratio()
    of_squares, divisor_of_squares = squares.as_integer_ratio()
    exponent = max(divisor.bit_length() - 1, divisor_of_squares.bit_length() // 2)
    shifted = part << exponent - (divisor.bit_length() - 1)
    distances = of_squares << 2 * exponent - (divisor_of_squares.bit_length() - 1)
    return count, count * shifted, count * shifted * shifted + distances, exponent, ()


_BITS: dict[type[types.DataType], int] = {
    types.TinyIntType: 8,
    types.SmallIntType: 16,
    types.IntType: 32,
    types.BigIntType: 64,
}
#: for sums of decimals, which lose no digits
EXACT: Final = Context(prec=80, rounding=ROUND_HALF_UP)
#: for quotients of decimals
_QUOTIENT: Final = Context(prec=38, rounding=ROUND_HALF_UP)
#: the type of integer sums that AVG computes
SUM_OF_WHOLE: Final = types.BigIntType()


def bounds(kind: types.DataType) -> tuple[int, int] | None:
    """Return the least and the greatest value of an integer type."""
    bits = _BITS.get(type(kind))
    return None if bits is None else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def wrapped(kind: types.DataType) -> Callable[[Any], Any]:
    """Return a function that wraps or rounds sums to a type."""
    bits = _BITS.get(type(kind))
    if bits is not None:
        half, modulus = 1 << (bits - 1), 1 << bits
        return lambda value: value if -half <= value < half else (value + half) % modulus - half
    if isinstance(kind, types.FloatType):
        return single
    return lambda value: value


def single(value: float) -> float:
    """Return the nearest single-precision number."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def rounded(value: Decimal, scale: int) -> Decimal:
    """Round a decimal to `scale` fractional digits."""
    return value.quantize(Decimal(1).scaleb(-scale), context=EXACT)


def fitted(value: Decimal, kind: types.DecimalType) -> Decimal | None:
    """Round a decimal to the scale of a type; return None if it has too many digits."""
    rescaled = value if value.as_tuple().exponent == -kind.scale else rounded(value, kind.scale)
    return rescaled if rescaled.adjusted() < kind.precision - kind.scale or not rescaled else None


def quotient(total: Decimal, count: int) -> Decimal:
    """Divide a sum of decimals by a count, with 38 digits."""
    return _QUOTIENT.divide(total, Decimal(count))


def from_double(kind: types.DataType) -> Callable[[float], Any]:
    """Return a function that casts double-precision numbers to a type."""
    if isinstance(kind, types.DecimalType):
        return lambda value: fitted(Decimal(repr(value)), kind) if math.isfinite(value) else None
    limits = bounds(kind)
    if isinstance(kind, types.IntegralType) and limits is not None:
        low, high = limits
        return lambda value: 0 if value != value else high if value >= high else max(low, int(value))
    return single if isinstance(kind, types.FloatType) else lambda value: value


def _added(kind: types.DataType) -> Callable[[Any, Any], Any]:
    """Return a function that adds within a type. Sums of decimals keep all their digits, more than the type has."""
    limit = wrapped(kind)
    return EXACT.add if isinstance(kind, types.DecimalType) else lambda total, value: limit(total + value)


def _subtracted(kind: types.DataType) -> Callable[[Any, Any], Any]:
    limit = wrapped(kind)
    return EXACT.subtract if isinstance(kind, types.DecimalType) else lambda total, value: limit(total - value)


def _shown(kind: types.DataType) -> Callable[[Any], Any]:
    """Return a function that converts a sum to the result: NULL if a decimal has too many digits for its type."""
    if isinstance(kind, types.DecimalType):
        return lambda total: None if total is None else fitted(total, kind)
    return lambda total: total


def _zero(kind: types.DataType) -> Any:
    return Decimal(0) if isinstance(kind, types.DecimalType) else 0 if isinstance(kind, types.IntegralType) else 0.0


class Sum(SingleOperand):
    """SUM of insert-only rows: the sum, or NULL. SUM0 starts at 0."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._begin = None if call.function == "SUM" else _zero(call.type)
        self._added = _added(call.type)
        self._shown = _shown(call.type)
        self._is_float = isinstance(call.type, types.DoubleType | types.FloatType)
        self._bounds = bounds(call.type)
        self._is_whole = isinstance(call.type, types.IntegralType) and isinstance(
            call.operands[0].type, types.IntegralType
        )
        self._is_plain = self._bounds is not None or not isinstance(call.type, types.DecimalType | types.FloatType)

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
    return (RetractableFloatSum if isinstance(call.type, types.DoubleType | types.FloatType) else RetractableSum)(call)


def retractable_average(call: AggregateCall) -> SingleOperand:
    """Return an accumulator for AVG of rows that may be retracted."""
    return (RetractableFloatAverage if isinstance(call.type, types.DoubleType | types.FloatType) else Average)(call)


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
    """SUM and SUM0 of floats that may be retracted: (exact total, number of values), see the module docstring."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._nothing = None if call.function == "SUM" else 0.0
        self._given = single if isinstance(call.type, types.FloatType) else float

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
        self._is_whole = isinstance(kind, types.IntegralType) and isinstance(call.operands[0].type, types.IntegralType)
        self._added: Callable[[Any, Any], Any] = operator.add
        self._subtracted: Callable[[Any, Any], Any] = operator.sub
        self._value: Callable[[Any, int], Any] = operator.truediv
        if isinstance(kind, types.DecimalType):
            self._added, self._subtracted = EXACT.add, EXACT.subtract
            self._value = lambda total, count: fitted(quotient(total, count), kind)
        elif isinstance(kind, types.IntegralType):
            limit = wrapped(kind)
            self._added, self._subtracted = _added(SUM_OF_WHOLE), _subtracted(SUM_OF_WHOLE)
            self._value = lambda total, count: limit(total // count if total >= 0 else -(-total // count))
        elif isinstance(kind, types.FloatType):
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
        if not rows.only_come or not isinstance(self.call.type, types.DoubleType):
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
    """Variance of rows that may be retracted: exact sums of the values and of their squares."""

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


class CountRows(Accumulator):
    """COUNT(*): all rows."""

    def create(self) -> Any:
        """See `Accumulator`."""
        return 0

    def add(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        return state + 1

    def retract(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        return state - 1

    def running(self, rows: Rows, states: list[Any]) -> list[Any]:
        """See `Accumulator`."""
        if not rows.only_come:
            return super().running(rows, states)
        results = []
        for group in rows.groups:
            states[group] = count = states[group] + 1
            results.append(count)
        return results

    def gather(self, bundle: Bundled, states: list[Any]) -> bool:
        """See `Accumulator`."""
        states[:] = map(add, states, bundle.counts())
        return True


class CountOf(CountRows):
    """COUNT of several operands: rows without a NULL operand."""

    def gather(self, bundle: Bundled, states: list[Any]) -> bool:
        """See `Accumulator`."""
        return False

    def add(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        return state if None in values else state + 1

    def retract(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        return state if None in values else state - 1

    def running(self, rows: Rows, states: list[Any]) -> list[Any]:
        """See `Accumulator`."""
        return Accumulator.running(self, rows, states)


class CountValues(SingleOperand):
    """COUNT of one operand: its values that are not NULL."""

    counts_alike = True

    def create(self) -> Any:
        """See `Accumulator`."""
        return 0

    def add_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return state + 1

    def retract_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return state - 1

    def running(self, rows: Rows, states: list[Any]) -> list[Any]:
        """See `Accumulator`."""
        if not rows.only_come:
            return super().running(rows, states)
        results = []
        for group, operand in zip(rows.groups, rows.operands, strict=True):
            count = states[group]
            if operand is not None:
                states[group] = count = count + 1
            results.append(count)
        return results

    def gather(self, bundle: Bundled, states: list[Any]) -> bool:
        """See `Accumulator`."""
        if bundle.operand is None:
            return False
        states[:] = map(add, states, bundle.counts())
        return True


class SingleValue(SingleOperand):
    """SINGLE_VALUE: (value, number of rows)."""

    skips_null = False

    def create(self) -> Any:
        """See `Accumulator`."""
        return None, 0

    def add_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        if state[1] > 0:
            raise TableRuntimeError("SingleValueAggFunction received more than one element.")
        return (value if state[1] == 0 else None), state[1] + 1

    def retract_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return None, state[1] - 1

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        return state[0]
