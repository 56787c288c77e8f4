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
            found = self.parse()
            self._expect(")")
            return found
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
        for pattern, make in ((_WORD, _word), (_REGEX, _regex), (_NUMBER, lambda found: Decimal(found.group()))):
            found = pattern.match(self.text, self.at)
            if found is not None:
                self.at = found.end()
                return make(found)
        return self._fail("expected a path, a number, a text or another constant")

    def _quoted(self, quote: str) -> str:
        found: list[str] = []
        self.at += 1
        while self.at < len(self.text) and self.text[self.at] != quote:
            if self.text[self.at] == "\\" and self.at + 1 < len(self.text):
                self.at += 1
            found.append(self.text[self.at])
            self.at += 1
        if self.at >= len(self.text):
            self._fail("a text does not end")
        self.at += 1
        return "".join(found)

    def _json(self) -> Any:
        end = self._closing(self.at)
        try:
            found = read_json(self.text[self.at : end].replace("'", '"'))
        except JsonTextError as error:
            raise JsonPathError(f"{error} in the path {self.text}") from error
        self.at = end
        return found

    def _path(self) -> Value:
        begin = self.at
        self.at += 1
        while self.at < len(self.text) and not self._ends_path():
            self.at = self._closing(self.at) if self.text[self.at] in "[(" else self.at + 1
        text = self.text[begin : self.at]
        path = self._parse_path(text)
        is_relative = text[0] == "@"

        def value_of(value: Any, root: Any) -> Any:
            try:
                return path.read(root, False, value, is_relative)
            except JsonPathError:
                return _MISSING

        return value_of

    def _ends_path(self) -> bool:
        return self.text[self.at] in " )=!<>&|,]~"

    def _closing(self, at: int) -> int:
        """Return the offset after the bracket that closes the one at an offset."""
        depth, quote = 0, ""
        for place in range(at, len(self.text)):
            char = self.text[place]
            if quote:
                quote = "" if char == quote else quote
            elif char in "'\"":
                quote = char
            elif char in "[({":
                depth += 1
            elif char in "])}":
                depth -= 1
                if depth == 0:
                    return place + 1
        return int(self._fail("a bracket is not closed"))

    def _skip(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def _sees(self, words: str) -> bool:
        self._skip()
        return self.text.startswith(words, self.at)

    def _accept(self, words: str) -> bool:
        found = self._sees(words)
        self.at += len(words) if found else 0
        return found

    def _expect(self, words: str) -> None:
        if not self._accept(words):
            self._fail(f"expected {words}")

    def _fail(self, message: str) -> Any:
        raise JsonPathError(f"Failed to parse filter: {message} at position {self.at} of {self.text}")


def _word(found: re.Match[str]) -> Any:
    return {"true": True, "false": False, "null": None}[found.group(1)]


def _regex(found: re.Match[str]) -> re.Pattern[str]:
    flags = 0
    for letter in found.group(2):
        flags |= _FLAGS.get(letter.lower(), 0)
    try:
        return re.compile(found.group(1), flags)
    except re.error as error:
        raise JsonPathError(f"{found.group()} is no pattern: {error}") from error


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


def _equal(one: Any, other: Any) -> bool:
    """Compare two values. A number and a string are compared as the type of the first."""
    if _is_number(one) and (_is_number(other) or isinstance(other, str)):
        return bool(_as_number(one) == _as_number(other))
    if isinstance(one, str) and _is_number(other):
        return one == scalar_text(other)
    return _same(one, other)


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are equal and of the same type."""
    if _is_number(one) and _is_number(other):
        return bool(_as_number(one) == _as_number(other))
    return type(one) is type(other) and bool(one == other)


def _ordered(holds: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compare(one: Any, other: Any) -> bool:
        if _is_number(one) and _is_number(other):
            return holds(_as_number(one), _as_number(other))
        return isinstance(one, str) and isinstance(other, str) and holds(one, other)

    return compare


def _in(one: Any, among: Any) -> bool:
    return isinstance(among, list) and any(_equal(one, other) for other in among)


def _contains(one: Any, other: Any) -> bool:
    if isinstance(one, str):
        return isinstance(other, str) and other in one
    return _in(other, one)


def _matches(one: Any, other: Any) -> bool:
    text, pattern = (one, other) if isinstance(other, re.Pattern) else (other, one)
    if not isinstance(pattern, re.Pattern):
        return False
    texts = text if isinstance(text, list) else [text]
    return any(
        pattern.fullmatch(scalar_text(part)) is not None for part in texts if isinstance(part, str) or _is_number(part)
    )


def _size(one: Any, other: Any) -> bool:
    return isinstance(one, str | list) and _is_number(other) and len(one) == other


def _empty(one: Any, other: Any) -> bool:
    return isinstance(one, str | list | dict) and isinstance(other, bool) and (len(one) == 0) == other


def _type(one: Any, other: Any) -> bool:
    kinds = {dict: "json", list: "json", str: "string", bool: "boolean", type(None): "null"}
    return bool(other == ("number" if _is_number(one) else kinds.get(type(one), "undefined")))


_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": _equal,
    "===": _same,
    "!=": lambda one, other: not _equal(one, other),
    "!==": lambda one, other: not _same(one, other),
    "<": _ordered(lambda one, other: one < other),
    "<=": _ordered(lambda one, other: one <= other),
    ">": _ordered(lambda one, other: one > other),
    ">=": _ordered(lambda one, other: one >= other),
    "=~": _matches,
    "in": _in,
    "nin": lambda one, other: not _in(one, other),
    "subsetof": lambda one, other: isinstance(one, list) and all(_in(part, other) for part in one),
    "anyof": lambda one, other: isinstance(one, list) and any(_in(part, other) for part in one),
    "noneof": lambda one, other: isinstance(one, list) and not any(_in(part, other) for part in one),
    "all": lambda one, other: (
        isinstance(one, list) and isinstance(other, list) and all(_in(part, one) for part in other)
    ),
    "contains": _contains,
    "size": _size,
    "empty": _empty,
    "type": _type,
}
