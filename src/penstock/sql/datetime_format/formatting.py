"""Formats points in time by a pattern, one column at once.

Each run of letters becomes a column of texts, looked up in a small table of all possible texts; the columns are then
joined. Rows that differ only in fields that the pattern does not show are formatted once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import UnsupportedError
from penstock.sql.data.datetimes import DAY_NS, Numbers
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.datetime_format.patterns import (
    DAYS,
    ERAS,
    FINEST,
    HALVES,
    MONTHS,
    QUARTERS,
    Choice,
    Dialect,
    Letters,
    Moments,
    Part,
    Text,
    parse_pattern,
)

#: returns the columns whose concatenation is the text of a part
Writer = Callable[["Shown"], Sequence[pa.Array]]
TextOf = Callable[[int], str]


class Shown(Moments):
    """The points in time to format, with their offsets from UTC in seconds and the names of their zone."""

    __slots__ = ("names", "offsets")

    def __init__(
        self, days: Numbers, nanos: Numbers, offsets: Numbers | None = None, names: Callable[[int], str] | None = None
    ) -> None:
        super().__init__(days, nanos)
        self.offsets, self.names = offsets, names


class Formatter:
    """A compiled pattern."""

    def __init__(self, pattern: str, dialect: Dialect) -> None:
        parts = parse_pattern(pattern, dialect)
        self.pattern = pattern
        self.letters = frozenset(_letters(parts))
        self.needs_zone = not self.letters.isdisjoint("zZX") and dialect is Dialect.SIMPLE
        self._writers = [_writer(part, dialect) for part in _flat(parts)]
        self._finest = min((FINEST.get(letter, DAY_NS) for letter in self.letters), default=DAY_NS)

    def __call__(self, timestamps: Shown) -> pa.Array:
        """Format each point in time."""
        if self.needs_zone or self._finest == 1 or len(timestamps) < _FEW:
            return self._write(timestamps)
        keys = timestamps.days * (DAY_NS // self._finest) + timestamps.nanos // self._finest
        encoded = pa.array(keys).dictionary_encode()
        if len(encoded.dictionary) > len(keys) // 2:
            return self._write(timestamps)
        distinct = encoded.dictionary.to_numpy()
        days = distinct // (DAY_NS // self._finest)
        formatted = self._write(Shown(days, (distinct - days * (DAY_NS // self._finest)) * self._finest))
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
def formatter(pattern: str, dialect: Dialect) -> Formatter:
    """Return the formatter of a pattern. Raises `TableRuntimeError` if the pattern is invalid."""
    return Formatter(pattern, dialect)


def _flat(parts: Sequence[Part]) -> list[Text | Letters]:
    """Flatten the parts; optional sections are written as well."""
    flattened: list[Text | Letters] = []
    for part in parts:
        flattened += _flat(part.parts) if isinstance(part, Choice) else [part]
    return flattened


def _letters(parts: Sequence[Part]) -> list[str]:
    return [part.letter for part in _flat(parts) if isinstance(part, Letters)]


def _writer(part: Text | Letters, dialect: Dialect) -> Writer:
    if isinstance(part, Text):
        scalar = pa.scalar(part.text, pa.string())
        return lambda timestamps: (scalar,)
    if part.letter in _OF_ZONE:
        if dialect is Dialect.MODERN:
            raise TableRuntimeError(f"a point in time without a zone cannot be shown with the letter {part.letter}")
        return partial(_zone, _zone_text(part))
    if dialect is Dialect.MODERN and part.letter == "S":
        return _padded(part, _fraction(part.count))
    field, text_of = _number_or_name(part, dialect)
    return _padded(part, lambda timestamps: (texts(timestamps.field(field), text_of),))


def _padded(part: Letters, write: Writer) -> Writer:
    if not part.width:
        return write

    def padded(timestamps: Shown) -> Sequence[pa.Array]:
        column = pc.binary_join_element_wise(*write(timestamps), "")
        if pc.any(pc.greater(pc.utf8_length(column), part.width)).as_py():
            raise TableRuntimeError(f"a value is longer than the {part.width} characters that the pattern has for it")
        return (pc.utf8_lpad(column, part.width),)

    return padded


def texts(numbers: Numbers, text_of: TextOf) -> pa.Array:
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
    return HALVES[number % 2]


@lru_cache(maxsize=8)
def _era(count: int) -> TextOf:
    return ERAS[{4: 1, 5: 2}.get(count, 0)].__getitem__


@lru_cache(maxsize=8)
def _quarter(count: int) -> TextOf:
    if count == 3:
        return lambda number: f"Q{number}"
    return lambda number: QUARTERS[(number - 1) % 4] if count == 4 else str(number)


def _number_or_name(part: Letters, dialect: Dialect) -> tuple[str, TextOf]:
    """Return the field that a run of letters shows, and the function that formats it."""
    letter, count = part.letter, part.count
    is_simple = dialect is Dialect.SIMPLE
    if letter == "u" and is_simple:
        return "weekday", _plus_one(count)
    if letter in "yuY":
        is_short = count == 2 and not (letter == "u" and is_simple)
        return letter, _two_digits if is_short else _digits(count) if count < 4 or is_simple else _signed(count)
    if letter in "ML" and count > 2:
        return "M", _wrapped(_name(MONTHS, min(count, 4) if is_simple else count, 1), 12)
    if letter == "E" or (letter in "ec" and count > 2):
        return "weekday", _wrapped(_name(DAYS, min(count, 4) if is_simple else count), 7)
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


def _zone_text(part: Letters) -> Callable[[int, str], str]:
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
