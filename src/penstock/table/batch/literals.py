"""Constants as literals of Spark SQL."""

from __future__ import annotations

import math
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, Final

from penstock.table.batch.stored import MICROSECOND_DIGITS, spark_type
from penstock.table.data.logical_types import (
    BooleanType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    LocalZonedTimestampType,
    NullType,
    TimestampType,
    TimeType,
    VarCharType,
    YearMonthIntervalType,
)
from penstock.table.data.temporal_text import DAY_NS

_WHOLE: Final = (IntegralType, TimeType, YearMonthIntervalType, DayTimeIntervalType)
#: days from 1970 to the years 1 and 10000, between which Spark reads dates unchanged
_FIRST_DAY: Final = -719162
_LAST_DAY: Final = 2932896


def literal_text(value: Any, data_type: DataType) -> str | None:
    """Return a constant, or None if Spark SQL cannot write it."""
    kind = spark_type(data_type)
    if value is None or isinstance(data_type, NullType):
        return f"CAST(NULL AS {kind})"
    if isinstance(data_type, BooleanType):
        return "true" if value else "false"
    if isinstance(data_type, CharType | VarCharType):
        return text_literal(value)
    if isinstance(data_type, _WHOLE):
        return _number(str(value), kind)
    if isinstance(data_type, DecimalType):
        return _number(format(Decimal(value), "f"), kind)
    if isinstance(data_type, FloatType | DoubleType):
        return _number(repr(value), kind) if math.isfinite(value) else f"CAST('{value}' AS {kind})"
    if isinstance(data_type, DateType):
        return f"DATE'{_day(value)}'" if _FIRST_DAY <= value < _LAST_DAY else None
    if isinstance(data_type, TimestampType | LocalZonedTimestampType):
        return _point(value, data_type, kind)
    return None


def text_literal(text: str) -> str:
    """Return a text literal, escaped so that no character is special."""
    escaped = "".join(_escaped(char) for char in text)
    return f"'{escaped}'"


def _escaped(char: str) -> str:
    if char in "'\\":
        return "\\" + char
    code = ord(char)
    if 32 <= code < 127:
        return char
    return f"\\u{code:04x}" if code < 2**16 else f"\\U{code:08x}"


def _number(digits: str, kind: str) -> str:
    return f"CAST('{digits}' AS {kind})"


def _point(value: int, data_type: TimestampType | LocalZonedTimestampType, kind: str) -> str | None:
    """Return a point in time. A TIMESTAMP_LTZ does not depend on the session's time zone."""
    if data_type.precision > MICROSECOND_DIGITS:
        return _number(str(value), kind)
    days, nanos = divmod(value, DAY_NS)
    if not _FIRST_DAY <= days < _LAST_DAY:
        return None
    if isinstance(data_type, LocalZonedTimestampType):
        return f"timestamp_micros({value // 1000}L)"
    seconds, fraction = divmod(nanos // 1000, 1_000_000)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:06d}"
    return f"TIMESTAMP_NTZ'{_day(days)} {clock}'"


def _day(days: int) -> str:
    """Return the ISO date of a day since 1970."""
    return (date(1970, 1, 1) + timedelta(days=days)).isoformat()
