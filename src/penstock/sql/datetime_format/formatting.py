"""Formats points in time by a pattern, one column at once, and parses text as points in time.

**Formatting.** Each run of letters becomes a column of texts, looked up in a small table of all possible texts; the
columns are then joined. Rows that differ only in fields that the pattern does not show are formatted once.

**Parsing.** DateTimeFormatter (`MODERN`) is strict: the whole text must match, and the result is a local date-time.
SimpleDateFormat (`SIMPLE`) is lenient: month 13 is the first month of the next year, and trailing text is ignored; the
result is an instant.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import tzinfo
from functools import lru_cache, partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import UnsupportedError
from penstock.codecs.serialization import parse_digits
from penstock.sql.data import datetimes
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.datetime_format import patterns

#: returns the columns whose concatenation is the text of a part
Writer = Callable[["Shown"], Sequence[pa.Array]]
TextOf = Callable[[int], str]


class Shown(patterns.Moments):
    """The points in time to format, with their offsets from UTC in seconds and the names of their zone."""

    __slots__ = ("names", "offsets")

    def __init__(
        self,
        days: datetimes.Numbers,
        nanos: datetimes.Numbers,
        offsets: datetimes.Numbers | None = None,
        names: Callable[[int], str] | None = None,
    ) -> None:
        super().__init__(days, nanos)
        self.offsets, self.names = offsets, names


class Formatter:
    """A compiled pattern."""

    def __init__(self, pattern: str, dialect: patterns.Dialect) -> None:
        parts = patterns.parse_pattern(pattern, dialect)
        self.pattern = pattern
        self.letters = frozenset(_letters(parts))
        self.needs_zone = not self.letters.isdisjoint("zZX") and dialect is patterns.Dialect.SIMPLE
        self._writers = [_writer(part, dialect) for part in _flat(parts)]
        self._finest = min(
            (patterns.FINEST.get(letter, datetimes.DAY_NS) for letter in self.letters), default=datetimes.DAY_NS
        )

    def __call__(self, timestamps: Shown) -> pa.Array:
        """Format each point in time."""
        if self.needs_zone or self._finest == 1 or len(timestamps) < _FEW:
            return self._write(timestamps)
        keys = timestamps.days * (datetimes.DAY_NS // self._finest) + timestamps.nanos // self._finest
        encoded = pa.array(keys).dictionary_encode()
        if len(encoded.dictionary) > len(keys) // 2:
            return self._write(timestamps)
        distinct = encoded.dictionary.to_numpy()
        days = distinct // (datetimes.DAY_NS // self._finest)
        formatted = self._write(Shown(days, (distinct - days * (datetimes.DAY_NS // self._finest)) * self._finest))
        return formatted.take(encoded.indices)

    def _write(self, timestamps: Shown) -> pa.Array:
        columns = [column for writer in self._writers for column in writer(timestamps)]
        if not any(isinstance(column, pa.Array) for column in columns):
            text = "".join(column.as_py() for column in columns)
            return pa.repeat(pa.scalar(text, pa.string()), len(timestamps))
        if len(columns) == 1:
            return columns[0]
        return pc.binary_join_element_wise(*columns, "")


#: below this many rows, duplicates are not looked for
_FEW: Final = 64


@lru_cache(maxsize=512)
def formatter(pattern: str, dialect: patterns.Dialect) -> Formatter:
    """Return the formatter of a pattern. Raises `TableRuntimeError` if the pattern is invalid."""
    return Formatter(pattern, dialect)


def _flat(parts: Sequence[patterns.Part]) -> list[patterns.Text | patterns.Letters]:
    """Flatten the parts; optional sections are written as well."""
    flattened: list[patterns.Text | patterns.Letters] = []
    for part in parts:
        flattened += _flat(part.parts) if isinstance(part, patterns.Choice) else [part]
    return flattened


def _letters(parts: Sequence[patterns.Part]) -> list[str]:
    return [part.letter for part in _flat(parts) if isinstance(part, patterns.Letters)]


def _writer(part: patterns.Text | patterns.Letters, dialect: patterns.Dialect) -> Writer:
    if isinstance(part, patterns.Text):
        scalar = pa.scalar(part.text, pa.string())
        return lambda timestamps: (scalar,)
    if part.letter in _OF_ZONE:
        if dialect is patterns.Dialect.MODERN:
            raise TableRuntimeError(f"a point in time without a zone cannot be shown with the letter {part.letter}")
        return partial(_zone, _zone_text(part))
    if dialect is patterns.Dialect.MODERN and part.letter == "S":
        return _padded(part, _fraction(part.count))
    field, text_of = _number_or_name(part, dialect)
    return _padded(part, lambda timestamps: (texts(timestamps.field(field), text_of),))


def _padded(part: patterns.Letters, write: Writer) -> Writer:
    if not part.width:
        return write

    def padded(timestamps: Shown) -> Sequence[pa.Array]:
        column = pc.binary_join_element_wise(*write(timestamps), "")
        if pc.any(pc.greater(pc.utf8_length(column), part.width)).as_py():
            raise TableRuntimeError(f"a value is longer than the {part.width} characters that the pattern has for it")
        return (pc.utf8_lpad(column, part.width),)

    return padded


def texts(numbers: datetimes.Numbers, text_of: TextOf) -> pa.Array:
    """Return the text of each number."""
    if not len(numbers):
        return pa.array([], pa.string())
    low, high = int(numbers.min()), int(numbers.max())
    if high - low < _WIDEST:
        if low >= 0 and high < _USUAL:
            return _table(text_of, 0, 10 if high < 10 else 100).take(pa.array(numbers))
        return _table(text_of, low, high + 1).take(pa.array(numbers - low))
    distinct, indices = np.unique(numbers, return_inverse=True)
    return pa.array([text_of(int(number)) for number in distinct], pa.string()).take(pa.array(indices))


_WIDEST: Final = 1000
_USUAL: Final = 100


@lru_cache(maxsize=256)
def _table(text_of: TextOf, begin: int, end: int) -> pa.Array:
    return pa.array([text_of(number) for number in range(begin, end)], pa.string())


# --- numbers ---------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _digits(count: int) -> TextOf:
    """Pad a number with zeros to `count` digits."""
    return lambda number: f"{number:0{count}}"


@lru_cache(maxsize=64)
def _signed(count: int) -> TextOf:
    """Pad a year with zeros to `count` digits, four or more; a longer year gets a plus sign."""
    return lambda number: f"{'+' if number >= 10**count else ''}{number:0{count + (number < 0)}}"


def _two_digits(number: int) -> str:
    return f"{number % 100:02}"


def _fraction(count: int) -> Writer:
    """Write the first `count` digits of the fraction of a second, three at a time."""

    def write(timestamps: Shown) -> Sequence[pa.Array]:
        columns, rest = [], timestamps.field("n")
        for begin in range(0, count, 3):
            size = min(3, count - begin)
            group = rest // 10 ** (6 - begin) % 1000
            columns.append(_thousand(size).take(pa.array(group // 10 ** (3 - size))))
        return columns

    return write


@lru_cache(maxsize=3)
def _thousand(size: int) -> pa.Array:
    return pa.array([f"{number:0{size}}" for number in range(10**size)], pa.string())


# --- names -----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _name(names: Sequence[str], count: int, first: int = 0) -> TextOf:
    """Return names: in full for four letters, the first character for five, otherwise three characters."""
    if count == 4:
        return lambda number: names[number - first]
    return lambda number: names[number - first][: 1 if count == 5 else 3]


def _half(number: int) -> str:
    return patterns.HALVES[number % 2]


@lru_cache(maxsize=8)
def _era(count: int) -> TextOf:
    return patterns.ERAS[{4: 1, 5: 2}.get(count, 0)].__getitem__


@lru_cache(maxsize=8)
def _quarter(count: int) -> TextOf:
    if count == 3:
        return lambda number: f"Q{number}"
    return lambda number: patterns.QUARTERS[(number - 1) % 4] if count == 4 else str(number)


def _number_or_name(part: patterns.Letters, dialect: patterns.Dialect) -> tuple[str, TextOf]:
    """Return the field that a run of letters shows, and the function that formats it."""
    letter, count = part.letter, part.count
    is_simple = dialect is patterns.Dialect.SIMPLE
    if letter == "u" and is_simple:
        return "weekday", _plus_one(count)
    if letter in "yuY":
        is_short = count == 2 and not (letter == "u" and is_simple)
        return letter, _two_digits if is_short else _digits(count) if count < 4 or is_simple else _signed(count)
    if letter in "ML" and count > 2:
        return "M", _wrapped(_name(patterns.MONTHS, min(count, 4) if is_simple else count, 1), 12)
    if letter == "E" or (letter in "ec" and count > 2):
        return "weekday", _wrapped(_name(patterns.DAYS, min(count, 4) if is_simple else count), 7)
    if letter in "ec":
        return "e", _digits(count)
    if letter in "Qq" and count > 2:
        return "Q", _quarter(count)
    if letter == "G":
        return "G", _wrapped(_era(1 if is_simple else count), 2)
    if letter == "a":
        return "a", _half
    if letter == "F":
        return "d", _week_in_month if is_simple else _day_in_sevens
    if letter == "B":
        raise UnsupportedError("patterns with the letter B are not supported")
    return letter, _digits(count)


@lru_cache(maxsize=64)
def _wrapped(text_of: TextOf, size: int) -> TextOf:
    """Wrap numbers around, because a table of texts may also cover numbers outside the field's range."""
    first = 1 if size == 12 else 0
    return lambda number: text_of((number - first) % size + first)


