"""Formats result values as Flink prints them: as CAST to STRING does, and bytes as literals."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, Final

from penstock.table.data import logical_types as types
from penstock.table.data.logical_types import DataType
from penstock.table.functions.java_numbers import double_text, float_text

_EPOCH: Final = datetime.datetime(1970, 1, 1)


def format_value(value: Any, data_type: DataType, null: str = "NULL") -> str:
    """Format an external value. `null`: the text for None at the top level; nested values always use `NULL`."""
    if value is None:
        return null
    match data_type:
        case types.BooleanType():
            return "TRUE" if value else "FALSE"
        case types.FloatType():
            return float_text(value)
        case types.DoubleType():
            return double_text(value)
        case types.DecimalType():
            return f"{value:f}"
        case types.BinaryType() | types.VarBinaryType():
            return f"x'{bytes(value).hex()}'"
        case types.TimeType(precision=precision):
            return f"{value.replace(microsecond=0)}{_fraction(value.microsecond, precision)}"
        case types.TimestampType(precision=precision) | types.LocalZonedTimestampType(precision=precision):
            return f"{value.replace(microsecond=0, tzinfo=None)}{_fraction(value.microsecond, precision)}"
        case types.DayTimeIntervalType():
            return _days_and_time(value)
        case types.YearMonthIntervalType():
            return f"{'-' if value < 0 else '+'}{abs(value) // 12}-{abs(value) % 12:02}"
        case types.MultisetType(element_type=element):
            return _entries((format_value(member, element), str(count)) for member, count in value.items())
        case types.ArrayType(element_type=element):
            return f"[{', '.join(format_value(member, element) for member in value)}]"
        case types.MapType(key_type=key, value_type=item) if isinstance(value, Mapping):
            return _entries(
                (format_value(entry_key, key), format_value(other, item)) for entry_key, other in value.items()
            )
        case types.RowType():
            parts = [
                format_value(field_value, kind)
                for field_value, kind in zip(value, data_type.field_types(), strict=True)
            ]
            if isinstance(data_type, types.StructuredType):
                parts = [f"{name}={part}" for name, part in zip(data_type.field_names(), parts, strict=True)]
            return f"({', '.join(parts)})"
        case _:
            return str(value)


def _entries(pairs: Any) -> str:
    return "{" + ", ".join(f"{key}={other}" for key, other in pairs) + "}"


def _fraction(microseconds: int, digits: int) -> str:
    return f".{microseconds:06}000"[: digits + 1] if digits else ""


def _days_and_time(value: datetime.timedelta) -> str:
    milliseconds = value // datetime.timedelta(milliseconds=1)
    sign, milliseconds = ("-" if milliseconds < 0 else "+"), abs(milliseconds)
    days, of_day = divmod(milliseconds, 86_400_000)
    return f"{sign}{days} {(_EPOCH + datetime.timedelta(milliseconds=of_day)).time().isoformat('milliseconds')}"
