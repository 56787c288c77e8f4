"""The parts of a pattern: texts, runs of one letter, and parts that may be left out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Final, TypeAlias

from penstock.table.data.errors import TableRuntimeError


class Dialect(Enum):
    """Whose patterns they are."""

    #: java.time.format.DateTimeFormatter
    MODERN = auto()
    #: java.text.SimpleDateFormat
    SIMPLE = auto()


@dataclass(frozen=True, slots=True)
class Text:
    """Characters that stand for themselves."""

    text: str


@dataclass(frozen=True, slots=True)
class Letters:
    """One letter, so many times. `width`: blanks fill it up to so many characters."""

    letter: str
    count: int
    width: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """Parts that a text may leave out."""

    parts: tuple[Part, ...]


Part: TypeAlias = Text | Letters | Choice

_KNOWN: Final = {Dialect.MODERN: "GuyDMLdQqYwWEecFaBhKkHmsSAnNVvzOXxZ", Dialect.SIMPLE: "GyYMLwWDdFEuaHkKhmsSzZX"}
#: the greatest number of times that a letter may come in a row, where that is not 5
_MOST: Final = {"G": 5, "y": 19, "u": 19, "Y": 19, "D": 3, "d": 2, "w": 2, "W": 1, "F": 1, "a": 1, "h": 2, "K": 2}
_MOST_TIME: Final = {"k": 2, "H": 2, "m": 2, "s": 2, "S": 9, "A": 19, "n": 19, "N": 19, "V": 2, "z": 4}


@lru_cache(maxsize=1024)
def parts_of(pattern: str, dialect: Dialect) -> tuple[Part, ...]:
    """The parts of a pattern. Raises `TableRuntimeError` for what is none."""
    return _Reader(pattern, dialect).parts()


class UnusablePatternError(TableRuntimeError):
    """A pattern that points in time cannot be read or written by."""


class _Reader:
    def __init__(self, pattern: str, dialect: Dialect) -> None:
        self.pattern, self.dialect, self.place = pattern, dialect, 0

    def parts(self) -> tuple[Part, ...]:
        found = self._until_end(0)
        if self.place < len(self.pattern):
            raise self._wrong("it has a ] without a [")
        return found

    def _wrong(self, reason: str) -> TableRuntimeError:
        return UnusablePatternError(f"the pattern {self.pattern!r} cannot be used: {reason}")

    def _until_end(self, depth: int) -> tuple[Part, ...]:
        found: list[Part] = []
        while self.place < len(self.pattern):
            char = self.pattern[self.place]
            if char == "'":
                found.append(self._quoted())
            elif char.isascii() and char.isalpha():
                found.append(self._letters())
            elif self.dialect is Dialect.MODERN and char == "[":
                self.place += 1
                found.append(Choice(self._until_end(depth + 1)))
                self.place += 1
            elif self.dialect is Dialect.MODERN and char == "]":
                if not depth:
                    raise self._wrong("it has a ] without a [")
                return tuple(found)
            elif self.dialect is Dialect.MODERN and char in "{}#":
                raise self._wrong(f"it has a {char}, which is reserved")
            else:
                found.append(Text(char))
                self.place += 1
        return tuple(found)

    def _quoted(self) -> Text:
        """What is in quotes; two quotes are one."""
        end, found = self.place + 1, ""
        while end < len(self.pattern):
            if self.pattern[end] == "'":
                if self.pattern[end + 1 : end + 2] != "'":
                    is_quote = end == self.place + 1
                    self.place = end + 1
                    return Text("'" if is_quote else found)
                end += 1
            found += self.pattern[end]
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
    """The longest run of S outside of quotes."""
    longest = run = 0
    is_quoted = False
    for char in pattern:
        if char == "'":
            is_quoted = not is_quoted
        run = run + 1 if char == "S" and not is_quoted else 0
        longest = max(longest, run)
    return longest