@lru_cache(maxsize=8)
def _plus_one(count: int) -> TextOf:
    return lambda number: f"{number + 1:0{count}}"


def _week_in_month(number: int) -> str:
    return str((number - 1) // 7 + 1)


def _day_in_sevens(number: int) -> str:
    return str((number - 1) % 7 + 1)


# --- zones -----------------------------------------------------------------------------------------------------------

_OF_ZONE: Final = "VvzOXxZ"


def _zone(text_of: Callable[[int, str], str], timestamps: Shown) -> Sequence[pa.Array]:
    assert timestamps.offsets is not None
    assert timestamps.names is not None
    distinct, first, indices = np.unique(timestamps.offsets, return_index=True, return_inverse=True)
    names = [timestamps.names(int(row)) for row in first]
    zone_texts = [text_of(int(offset), name) for offset, name in zip(distinct, names, strict=True)]
    return (pa.array(zone_texts, pa.string()).take(pa.array(indices)),)


def _zone_text(part: patterns.Letters) -> Callable[[int, str], str]:
    if part.letter == "z":
        if part.count > 3:
            raise UnsupportedError("patterns with zzzz, the full name of a zone, are not supported")
        return lambda offset, name: name
    if part.letter == "Z":
        return lambda offset, name: offset_text(offset, "", True)
    if part.count > 3:
        raise TableRuntimeError("a pattern has at most three letters X in a row")
    separator = ":" if part.count == 3 else ""
    return lambda offset, name: "Z" if offset == 0 else offset_text(offset, separator, part.count > 1)


def offset_text(seconds: int, separator: str, has_minutes: bool) -> str:
    """`+08:00`."""
    hours, rest = divmod(abs(seconds), 3600)
    minutes = f"{separator}{rest // 60:02}" if has_minutes else ""
    return f"{'-' if seconds < 0 else '+'}{hours:02}{minutes}"


#: returns nanoseconds since 1970 in local time, or None for text that does not match the pattern
ModernParser = Callable[[str], "int | None"]
#: returns an instant, given a text and its time zone, or None for text that does not match
SimpleParser = Callable[[str, tzinfo], "int | None"]

_DEFAULT: Final = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?: (\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{0,9}))?)?", re.ASCII
)
_SQL: Final = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?: +(\d+):(\d+):(\d+)(?:\.(\d{1,9}))?)?", re.ASCII)
_MINUTE_NS: Final = 60 * datetimes.SECOND_NS


