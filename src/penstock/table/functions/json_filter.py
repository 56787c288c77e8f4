"""Filter conditions in JSON paths: `@.a > 1 && @.b == 'x'`, `@.a`, `@.a in [1, 2]`, `@.a =~ /x.*/i`."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from penstock.table.functions.json_documents import JsonTextError, read_json, scalar_text
from penstock.table.functions.json_path import JsonPath, JsonPathError

Condition = Callable[[Any, Any], bool]
#: evaluates an operand for the current value and the whole document
Value = Callable[[Any, Any], Any]


#: the value of a path that finds nothing
_MISSING: Final[Any] = object()
_OPERATOR: Final = re.compile(
    r"\s*(===|==|!==|!=|<=|>=|<|>|=~|(?:in|nin|subsetof|anyof|noneof|contains|all|size|empty|type)\b)\s*", re.IGNORECASE
)
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_WORD: Final = re.compile(r"(true|false|null)\b")
_REGEX: Final = re.compile(r"/((?:[^/\\]|\\.)*)/([a-zA-Z]*)")
_FLAGS: Final = {"i": re.IGNORECASE, "s": re.DOTALL, "m": re.MULTILINE, "x": re.VERBOSE, "u": re.IGNORECASE}


class Conditions:
    """Parses a condition that starts at an offset in a path; afterwards, `at` is its end."""

    def __init__(self, text: str, at: int, parse_path: Callable[[str], JsonPath]) -> None:
        self.text, self.at = text, at
        self._parse_path = parse_path

    def parse(self) -> Condition:
        """Parse the condition. Raises `JsonPathError` if it is invalid."""
        parts = [self._conjunction()]
        while self._accept("||"):
            parts.append(self._conjunction())
        return parts[0] if len(parts) == 1 else lambda value, root: any(part(value, root) for part in parts)

    def _conjunction(self) -> Condition:
        parts = [self._single()]
        while self._accept("&&"):
            parts.append(self._single())
        return parts[0] if len(parts) == 1 else lambda value, root: all(part(value, root) for part in parts)

    def _single(self) -> Condition:
        if self._sees("!") and not self._sees("!="):
            self._accept("!")
            denied = self._single()
            return lambda value, root: not denied(value, root)
        if self._accept("("):
            condition = self.parse()
            self._expect(")")
            return condition
        begins_path = self._sees("@") or self._sees("$")
        left = self._operand()
        operator = _OPERATOR.match(self.text, self.at)
        if operator is None:
            if not begins_path:
                self._fail("expected an operator")
            return lambda value, root: left(value, root) is not _MISSING
        self.at = operator.end()
        return _comparison(operator.group(1).lower(), left, self._operand())

    def _operand(self) -> Value:
        self._skip()
        first = self.text[self.at : self.at + 1]
        if first in ("@", "$") and first:
            return self._path()
        if first in ("'", '"') and first:
            constant: Any = self._quoted(first)
        elif first in ("[", "{") and first:
            constant = self._json()
        else:
            constant = self._literal()
        return lambda value, root: constant

    def _literal(self) -> Any:
        for pattern, make in (
            (_WORD, _word),
            (_REGEX, _regex),
            (_NUMBER, lambda number_match: Decimal(number_match.group())),
        ):
            match = pattern.match(self.text, self.at)
            if match is not None:
                self.at = match.end()
                return make(match)
        return self._fail("expected a path, a number, a text or another constant")

    def _quoted(self, quote: str) -> str:
        chars: list[str] = []
        self.at += 1
        while self.at < len(self.text) and self.text[self.at] != quote:
            if self.text[self.at] == "\\" and self.at + 1 < len(self.text):
                self.at += 1
            chars.append(self.text[self.at])
            self.at += 1
        if self.at >= len(self.text):
            self._fail("a text does not end")
        self.at += 1
        return "".join(chars)

    def _json(self) -> Any:
        end = self._closing(self.at)
        try:
            value = read_json(self.text[self.at : end].replace("'", '"'))
        except JsonTextError as error:
            raise JsonPathError(f"{error} in the path {self.text}") from error
        self.at = end
        return value

    def _path(self) -> Value:
        begin = self.at
        self.at += 1
        while self.at < len(self.text) and not self._ends_path():
            self.at = self._closing(self.at) if self.text[self.at] in "[(" else self.at + 1
        text = self.text[begin : self.at]
        path = self._parse_path(text)
        is_relative = text[0] == "@"

        def read_operand(value: Any, root: Any) -> Any:
            try:
                return path.read(root, False, value, is_relative)
            except JsonPathError:
                return _MISSING

        return read_operand

    def _ends_path(self) -> bool:
        return self.text[self.at] in " )=!<>&|,]~"

    def _closing(self, at: int) -> int:
        """Return the offset after the bracket that closes the one at an offset."""
        depth, quote = 0, ""
        for position in range(at, len(self.text)):
            char = self.text[position]
            if quote:
                quote = "" if char == quote else quote
            elif char in "'\"":
                quote = char
            elif char in "[({":
                depth += 1
            elif char in "])}":
                depth -= 1
                if depth == 0:
                    return position + 1
        return int(self._fail("a bracket is not closed"))

    def _skip(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def _sees(self, words: str) -> bool:
        self._skip()
        return self.text.startswith(words, self.at)

    def _accept(self, words: str) -> bool:
        matched = self._sees(words)
        self.at += len(words) if matched else 0
        return matched

    def _expect(self, words: str) -> None:
        if not self._accept(words):
            self._fail(f"expected {words}")

    def _fail(self, message: str) -> Any:
        raise JsonPathError(f"Failed to parse filter: {message} at position {self.at} of {self.text}")


def _word(match: re.Match[str]) -> Any:
    return {"true": True, "false": False, "null": None}[match.group(1)]


def _regex(match: re.Match[str]) -> re.Pattern[str]:
    flags = 0
    for letter in match.group(2):
        flags |= _FLAGS.get(letter.lower(), 0)
    try:
        return re.compile(match.group(1), flags)
    except re.error as error:
        raise JsonPathError(f"{match.group()} is no pattern: {error}") from error


# --- comparisons -----------------------------------------------------------------------------------------------------


def _comparison(operator: str, left: Value, right: Value) -> Condition:
    compare = _COMPARISONS[operator]
    return lambda value, root: compare(left(value, root), right(value, root))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _as_number(value: Any) -> Any:
    if isinstance(value, float):
        return Decimal(repr(value))
    if not isinstance(value, str):
        return value
    try:
        return Decimal(value)
    except InvalidOperation:
        return _MISSING


def _equal(value: Any, other: Any) -> bool:
    """Compare two values. A number and a string are compared as the type of the first."""
    if _is_number(value) and (_is_number(other) or isinstance(other, str)):
        return bool(_as_number(value) == _as_number(other))
    if isinstance(value, str) and _is_number(other):
        return value == scalar_text(other)
    return _same(value, other)


def _same(value: Any, other: Any) -> bool:
    """Return whether two values are equal and of the same type."""
    if _is_number(value) and _is_number(other):
        return bool(_as_number(value) == _as_number(other))
    return type(value) is type(other) and bool(value == other)


def _ordered(holds: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compare(value: Any, other: Any) -> bool:
        if _is_number(value) and _is_number(other):
            return holds(_as_number(value), _as_number(other))
        return isinstance(value, str) and isinstance(other, str) and holds(value, other)

    return compare


def _is_member(value: Any, among: Any) -> bool:
    return isinstance(among, list) and any(_equal(value, other) for other in among)


def _contains(value: Any, other: Any) -> bool:
    if isinstance(value, str):
        return isinstance(other, str) and other in value
    return _is_member(other, value)


def _matches(value: Any, other: Any) -> bool:
    text, pattern = (value, other) if isinstance(other, re.Pattern) else (other, value)
    if not isinstance(pattern, re.Pattern):
        return False
    texts = text if isinstance(text, list) else [text]
    return any(
        pattern.fullmatch(scalar_text(part)) is not None for part in texts if isinstance(part, str) or _is_number(part)
    )


def _size(value: Any, other: Any) -> bool:
    return isinstance(value, str | list) and _is_number(other) and len(value) == other


def _empty(value: Any, other: Any) -> bool:
    return isinstance(value, str | list | dict) and isinstance(other, bool) and (len(value) == 0) == other


def _type(value: Any, other: Any) -> bool:
    kinds = {dict: "json", list: "json", str: "string", bool: "boolean", type(None): "null"}
    return bool(other == ("number" if _is_number(value) else kinds.get(type(value), "undefined")))


_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": _equal,
    "===": _same,
    "!=": lambda value, other: not _equal(value, other),
    "!==": lambda value, other: not _same(value, other),
    "<": _ordered(lambda value, other: value < other),
    "<=": _ordered(lambda value, other: value <= other),
    ">": _ordered(lambda value, other: value > other),
    ">=": _ordered(lambda value, other: value >= other),
    "=~": _matches,
    "in": _is_member,
    "nin": lambda value, other: not _is_member(value, other),
    "subsetof": lambda value, other: isinstance(value, list) and all(_is_member(part, other) for part in value),
    "anyof": lambda value, other: isinstance(value, list) and any(_is_member(part, other) for part in value),
    "noneof": lambda value, other: isinstance(value, list) and not any(_is_member(part, other) for part in value),
    "all": lambda value, other: (
        isinstance(value, list) and isinstance(other, list) and all(_is_member(part, value) for part in other)
    ),
    "contains": _contains,
    "size": _size,
    "empty": _empty,
    "type": _type,
}
