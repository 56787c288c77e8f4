"""Patterns of LIKE and SIMILAR TO."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from penstock.table.data.errors import TableRuntimeError
from penstock.table.functions.java_text import unit_length


@dataclass(frozen=True, slots=True)
class LikePattern:
    """A LIKE pattern: literal strings, `%`, and `_`, which matches any character except a line terminator.

    `parts`: a literal string, or None for `%`. `_` is an empty string in `parts`, and its index is in `ones`.
    """

    parts: tuple[str | None, ...]
    ones: frozenset[int]

    def text(self) -> str | None:
        """Return the only string that matches, or None if several do."""
        if self.ones or None in self.parts:
            return None
        return "".join(part for part in self.parts if part is not None)

    def regular(self) -> str:
        """Return a regular expression for the whole string, in a syntax that Python and Arrow share."""
        return "".join(
            f"[^{_LINE_ENDS}]" if index in self.ones else _ANY if part is None else re.escape(part)
            for index, part in enumerate(self.parts)
        )


_ANY: Final = "(?s:.*)"
_LINE_ENDS: Final = "\n\r\x85\u2028\u2029"
_SIMILAR_SPECIALS: Final = "[]()|^-+*_%?{}"
_SPECIALS: Final = "[]()|^-+*?{}$\\."
_CLASSES: Final = {
    "[:ALPHA:]": "\\p{Alpha}",
    "[:UPPER:]": "\\p{Upper}",
    "[:LOWER:]": "\\p{Lower}",
    "[:DIGIT:]": "\\d",
    "[:SPACE:]": " ",
    "[:WHITESPACE:]": "\\s",
    "[:ALNUM:]": "\\p{Alnum}",
}


def check_escape(escape: str | None) -> str:
    """Return the character after ESCAPE, or an empty string. Raises `TableRuntimeError` if it is longer."""
    if escape is not None and (unit_length(escape) > 1 or escape == "\0"):
        raise TableRuntimeError(f"Invalid escape character '{escape}': it must be one character")
    return escape or ""


def _wrong_sequence(pattern: str, at: int) -> TableRuntimeError:
    return TableRuntimeError(f"Invalid escape sequence '{pattern}', {at}")


@lru_cache(maxsize=1024)
def like_pattern(pattern: str, escape: str | None = None) -> LikePattern:
    """Parse a LIKE pattern. Raises `TableRuntimeError` if the escape character precedes an ordinary character."""
    mark = check_escape(escape)
    parts: list[str | None] = []
    ones: set[int] = set()
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == mark:
            at += 1
            if pattern[at : at + 1] not in ("_", "%", mark):
                raise _wrong_sequence(pattern, at - 1)
            char = pattern[at]
        elif char == "%":
            at += 1
            parts += [] if parts and parts[-1] is None else [None]
            continue
        elif char == "_":
            at += 1
            ones.add(len(parts))
            parts.append("")
            continue
        at += 1
        last = parts[-1] if parts and len(parts) - 1 not in ones else None
        if last is None:
            parts.append(char)
        else:
            parts[-1] = last + char
    return LikePattern(tuple(parts), frozenset(ones))


@lru_cache(maxsize=1024)
def similar_pattern(pattern: str, escape: str | None = None) -> str:
    """Translate a SIMILAR TO pattern to a Java regular expression. Raises `TableRuntimeError` if it is invalid."""
    mark = check_escape(escape)
    _check_marks(pattern, mark)
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == mark:
            parts.append(_marked(pattern, at, mark))
            at += 1
        elif char == "[":
            inside, at = _class(pattern, at, mark)
            parts.append(f"[{inside}]")
        elif char == "]":
            raise _wrong(pattern)
        else:
            parts.append({"_": ".", "%": _ANY, "\\": "\\\\", "$": "\\$"}.get(char, char))
    return "".join(parts)


def _wrong(pattern: str) -> TableRuntimeError:
    return TableRuntimeError(f"Invalid regular expression '{pattern}'")


def _check_marks(pattern: str, mark: str) -> None:
    if mark and mark in _SIMILAR_SPECIALS:
        for at, char in enumerate(pattern):
            if char == mark and pattern[at + 1 : at + 2] not in (*_SIMILAR_SPECIALS, mark):
                raise _wrong_sequence(pattern, at)
    if mark == ":" and not ("[:" in pattern and ":]" in pattern):
        raise _wrong_sequence(pattern, -1)


def _marked(pattern: str, at: int, mark: str) -> str:
    """Translate the character after the escape character."""
    char = pattern[at : at + 1]
    if not char or (char not in _SIMILAR_SPECIALS and char != mark):
        raise _wrong_sequence(pattern, at - 1)
    return f"\\{char}" if char in _SPECIALS else char


def _class(pattern: str, at: int, mark: str) -> tuple[str, int]:
    """Translate the characters between brackets. Returns them and the offset after the closing bracket."""
    parts: list[str] = []
    while at < len(pattern):
        char = pattern[at]
        if char == "]":
            return "".join(parts), at + 1
        if char == mark:
            parts.append(_marked(pattern, at + 1, mark))
            at += 2
            continue
        name = next((name for name in _CLASSES if pattern[at : at + len(name)] in (name, name.lower())), None)
        if name is not None:
            parts.append(_CLASSES[name])
            at += len(name)
            continue
        if char in _SIMILAR_SPECIALS and char not in "-^":
            raise _wrong(pattern)
        parts.append(char)
        at += 1
    raise _wrong(pattern)
