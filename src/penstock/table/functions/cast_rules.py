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


def supports_cast(source: DataType, to: DataType) -> bool:
    """Return whether Flink has a cast from one type to the other."""
    if isinstance(source, NullType) or isinstance(to, TEXTS) or source.not_null() == to.not_null():
        return True
    if isinstance(to, ArrayType | MapType | RowType):
        return _supports_nested(source, to)
    if isinstance(source, TEXTS):
        return isinstance(to, (*BYTES, BooleanType, NumericType, DateType, TimeType, *_MOMENTS))
    if isinstance(to, BYTES):
        return isinstance(source, (*BYTES, BitmapType))
    if isinstance(to, BooleanType):
        return isinstance(source, IntegralType)
    if isinstance(to, INTERVALS):
        return type(source) is type(to) or (_is_single(to) and isinstance(source, _get_number_type(to)))
    if isinstance(to, NumericType):
        if isinstance(source, INTERVALS):
            return _is_single(source) and isinstance(to, _get_number_type(source))
        return isinstance(source, NumericType | BooleanType)
    if isinstance(to, DateType):
        return isinstance(source, _MOMENTS)
    if isinstance(to, TimeType):
        return isinstance(source, (TimeType, *_MOMENTS))
    if isinstance(to, _MOMENTS):
        return isinstance(source, (DateType, TimeType, *_MOMENTS))
    return False


def _supports_nested(source: DataType, to: DataType) -> bool:
    """Return whether all parts can be cast. A structured type is cast only to its own class."""
    if isinstance(to, RowType):
        if (
            not isinstance(source, RowType)
            or len(source.fields) != len(to.fields)
            or _are_different_classes(source, to)
        ):
            return False
    elif type(source) is not type(to) and not (_is_list(source) and _is_list(to)):
        return False
    return all(map(supports_cast, source.children(), to.children()))


def _are_different_classes(row_type: RowType, other: RowType) -> bool:
    both = isinstance(row_type, StructuredType) and isinstance(other, StructuredType)
    return both and row_type.class_name != other.class_name  # type: ignore[attr-defined]


def _is_list(data_type: DataType) -> bool:
    return isinstance(data_type, ArrayType) and not isinstance(data_type, MultisetType)


def _is_single(interval: DataType) -> bool:
    """Return whether an interval has a single unit."""
    return " TO " not in interval.resolution.value  # type: ignore[attr-defined]


def _get_number_type(interval: DataType) -> type[DataType]:
    """Return the numeric type that stores an interval."""
    assert isinstance(interval, YearMonthIntervalType | DayTimeIntervalType)
    return IntType if isinstance(interval, YearMonthIntervalType) else BigIntType


def refusal(source: DataType, to: DataType) -> str:
    """Return why one type cannot be cast to the other."""
    if isinstance(source, NumericType) and isinstance(to, TimestampType):
        return (
            "The cast from NUMERIC type to TIMESTAMP type is not allowed. It's recommended to use "
            "TO_TIMESTAMP(FROM_UNIXTIME(numeric_col)) instead, note the numeric is in seconds."
        )
    if isinstance(source, NumericType) and isinstance(to, LocalZonedTimestampType):
        return (
            "The cast from NUMERIC type to TIMESTAMP_LTZ type is not allowed. It's recommended to use "
            "TO_TIMESTAMP_LTZ(numeric_col, precision) instead."
        )
    if isinstance(source, TimestampType) and isinstance(to, NumericType):
        return (
            "The cast from TIMESTAMP type to NUMERIC type is not allowed. It's recommended to use "
            "UNIX_TIMESTAMP(CAST(timestamp_col AS STRING)) instead."
        )
    if isinstance(source, LocalZonedTimestampType) and isinstance(to, NumericType):
        return "The cast from TIMESTAMP_LTZ type to NUMERIC type is not allowed."
    return f"Cast function cannot convert value of type {source} to type {to}"
