"""PRINTF."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.base.errors import UnsupportedError
from penstock.table.data.logical_types import (
    BigIntType,
    BooleanType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntType,
    LocalZonedTimestampType,
    NullType,
    SmallIntType,
    TimestampType,
    TimeType,
    TinyIntType,
    YearMonthIntervalType,
)
from penstock.table.data.temporal_text import DAY_NS, civil_from_days
from penstock.table.data.values import Kernel
from penstock.table.functions.definition import Call, ScalarFunction, scalar
from penstock.table.functions.java_format import Argument, FormatError, Shown, Single, Whole, formatted
from penstock.table.functions.kernels import value_kernel
from penstock.table.functions.signatures import ANY, STRING, TEXT, returns_nullable, takes
from penstock.table.functions.type_rules import is_text

_BITS: dict[type[DataType], int] = {
    TinyIntType: 8,
    SmallIntType: 16,
    IntType: 32,
    BigIntType: 64,
    DateType: 32,
    TimeType: 32,
    YearMonthIntervalType: 32,
    DayTimeIntervalType: 64,
}


def timestamp_text(nanoseconds: int) -> str:
    """Return a timestamp as Java prints it: omitting zero seconds and fractions."""
    days, rest = divmod(nanoseconds, DAY_NS)
    year, month, day = civil_from_days(days)
    seconds, fraction = divmod(rest, 1_000_000_000)
    text = f"{year:04d}-{month:02d}-{day:02d}T{seconds // 3600:02d}:{seconds // 60 % 60:02d}"
    if seconds % 60 or fraction:
        text += f":{seconds % 60:02d}"
    if not fraction:
        return text
    digits = f"{fraction:09d}"
    return f"{text}.{digits[:3] if digits.endswith('000000') else digits[:6] if digits.endswith('000') else digits}"


def _argument(data_type: DataType) -> Callable[[Any], Argument]:
    """Return a function that converts values of a type to format arguments."""
    bits = _BITS.get(type(data_type))
    if bits is not None:
        return lambda value: Whole(value, bits)
    if isinstance(data_type, BooleanType | DoubleType | NullType):
        return lambda value: value
    if isinstance(data_type, FloatType):
        return Single
    if isinstance(data_type, TimestampType | LocalZonedTimestampType):
        return lambda value: Shown(timestamp_text(value))
    if is_text(data_type) or isinstance(data_type, DecimalType):
        return lambda value: Shown(f"{value:f}" if not isinstance(value, str) else value)
    raise UnsupportedError(f"PRINTF does not format values of type {data_type}")


def _printf(call: Call) -> Kernel:
    converters = [_argument(data_type) for data_type in call.types[1:]]

    def one(pattern: str | None, *values: Any) -> str | None:
        if pattern is None:
            return None
        arguments = [None if value is None else see(value) for see, value in zip(converters, values, strict=True)]
        try:
            return formatted(pattern, arguments)
        except FormatError:
            return None

    return value_kernel(one, call.types, call.result, takes_null=True)


FUNCTIONS: tuple[ScalarFunction, ...] = (
    scalar(
        "PRINTF",
        (takes(TEXT), takes(TEXT, ANY, repeated=1)),
        returns_nullable(STRING),
        _printf,
        "Formats the values with a Java format string; returns NULL if a value does not fit the format.",
        section="string",
        usage="PRINTF(format, value1, ...)",
    ),
)
