"""Parts of dates, and dates moved by intervals, in Spark SQL. TIMESTAMP_LTZ is left out: it needs a time zone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from penstock.table.batch.stored import MICROSECOND_DIGITS
from penstock.table.data.logical_types import (
    DataType,
    DateType,
    DayTimeIntervalType,
    TimestampType,
    YearMonthIntervalType,
)
from penstock.table.data.temporal_text import DAY_MS
from penstock.table.typed.nodes import Constant, FunctionCall

_OF_DAY: Final = {"YEAR": "year", "QUARTER": "quarter", "MONTH": "month", "DAY": "day"}
_OF_CLOCK: Final = {"HOUR": "hour", "MINUTE": "minute"}


def _part(unit: str, kind: DataType, operand: str) -> str | None:
    """Extract a part of a DATE or a TIMESTAMP."""
    is_clock = isinstance(kind, TimestampType) and kind.precision <= MICROSECOND_DIGITS
    function = _OF_DAY.get(unit) if is_clock or isinstance(kind, DateType) else None
    if function is None and is_clock:
        function = _OF_CLOCK.get(unit)
    return None if function is None else f"CAST({function}({operand}) AS BIGINT)"


def _extract(call: FunctionCall, operands: Sequence[str]) -> str | None:
    unit = call.operands[0]
    return _part(str(unit.value), call.operands[1].type, operands[1]) if isinstance(unit, Constant) else None


def _short(unit: str, call: FunctionCall, operands: Sequence[str]) -> str | None:
    return _part(unit, call.operands[0].type, operands[0])


def moved(operator: str, call: FunctionCall, operands: Sequence[str]) -> str | None:
    """Add a constant interval to a date, or subtract it."""
    point, interval = call.operands
    if not isinstance(point.type, DateType) or not isinstance(interval, Constant):
        return None
    if not isinstance(interval.value, int):
        return None
    sign = -1 if operator == "-" else 1
    if isinstance(interval.type, YearMonthIntervalType):
        return f"add_months({operands[0]}, {sign * interval.value})"
    if isinstance(interval.type, DayTimeIntervalType) and interval.value % DAY_MS == 0:
        return f"date_add({operands[0]}, {sign * interval.value // DAY_MS})"
    return None


Native = Callable[[FunctionCall, Sequence[str]], str | None]

NATIVE: Final[dict[str, Native]] = {
    "EXTRACT": _extract,
    "YEAR": partial(_short, "YEAR"),
    "QUARTER": partial(_short, "QUARTER"),
    "MONTH": partial(_short, "MONTH"),
    "DAYOFMONTH": partial(_short, "DAY"),
    "HOUR": partial(_short, "HOUR"),
    "MINUTE": partial(_short, "MINUTE"),
}
