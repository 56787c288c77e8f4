"""The casts that Flink supports explicitly, and the reasons for refusing others."""

from __future__ import annotations

from penstock.table.data.logical_types import (
    ArrayType,
    BigIntType,
    BitmapType,
    BooleanType,
    DataType,
    DateType,
    DayTimeIntervalType,
    IntegralType,
    IntType,
    LocalZonedTimestampType,
    MapType,
    MultisetType,
    NullType,
    NumericType,
    RowType,
    StructuredType,
    TimestampType,
    TimeType,
    YearMonthIntervalType,
)
from penstock.table.functions.type_rules import BYTES, INTERVALS, TEXTS

_MOMENTS = (TimestampType, LocalZonedTimestampType)


def supports_cast(found: DataType, to: DataType) -> bool:
    """Return whether Flink has a cast from one type to the other."""
    if isinstance(found, NullType) or isinstance(to, TEXTS) or found.not_null() == to.not_null():
        return True
    if isinstance(to, ArrayType | MapType | RowType):
        return _supports_nested(found, to)
    if isinstance(found, TEXTS):
        return isinstance(to, (*BYTES, BooleanType, NumericType, DateType, TimeType, *_MOMENTS))
    if isinstance(to, BYTES):
        return isinstance(found, (*BYTES, BitmapType))
    if isinstance(to, BooleanType):
        return isinstance(found, IntegralType)
    if isinstance(to, INTERVALS):
        return type(found) is type(to) or (_is_single(to) and isinstance(found, _number_of(to)))
    if isinstance(to, NumericType):
        if isinstance(found, INTERVALS):
            return _is_single(found) and isinstance(to, _number_of(found))
        return isinstance(found, NumericType | BooleanType)
    if isinstance(to, DateType):
        return isinstance(found, _MOMENTS)
    if isinstance(to, TimeType):
        return isinstance(found, (TimeType, *_MOMENTS))
    if isinstance(to, _MOMENTS):
        return isinstance(found, (DateType, TimeType, *_MOMENTS))
    return False


def _supports_nested(found: DataType, to: DataType) -> bool:
    """Return whether all parts can be cast. A structured type is cast only to its own class."""
    if isinstance(to, RowType):
        if not isinstance(found, RowType) or len(found.fields) != len(to.fields) or _are_different_classes(found, to):
            return False
    elif type(found) is not type(to) and not (_is_list(found) and _is_list(to)):
        return False
    return all(map(supports_cast, found.children(), to.children()))


def _are_different_classes(one: RowType, other: RowType) -> bool:
    both = isinstance(one, StructuredType) and isinstance(other, StructuredType)
    return both and one.class_name != other.class_name  # type: ignore[attr-defined]


def _is_list(found: DataType) -> bool:
    return isinstance(found, ArrayType) and not isinstance(found, MultisetType)


def _is_single(interval: DataType) -> bool:
    """Return whether an interval has a single unit."""
    return " TO " not in interval.resolution.value  # type: ignore[attr-defined]


def _number_of(interval: DataType) -> type[DataType]:
    """Return the numeric type that stores an interval."""
    assert isinstance(interval, YearMonthIntervalType | DayTimeIntervalType)
    return IntType if isinstance(interval, YearMonthIntervalType) else BigIntType


def refusal(found: DataType, to: DataType) -> str:
    """Return why one type cannot be cast to the other."""
    if isinstance(found, NumericType) and isinstance(to, TimestampType):
        return (
            "The cast from NUMERIC type to TIMESTAMP type is not allowed. It's recommended to use "
            "TO_TIMESTAMP(FROM_UNIXTIME(numeric_col)) instead, note the numeric is in seconds."
        )
    if isinstance(found, NumericType) and isinstance(to, LocalZonedTimestampType):
        return (
            "The cast from NUMERIC type to TIMESTAMP_LTZ type is not allowed. It's recommended to use "
            "TO_TIMESTAMP_LTZ(numeric_col, precision) instead."
        )
    if isinstance(found, TimestampType) and isinstance(to, NumericType):
        return (
            "The cast from TIMESTAMP type to NUMERIC type is not allowed. It's recommended to use "
            "UNIX_TIMESTAMP(CAST(timestamp_col AS STRING)) instead."
        )
    if isinstance(found, LocalZonedTimestampType) and isinstance(to, NumericType):
        return "The cast from TIMESTAMP_LTZ type to NUMERIC type is not allowed."
    return f"Cast function cannot convert value of type {found} to type {to}"
