"""The fields that pattern letters refer to, for many points in time at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from penstock.table.data.moments import (
    Numbers,
    day_of_month,
    day_of_year,
    days_of_months,
    days_of_years,
    to_months,
    to_years,
    weekday,
)
from penstock.table.data.temporal_text import SECOND_NS

_HOUR: Final = 3_600 * SECOND_NS
_MINUTE: Final = 60 * SECOND_NS


class Moments:
    """Local date-times: days since 1970 and nanoseconds of the day."""

    __slots__ = ("_found", "days", "nanos")

    def __init__(self, days: Numbers, nanos: Numbers) -> None:
        self.days, self.nanos = days, nanos
        self._found: dict[str, Numbers] = {}

    def field(self, letter: str) -> Numbers:
        """Return the numbers for a letter."""
        numbers = self._found.get(letter)
        if numbers is None:
            numbers = self._found[letter] = FIELDS[letter](self)
        return numbers

    def __len__(self) -> int:
        return len(self.days)


def _year_of_era(moments: Moments) -> Numbers:
    year = moments.field("u")
    return np.where(year > 0, year, 1 - year)


def _begin_of_weeks(years: Numbers) -> Numbers:
    """Return the Sunday that starts the first week of each year; weeks follow the United States convention."""
    first = days_of_years(years)
    return first - (weekday(first) + 1) % 7


def _week_year(moments: Moments) -> Numbers:
    year = moments.field("u")
    return year + (moments.days >= _begin_of_weeks(year + 1))


def _week(moments: Moments) -> Numbers:
    return (moments.days - _begin_of_weeks(moments.field("Y"))) // 7 + 1


def _week_of_month(moments: Moments) -> Numbers:
    first = days_of_months(to_months(moments.days))
    return (moments.days - (first - (weekday(first) + 1) % 7)) // 7 + 1


#: by the letters that both dialects share, plus `weekday`, which is 0 on Mondays
FIELDS: Final[dict[str, Callable[[Moments], Numbers]]] = {
    "u": lambda moments: to_years(moments.days),
    "y": _year_of_era,
    "G": lambda moments: (moments.field("u") > 0).astype(np.int64),
    "Y": _week_year,
    "w": _week,
    "W": _week_of_month,
    "D": lambda moments: day_of_year(moments.days),
    "M": lambda moments: to_months(moments.days) % 12 + 1,
    "L": lambda moments: moments.field("M"),
    "Q": lambda moments: (moments.field("M") + 2) // 3,
    "q": lambda moments: moments.field("Q"),
    "d": lambda moments: day_of_month(moments.days),
    "weekday": lambda moments: weekday(moments.days),
    "e": lambda moments: (moments.field("weekday") + 1) % 7 + 1,
    "a": lambda moments: moments.field("H") // 12,
    "H": lambda moments: moments.nanos // _HOUR,
    "k": lambda moments: (moments.field("H") - 1) % 24 + 1,
    "K": lambda moments: moments.field("H") % 12,
    "h": lambda moments: (moments.field("H") - 1) % 12 + 1,
    "m": lambda moments: moments.nanos // _MINUTE % 60,
    "s": lambda moments: moments.nanos // SECOND_NS % 60,
    "n": lambda moments: moments.nanos % SECOND_NS,
    "S": lambda moments: moments.field("n") // 1_000_000,
    "A": lambda moments: moments.nanos // 1_000_000,
    "N": lambda moments: moments.nanos,
}
#: nanoseconds of the finest unit that each letter depends on; other letters depend on the day alone
FINEST: Final = {
    "a": _HOUR,
    "B": _HOUR,
    "H": _HOUR,
    "k": _HOUR,
    "K": _HOUR,
    "h": _HOUR,
    "m": _MINUTE,
    "s": SECOND_NS,
    "S": 1,
    "n": 1,
    "N": 1,
    "A": 1_000_000,
}
