"""Casts between numbers, as Java converts them.

Integers keep their lowest bits. Casts to integers truncate fractions and clamp numbers that are too large. A decimal is
rounded half up, and NULL if it does not fit its type. TRUE fails if it does not fit.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.errors import TableRuntimeError
from penstock.table.data.logical_types import (
    BigIntType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    TinyIntType,
)
from penstock.table.data.values import Datum, Kernel, to_full_array
from penstock.table.functions.kernels import value_kernel
from penstock.table.functions.type_rules import as_decimal

_WIDE: Final = Context(prec=400, Emax=999_999, Emin=-999_999)
_WHOLE_DIGITS_OF_LONG: Final = 18
#: holds the shortest text of each number from 0.001 with at most 17 digits before the decimal point
_OF_USUAL_SIZE: Final = DecimalType(38, 20)
_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1


def number_kernel(source: DataType, to: DataType) -> Kernel:
    """Return the kernel of a cast between numbers and booleans."""
    target = arrow_type(to)
    if isinstance(to, BooleanType):
        return lambda column: pc.not_equal(column, pa.scalar(0, column.type))
    if isinstance(source, BooleanType):
        if isinstance(to, DecimalType) and to.precision == to.scale:
            return partial(_zero_of_false, to, number_kernel(TinyIntType(), to))
        return _then(lambda column: pc.cast(column, pa.int8()), number_kernel(TinyIntType(), to))
    if isinstance(to, DecimalType):
        if isinstance(source, FloatType | DoubleType):
            return _decimal_of_doubles(source, to)
        exact = as_decimal(source)
        if isinstance(source, DecimalType):
            return decimal_kernel(exact, to)
        return _then(lambda column: pc.cast(column, arrow_type(exact)), decimal_kernel(exact, to))
    if isinstance(to, IntegralType):
        if isinstance(source, DecimalType):
            return _then(_whole_part(source), lambda column: pc.cast(column, target, safe=False))
        if isinstance(source, FloatType | DoubleType):
            return _then(
                _cut_to_long if isinstance(to, BigIntType) else _cut_to_int,
                lambda column: pc.cast(column, target, safe=False),
            )
    if isinstance(source, DecimalType) and isinstance(to, FloatType | DoubleType):
        return _then(_double_of_decimal(source), lambda column: pc.cast(column, target, safe=False))
    return lambda column: pc.cast(column, target, safe=False)


def _zero_of_false(to: DecimalType, convert: Kernel, column: Datum) -> Datum:
    """Cast booleans to decimals without digits before the point, which cannot hold TRUE."""
    if pc.any(column if isinstance(column, pa.Array) else pa.array([column.as_py()], pa.bool_())).as_py():
        raise TableRuntimeError(f"TRUE is 1, which {to.not_null()} cannot hold. TRY_CAST gives NULL.")
    return convert(pc.cast(column, pa.int8()))


def decimal_kernel(source: DecimalType, to: DecimalType) -> Kernel:
    """Return the kernel of a cast between decimals: rounded half up, NULL for values that do not fit."""
    target = arrow_type(to)
    loses_digits = to.scale < source.scale
    integer_digits = to.precision - to.scale
    always_fits = integer_digits >= source.precision - source.scale + loses_digits
    scale = max(to.scale, source.scale)
    wide = pa.decimal256(min(76, source.precision + scale - source.scale + 1), scale)
    limit = None if always_fits else pa.scalar(Decimal(10) ** integer_digits, pa.decimal256(integer_digits + 1, 0))

    def kernel(column: Datum) -> Datum:
        if always_fits and not loses_digits:
            return pc.cast(column, target)
        result = pc.cast(column, wide)
        if loses_digits:
            result = pc.round(result, to.scale, "half_towards_infinity")
        if limit is not None:
            fits = pc.less(pc.abs(result), limit)
            result = pc.if_else(fits, result, pa.scalar(None, result.type))
        return pc.cast(result, target, safe=False)

    return kernel


def fitted(value: Decimal, precision: int, scale: int) -> Decimal | None:
    """Round a decimal half up to a scale; return None if it has too many digits."""
    rounded = value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _WIDE)
    limit = Decimal(10) ** (precision - scale)
    # Not by abs(), which rounds to the 28 digits of Python's context.
    return rounded if -limit < rounded < limit else None


def decimal_of_double(value: float, precision: int, scale: int) -> Decimal | None:
    """Return the decimal with the fewest digits that represents this number."""
    exact = Decimal(repr(value))
    if not exact.is_finite():
        raise TableRuntimeError(f"{value} is not a decimal number")
    return fitted(exact, precision, scale)


def _decimal_of_doubles(source: DataType, to: DecimalType) -> Kernel:
    """Return `decimal_of_double` for columns: through the shortest texts, if the numbers are of usual size."""
    by_value = value_kernel(lambda value: decimal_of_double(value, to.precision, to.scale), [source], to)
    fit = decimal_kernel(_OF_USUAL_SIZE, to)

    def kernel(column: Datum) -> Datum:
        if isinstance(column, pa.Scalar):
            return by_value(column)
        column = pc.cast(column, pa.float64())
        size = pc.abs(column)
        is_usual = pc.or_(pc.and_(pc.greater_equal(size, 1e-3), pc.less(size, 1e17)), pc.equal(size, 0.0))
        if pc.all(is_usual).as_py() is False:
            return by_value(column)
        return fit(pc.cast(pc.cast(column, pa.string()), arrow_type(_OF_USUAL_SIZE)))

    return kernel


def _double_of_decimal(source: DecimalType) -> Kernel:
    """Return the kernel of a cast to the nearest floating-point number. Arrow's own cast is often one step off."""
    if source.precision > _WHOLE_DIGITS_OF_LONG:
        return lambda column: pc.cast(pc.cast(column, pa.string()), pa.float64())
    digits, divisor = pa.decimal128(source.precision, 0), pa.scalar(10.0**source.scale)

    def kernel(column: Datum) -> Datum:
        unscaled = to_full_array(column, 1).view(digits)
        quotient = pc.divide(pc.cast(pc.cast(unscaled, pa.int64()), pa.float64(), safe=False), divisor)
        return quotient[0] if isinstance(column, pa.Scalar) else quotient

    return kernel


