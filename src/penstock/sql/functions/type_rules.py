"""Flink's type rules: common types, implicit casts, and the types of decimal arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from penstock.sql.data.types import (
    PRECISION_MAX,
    ArrayType,
    BigIntType,
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    IntervalResolution,
    IntType,
    LocalZonedTimestampType,
    MapType,
    MultisetType,
    NullType,
    NumericType,
    RowField,
    RowType,
    SmallIntType,
    TimestampType,
    TimeType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
)

INTEGERS: Final[tuple[type[DataType], ...]] = (TinyIntType, SmallIntType, IntType, BigIntType)
#: the decimal precision of each integer type
DIGITS: Final = {TinyIntType: 3, SmallIntType: 5, IntType: 10, BigIntType: 19}
MIN_ADJUSTED_SCALE: Final = 6
TEXTS: Final = (CharType, VarCharType)
BYTES: Final = (BinaryType, VarBinaryType)
TIMES: Final = (DateType, TimeType, TimestampType, LocalZonedTimestampType)
APPROXIMATE: Final = (FloatType, DoubleType)
INTERVALS: Final = (YearMonthIntervalType, DayTimeIntervalType)

#: returns the common type of several types, or None
TypeRule = Callable[[Sequence[DataType]], DataType | None]
#: merges two numeric types, whose order may matter
NumberRule = Callable[[NumericType, NumericType], NumericType]


def is_text(data_type: DataType) -> bool:
    """Return whether a type is CHAR, VARCHAR or STRING."""
    return isinstance(data_type, TEXTS)


def as_decimal(data_type: DataType) -> DecimalType:
    """Return the decimal type that holds all values of an exact numeric type."""
    if isinstance(data_type, DecimalType):
        return data_type
    return DecimalType(DIGITS[type(data_type)], 0, data_type.is_nullable)  # type: ignore[index]


def adjusted_decimal(precision: int, scale: int) -> DecimalType:
    """Return a decimal type of at most 38 digits. Excess digits are taken from the fraction, down to 6."""
    if precision <= PRECISION_MAX:
        return DecimalType(precision, scale)
    integer_digits = precision - scale
    return DecimalType(PRECISION_MAX, max(PRECISION_MAX - integer_digits, min(scale, MIN_ADJUSTED_SCALE)))


def sum_of_decimals(decimal: DecimalType, other: DecimalType) -> DecimalType:
    """Return the result type of `+` and `-`."""
    scale = max(decimal.scale, other.scale)
    integer_digits = max(decimal.precision - decimal.scale, other.precision - other.scale)
    return adjusted_decimal(integer_digits + scale + 1, scale)


def product_of_decimals(decimal: DecimalType, other: DecimalType) -> DecimalType:
    """Return the result type of `*`."""
    return adjusted_decimal(decimal.precision + other.precision + 1, decimal.scale + other.scale)


def quotient_of_decimals(decimal: DecimalType, other: DecimalType) -> DecimalType:
    """Return the result type of `/`."""
    scale = max(MIN_ADJUSTED_SCALE, decimal.scale + other.precision + 1)
    return adjusted_decimal(decimal.precision - decimal.scale + other.scale + scale, scale)


def remainder_of_decimals(decimal: DecimalType, other: DecimalType) -> DecimalType:
    """Return the result type of MOD."""
    scale = max(decimal.scale, other.scale)
    return adjusted_decimal(min(decimal.precision - decimal.scale, other.precision - other.scale) + scale, scale)


def rounded_decimal(decimal: DecimalType, digits: int) -> DecimalType:
    """Return the result type of ROUND to `digits` decimal places."""
    if digits >= decimal.scale:
        return DecimalType(decimal.precision, decimal.scale)
    integer_digits = 1 + decimal.precision - decimal.scale
    return DecimalType(min(PRECISION_MAX, integer_digits if digits < 0 else integer_digits + digits), max(digits, 0))


def common_type(types: Sequence[DataType]) -> DataType | None:
    """Return the smallest type that holds the values of all types, nullable if any is. None if it does not exist.

    Flink's functions (COALESCE, GREATEST, ARRAY_CONCAT, …) use this rule. Numbers merge by `merged_number`.
    """
    return _merged(types, merged_number)


def least_restrictive(types: Sequence[DataType]) -> DataType | None:
    """Like `common_type`, by the rules of operators, CASE, IF, ARRAY and MAP, which differ for some pairs.

    Of FLOAT and DOUBLE the first wins. A date and a timestamp have no common type. Of TIMESTAMP and TIMESTAMP_LTZ the
    first wins, or TIMESTAMP if their precisions differ.
    """
    known = [data_type for data_type in types if not isinstance(data_type, NullType)]
    if mixes_dates(known):
        return None
    if {type(data_type) for data_type in known} == {TimestampType, LocalZonedTimestampType}:
        digits = {getattr(data_type, "precision", 0) for data_type in known}
        common: DataType | None = known[0] if len(digits) == 1 else TimestampType(max(digits))
    else:
        common = _merged(known or types, first_number)
    if common is None:
        return None
    return common.nullable() if any(data_type.is_nullable for data_type in types) else common.not_null()


def type_of_rows(types: Sequence[DataType]) -> DataType | None:
    """Return the type of a column of VALUES, UNION, INTERSECT or EXCEPT. Numbers merge by the rule of operators."""
    return _merged(types, first_number)


def equality_type(types: Sequence[DataType]) -> DataType | None:
    """Return the common type for `=`, `<>` and IN.

    FLOAT and DOUBLE are compared in the type of the first operand, but fields of rows in the type that holds the values
    of both.
    """
    has_rows = any(type(data_type) is RowType for data_type in types)
    return _merged(types, wider_number if has_rows else first_number)


def order_type(types: Sequence[DataType]) -> DataType | None:
    """Return the common type for `<`, `<=`, `>`, `>=`, BETWEEN and IS DISTINCT FROM. It never rounds."""
    return _merged(types, wider_number)


def first_number(number: NumericType, other: NumericType) -> NumericType:
    """Return the first of FLOAT and DOUBLE, but DOUBLE if either meets a DECIMAL."""
    if isinstance(number, APPROXIMATE) and isinstance(other, APPROXIMATE):
        return number
    if isinstance(number, APPROXIMATE) or isinstance(other, APPROXIMATE):
        has_decimal = isinstance(number, DecimalType) or isinstance(other, DecimalType)
        return DoubleType() if has_decimal else wider_number(number, other)
    return _exact_number(number, other)


def wider_number(number: NumericType, other: NumericType) -> NumericType:
    """Return the wider numeric type: DOUBLE if FLOAT meets DOUBLE or DECIMAL."""
    both = (number, other)
    has_float = any(isinstance(data_type, FloatType) for data_type in both)
    if any(isinstance(data_type, DoubleType) for data_type in both):
        return DoubleType()
    if has_float:
        return DoubleType() if any(isinstance(data_type, DecimalType) for data_type in both) else FloatType()
    return _exact_number(number, other)


def merged_number(number: NumericType, other: NumericType) -> NumericType:
    """Like `wider_number`, but FLOAT if a FLOAT follows a DECIMAL: Flink's functions depend on the order here."""
    if isinstance(number, DecimalType) and isinstance(other, FloatType):
        return FloatType()
    return wider_number(number, other)


