"""Converts Python values to SQL literals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

from penstock.base.errors import WrongTypeError
from penstock.base.types import Row
from penstock.table.data import temporal_text
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import (
    PRECISION_MAX,
    ArrayType,
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    IntervalResolution,
    LocalZonedTimestampType,
    MapType,
    NumericType,
    RowType,
    TimestampType,
    TimeType,
    VarBinaryType,
    VarCharType,
)
from penstock.table.sql import syntax


def to_literal(value: object, data_type: DataType | None = None) -> syntax.Expression:
    """Return a value as a literal of the given type, or of the type inferred from the value.

    Raises `WrongTypeError` if the value cannot be a literal, and `ValidationError` if the type does not accept it.
    """
    if value is None:
        return syntax.NullLiteral() if data_type is None else syntax.TypedLiteral(None, data_type.nullable())
    for kinds, make, fits in _LITERALS:
        if isinstance(value, kinds):
            if data_type is None:
                return make(value)
            if not isinstance(data_type, fits):
                raise ValidationError(
                    f"Data type '{data_type}' does not support a value literal of a class '{type(value).__name__}'."
                )
            return syntax.Cast(make(value), data_type)
    raise WrongTypeError(f"{value!r} cannot be a literal: take a column, an expression or a plain value of Python")


def _whole_number(value: int) -> syntax.Expression:
    return _signed(str(abs(value)), value < 0)


def _float(value: float) -> syntax.Expression:
    if not math.isfinite(value):
        return syntax.TypedLiteral(value, DoubleType(False))
    digits = repr(abs(value))
    return _signed(digits if "e" in digits else f"{digits}E0", math.copysign(1, value) < 0)


def _signed(digits: str, is_negative: bool) -> syntax.Expression:
    number = syntax.NumberLiteral(digits)
    return syntax.Call("MINUS_PREFIX", (number,)) if is_negative else number


def _decimal(value: Decimal) -> syntax.Expression:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValidationError(f"{value} is no decimal number of SQL")
    scale = max(-exponent, 0)
    precision = max(len(digits) + max(exponent, 0), scale, 1)
    if precision > PRECISION_MAX:
        raise ValidationError(f"the number {value} has more than {PRECISION_MAX} digits")
    return syntax.TypedLiteral(value.quantize(Decimal(1).scaleb(-scale)), DecimalType(precision, scale, False))


def _moment(value: datetime) -> syntax.Expression:
    if value.tzinfo is None:
        return syntax.TemporalLiteral("TIMESTAMP", _without_zeros(value.isoformat(" "), value.microsecond))
    since = value - datetime(1970, 1, 1, tzinfo=UTC)
    nanoseconds = since // timedelta(microseconds=1) * 1_000
    digits = temporal_text.fraction_digits(_without_zeros(value.replace(tzinfo=None).isoformat(), value.microsecond))
    return syntax.TypedLiteral(nanoseconds, LocalZonedTimestampType(digits, False))


def _time(value: time) -> syntax.Expression:
    text = value.replace(tzinfo=None).isoformat()
    return syntax.TemporalLiteral("TIME", _without_zeros(text, value.microsecond))


def _without_zeros(text: str, microsecond: int) -> str:
    return text.rstrip("0") if microsecond else text


def _length_of_time(value: timedelta) -> syntax.Expression:
    is_negative = value < timedelta()
    value = abs(value)
    seconds, minutes, hours = value.seconds % 60, value.seconds // 60 % 60, value.seconds // 3600
    fraction = f".{value.microseconds:06d}" if value.microseconds else ""
    text = f"{value.days} {hours:02d}:{minutes:02d}:{seconds:02d}{fraction}"
    qualifier = syntax.IntervalQualifier(IntervalResolution.DAY_TO_SECOND, max(len(str(value.days)), 2))
    return syntax.IntervalLiteral(text, qualifier, is_negative)


def _map(value: Mapping[Any, Any]) -> syntax.Expression:
    return syntax.Collection("MAP", tuple(to_literal(item) for pair in value.items() for item in pair))


#: Python types, their converters, and the SQL types that accept them; bool comes first because it is a subclass of int
_LITERALS: Final[tuple[tuple[Any, Callable[[Any], syntax.Expression], tuple[type[DataType], ...]], ...]] = (
    (bool, syntax.BooleanLiteral, (BooleanType,)),
    (int, _whole_number, (NumericType,)),
    (float, _float, (NumericType,)),
    (Decimal, _decimal, (NumericType,)),
    (str, syntax.TextLiteral, (CharType, VarCharType)),
    ((bytes, bytearray), lambda value: syntax.BinaryLiteral(value.hex().upper()), (BinaryType, VarBinaryType)),
    (datetime, _moment, (TimestampType, LocalZonedTimestampType)),
    (date, lambda value: syntax.TemporalLiteral("DATE", value.isoformat()), (DateType,)),
    (time, _time, (TimeType,)),
    (timedelta, _length_of_time, (DayTimeIntervalType,)),
    (list, lambda value: syntax.Collection("ARRAY", tuple(map(to_literal, value))), (ArrayType,)),
    (Mapping, _map, (MapType,)),
    ((tuple, Row), lambda value: syntax.numbered_row(map(to_literal, value)), (RowType,)),
)
