"""The parts of a pattern: literal text, runs of one letter, and optional sections."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Final, TypeAlias

from penstock.table.data.errors import TableRuntimeError


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