def _exact_number(number: NumericType, other: NumericType) -> NumericType:
    if isinstance(number, IntegralType) and isinstance(other, IntegralType):
        return max(number, other, key=lambda data_type: INTEGERS.index(type(data_type)))
    left, right = as_decimal(number), as_decimal(other)
    scale = max(left.scale, right.scale)
    integer_digits = max(left.precision - left.scale, right.precision - right.scale)
    return DecimalType(min(PRECISION_MAX, integer_digits + scale), min(scale, PRECISION_MAX - integer_digits))


def _merged(types: Sequence[DataType], number: NumberRule) -> DataType | None:
    known = [data_type for data_type in types if not isinstance(data_type, NullType)]
    if not known:
        return NullType() if types else None
    common: DataType | None = known[0]
    for other in known[1:]:
        common = None if common is None else _common(common, other, number)
    if common is None:
        return None
    return common.nullable() if any(data_type.is_nullable for data_type in types) else common.not_null()


def mixes_dates(types: Sequence[DataType]) -> bool:
    """Return whether types include both dates and timestamps, which operators do not combine."""
    has_date = any(isinstance(data_type, DateType) for data_type in types)
    return has_date and any(isinstance(data_type, TimestampType | LocalZonedTimestampType) for data_type in types)


def _common(data_type: DataType, other: DataType, number: NumberRule) -> DataType | None:
    if data_type.not_null() == other.not_null():
        return data_type
    if isinstance(data_type, NumericType) and isinstance(other, NumericType):
        return number(data_type, other)
    for family, longest in ((TEXTS, VarCharType), (BYTES, VarBinaryType)):
        if isinstance(data_type, family) and isinstance(other, family):
            same = type(data_type) is type(other) and data_type.length == other.length
            return data_type if same else longest(max(data_type.length, other.length, 1))
    if isinstance(data_type, TIMES) and isinstance(other, TIMES):
        return _common_time(data_type, other)
    if isinstance(data_type, YearMonthIntervalType) and isinstance(other, YearMonthIntervalType):
        return YearMonthIntervalType(
            _wider(data_type.resolution, other.resolution), max(data_type.precision, other.precision)
        )
    if isinstance(data_type, DayTimeIntervalType) and isinstance(other, DayTimeIntervalType):
        return DayTimeIntervalType(
            _wider(data_type.resolution, other.resolution),
            max(data_type.day_precision, other.day_precision),
            max(data_type.fractional_precision, other.fractional_precision),
        )
    if type(data_type) is not type(other):
        return None
    return _common_nested(data_type, other, number)


