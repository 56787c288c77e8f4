"""Flink's type rules: common types, implicit casts, and the types of decimal arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from penstock.table.data.logical_types import (
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


def is_text(found: DataType) -> bool:
    """Return whether a type is CHAR, VARCHAR or STRING."""
    return isinstance(found, TEXTS)


def as_decimal(found: DataType) -> DecimalType:
    """Return the decimal type that holds all values of an exact numeric type."""
    if isinstance(found, DecimalType):
        return found
    return DecimalType(DIGITS[type(found)], 0, found.is_nullable)  # type: ignore[index]


def adjusted_decimal(precision: int, scale: int) -> DecimalType:
    """Return a decimal type of at most 38 digits. Excess digits are taken from the fraction, down to 6."""
    if precision <= PRECISION_MAX:
        return DecimalType(precision, scale)
    whole = precision - scale
    return DecimalType(PRECISION_MAX, max(PRECISION_MAX - whole, min(scale, MIN_ADJUSTED_SCALE)))


def sum_of_decimals(one: DecimalType, other: DecimalType) -> DecimalType:
    """Return the result type of `+` and `-`."""
    scale = max(one.scale, other.scale)
    whole = max(one.precision - one.scale, other.precision - other.scale)
    return adjusted_decimal(whole + scale + 1, scale)


def product_of_decimals(one: DecimalType, other: DecimalType) -> DecimalType:
    """Return the result type of `*`."""
    return adjusted_decimal(one.precision + other.precision + 1, one.scale + other.scale)


def quotient_of_decimals(one: DecimalType, other: DecimalType) -> DecimalType:
    """Return the result type of `/`."""
    scale = max(MIN_ADJUSTED_SCALE, one.scale + other.precision + 1)
    return adjusted_decimal(one.precision - one.scale + other.scale + scale, scale)


def remainder_of_decimals(one: DecimalType, other: DecimalType) -> DecimalType:
    """Return the result type of MOD."""
    scale = max(one.scale, other.scale)
    return adjusted_decimal(min(one.precision - one.scale, other.precision - other.scale) + scale, scale)


def rounded_decimal(one: DecimalType, digits: int) -> DecimalType:
    """Return the result type of ROUND to `digits` decimal places."""
    if digits >= one.scale:
        return DecimalType(one.precision, one.scale)
    whole = 1 + one.precision - one.scale
    return DecimalType(min(PRECISION_MAX, whole if digits < 0 else whole + digits), max(digits, 0))


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
    known = [one for one in types if not isinstance(one, NullType)]
    if mixes_dates(known):
        return None
    if {type(one) for one in known} == {TimestampType, LocalZonedTimestampType}:
        digits = {getattr(one, "precision", 0) for one in known}
        found: DataType | None = known[0] if len(digits) == 1 else TimestampType(max(digits))
    else:
        found = _merged(known or types, first_number)
    if found is None:
        return None
    return found.nullable() if any(one.is_nullable for one in types) else found.not_null()


def type_of_rows(types: Sequence[DataType]) -> DataType | None:
    """Return the type of a column of VALUES, UNION, INTERSECT or EXCEPT. Numbers merge by the rule of operators."""
    return _merged(types, first_number)


def equality_type(types: Sequence[DataType]) -> DataType | None:
    """Return the common type for `=`, `<>` and IN.

    FLOAT and DOUBLE are compared in the type of the first operand, but fields of rows in the type that holds the values
    of both.
    """
    has_rows = any(type(one) is RowType for one in types)
    return _merged(types, wider_number if has_rows else first_number)


def order_type(types: Sequence[DataType]) -> DataType | None:
    """Return the common type for `<`, `<=`, `>`, `>=`, BETWEEN and IS DISTINCT FROM. It never rounds."""
    return _merged(types, wider_number)


def first_number(one: NumericType, other: NumericType) -> NumericType:
    """Return the first of FLOAT and DOUBLE, but DOUBLE if either meets a DECIMAL."""
    if isinstance(one, APPROXIMATE) and isinstance(other, APPROXIMATE):
        return one
    if isinstance(one, APPROXIMATE) or isinstance(other, APPROXIMATE):
        has_decimal = isinstance(one, DecimalType) or isinstance(other, DecimalType)
        return DoubleType() if has_decimal else wider_number(one, other)
    return _exact_number(one, other)


def wider_number(one: NumericType, other: NumericType) -> NumericType:
    """Return the wider numeric type: DOUBLE if FLOAT meets DOUBLE or DECIMAL."""
    both = (one, other)
    has_float = any(isinstance(found, FloatType) for found in both)
    if any(isinstance(found, DoubleType) for found in both):
        return DoubleType()
    if has_float:
        return DoubleType() if any(isinstance(found, DecimalType) for found in both) else FloatType()
    return _exact_number(one, other)


def merged_number(one: NumericType, other: NumericType) -> NumericType:
    """Like `wider_number`, but FLOAT if a FLOAT follows a DECIMAL: Flink's functions depend on the order here."""
    if isinstance(one, DecimalType) and isinstance(other, FloatType):
        return FloatType()
    return wider_number(one, other)


