"""Dates, times and timestamps as text, in integer arithmetic: Python's classes lack nanoseconds and the year 0.

The calendar is Gregorian for all years, as in Java and in Flink.
"""

from __future__ import annotations

import re
from typing import Final

DAY_NS: Final = 86_400_000_000_000
DAY_MS: Final = 86_400_000
SECOND_NS: Final = 1_000_000_000

_DATE: Final = re.compile(r"(-?\d{1,6})-(\d{1,2})-(\d{1,2})")
_TIME: Final = re.compile(r"(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9})\d*)?)?)?")
_DAYS_OF_MONTHS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def days_of_month(year: int, month: int) -> int:
    """Return the number of days in a month."""
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 29 if month == 2 and is_leap else _DAYS_OF_MONTHS[month - 1]


def days_from_civil(year: int, month: int, day: int) -> int:
    """Return days since 1970-01-01."""
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


def civil_from_days(days: int) -> tuple[int, int, int]:
    """Return the year, month and day of a number of days since 1970-01-01."""
    era, day_of_era = divmod(days + 719_468, 146_097)
    year = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + (3 if shifted < 10 else -9)
    return year + era * 400 + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1


def parse_date(text: str) -> int | None:
    """Parse `2020-01-31` to days since 1970; return None if it is not a valid date."""
    match = _DATE.fullmatch(text.strip())
    if match is None:
        return None
    year, month, day = map(int, match.groups())
    if not 1 <= month <= 12 or not 1 <= day <= days_of_month(year, month):
        return None
    return days_from_civil(year, month, day)


def parse_time(text: str) -> int | None:
    """Parse `12:34:56.789` to nanoseconds of the day; None if it is invalid. Minutes and seconds are optional."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return None
    hour, minute, second = (int(group or 0) for group in match.groups()[:3])
    if hour > 23 or minute > 59 or second > 59:
        return None
    return ((hour * 60 + minute) * 60 + second) * SECOND_NS + int((match.group(4) or "").ljust(9, "0"))


#: the most fractional digits of a second at which timestamps support every year
MICROSECOND_DIGITS: Final = 6
FAR_NANOSECONDS: Final = "points in time with more than 6 digits of a second are in the years 1678 to 2261"


def is_far(nanoseconds: int, digits: int) -> bool:
    """Return whether a type with `digits` fractional digits cannot hold a timestamp (in nanoseconds since 1970)."""
    return digits > MICROSECOND_DIGITS and not -(2**63) <= nanoseconds < 2**63


def parse_timestamp(text: str) -> int | None:
    """Parse `2020-01-31 12:34:56.789`, also with a T or only a date, to nanoseconds since 1970; None if invalid."""
    date, _, time = text.strip().replace("T", " ", 1).partition(" ")
    days = parse_date(date)
    if days is None:
        return None
    of_day = parse_time(time) if time.strip() else 0
    return None if of_day is None else days * DAY_NS + of_day


def fraction_digits(text: str) -> int:
    """Return the number of fractional digits of a second in a text, at most 9."""
    return min(9, len(text.rstrip().rpartition(".")[2])) if "." in text else 0


def format_date(days: int) -> str:
    """`2020-01-31`."""
    year, month, day = civil_from_days(days)
    return f"{_year(year)}-{month:02}-{day:02}"


def format_time(nanoseconds: int, digits: int) -> str:
    """Return `12:34:56.789` with `digits` fractional digits."""
    seconds, fraction = divmod(nanoseconds, SECOND_NS)
    minutes, second = divmod(seconds, 60)
    text = f"{minutes // 60:02}:{minutes % 60:02}:{second:02}"
    return f"{text}.{fraction:09}"[: len(text) + 1 + digits] if digits else text


def format_timestamp(nanoseconds: int, digits: int) -> str:
    """Return `2020-01-31 12:34:56.789` with `digits` fractional digits."""
    days, of_day = divmod(nanoseconds, DAY_NS)
    return f"{format_date(days)} {format_time(of_day, digits)}"


def _year(year: int) -> str:
    return f"{year:04}" if year >= 0 else f"-{-year:04}"