def _common_time(data_type: DataType, other: DataType) -> DataType | None:
    if isinstance(data_type, TimeType) or isinstance(other, TimeType):
        if isinstance(data_type, TimeType) and isinstance(other, TimeType):
            return TimeType(max(data_type.precision, other.precision))
        return None
    kinds = [
        kind
        for kind in (LocalZonedTimestampType, TimestampType)
        if isinstance(data_type, kind) or isinstance(other, kind)
    ]
    precision = max(getattr(data_type, "precision", 0), getattr(other, "precision", 0))
    return kinds[0](precision)


def _common_nested(data_type: DataType, other: DataType, number: NumberRule) -> DataType | None:
    parts = [_merged(pair, number) for pair in zip(data_type.children(), other.children(), strict=False)]
    if len(parts) != len(list(data_type.children())) or len(parts) != len(list(other.children())) or None in parts:
        return None
    children: list[DataType] = [part for part in parts if part is not None]
    if isinstance(data_type, MultisetType):
        return MultisetType(children[0])
    if isinstance(data_type, ArrayType):
        return ArrayType(children[0])
    if isinstance(data_type, MapType):
        return MapType(children[0], children[1])
    if type(data_type) is RowType:
        return RowType([RowField(field.name, part) for field, part in zip(data_type.fields, children, strict=True)])
    return None


def _wider(interval: IntervalResolution, other: IntervalResolution) -> IntervalResolution:
    order = ["YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"]
    ends = [resolution.value.split(" TO ") for resolution in (interval, other)]
    first = min((end[0] for end in ends), key=order.index)
    last = max((end[-1] for end in ends), key=order.index)
    return IntervalResolution(first if first == last else f"{first} TO {last}")


def can_cast_implicitly(source: DataType, to: DataType) -> bool:
    """Return whether an operand of one type is accepted where another is required, without an explicit cast."""
    if isinstance(source, NullType) or source.not_null() == to.not_null():
        return True
    if isinstance(source, NumericType) and isinstance(to, NumericType):
        return _holds_number(source, to)
    if is_text(source):
        return isinstance(to, VarCharType) or (isinstance(to, CharType) and isinstance(source, CharType))
    if isinstance(source, BYTES):
        return isinstance(to, VarBinaryType) or type(source) is type(to)
    if isinstance(source, TIMES) and isinstance(to, TIMES):
        if isinstance(source, TimeType) or isinstance(to, TimeType):
            return type(source) is type(to)
        return isinstance(to, TimestampType | LocalZonedTimestampType) or type(source) is type(to)
    if isinstance(source, INTERVALS):
        return type(source) is type(to)
    if type(source) is not type(to) or isinstance(source, BooleanType):
        return type(source) is type(to)
    mine, theirs = list(source.children()), list(to.children())
    return len(mine) == len(theirs) and all(map(can_cast_implicitly, mine, theirs))


def _holds_number(source: DataType, to: DataType) -> bool:
    if isinstance(to, DoubleType):
        return True
    if isinstance(to, FloatType):
        return not isinstance(source, DoubleType)
    if isinstance(to, DecimalType):
        return not isinstance(source, DoubleType | FloatType)
    return isinstance(source, IntegralType) and INTEGERS.index(type(source)) <= INTEGERS.index(type(to))
