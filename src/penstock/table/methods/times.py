"""Temporal values and intervals."""

from __future__ import annotations

from decimal import Decimal
from typing import Final, Self

from penstock.table.data.logical_types import DateType, IntervalResolution, TimestampType, TimeType
from penstock.table.methods.operand import Derived, Operand
from penstock.table.methods.units import TimeIntervalUnit
from penstock.table.sql import syntax

_UNITS: Final = {
    "YEAR": syntax.IntervalQualifier(IntervalResolution.YEAR),
    "QUARTER": syntax.IntervalQualifier(IntervalResolution.MONTH, times=3),
    "MONTH": syntax.IntervalQualifier(IntervalResolution.MONTH),
    "WEEK": syntax.IntervalQualifier(IntervalResolution.DAY, times=7),
    "DAY": syntax.IntervalQualifier(IntervalResolution.DAY),
    "HOUR": syntax.IntervalQualifier(IntervalResolution.HOUR),
    "MINUTE": syntax.IntervalQualifier(IntervalResolution.MINUTE),
    "SECOND": syntax.IntervalQualifier(IntervalResolution.SECOND),
    "MILLI": syntax.IntervalQualifier(IntervalResolution.SECOND),
}


class _Interval(Derived):
    """A property that converts a number to an interval of a unit."""

    def __init__(self, unit: str) -> None:
        words = "milliseconds" if unit == "MILLI" else f"{unit.lower()}s"
        super().__init__(
            lambda operand: operand._new(interval(operand._node, unit)), f"The number of {words} as an interval."
        )


def interval(node: syntax.Expression, unit: str) -> syntax.Expression:
    """Return an interval of `node` units: a literal if `node` is one, otherwise a product."""
    number, is_negative = node, False
    if isinstance(node, syntax.Call) and node.name == "MINUS_PREFIX":
        number, is_negative = node.operands[0], True
    if isinstance(number, syntax.NumberLiteral) and number.text.isdigit():
        text = str(Decimal(number.text) / 1000) if unit == "MILLI" else number.text
        return syntax.IntervalLiteral(text, _UNITS[unit], is_negative)
    unit_literal = syntax.IntervalLiteral("0.001" if unit == "MILLI" else "1", _UNITS[unit])
    return syntax.Call("*", (node, unit_literal))


class Times(Operand):
    """Temporal methods, and intervals of numbers: `lit(10).minutes`."""

    year = years = _Interval("YEAR")
    quarter = quarters = _Interval("QUARTER")
    month = months = _Interval("MONTH")
    week = weeks = _Interval("WEEK")
    day = days = _Interval("DAY")
    hour = hours = _Interval("HOUR")
    minute = minutes = _Interval("MINUTE")
    second = seconds = _Interval("SECOND")
    milli = millis = _Interval("MILLI")

    def extract(self, time_interval_unit: TimeIntervalUnit) -> Self:
        """Extract a part of a temporal value or an interval as an integer."""
        return self._new(syntax.Call("EXTRACT", (syntax.Unit(time_interval_unit.value), self._node), ("EXTRACT",)))

    @property
    def to_date(self) -> Self:
        """The date in a string such as `2020-01-31`."""
        return self._new(syntax.Cast(self._node, DateType()))

    @property
    def to_time(self) -> Self:
        """The time of day in a string such as `12:34:56`."""
        return self._new(syntax.Cast(self._node, TimeType()))

    @property
    def to_timestamp(self) -> Self:
        """The timestamp in a string such as `2020-01-31 12:34:56`, with millisecond precision."""
        return self._new(syntax.Cast(self._node, TimestampType(3)))
