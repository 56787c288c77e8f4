"""The casts that Flink supports, the reasons for refusing others, and casts of numbers and of temporal values.

**Numbers** are converted as in Java. Integers keep their lowest bits. Casts to integers truncate fractions and clamp
numbers that are too large. A decimal is rounded half up, and NULL if it does not fit its type. TRUE fails if it does
not fit.

**Dates, times of day and timestamps.** Excess fractional digits of a second are truncated.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.codecs.arrow_columns import DIGITS
from penstock.sql.data import types
from penstock.sql.data.arrow import Datum, Kernel, arrow_type, to_full_array
from penstock.sql.data.datetimes import DAY_MS, FAR_NANOSECONDS, to_local, to_moments, view
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.functions.definition import Session, value_kernel
from penstock.sql.functions.type_rules import BYTES, INTERVALS, TEXTS, as_decimal

_MOMENTS = (types.TimestampType, types.LocalZonedTimestampType)


def supports_cast(source: types.DataType, to: types.DataType) -> bool:
    """Return whether Flink has a cast from one type to the other."""
    if isinstance(source, types.NullType) or source.not_null() == to.not_null():
        return True
    if isinstance(source, types.VariantType):
        return False
    if isinstance(to, TEXTS):
        return True
    if isinstance(to, types.ArrayType | types.MapType | types.RowType):
        return _supports_nested(source, to)
    if isinstance(source, TEXTS):
        return isinstance(to, (*BYTES, types.BooleanType, types.NumericType, types.DateType, types.TimeType, *_MOMENTS))
    if isinstance(to, BYTES):
        return isinstance(source, (*BYTES, types.BitmapType))
    if isinstance(to, types.BooleanType):
        return isinstance(source, types.IntegralType)
    if isinstance(to, INTERVALS):
        return type(source) is type(to) or (_is_single(to) and isinstance(source, _get_number_type(to)))
    if isinstance(to, types.NumericType):
        if isinstance(source, INTERVALS):
            return _is_single(source) and isinstance(to, _get_number_type(source))
        return isinstance(source, types.NumericType | types.BooleanType)
    if isinstance(to, types.DateType):
        return isinstance(source, _MOMENTS)
    if isinstance(to, types.TimeType):
        return isinstance(source, (types.TimeType, *_MOMENTS))
    if isinstance(to, _MOMENTS):
        return isinstance(source, (types.DateType, types.TimeType, *_MOMENTS))
    return False


def _supports_nested(source: types.DataType, to: types.DataType) -> bool:
    """Return whether all parts can be cast. A structured type is cast only to its own class."""
    if isinstance(to, types.RowType):
        if (
            not isinstance(source, types.RowType)
            or len(source.fields) != len(to.fields)
            or _are_different_classes(source, to)
        ):
            return False
    elif type(source) is not type(to) and not (_is_list(source) and _is_list(to)):
        return False
    return all(map(supports_cast, source.children(), to.children()))


def _are_different_classes(row_type: types.RowType, other: types.RowType) -> bool:
    both = isinstance(row_type, types.StructuredType) and isinstance(other, types.StructuredType)
    return both and row_type.class_name != other.class_name  # type: ignore[attr-defined]


def _is_list(data_type: types.DataType) -> bool:
    return isinstance(data_type, types.ArrayType) and not isinstance(data_type, types.MultisetType)


def _is_single(interval: types.DataType) -> bool:
    """Return whether an interval has a single unit."""
    return " TO " not in interval.resolution.value  # type: ignore[attr-defined]


def _get_number_type(interval: types.DataType) -> type[types.DataType]:
    """Return the numeric type that stores an interval."""
    assert isinstance(interval, types.YearMonthIntervalType | types.DayTimeIntervalType)
    return types.IntType if isinstance(interval, types.YearMonthIntervalType) else types.BigIntType


def refusal(source: types.DataType, to: types.DataType) -> str:
    """Return why one type cannot be cast to the other."""
    if isinstance(source, types.NumericType) and isinstance(to, types.TimestampType):
        return (
            "The cast from NUMERIC type to TIMESTAMP type is not allowed. It's recommended to use "
            "TO_TIMESTAMP(FROM_UNIXTIME(numeric_col)) instead, note the numeric is in seconds."
        )
    if isinstance(source, types.NumericType) and isinstance(to, types.LocalZonedTimestampType):
        return (
            "The cast from NUMERIC type to TIMESTAMP_LTZ type is not allowed. It's recommended to use "
            "TO_TIMESTAMP_LTZ(numeric_col, precision) instead."
        )
    if isinstance(source, types.TimestampType) and isinstance(to, types.NumericType):
        return (
            "The cast from TIMESTAMP type to NUMERIC type is not allowed. It's recommended to use "
            "UNIX_TIMESTAMP(CAST(timestamp_col AS STRING)) instead."
        )
    if isinstance(source, types.LocalZonedTimestampType) and isinstance(to, types.NumericType):
        return "The cast from TIMESTAMP_LTZ type to NUMERIC type is not allowed."
    reason = f"Cast function cannot convert value of type {source} to type {to}"
    if isinstance(source, types.VariantType):
        return f"{reason}; JSON_STRING returns a variant as JSON, and JSON_VALUE a scalar in it"
    return reason


_WIDE: Final = Context(prec=400, Emax=999_999, Emin=-999_999)
_WHOLE_DIGITS_OF_LONG: Final = 18
#: holds the shortest text of each number from 0.001 with at most 17 digits before the decimal point
_OF_USUAL_SIZE: Final = types.DecimalType(38, 20)
_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1


def number_kernel(source: types.DataType, to: types.DataType) -> Kernel:
    """Return the kernel of a cast between numbers and booleans."""
    target = arrow_type(to)
    if isinstance(to, types.BooleanType):
        return lambda column: pc.not_equal(column, pa.scalar(0, column.type))
    if isinstance(source, types.BooleanType):
        if isinstance(to, types.DecimalType) and to.precision == to.scale:
            return partial(_zero_of_false, to, number_kernel(types.TinyIntType(), to))
        return _then(lambda column: pc.cast(column, pa.int8()), number_kernel(types.TinyIntType(), to))
    if isinstance(to, types.DecimalType):
        if isinstance(source, types.FloatType | types.DoubleType):
            return _decimal_of_doubles(source, to)
        exact = as_decimal(source)
        if isinstance(source, types.DecimalType):
            return decimal_kernel(exact, to)
        return _then(lambda column: pc.cast(column, arrow_type(exact)), decimal_kernel(exact, to))
    if isinstance(to, types.IntegralType):
        if isinstance(source, types.DecimalType):
            return _then(_whole_part(source), lambda column: pc.cast(column, target, safe=False))
        if isinstance(source, types.FloatType | types.DoubleType):
            return _then(
                _cut_to_long if isinstance(to, types.BigIntType) else _cut_to_int,
                lambda column: pc.cast(column, target, safe=False),
            )
    if isinstance(source, types.DecimalType) and isinstance(to, types.FloatType | types.DoubleType):
        return _then(_double_of_decimal(source), lambda column: pc.cast(column, target, safe=False))
    return lambda column: pc.cast(column, target, safe=False)


def _zero_of_false(to: types.DecimalType, convert: Kernel, column: Datum) -> Datum:
    """Cast booleans to decimals without digits before the point, which cannot hold TRUE."""
    if pc.any(column if isinstance(column, pa.Array) else pa.array([column.as_py()], pa.bool_())).as_py():
        raise TableRuntimeError(f"TRUE is 1, which {to.not_null()} cannot hold. TRY_CAST gives NULL.")
    return convert(pc.cast(column, pa.int8()))


def decimal_kernel(source: types.DecimalType, to: types.DecimalType) -> Kernel:
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


def _decimal_of_doubles(source: types.DataType, to: types.DecimalType) -> Kernel:
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


def _double_of_decimal(source: types.DecimalType) -> Kernel:
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


def _whole_part(source: types.DecimalType) -> Kernel:
    """Return the kernel that drops the fraction of a decimal and keeps the lowest 64 bits."""
    if source.precision - source.scale <= _WHOLE_DIGITS_OF_LONG:
        integral = pa.decimal128(max(source.precision - source.scale, 1), 0)
        return lambda column: pc.cast(pc.cast(column, integral, safe=False), pa.int64())
    return value_kernel(lambda value: (int(value) - _LONG_MIN) % 2**64 + _LONG_MIN, [source], types.BigIntType())


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


_MS_DIGITS: Final = 3


def time_kernel(source: types.DataType, to: types.DataType, session: Session) -> Kernel:
    """Return the kernel of a cast between dates, times and timestamps."""
    if isinstance(to, types.LocalZonedTimestampType) and not isinstance(source, types.LocalZonedTimestampType):
        clock = time_kernel(source, types.TimestampType(to.precision), session)
        return lambda column: to_moments(clock(column), session.zone)
    if isinstance(source, types.LocalZonedTimestampType) and not isinstance(to, types.LocalZonedTimestampType):
        local_kernel = time_kernel(types.TimestampType(source.precision), to, session)
        return lambda column: local_kernel(to_local(column, session.zone))
    target = arrow_type(to)
    if isinstance(source, types.DateType):
        return lambda column: _with_unit(column, target)
    if isinstance(source, types.TimeType):
        if isinstance(to, types.TimeType):
            return _cut_times(to.precision)
        return lambda column: pc.cast(view(pc.cast(view(column, pa.int32()), pa.int64()), pa.timestamp("ms")), target)
    if isinstance(to, types.DateType):
        return lambda column: pc.cast(column, target, safe=False)
    if isinstance(to, types.TimeType):
        return _time_of_day(to.precision)
    return cut_timestamp_kernel(source, to)


def cut_timestamp_kernel(source: types.DataType, to: types.DataType, is_text: bool = False) -> Kernel:
    """Return the kernel of a cast to another precision.

    As in Flink, milliseconds are truncated toward 1970. If the timestamps come from text (`is_text`), digits are left
    out, so they are truncated toward the past.
    """
    digits, target = to.precision, arrow_type(to)  # type: ignore[attr-defined]
    unit_digits = DIGITS[target.unit]
    is_cut = digits < source.precision and digits < unit_digits  # type: ignore[attr-defined]

    def kernel(column: Datum) -> Datum:
        if column.type == target and not is_cut:
            return column
        if DIGITS[column.type.unit] > unit_digits:
            column = pc.floor_temporal(column, unit=_UNITS[target.unit])
        column = _with_unit(column, target)
        if not is_cut:
            return column
        step = pa.scalar(10 ** (unit_digits - digits), pa.int64())
        numbers = view(column, pa.int64())
        if is_text or digits > _MS_DIGITS:
            numbers = pc.subtract(numbers, _remainder(numbers, step))
        else:
            numbers = pc.multiply(pc.divide(numbers, step), step)
        return view(numbers, target)

    return kernel


def _with_unit(column: Datum, target: pa.DataType) -> Datum:
    """Convert dates or timestamps to another timestamp unit; raise `TableRuntimeError` if it cannot hold them."""
    try:
        return pc.cast(column, target)
    except pa.ArrowInvalid:
        raise TableRuntimeError(FAR_NANOSECONDS) from None


_UNITS: Final = {"ms": "millisecond", "us": "microsecond"}


def cut_time(milliseconds: int, digits: int) -> int:
    """Truncate a time of day to `digits` fractional digits of a second."""
    step: int = 10 ** max(_MS_DIGITS - digits, 0)
    return milliseconds // step * step


def _cut_times(digits: int) -> Kernel:
    if digits >= _MS_DIGITS:
        return lambda column: column
    step = pa.scalar(10 ** (_MS_DIGITS - digits), pa.int32())

    def kernel(column: Datum) -> Datum:
        numbers = view(column, pa.int32())
        return view(pc.multiply(pc.divide(numbers, step), step), pa.time32("ms"))

    return kernel


def _time_of_day(digits: int) -> Kernel:
    cut = _cut_times(digits)

    def kernel(column: Datum) -> Datum:
        if column.type.unit != "ms":
            column = pc.cast(pc.floor_temporal(column, unit="millisecond"), pa.timestamp("ms"))
        rest = _remainder(view(column, pa.int64()), pa.scalar(DAY_MS, pa.int64()))
        return cut(view(pc.cast(rest, pa.int32()), pa.time32("ms")))

    return kernel


def _remainder(numbers: Datum, step: pa.Scalar) -> Datum:
    """Return the remainder of a division by `step`, never below 0."""
    rest = pc.subtract(numbers, pc.multiply(pc.divide(numbers, step), step))
    return pc.if_else(pc.less(rest, 0), pc.add(rest, step), rest)
