"""Patterns of dates and times: their parts, the fields of their letters, English names, and regular expressions.

The parts of a pattern are literal text, runs of one letter, and optional sections. `Moments` has the fields that
pattern letters refer to, for many points in time at once. The English names are of months, days, quarters and eras, and
AM and PM. `compiled` turns the parts into a regular expression that parses text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np

from penstock.base.errors import UnsupportedError
from penstock.sql.data import datetimes
from penstock.sql.data.errors import TableRuntimeError


class Dialect(Enum):
    """The pattern syntax."""

    #: java.time.format.DateTimeFormatter
    MODERN = auto()
    #: java.text.SimpleDateFormat
    SIMPLE = auto()


@dataclass(frozen=True, slots=True)
class Text:
    """Literal characters."""

    text: str


@dataclass(frozen=True, slots=True)
class Letters:
    """A letter repeated `count` times. Blanks pad its text to `width` characters, if `width` is not 0."""

    letter: str
    count: int
    width: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """An optional section."""

    parts: tuple[Part, ...]


Part: TypeAlias = Text | Letters | Choice

_KNOWN: Final = {Dialect.MODERN: "GuyDMLdQqYwWEecFaBhKkHmsSAnNVvzOXxZ", Dialect.SIMPLE: "GyYMLwWDdFEuaHkKhmsSzZX"}
#: the maximum number of times that a letter may be repeated, if that is not 5
_MOST: Final = {"G": 5, "y": 19, "u": 19, "Y": 19, "D": 3, "d": 2, "w": 2, "W": 1, "F": 1, "a": 1, "h": 2, "K": 2}
_MOST_TIME: Final = {"k": 2, "H": 2, "m": 2, "s": 2, "S": 9, "A": 19, "n": 19, "N": 19, "V": 2, "z": 4}


@lru_cache(maxsize=1024)
def parse_pattern(pattern: str, dialect: Dialect) -> tuple[Part, ...]:
    """Parse a pattern. Raises `TableRuntimeError` if it is invalid."""
    return _Reader(pattern, dialect).parts()


class UnusablePatternError(TableRuntimeError):
    """A pattern that can be used neither to parse nor to format points in time."""


class _Reader:
    def __init__(self, pattern: str, dialect: Dialect) -> None:
        self.pattern, self.dialect, self.place = pattern, dialect, 0

    def parts(self) -> tuple[Part, ...]:
        parts = self._until_end(0)
        if self.place < len(self.pattern):
            raise self._wrong("it has a ] without a [")
        return parts

    def _wrong(self, reason: str) -> TableRuntimeError:
        return UnusablePatternError(f"the pattern {self.pattern!r} cannot be used: {reason}")

    def _until_end(self, depth: int) -> tuple[Part, ...]:
        parts: list[Part] = []
        while self.place < len(self.pattern):
            char = self.pattern[self.place]
            if char == "'":
                parts.append(self._quoted())
            elif char.isascii() and char.isalpha():
                parts.append(self._letters())
            elif self.dialect is Dialect.MODERN and char == "[":
                self.place += 1
                parts.append(Choice(self._until_end(depth + 1)))
                self.place += 1
            elif self.dialect is Dialect.MODERN and char == "]":
                if not depth:
                    raise self._wrong("it has a ] without a [")
                return tuple(parts)
            elif self.dialect is Dialect.MODERN and char in "{}#":
                raise self._wrong(f"it has a {char}, which is reserved")
            else:
                parts.append(Text(char))
                self.place += 1
        return tuple(parts)

    def _quoted(self) -> Text:
        """Read quoted text; two quotes stand for one."""
        end, text = self.place + 1, ""
        while end < len(self.pattern):
            if self.pattern[end] == "'":
                if self.pattern[end + 1 : end + 2] != "'":
                    is_quote = end == self.place + 1
                    self.place = end + 1
                    return Text("'" if is_quote else text)
                end += 1
            text += self.pattern[end]
            end += 1
        raise self._wrong("a quote does not end")

    def _letters(self) -> Letters:
        letter, count = self._run()
        width = 0
        if letter == "p" and self.dialect is Dialect.MODERN:
            width = count
            if not self.pattern[self.place : self.place + 1].isalpha():
                raise self._wrong("nothing follows a p")
            letter, count = self._run()
        if letter not in _KNOWN[self.dialect]:
            raise self._wrong(f"it has an unknown letter {letter}")
        if self.dialect is Dialect.MODERN and count > _MOST.get(letter, _MOST_TIME.get(letter, 5)):
            raise self._wrong(f"it has too many letters {letter} in a row")
        return Letters(letter, count, width)

    def _run(self) -> tuple[str, int]:
        begin, letter = self.place, self.pattern[self.place]
        while self.place < len(self.pattern) and self.pattern[self.place] == letter:
            self.place += 1
        return letter, self.place - begin


def fraction_digits(pattern: str) -> int:
    """Return the length of the longest run of S outside quotes."""
    longest = run = 0
    is_quoted = False
    for char in pattern:
        if char == "'":
            is_quoted = not is_quoted
        run = run + 1 if char == "S" and not is_quoted else 0
        longest = max(longest, run)
    return longest


_HOUR: Final = 3_600 * datetimes.SECOND_NS
_MINUTE: Final = 60 * datetimes.SECOND_NS


class Moments:
    """Local date-times: days since 1970 and nanoseconds of the day."""

    __slots__ = ("_found", "days", "nanos")

    def __init__(self, days: datetimes.Numbers, nanos: datetimes.Numbers) -> None:
        self.days, self.nanos = days, nanos
        self._found: dict[str, datetimes.Numbers] = {}

    def field(self, letter: str) -> datetimes.Numbers:
        """Return the numbers for a letter."""
        numbers = self._found.get(letter)
        if numbers is None:
            numbers = self._found[letter] = FIELDS[letter](self)
        return numbers

    def __len__(self) -> int:
        return len(self.days)


def _year_of_era(moments: Moments) -> datetimes.Numbers:
    year = moments.field("u")
    return np.where(year > 0, year, 1 - year)


def _begin_of_weeks(years: datetimes.Numbers) -> datetimes.Numbers:
    """Return the Sunday that starts the first week of each year; weeks follow the United States convention."""
    first = datetimes.days_of_years(years)
    return first - (datetimes.weekday(first) + 1) % 7


def _week_year(moments: Moments) -> datetimes.Numbers:
    year = moments.field("u")
    return year + (moments.days >= _begin_of_weeks(year + 1))


def _week(moments: Moments) -> datetimes.Numbers:
    return (moments.days - _begin_of_weeks(moments.field("Y"))) // 7 + 1


def _week_of_month(moments: Moments) -> datetimes.Numbers:
    first = datetimes.days_of_months(datetimes.to_months(moments.days))
    return (moments.days - (first - (datetimes.weekday(first) + 1) % 7)) // 7 + 1


#: by the letters that both dialects share, plus `weekday`, which is 0 on Mondays
FIELDS: Final[dict[str, Callable[[Moments], datetimes.Numbers]]] = {
    "u": lambda moments: datetimes.to_years(moments.days),
    "y": _year_of_era,
    "G": lambda moments: (moments.field("u") > 0).astype(np.int64),
    "Y": _week_year,
    "w": _week,
    "W": _week_of_month,
    "D": lambda moments: datetimes.day_of_year(moments.days),
    "M": lambda moments: datetimes.to_months(moments.days) % 12 + 1,
    "L": lambda moments: moments.field("M"),
    "Q": lambda moments: (moments.field("M") + 2) // 3,
    "q": lambda moments: moments.field("Q"),
    "d": lambda moments: datetimes.day_of_month(moments.days),
    "weekday": lambda moments: datetimes.weekday(moments.days),
    "e": lambda moments: (moments.field("weekday") + 1) % 7 + 1,
    "a": lambda moments: moments.field("H") // 12,
    "H": lambda moments: moments.nanos // _HOUR,
    "k": lambda moments: (moments.field("H") - 1) % 24 + 1,
    "K": lambda moments: moments.field("H") % 12,
    "h": lambda moments: (moments.field("H") - 1) % 12 + 1,
    "m": lambda moments: moments.nanos // _MINUTE % 60,
    "s": lambda moments: moments.nanos // datetimes.SECOND_NS % 60,
    "n": lambda moments: moments.nanos % datetimes.SECOND_NS,
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
    "s": datetimes.SECOND_NS,
    "S": 1,
    "n": 1,
    "N": 1,
    "A": 1_000_000,
}


MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
#: Monday first
DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
HALVES: Final = ("AM", "PM")
QUARTERS: Final = ("1st quarter", "2nd quarter", "3rd quarter", "4th quarter")
ERAS: Final = (("BC", "AD"), ("Before Christ", "Anno Domini"), ("B", "A"))


_NUMBERS: Final = "yuYDMLdQqwWecFhKkHmsSAnN"
_NAMED: Final = {"M": MONTHS, "L": MONTHS, "E": DAYS, "e": DAYS, "c": DAYS, "Q": QUARTERS, "q": QUARTERS}
_OFFSETS: Final = {
    1: r"[+-]\d\d(?:\d\d)?",
    2: r"[+-]\d{4}",
    3: r"[+-]\d\d:\d\d",
    4: r"[+-]\d{4}(?:\d\d)?",
    5: r"[+-]\d\d:\d\d(?::\d\d)?",
}
_ZONE_NAME: Final = r"[A-Za-z][\w+\-/~:]*|[+-]\d\d:?\d\d"
_BLANKS: Final = r"[ \t]*"


def compiled(parts: Sequence[Part], dialect: Dialect) -> tuple[re.Pattern[str], list[Letters]]:
    """Compile parts to a regular expression; also return the pattern letters of each of its groups."""
    letters: list[Letters] = []
    build = _modern if dialect is Dialect.MODERN else _simple
    text = build(parts, letters)
    flags = re.IGNORECASE if dialect is Dialect.SIMPLE else re.NOFLAG
    return re.compile(text, flags | re.ASCII), letters


def is_number(part: Part | None) -> bool:
    """Return whether a part is written in digits."""
    if not isinstance(part, Letters) or part.letter not in _NUMBERS:
        return False
    return part.letter not in _NAMED or part.count < 3


def _group(part: Letters, text: str, letters: list[Letters]) -> str:
    letters.append(part)
    return f"({text})"


# --- DateTimeFormatter -----------------------------------------------------------------------------------------------


def _modern(parts: Sequence[Part], letters: list[Letters]) -> str:
    regex = ""
    for index, part in enumerate(parts):
        following = parts[index + 1] if index + 1 < len(parts) else None
        if isinstance(part, Text):
            regex += re.escape(part.text)
        elif isinstance(part, Choice):
            regex += f"(?:{_modern(part.parts, letters)})?"
        elif is_number(part):
            regex += (" *" if part.width else "") + _group(part, _digits(part, is_number(following)), letters)
        else:
            regex += _group(part, _words(part), letters)
    return regex


def _digits(part: Letters, is_followed: bool) -> str:
    """Return the expression for a number. If the next part is a number as well, enough digits are left for it."""
    letter, count = part.letter, part.count
    longest = "" if is_followed else "+"
    if letter in "yuY":
        if count == 2:
            return r"\d{2}"
        sign = "-?" if letter == "u" else ""
        return rf"{sign}\d{{{count},19}}{longest}" if count < 4 else rf"{sign}\d{{{count}}}|\+\d{{{count + 1},19}}"
    if letter == "D":
        return [rf"\d{{1,19}}{longest}", rf"\d{{2,3}}{longest}", r"\d{3}"][count - 1]
    if letter == "S":
        return rf"\d{{{count}}}"
    if letter in "AnN":
        return rf"\d{{{count},19}}{longest}"
    return r"\d{2}" if count == 2 else rf"\d{{1,19}}{longest}"


def _words(part: Letters) -> str:
    letter, count = part.letter, part.count
    if letter == "a":
        return "|".join(HALVES)
    if letter == "G":
        return "|".join(ERAS[{4: 1, 5: 2}.get(count, 0)])
    if letter in "Qq":
        return "|".join(QUARTERS) if count == 4 else r"Q[1-4]"
    if letter in _NAMED:
        size = None if count == 4 else 1 if count == 5 else 3
        return "|".join(name[:size] for name in _NAMED[letter])
    if letter == "X":
        return f"Z|{_OFFSETS[count]}"
    if letter == "x":
        return _OFFSETS[count]
    if letter == "Z":
        return r"GMT(?:[+-]\d\d:\d\d)?" if count == 4 else rf"Z|{_OFFSETS[5]}" if count == 5 else _OFFSETS[2]
    if letter == "O":
        return r"GMT(?:[+-]\d{1,2}(?::\d\d)?)?"
    if letter in "Vvz":
        return _ZONE_NAME
    raise UnsupportedError(f"texts cannot be read by patterns with the letter {letter}")


# --- SimpleDateFormat ------------------------------------------------------------------------------------------------


def _simple(parts: Sequence[Part], letters: list[Letters]) -> str:
    regex = ""
    for index, part in enumerate(parts):
        following = parts[index + 1] if index + 1 < len(parts) else None
        if isinstance(part, Text):
            regex += re.escape(part.text)
        elif isinstance(part, Letters):
            regex += _BLANKS + _group(part, _any_of_simple(part, isinstance(following, Letters)), letters)
    return regex


def _any_of_simple(part: Letters, obeys_count: bool) -> str:
    """Return the expression for a part. A number takes all digits, or at most its letter count if letters follow."""
    letter, count = part.letter, part.count
    if letter in "ML" and count > 2:
        return "|".join([*MONTHS, *(name[:3] for name in MONTHS)])
    if letter == "E":
        return "|".join([*DAYS, *(name[:3] for name in DAYS)])
    if letter == "a":
        return "|".join(HALVES)
    if letter == "G":
        return "|".join(ERAS[0])
    if letter == "X":
        return (r"Z|[+-]\d\d", r"Z|[+-]\d{4}", r"Z|[+-]\d\d:\d\d")[min(count, 3) - 1]
    if letter in "zZ":
        return r"GMT[+-]\d{1,2}:?\d\d|[+-]\d{1,2}:?\d\d|[A-Za-z]+(?:/[\w/+-]+)?"
    return rf"\d{{1,{count}}}" if obeys_count else r"-?\d+"
