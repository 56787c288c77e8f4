"""Rows as Flink and the print connector print them: `+I[1, 2020-04-15T08:00, [a, null]]`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.table.data import logical_types as types
from penstock.table.data.logical_types import DataType
from penstock.table.data.temporal_text import DAY_NS, SECOND_NS, format_date
from penstock.table.functions.bitmaps import bitmap_text
from penstock.table.functions.java_numbers import double_text, float_text

Text = Callable[[Any], str]


def row_text(kinds: Sequence[DataType]) -> Callable[[str, tuple[Any, ...]], str]:
    """Return a function that formats a row from its kind (`+I`, …) and its internal values."""
    texts = list(map(build_text_converter, kinds))

    def text(kind: str, values: tuple[Any, ...]) -> str:
        return f"{kind}[{', '.join([to_text(value) for to_text, value in zip(texts, values, strict=True)])}]"

    return text


def build_text_converter(kind: DataType) -> Text:
    """Return a function that formats internal values of a type."""
    convert = _of_type(kind)
    return lambda value: "null" if value is None else convert(value)


def _of_type(kind: DataType) -> Text:
    match kind:
        case types.BooleanType():
            return lambda value: "true" if value else "false"
        case types.FloatType():
            return float_text
        case types.DoubleType():
            return double_text
        case types.DecimalType():
            return lambda value: format(value, "f")
        case types.BitmapType():
            return bitmap_text
        case types.BinaryType() | types.VarBinaryType():
            return lambda value: "[" + ", ".join(str(byte - 256 if byte > 127 else byte) for byte in value) + "]"
        case types.DateType():
            return format_date
        case types.TimeType():
            return lambda value: _clock(value * 1_000_000, False)
        case types.TimestampType():
            return lambda value: f"{format_date(value // DAY_NS)}T{_clock(value % DAY_NS, False)}"
        case types.LocalZonedTimestampType():
            return lambda value: f"{format_date(value // DAY_NS)}T{_clock(value % DAY_NS, True)}Z"
        case types.YearMonthIntervalType():
            return _period
        case types.DayTimeIntervalType():
            return _duration
        case types.MultisetType(element_type=element):
            of_one = build_text_converter(element)
            return lambda value: "{" + ", ".join(f"{of_one(member)}={count}" for member, count in value) + "}"
        case types.ArrayType(element_type=element):
            of_element = build_text_converter(element)
            return lambda value: f"[{', '.join(map(of_element, value))}]"
        case types.MapType(key_type=key, value_type=item):
            of_key, of_item = build_text_converter(key), build_text_converter(item)
            return lambda value: (
                "{" + ", ".join(f"{of_key(entry_key)}={of_item(other)}" for entry_key, other in value) + "}"
            )
        case types.RowType():
            of_row = row_text(kind.field_types())
            return lambda value: of_row("+I", value)
        case _:
            return str


def _clock(nanoseconds: int, with_seconds: bool) -> str:
    """Format a time of day. Zero seconds are omitted unless `with_seconds` is set; fractions have 3, 6 or 9 digits."""
    seconds, fraction = divmod(nanoseconds, SECOND_NS)
    minutes, second = divmod(seconds, 60)
    text = f"{minutes // 60:02}:{minutes % 60:02}"
    if not second and not fraction and not with_seconds:
        return text
    digits = f"{fraction:09}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return f"{text}:{second:02}" + (f".{digits}" if digits else "")


def _period(months: int) -> str:
    years, rest = divmod(abs(months), 12)
    sign = "-" if months < 0 else ""
    parts = [f"{sign}{years}Y"] if years else []
    parts += [f"{sign}{rest}M"] if rest else []
    return f"P{''.join(parts)}" if parts else "P0D"


def _duration(milliseconds: int) -> str:
    sign = "-" if milliseconds < 0 else ""
    seconds, fraction = divmod(abs(milliseconds), 1_000)
    hours, rest = divmod(seconds, 3_600)
    minutes, second = divmod(rest, 60)
    parts = [f"{sign}{hours}H"] if hours else []
    parts += [f"{sign}{minutes}M"] if minutes else []
    if second or fraction:
        seconds_text = f"{second}.{fraction:03}".rstrip("0").rstrip(".") if fraction else str(second)
        parts.append(f"{sign}{seconds_text}S")
    return f"PT{''.join(parts)}" if parts else "PT0S"