def parse_default(text: str) -> int | None:
    """Parse text of the form `yyyy-MM-dd[ HH:mm:ss[.SSSSSSSSS]]`; months, days and times may have one digit."""
    match = _DEFAULT.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (parse_digits(part or "0") for part in match.groups()[:6])
    values = {"y": year, "M": month, "d": day, "H": hour, "m": minute, "s": second}
    return _resolved({**values, "n": int((match.group(7) or "").ljust(9, "0"))})


def parse_sql(text: str) -> int | None:
    """Parse text like `java.sql.Timestamp` and `java.sql.Date`: nonexistent days and times carry over."""
    match = _SQL.fullmatch(text.strip())
    if match is None or (" " in text.strip()) != (match.group(4) is not None):
        return None
    year, month, day, hour, minute, second = (parse_digits(part or "0") for part in match.groups()[:6])
    if not 1 <= month <= 12 or not 1 <= day <= 31:
        return None
    of_day = ((hour * 60 + minute) * 60 + second) * datetimes.SECOND_NS + int((match.group(7) or "").ljust(9, "0"))
    return (datetimes.days_from_civil(year, month, 1) + day - 1) * datetimes.DAY_NS + of_day


@lru_cache(maxsize=512)
def modern_parser(pattern: str) -> ModernParser:
    """Return the parser of a DateTimeFormatter pattern. Raises `TableRuntimeError` if the pattern is invalid."""
    expression, letters = patterns.compiled(
        patterns.parse_pattern(pattern, patterns.Dialect.MODERN), patterns.Dialect.MODERN
    )

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


def _modern_values(letters: list[patterns.Letters], match: re.Match[str]) -> Iterator[tuple[str, int]]:
    for part, text in zip(letters, match.groups(), strict=True):
        if text is None:
            continue
        letter = {"L": "M"}.get(part.letter, part.letter)
        if not patterns.is_number(part):
            if letter == "M":
                yield "M", _index(patterns.MONTHS, text) + 1
            elif letter == "a":
                yield "a", int(text == "PM")
            elif letter == "G":
                yield "G", int(text[0] == "A")
        elif letter == "S":
            yield "n", int(text.ljust(9, "0"))
        else:
            yield letter, parse_digits(text) + (2000 if letter in "yuY" and part.count == 2 else 0)


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
    "A": (0, datetimes.DAY_NS // 1_000_000 - 1),
    "N": (0, datetimes.DAY_NS - 1),
}


