"""Parses text as points in time by a pattern.

DateTimeFormatter (`MODERN`) is strict: the whole text must match, and the result is a local date-time. SimpleDateFormat
(`SIMPLE`) is lenient: month 13 is the first month of the next year, and trailing text is ignored; the result is an
instant.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from datetime import tzinfo
from functools import lru_cache
from typing import Final

from penstock.sql.data.datetimes import (
    DAY_NS,
    SECOND_NS,
    days_from_civil,
    days_of_month,
    fixed_offset,
    local_ns,
    moment_ns,
    zone_or_gmt,
)
from penstock.sql.datetime_format.patterns import DAYS, MONTHS, Dialect, Letters, compiled, is_number, parse_pattern

#: returns nanoseconds since 1970 in local time, or None for text that does not match the pattern
ModernParser = Callable[[str], "int | None"]
#: returns an instant, given a text and its time zone, or None for text that does not match
SimpleParser = Callable[[str, tzinfo], "int | None"]

_DEFAULT: Final = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?: (\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{0,9}))?)?", re.ASCII
)
_SQL: Final = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?: +(\d+):(\d+):(\d+)(?:\.(\d{1,9}))?)?", re.ASCII)
_MINUTE_NS: Final = 60 * SECOND_NS


def parse_default(text: str) -> int | None:
    """Parse text of the form `yyyy-MM-dd[ HH:mm:ss[.SSSSSSSSS]]`; months, days and times may have one digit."""
    match = _DEFAULT.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    values = {"y": year, "M": month, "d": day, "H": hour, "m": minute, "s": second}
    return _resolved({**values, "n": int((match.group(7) or "").ljust(9, "0"))})


def parse_sql(text: str) -> int | None:
    """Parse text like `java.sql.Timestamp` and `java.sql.Date`: nonexistent days and times carry over."""
    match = _SQL.fullmatch(text.strip())
    if match is None or (" " in text.strip()) != (match.group(4) is not None):
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    if not 1 <= month <= 12 or not 1 <= day <= 31:
        return None
    of_day = ((hour * 60 + minute) * 60 + second) * SECOND_NS + int((match.group(7) or "").ljust(9, "0"))
    return (days_from_civil(year, month, 1) + day - 1) * DAY_NS + of_day


@lru_cache(maxsize=512)
def modern_parser(pattern: str) -> ModernParser:
    """Return the parser of a DateTimeFormatter pattern. Raises `TableRuntimeError` if the pattern is invalid."""
    expression, letters = compiled(parse_pattern(pattern, Dialect.MODERN), Dialect.MODERN)

    def parse(text: str) -> int | None:
        match = expression.fullmatch(text)
        if match is None:
            return None
        values: dict[str, int] = {}
        for letter, value in _modern_values(letters, match):
            if values.setdefault(letter, value) != value:
                return None
        return _resolved(values)

    return parse


def _modern_values(letters: list[Letters], match: re.Match[str]) -> Iterator[tuple[str, int]]:
    for part, text in zip(letters, match.groups(), strict=True):
        if text is None:
            continue
        letter = {"L": "M"}.get(part.letter, part.letter)
        if not is_number(part):
            if letter == "M":
                yield "M", _index(MONTHS, text) + 1
            elif letter == "a":
                yield "a", int(text == "PM")
            elif letter == "G":
                yield "G", int(text[0] == "A")
        elif letter == "S":
            yield "n", int(text.ljust(9, "0"))
        else:
            yield letter, int(text) + (2000 if letter in "yuY" and part.count == 2 else 0)


def _index(names: tuple[str, ...], text: str) -> int:
    return next(index for index, name in enumerate(names) if name.lower().startswith(text.lower()))


#: the minimum and maximum value of each letter
_RANGES: Final = {
    "y": (1, 10**9),
    "M": (1, 12),
    "d": (1, 31),
    "D": (1, 366),
    "H": (0, 24),
    "k": (1, 24),
    "K": (0, 11),
    "h": (1, 12),
    "m": (0, 59),
    "s": (0, 59),
    "n": (0, 10**9 - 1),
    "A": (0, DAY_NS // 1_000_000 - 1),
    "N": (0, DAY_NS - 1),
}


def _resolved(values: dict[str, int]) -> int | None:
    """Combine the parsed fields to a local date-time; missing fields default to 1970-01-01 00:00:00."""
    for letter, value in values.items():
        low, high = _RANGES.get(letter, (value, value))
        if not low <= value <= high:
            return None
    of_day = _of_day(values)
    days = _days(values)
    return None if of_day is None or days is None else days * DAY_NS + of_day


def _days(values: dict[str, int]) -> int | None:
    year = values.get("u", values.get("y"))
    if year is not None and values.get("G") == 0 and "u" not in values:
        year = 1 - year
    if year is not None and not -999_999_999 <= year <= 999_999_999:
        return None
    if year is not None and "D" in values and "M" not in values and "d" not in values:
        if values["D"] == 366 and days_of_month(year, 2) == 28:
            return None
        return days_from_civil(year, 1, 1) + values["D"] - 1
    month, day = values.get("M", 1), values.get("d", 1)
    last = days_of_month(1970 if year is None else year, month)
    if day > last:
        if year is None or "M" not in values:
            return None
        day = last
    return days_from_civil(1970 if year is None else year, month, day)


def _of_day(values: dict[str, int]) -> int | None:
    if "N" in values:
        return values["N"]
    if "A" in values:
        return values["A"] * 1_000_000
    minute, second, nano = values.get("m", 0), values.get("s", 0), values.get("n", 0)
    hour = values.get("H", values.get("k", 0) % 24)
    if "H" not in values and "k" not in values and "a" in values and ("h" in values or "K" in values):
        hour = values.get("h", values.get("K", 0)) % 12 + 12 * values["a"]
    if hour == 24 and (minute or second or nano):
        return None
    return (hour * 60 + minute) * _MINUTE_NS + second * SECOND_NS + nano


# --- SimpleDateFormat ------------------------------------------------------------------------------------------------


@lru_cache(maxsize=512)
def simple_parser(pattern: str) -> SimpleParser:
    """Return the parser of a SimpleDateFormat pattern. Raises `TableRuntimeError` if the pattern is invalid."""
    expression, letters = compiled(parse_pattern(pattern, Dialect.SIMPLE), Dialect.SIMPLE)

    def parse(text: str, zone: tzinfo) -> int | None:
        match = expression.match(text)
        if match is None:
            return None
        values: dict[str, int] = {}
        for part, word in zip(letters, match.groups(), strict=True):
            if part.letter in "zZX":
                zone = _zone(word)
            else:
                _put(values, part, word)
        return calendar_moment(_lenient(values), zone)

    return parse


def _put(values: dict[str, int], part: Letters, word: str) -> None:
    letter = {"L": "M"}.get(part.letter, part.letter)
    if letter == "M" and part.count > 2:
        values["M"] = _index(MONTHS, word) + 1
    elif letter == "E":
        values["E"] = _index(DAYS, word)
    elif letter == "a":
        values["a"] = int(word.upper() == "PM")
    elif letter == "G":
        values["G"] = int(word.upper() == "AD")
    elif letter in "yY" and part.count <= 2 and len(word) == 2 and word.isdigit():
        first = time.gmtime().tm_year - 80
        values["y"] = first + (int(word) - first) % 100
    else:
        values["y" if letter == "Y" else letter] = int(word)


def _lenient(values: dict[str, int]) -> int:
    """Combine the parsed fields to a local date-time; numbers out of range carry over to the next larger unit."""
    year = values.get("y", 1970)
    if values.get("G") == 0:
        year = 1 - year
    if "D" in values and "d" not in values:
        days = days_from_civil(year, 1, 1) + values["D"] - 1
    else:
        more_years, month = divmod(values.get("M", 1) - 1, 12)
        days = days_from_civil(year + more_years, month + 1, 1) + values.get("d", 1) - 1
    hour = values.get("H")
    if hour is None and "k" in values:
        hour = 0 if values["k"] == 24 else values["k"]
    if hour is None:
        twelfth = values.get("h", values.get("K", 0))
        hour = (0 if twelfth == 12 and "h" in values else twelfth) + 12 * values.get("a", 0)
    of_day = (hour * 60 + values.get("m", 0)) * _MINUTE_NS + values.get("s", 0) * SECOND_NS
    return days * DAY_NS + of_day + values.get("S", 0) * 1_000_000


_OFFSET: Final = re.compile(r"(?:GMT)?([+-])(\d{1,2}):?(\d\d)?", re.IGNORECASE | re.ASCII)


def _zone(word: str) -> tzinfo:
    offset = _OFFSET.fullmatch(word)
    if offset is None:
        return zone_or_gmt("UTC" if word in ("Z", "z") else word)
    sign, hours, minutes = offset.groups()
    return zone_or_gmt(f"GMT{sign}{int(hours):02}:{minutes or '00'}")


def calendar_moment(clock: int, zone: tzinfo) -> int:
    """Return the instant at which clocks in a zone show a local time: the second one if they show it twice."""
    first = moment_ns(clock, zone)
    if fixed_offset(zone) is not None:
        return first
    day_later = first + DAY_NS
    second = clock - (local_ns(day_later, zone) - day_later)
    return second if second > first and local_ns(second, zone) == clock else first
