"""Kernels and text of numbers: decimal arithmetic, integer division, random numbers, other bases, Java's text.

**Decimals.** Results are rounded half up to the scale of the result type, and NULL if they have too many digits. If
Flink's type holds every result, so do Arrow's decimals of 38 digits. Otherwise, 76 digits are used. Operations that
need even more are computed value by value.

**Division of integers by a constant.** NumPy multiplies several numbers at a time, where Arrow divides. NumPy rounds a
quotient down, SQL toward zero; both are equal if neither number is negative.

**RAND and RAND_INTEGER.** With a seed they return the numbers of Java's generator, so queries are reproducible.

**Text.** BIN, HEX and UNHEX convert numbers to other bases, and bytes to and from hexadecimal digits.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.codecs.arrow_columns import exact_cast
from penstock.sql.data.arrow import Datum, Kernel, apply_validity, arrow_type, flat_values, to_full_array
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.data.types import PRECISION_MAX, DataType, DecimalType
from penstock.sql.functions import definition, type_rules

#: the result type of each operator
RESULTS: Final[dict[str, Callable[[DecimalType, DecimalType], DecimalType]]] = {
    "+": type_rules.sum_of_decimals,
    "-": type_rules.sum_of_decimals,
    "*": type_rules.product_of_decimals,
    "/": type_rules.quotient_of_decimals,
    "MOD": type_rules.remainder_of_decimals,
}
_WIDEST: Final = 76
_EXACT: Final = Context(prec=400)


def decimal_kernel(operator: str, data_type: DataType, other: DataType, result: DataType) -> Kernel:
    """Return the kernel of an operator for decimals and integers. The result may also be an integer."""
    left, right = type_rules.as_decimal(data_type), type_rules.as_decimal(other)
    wide = type_rules.as_decimal(result)
    if operator in _PLAIN and has_all_digits(operator, left, right):
        return _plain(operator, left, right)
    make = _WIDE[operator](left, right, wide)
    by_value = definition.value_kernel(BY_VALUE[operator](wide), (left, right), wide)
    target = arrow_type(result)

    def kernel(first: Datum, second: Datum) -> Datum:
        first, second = as_decimals(first, left), as_decimals(second, right)
        computed = make(first, second)
        return (by_value(first, second) if computed is None else computed).cast(target)

    return kernel


def as_decimals(column: Datum, kind: DecimalType) -> Datum:
    """Return a column of exact numbers as decimals."""
    target = arrow_type(kind)
    return column if column.type == target else pc.cast(column, target)


def fitted(column: Datum, kind: DecimalType, mode: str = "half_towards_infinity") -> Datum:
    """Return decimals with the digits of a type; NULL if a value has too many."""
    if column.type.scale > kind.scale:
        column = pc.round(_with_room(column), ndigits=kind.scale, round_mode=mode)
    try:
        if isinstance(column, pa.Scalar):
            return exact_cast(pa.repeat(column, 1), arrow_type(kind))[0]
        return exact_cast(column, arrow_type(kind))
    except pa.ArrowInvalid:
        # of the column's own type, because Arrow rescales both sides of a comparison
        limit = pa.scalar(Decimal(10) ** (kind.precision - kind.scale), column.type)
        return pc.cast(pc.if_else(pc.less(pc.abs(column), limit), column, None), arrow_type(kind))


def _with_room(column: Datum) -> Datum:
    """Add one digit of precision, which rounding may need."""
    data_type = column.type
    return (
        column
        if data_type.precision >= _WIDEST
        else pc.cast(column, pa.decimal256(data_type.precision + 1, data_type.scale))
    )


# --- with 38 digits --------------------------------------------------------------------------------------------------

_PLAIN: Final[dict[str, Callable[[Datum, Datum], Datum]]] = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}


def has_all_digits(operator: str, left: DecimalType, right: DecimalType) -> bool:
    """Return whether the type of the result has all digits of every result."""
    if operator == "*":
        return left.precision + right.precision < PRECISION_MAX
    integer_digits = max(left.precision - left.scale, right.precision - right.scale)
    return integer_digits + max(left.scale, right.scale) < PRECISION_MAX


def _plain(operator: str, left: DecimalType, right: DecimalType) -> Kernel:
    function = _PLAIN[operator]
    return lambda first, second: function(as_decimals(first, left), as_decimals(second, right))


# --- with 76 digits --------------------------------------------------------------------------------------------------

_Wide = Callable[[Datum, Datum], "Datum | None"]


def _wide_sum(function: Callable[[Datum, Datum], Datum]) -> Callable[[DecimalType, DecimalType, DecimalType], _Wide]:
    def make(left: DecimalType, right: DecimalType, result: DecimalType) -> _Wide:
        integer_digits = max(left.precision - left.scale, right.precision - right.scale)
        digits = integer_digits + max(left.scale, right.scale) + 1

        def run(first: Datum, second: Datum) -> Datum | None:
            return None if digits > _WIDEST else fitted(function(_widened(first), _widened(second)), result)

        return run

    return make


def _wide_product(left: DecimalType, right: DecimalType, result: DecimalType) -> _Wide:
    def run(first: Datum, second: Datum) -> Datum | None:
        pair = _narrowed(first, second, _WIDEST - 1)
        return None if pair is None else fitted(pc.multiply(*pair), result)

    return run


def _quotient(first: Datum, second: Datum, scale: int) -> Datum | None:
    """Divide and truncate, to at least `scale` fractional digits; None if 76 digits are too few."""
    has = max(4, first.type.scale + second.type.precision - second.type.scale + 1)
    more = max(0, scale - has)
    pair = _narrowed(first, second, _WIDEST - 4 - more)
    if pair is None:
        return None
    first, second = pair
    more = max(0, scale - (first.type.scale + second.type.precision - second.type.scale + 1))
    if more:
        first = pc.cast(first, pa.decimal256(first.type.precision + more, first.type.scale + more))
    return pc.divide(first, second)


def _wide_quotient(left: DecimalType, right: DecimalType, result: DecimalType) -> _Wide:
    def run(first: Datum, second: Datum) -> Datum | None:
        try:
            quotient = _quotient(first, second, result.scale + 1)
        except pa.ArrowInvalid as error:
            raise _explained(error) from error
        return None if quotient is None else fitted(quotient, result)

    return run


def _wide_remainder(left: DecimalType, right: DecimalType, result: DecimalType) -> _Wide:
    integer_digits = left.precision - left.scale + right.scale
    digits = integer_digits + right.precision + 1

    def run(first: Datum, second: Datum) -> Datum | None:
        if digits >= _WIDEST:
            return None
        try:
            times = _quotient(first, second, 0)
        except pa.ArrowInvalid as error:
            raise _explained(error) from error
        if times is None:
            return None
        times = pc.cast(pc.round(times, ndigits=0, round_mode="towards_zero"), pa.decimal256(max(integer_digits, 1), 0))
        part = pc.multiply(times, _widened(second))
        # the subtracted part does not exceed the first operand
        part = pc.cast(part, pa.decimal256(max(left.precision + right.scale, 1) + 1, part.type.scale))
        return fitted(pc.subtract(_widened(first), part), result)

    return run


_WIDE: Final[dict[str, Callable[[DecimalType, DecimalType, DecimalType], _Wide]]] = {
    "+": _wide_sum(pc.add),
    "-": _wide_sum(pc.subtract),
    "*": _wide_product,
    "/": _wide_quotient,
    "MOD": _wide_remainder,
}


def _widened(column: Datum) -> Datum:
    return pc.cast(column, pa.decimal256(column.type.precision, column.type.scale))


def _narrowed(first: Datum, second: Datum, digits: int) -> tuple[Datum, Datum] | None:
    """Return both columns with at most `digits` digits together, or None if their values have more."""
    excess = first.type.precision + second.type.precision - digits
    first, second = _widened(first), _widened(second)
    if excess <= 0:
        return first, second
    for index, column in enumerate((second, first)):
        precision = column.type.precision - excess
        if precision < max(column.type.scale, 1):
            continue
        try:
            less = pc.cast(column, pa.decimal256(precision, column.type.scale))
        except pa.ArrowInvalid:
            continue
        return (first, less) if index == 0 else (less, second)
    return None


def _explained(error: pa.ArrowInvalid) -> TableRuntimeError:
    return TableRuntimeError("Division by zero" if "divide by zero" in str(error).lower() else str(error))


# --- value by value --------------------------------------------------------------------------------------------------


def rounded(value: Decimal, kind: DecimalType, mode: str = ROUND_HALF_UP) -> Decimal | None:
    """Round a value to a type; return None if it has too many digits."""
    quantized = value.quantize(Decimal(1).scaleb(-kind.scale), mode, _EXACT)
    return quantized if quantized.copy_abs() < Decimal(10) ** (kind.precision - kind.scale) else None


def _by_value(function: Callable[[Decimal, Decimal], Decimal]) -> Callable[[DecimalType], Callable[..., object]]:
    def make(kind: DecimalType) -> Callable[..., object]:
        return lambda value, other: rounded(function(value, other), kind)

    return make


def _divide(dividend: Decimal, other: Decimal) -> Decimal:
    if not other:
        raise TableRuntimeError("Division by zero")
    return Context(prec=PRECISION_MAX, rounding=ROUND_HALF_UP).divide(dividend, other)


def _remainder(dividend: Decimal, other: Decimal) -> Decimal:
    if not other:
        raise TableRuntimeError("Division by zero")
    return _EXACT.remainder(dividend, other)


BY_VALUE: Final[dict[str, Callable[[DecimalType], Callable[..., object]]]] = {
    "+": _by_value(_EXACT.add),
    "-": _by_value(_EXACT.subtract),
    "*": _by_value(_EXACT.multiply),
    "/": _by_value(_divide),
    "MOD": _by_value(_remainder),
}


Quotients: TypeAlias = Callable[[pa.Array], pa.Array]


def quotients(divisor: int, otherwise: Quotients) -> Quotients:
    """Return a kernel for quotients. `otherwise`: the kernel for negative numbers and for divisors below 1."""

    def kernel(column: pa.Array) -> pa.Array:
        values = flat_values(column)
        if divisor < 1 or not len(values) or values.min() < 0:
            return otherwise(column)
        return apply_validity(column, values // values.dtype.type(divisor), column.type)

    return kernel


def remainders(divisor: int, result: pa.DataType) -> Quotients:
    """Return a kernel for remainders, signed like the dividend. `divisor`: above 0. `result`: holds all remainders."""

    def kernel(column: pa.Array) -> pa.Array:
        values = flat_values(column)
        return apply_validity(column, _remainders(values, values.dtype.type(divisor)), result)

    return kernel


def _remainders(values: Any, divisor: Any) -> Any:
    # Faster than NumPy's own remainder. The product may overflow, but the sum wraps back into the type.
    result = values // divisor
    result *= -divisor
    result += values
    if len(values) and values.min() < 0:
        np.subtract(result, divisor, out=result, where=(values < 0) & (result != 0))
    return result


_FACTOR: Final = 0x5DEECE66D
_MASK: Final = (1 << 48) - 1
_Words = npt.NDArray[np.uint64]


class JavaRandom:
    """The generator of `java.util.Random`."""

    def __init__(self, seed: int) -> None:
        self._state = (seed ^ _FACTOR) & _MASK

    def next_double(self) -> float:
        """Return a number from 0 (inclusive) to 1 (exclusive)."""
        return ((self._next(26) << 27) + self._next(27)) / (1 << 53)

    def next_int(self, bound: int) -> int:
        """Return an integer from 0 (inclusive) to the bound (exclusive)."""
        check_bound(bound)
        if bound & (bound - 1) == 0:
            return (bound * self._next(31)) >> 31
        while True:
            bits = self._next(31)
            value = bits % bound
            if bits - value + bound <= 1 << 31:
                return value

    def doubles(self, count: int) -> npt.NDArray[np.float64]:
        """Return the next `count` numbers of `next_double`, vectorized."""
        states = self._states(2 * count)
        high = (states[0::2] >> np.uint64(22)) << np.uint64(27)
        values: npt.NDArray[np.float64] = (high + (states[1::2] >> np.uint64(21))) / float(1 << 53)
        return values

    def _next(self, bits: int) -> int:
        self._state = (self._state * _FACTOR + 0xB) & _MASK
        return self._state >> (48 - bits)

    def _states(self, count: int) -> _Words:
        """Return the next states. Each is the current state times a factor, plus a sum independent of the seed."""
        if not count:
            return np.zeros(0, np.uint64)
        factors = np.cumprod(np.full(count, _FACTOR, np.uint64))
        sums = np.cumsum(np.concatenate((np.ones(1, np.uint64), factors[:-1]))) * np.uint64(0xB)
        states: _Words = (factors * np.uint64(self._state) + sums) & np.uint64(_MASK)
        self._state = int(states[-1])
        return states


def check_bound(bound: int) -> None:
    """Raise `TableRuntimeError` unless the bound is positive."""
    if bound <= 0:
        raise TableRuntimeError(f"the bound of RAND_INTEGER must be above 0, not {bound}")


# --- RAND ------------------------------------------------------------------------------------------------------------


def _doubles(call: definition.Call) -> Kernel:
    if not call.types:
        return lambda rows: pc.random(rows)
    seed = call.value(0)
    if seed is definition.UNKNOWN:
        by_value = definition.value_kernel(lambda row_seed: JavaRandom(row_seed).next_double(), call.types, call.result)
        return lambda rows, column: by_value(column)
    if not isinstance(seed, int):
        return lambda rows, column: pa.scalar(None, pa.float64())
    generator = JavaRandom(seed)
    return lambda rows, column: pa.array(generator.doubles(rows))


# --- RAND_INTEGER ----------------------------------------------------------------------------------------------------


def _integers(call: definition.Call) -> Kernel:
    if len(call.types) == 1:
        return _each(random.randrange)
    seed = call.value(0)
    if seed is definition.UNKNOWN:
        by_value = definition.value_kernel(
            lambda row_seed, bound: JavaRandom(row_seed).next_int(bound), call.types, call.result
        )
        return lambda rows, seeds, bounds: by_value(seeds, bounds)
    if not isinstance(seed, int):
        return lambda rows, seeds, bounds: pa.scalar(None, pa.int32())
    kernel = _each(JavaRandom(seed).next_int)
    return lambda rows, seeds, bounds: kernel(rows, bounds)


def _each(draw: Callable[[int], int]) -> Kernel:
    """Draw a number for every row, even if the bound is a scalar."""

    def drawn(bound: int | None) -> int | None:
        if bound is None:
            return None
        check_bound(bound)
        return draw(bound)

    def kernel(rows: int, bounds: Datum) -> Datum:
        return pa.array([drawn(bound) for bound in to_full_array(bounds, rows).to_pylist()], pa.int32())

    return kernel


RANDOM_NUMBERS_FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    definition.scalar(
        "RAND",
        (definition.takes(), definition.takes(definition.AS_INT)),
        definition.returns(definition.DOUBLE),
        _doubles,
        "Returns a random number from 0 (inclusive) to 1 (exclusive); a seed makes the sequence repeatable.",
        python_name="rand",
        usage="RAND([seed])",
        section="arithmetic",
        is_deterministic=False,
        takes_rows=True,
    ),
    definition.scalar(
        "RAND_INTEGER",
        (definition.takes(definition.AS_INT), definition.takes(definition.AS_INT, definition.AS_INT)),
        definition.returns(definition.INT),
        _integers,
        "Returns a random integer from 0 (inclusive) to the bound (exclusive); a seed makes the sequence repeatable.",
        python_name="randInteger",
        usage="RAND_INTEGER([seed, ]bound)",
        section="arithmetic",
        is_deterministic=False,
        takes_rows=True,
        can_fail=True,
    ),
)


_BITS: Final = (1 << 64) - 1
_DIGITS: Final = frozenset("0123456789abcdefABCDEF")


def _binary(number: int) -> str:
    """Return binary digits: for negative numbers, all 64 digits of the two's complement."""
    return format(number & _BITS, "b")