def _then(first: Kernel, second: Kernel) -> Kernel:
    return lambda column: second(first(column))


def _whole_part(source: DecimalType) -> Kernel:
    """Return the kernel that drops the fraction of a decimal and keeps the lowest 64 bits."""
    if source.precision - source.scale <= _WHOLE_DIGITS_OF_LONG:
        integral = pa.decimal128(max(source.precision - source.scale, 1), 0)
        return lambda column: pc.cast(pc.cast(column, integral, safe=False), pa.int64())
    return value_kernel(lambda value: (int(value) - _LONG_MIN) % 2**64 + _LONG_MIN, [source], BigIntType())


def _cut_to_int(column: Datum) -> Datum:
    return pc.cast(_cut(column, _INT_MIN, _INT_MAX, lambda truncated: truncated), pa.int32(), safe=False)


def _cut_to_long(column: Datum) -> Datum:
    return _cut(column, _LONG_MIN, _LONG_MAX, lambda truncated: pc.cast(truncated, pa.int64(), safe=False))


def _cut(column: Datum, least: int, most: int, convert: Callable[[Datum], Datum]) -> Datum:
    """Truncate fractions, clamp to the bounds, and replace NaN with 0."""
    column = pc.cast(column, pa.float64())
    column = pc.if_else(pc.is_nan(column), pa.scalar(0.0), column)
    too_large, too_small = pc.greater_equal(column, float(most)), pc.less_equal(column, float(least))
    inside = pc.if_else(pc.or_(too_large, too_small), pa.scalar(0.0), column)
    result = convert(pc.trunc(inside))
    result = pc.if_else(too_large, pa.scalar(most, result.type), result)
    return pc.if_else(too_small, pa.scalar(least, result.type), result)
