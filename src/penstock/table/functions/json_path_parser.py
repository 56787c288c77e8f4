"""Parses JSON paths."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final

from penstock.table.functions.json_filter import Conditions
from penstock.table.functions.json_path import Elements, Filtered, JsonPath, JsonPathError, Name, Scan, Step, Wildcard
from penstock.table.functions.json_path_functions import path_function

_MODE: Final = re.compile(r"\s*(strict|lax)\s+(.+)", re.IGNORECASE | re.DOTALL)
_INDICES: Final = re.compile(r"\s*-?\d+\s*(,\s*-?\d+\s*)*")
_SLICE: Final = re.compile(r"\s*(-?\d+)?\s*:\s*(-?\d+)?\s*(?::\s*-?\d*\s*)?")
_FUNCTION: Final = re.compile(r"([A-Za-z_]\w*)\(([^()]*)\)")
_NAME_ENDS: Final = frozenset(".[ (")
_WILDCARD: Final = re.compile(r"\[\s*\*\s*\]")
_FILTER: Final = re.compile(r"\[\s*\?\s*\(")


@lru_cache(maxsize=1024)
def json_path(specification: str) -> tuple[JsonPath, bool]:
    """Parse a path such as `lax $.a`. Returns it and whether it is lax. Raises `JsonPathError` if it is invalid."""
    match = _MODE.fullmatch(specification)
    if match is None:
        return parse_path(specification), False
    return parse_path(match.group(2)), match.group(1).lower() == "lax"


@lru_cache(maxsize=1024)
def parse_path(text: str) -> JsonPath:
    """Parse a path without a mode. Raises `JsonPathError` if it is invalid."""
    text = text.strip()
    if not text:
        raise JsonPathError("json can not be null or empty")
    if text[0] not in "$@":
        text = f"$.{text}"
    if text.endswith("."):
        raise JsonPathError("Path must not end with a '.' or '..'")
    return _Parser(text).path()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 1
        self.steps: list[Step] = []
        self.functions: list[Callable[[Any], Any]] = []

    def path(self) -> JsonPath:
        if self.at < len(self.text) and self.text[self.at] not in ".[":
            self.fail(f"Illegal character at position {self.at} expected '.' or '['")
        while self.at < len(self.text):
            if self.functions and self.text[self.at] != ".":
                self.fail("a function must come last")
            self._part()
        return JsonPath(tuple(self.steps), tuple(self.functions))

    def fail(self, message: str) -> None:
        raise JsonPathError(f"{message} in the path {self.text}")

    def _part(self) -> None:
        is_scan = self.text.startswith("..", self.at)
        if is_scan:
            self.at += 2
        elif self.text[self.at] == ".":
            self.at += 1
        if self.at >= len(self.text) or self.text[self.at] == ".":
            self.fail(f"Character '.' on position {self.at} is not valid")
        function = _FUNCTION.match(self.text, self.at)
        if function is not None and not is_scan:
            self.at = function.end()
            self.functions.append(path_function(*function.groups()))
            return
        if self.functions:
            self.fail("a function must come last")
        step = self._step()
        self.steps.append(Scan(step) if is_scan else step)

    def _step(self) -> Step:
        if self.text[self.at] == "*":
            self.at += 1
            return Wildcard()
        return self._in_brackets() if self.text[self.at] == "[" else self._name()

    def _name(self) -> Step:
        begin = self.at
        while self.at < len(self.text) and self.text[self.at] not in _NAME_ENDS:
            self.at += 1
        if self.at < len(self.text) and self.text[self.at] in " (":
            self.fail("Use bracket notation ['my prop'] if your property contains blank characters")
        if begin == self.at:
            self.fail(f"Could not parse token starting at position {begin}")
        return Name([self.text[begin : self.at]], True)

    def _in_brackets(self) -> Step:
        wildcard = _WILDCARD.match(self.text, self.at)
        if wildcard is not None:
            self.at = wildcard.end()
            return Wildcard()
        condition = _FILTER.match(self.text, self.at)
        if condition is not None:
            return self._filter(condition.end())
        inside = self.text[self.at + 1 :].lstrip()
        if inside[:1] in ("'", '"'):
            return self._quoted_names()
        end = self.text.find("]", self.at)
        content = self.text[self.at + 1 : end]
        self.at = end + 1
        if end > 0 and _INDICES.fullmatch(content):
            indices = [int(index) for index in content.split(",")]
            return Elements(content.strip(), lambda length: indices, len(indices) == 1)
        borders = _SLICE.fullmatch(content) if end > 0 else None
        if borders is None or borders.groups() == (None, None):
            self.fail("Could not parse what is in brackets: expected ?, ', 0-9, *")
        assert borders is not None
        begin, to = (None if border is None else int(border) for border in borders.groups())
        return Elements(content.strip(), lambda length: _slice(begin, to, length), False)

    def _quoted_names(self) -> Step:
        names: list[str] = []
        self.at += 1
        while True:
            self._skip_blanks()
            quote = self.text[self.at : self.at + 1]
            if quote not in ("'", '"') or not quote:
                self.fail("Property has not been closed - missing closing quote")
            self.at += 1
            names.append(self._until(quote))
            self._skip_blanks()
            following = self.text[self.at : self.at + 1]
            self.at += 1
            if following == "]":
                break
            if following != ",":
                self.fail("Property must be separated by comma or Property must be terminated close square bracket")
        return Name(names, self.at == len(self.text))

    def _until(self, quote: str) -> str:
        """Read up to a quote. A backslash escapes the next character."""
        chars: list[str] = []
        while self.at < len(self.text) and self.text[self.at] != quote:
            if self.text[self.at] == "\\" and self.at + 1 < len(self.text):
                self.at += 1
            chars.append(self.text[self.at])
            self.at += 1
        if self.at >= len(self.text):
            self.fail("Property has not been closed - missing closing quote")
        self.at += 1
        return "".join(chars)

    def _skip_blanks(self) -> None:
        while self.at < len(self.text) and self.text[self.at] == " ":
            self.at += 1

    def _filter(self, begin: int) -> Step:
        conditions = Conditions(self.text, begin, parse_path)
        accepts = conditions.parse()
        closing = re.compile(r"\s*\)\s*\]").match(self.text, conditions.at)
        if closing is None:
            self.fail("Expected character: )")
        assert closing is not None
        self.at = closing.end()
        return Filtered(self.text[begin : conditions.at].strip(), accepts)


def _slice(begin: int | None, end: int | None, length: int) -> Iterable[int]:
    if begin is None:
        assert end is not None
        return range(min(length, end + length if end < 0 else end))
    if end is None:
        return range(max(0, begin + length if begin < 0 else begin), length)
    return range(begin, min(length, end))