def _hexadecimal(value: int | str) -> str:
    return value.encode().hex().upper() if isinstance(value, str) else format(value & _BITS, "X")


def _bytes(digits: str) -> bytes | None:
    """Decode hexadecimal digits. If their count is odd, the first digit counts as 0, as in Flink."""
    if not _DIGITS.issuperset(digits):
        return None
    return bytes.fromhex(f"00{digits[1:]}" if len(digits) % 2 else digits)


NUMBER_TEXTS_FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    definition.scalar(
        "BIN",
        definition.takes(definition.INTEGER),
        definition.returns(definition.STRING),
        definition.per_value(_binary),
        "Returns the integer in binary format.",
        python_name="bin",
        usage="BIN(integer)",
        section="arithmetic",
    ),
    definition.scalar(
        "HEX",
        (definition.takes(definition.INTEGER), definition.takes(definition.TEXT)),
        definition.returns(definition.STRING),
        definition.per_value(_hexadecimal),
        "Returns an integer, or the UTF-8 bytes of a string, in hexadecimal format.",
        python_name="hex",
        usage="HEX(value)",
        section="arithmetic",
    ),
    definition.scalar(
        "UNHEX",
        definition.takes(definition.TEXT),
        definition.returns_nullable(definition.BYTES_TYPE),
        definition.per_value(_bytes),
        "Decodes hexadecimal digits to bytes; returns NULL if the string has other characters.",
        python_name="unhex",
        usage="UNHEX(string)",
        section="arithmetic",
    ),
)


FUNCTIONS: tuple[definition.ScalarFunction, ...] = (*RANDOM_NUMBERS_FUNCTIONS, *NUMBER_TEXTS_FUNCTIONS)