def _resolved(values: dict[str, int]) -> int | None:
    """Combine the parsed fields to a local date-time; missing fields default to 1970-01-01 00:00:00."""
    for letter, value in values.items():
        low, high = _RANGES.get(letter, (value, value))
        if not low <= value <= high:
            return None
    of_day = _of_day(values)
    days = _days(values)
    return None if of_day is None or days is None else days * datetimes.DAY_NS + of_day


def _days(values: dict[str, int]) -> int | None:
    year = values.get("u", values.get("y"))
    if year is not None and values.get("G") == 0 and "u" not in values:
        year = 1 - year
    if year is not None and not -999_999_999 <= year <= 999_999_999:
        return None
    if year is not None and "D" in values and "M" not in values and "d" not in values:
        if values["D"] == 366 and datetimes.days_of_month(year, 2) == 28:
            return None
        return datetimes.days_from_civil(year, 1, 1) + values["D"] - 1
    month, day = values.get("M", 1), values.get("d", 1)
    last = datetimes.days_of_month(1970 if year is None else year, month)
    if day > last:
        if year is None or "M" not in values:
            return None
        day = last
    return datetimes.days_from_civil(1970 if year is None else year, month, day)


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
    return (hour * 60 + minute) * _MINUTE_NS + second * datetimes.SECOND_NS + nano


# --- SimpleDateFormat ------------------------------------------------------------------------------------------------


#: Names of months and numbers of a date have fewer characters.
_WORD_MAX: Final = 18


@lru_cache(maxsize=512)
def simple_parser(pattern: str) -> SimpleParser:
    """Return the parser of a SimpleDateFormat pattern. Raises `TableRuntimeError` if the pattern is invalid."""
    expression, letters = patterns.compiled(
        patterns.parse_pattern(pattern, patterns.Dialect.SIMPLE), patterns.Dialect.SIMPLE
    )

    def parse(text: str, zone: tzinfo) -> int | None:
        match = expression.match(text)
        if match is None:
            return None
        values: dict[str, int] = {}
        for part, word in zip(letters, match.groups(), strict=True):
            if part.letter in "zZX":
                zone = _parse_zone(word)
            elif len(word) > _WORD_MAX:  # a number that no calendar has
                return None
            else:
                _put(values, part, word)
        return calendar_moment(_lenient(values), zone)

    return parse


def _put(values: dict[str, int], part: patterns.Letters, word: str) -> None:
    letter = {"L": "M"}.get(part.letter, part.letter)
    if letter == "M" and part.count > 2:
        values["M"] = _index(patterns.MONTHS, word) + 1
    elif letter == "E":
        values["E"] = _index(patterns.DAYS, word)
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
        days = datetimes.days_from_civil(year, 1, 1) + values["D"] - 1
    else:
        more_years, month = divmod(values.get("M", 1) - 1, 12)
        days = datetimes.days_from_civil(year + more_years, month + 1, 1) + values.get("d", 1) - 1
    hour = values.get("H")
    if hour is None and "k" in values:
        hour = 0 if values["k"] == 24 else values["k"]
    if hour is None:
        twelfth = values.get("h", values.get("K", 0))
        hour = (0 if twelfth == 12 and "h" in values else twelfth) + 12 * values.get("a", 0)
    of_day = (hour * 60 + values.get("m", 0)) * _MINUTE_NS + values.get("s", 0) * datetimes.SECOND_NS
    return days * datetimes.DAY_NS + of_day + values.get("S", 0) * 1_000_000


_OFFSET: Final = re.compile(r"(?:GMT)?([+-])(\d{1,2}):?(\d\d)?", re.IGNORECASE | re.ASCII)


def _parse_zone(word: str) -> tzinfo:
    offset = _OFFSET.fullmatch(word)
    if offset is None:
        return datetimes.zone_or_gmt("UTC" if word in ("Z", "z") else word)
    sign, hours, minutes = offset.groups()
    return datetimes.zone_or_gmt(f"GMT{sign}{int(hours):02}:{minutes or '00'}")


def calendar_moment(clock: int, zone: tzinfo) -> int:
    """Return the instant at which clocks in a zone show a local time: the second one if they show it twice."""
    first = datetimes.moment_ns(clock, zone)
    if datetimes.fixed_offset(zone) is not None:
        return first
    day_later = first + datetimes.DAY_NS
    second = clock - (datetimes.local_ns(day_later, zone) - day_later)
    return second if second > first and datetimes.local_ns(second, zone) == clock else first