def _exact_number(one: NumericType, other: NumericType) -> NumericType:
    if isinstance(one, IntegralType) and isinstance(other, IntegralType):
        return max(one, other, key=lambda found: INTEGERS.index(type(found)))
    left, right = as_decimal(one), as_decimal(other)
    scale = max(left.scale, right.scale)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    return DecimalType(min(PRECISION_MAX, whole + scale), min(scale, PRECISION_MAX - whole))


def _merged(types: Sequence[DataType], number: NumberRule) -> DataType | None:
    known = [one for one in types if not isinstance(one, NullType)]
    if not known:
        return NullType() if types else None
    found: DataType | None = known[0]
    for one in known[1:]:
        found = None if found is None else _common(found, one, number)
    if found is None:
        return None
    return found.nullable() if any(one.is_nullable for one in types) else found.not_null()


def mixes_dates(types: Sequence[DataType]) -> bool:
    """Return whether types include both dates and timestamps, which operators do not combine."""
    has_date = any(isinstance(one, DateType) for one in types)
    return has_date and any(isinstance(one, TimestampType | LocalZonedTimestampType) for one in types)


def _common(one: DataType, other: DataType, number: NumberRule) -> DataType | None:
    if one.not_null() == other.not_null():
        return one
    if isinstance(one, NumericType) and isinstance(other, NumericType):
        return number(one, other)
    for family, longest in ((TEXTS, VarCharType), (BYTES, VarBinaryType)):
        if isinstance(one, family) and isinstance(other, family):
            same = type(one) is type(other) and one.length == other.length
            return one if same else longest(max(one.length, other.length, 1))
    if isinstance(one, TIMES) and isinstance(other, TIMES):
        return _common_time(one, other)
    if isinstance(one, YearMonthIntervalType) and isinstance(other, YearMonthIntervalType):
        return YearMonthIntervalType(_wider(one.resolution, other.resolution), max(one.precision, other.precision))
    if isinstance(one, DayTimeIntervalType) and isinstance(other, DayTimeIntervalType):
        return DayTimeIntervalType(
            _wider(one.resolution, other.resolution),
            max(one.day_precision, other.day_precision),
            max(one.fractional_precision, other.fractional_precision),
        )
    if type(one) is not type(other):
        return None
    return _common_nested(one, other, number)


def _common_time(one: DataType, other: DataType) -> DataType | None:
    if isinstance(one, TimeType) or isinstance(other, TimeType):
        if isinstance(one, TimeType) and isinstance(other, TimeType):
            return TimeType(max(one.precision, other.precision))
        return None
    kinds = [
        kind for kind in (LocalZonedTimestampType, TimestampType) if isinstance(one, kind) or isinstance(other, kind)
    ]
    precision = max(getattr(one, "precision", 0), getattr(other, "precision", 0))
    return kinds[0](precision)


def _common_nested(one: DataType, other: DataType, number: NumberRule) -> DataType | None:
    parts = [_merged(pair, number) for pair in zip(one.children(), other.children(), strict=False)]
    if len(parts) != len(list(one.children())) or len(parts) != len(list(other.children())) or None in parts:
        return None
    kept: list[DataType] = [part for part in parts if part is not None]
    if isinstance(one, MultisetType):
        return MultisetType(kept[0])
    if isinstance(one, ArrayType):
        return ArrayType(kept[0])
    if isinstance(one, MapType):
        return MapType(kept[0], kept[1])
    if type(one) is RowType:
        return RowType([RowField(field.name, part) for field, part in zip(one.fields, kept, strict=True)])
    return None


def _wider(one: IntervalResolution, other: IntervalResolution) -> IntervalResolution:
    order = ["YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"]
    ends = [resolution.value.split(" TO ") for resolution in (one, other)]
    first = min((end[0] for end in ends), key=order.index)
    last = max((end[-1] for end in ends), key=order.index)
    return IntervalResolution(first if first == last else f"{first} TO {last}")


def can_cast_implicitly(found: DataType, to: DataType) -> bool:
    """Return whether an operand of one type is accepted where another is required, without an explicit cast."""
    if isinstance(found, NullType) or found.not_null() == to.not_null():
        return True
    if isinstance(found, NumericType) and isinstance(to, NumericType):
        return _holds_number(found, to)
    if is_text(found):
        return isinstance(to, VarCharType) or (isinstance(to, CharType) and isinstance(found, CharType))
    if isinstance(found, BYTES):
        return isinstance(to, VarBinaryType) or type(found) is type(to)
    if isinstance(found, TIMES) and isinstance(to, TIMES):
        if isinstance(found, TimeType) or isinstance(to, TimeType):
            return type(found) is type(to)
        return isinstance(to, TimestampType | LocalZonedTimestampType) or type(found) is type(to)
    if isinstance(found, INTERVALS):
        return type(found) is type(to)
    if type(found) is not type(to) or isinstance(found, BooleanType):
        return type(found) is type(to)
    mine, wanted = list(found.children()), list(to.children())
    return len(mine) == len(wanted) and all(map(can_cast_implicitly, mine, wanted))


def _holds_number(found: DataType, to: DataType) -> bool:
    if isinstance(to, DoubleType):
        return True
    if isinstance(to, FloatType):
        return not isinstance(found, DoubleType)
    if isinstance(to, DecimalType):
        return not isinstance(found, DoubleType | FloatType)
    return isinstance(found, IntegralType) and INTEGERS.index(type(found)) <= INTEGERS.index(type(to))
