"""JSON paths with the semantics of Jayway's JsonPath: `$.a[0].b`, `$['a','b']`, `$.a[1:3]`, `$..b`, `$[?(@.b > 1)]`.

A definite path finds at most one value; an indefinite path returns a list of all that it finds. With `is_lax`, missing
parts are not an error: a definite path returns None and an indefinite one the values that exist.

`Conditions` parses the filter conditions in a path: `@.a > 1 && @.b == 'x'`, `@.a`, `@.a in [1, 2]`, `@.a =~ /x.*/i`.
`path_function` finds the functions at the end of a path, such as `.length()` and `.sum()`. `parse_path` parses a whole
path.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Final

from penstock.codecs.serialization import parse_digits
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.functions.variants import JsonTextError, read_json, scalar_text


class JsonPathError(TableRuntimeError):
    """Raised if a path is invalid or finds nothing."""


#: the value of a path that finds nothing
_MISSING: Final[Any] = object()


@dataclass(frozen=True, slots=True)
class Context:
    """The context of a step: the whole document, and whether missing parts are allowed."""

    root: Any
    is_lax: bool
    #: whether all previous steps together find at most one value
    is_definite: bool = True
    is_last: bool = False


class Step:
    """One step of a path."""

    #: whether it finds at most one value
    is_definite = False

    def run(self, value: Any, context: Context) -> Iterator[Any]:
        """Yield the values that the step selects from a value."""
        raise NotImplementedError

    def scans(self, value: Any, context: Context) -> Iterator[Any]:
        """Like `run`, for a value that `..` visits. Nothing is an error."""
        return self.run(value, context)


class Name(Step):
    """`.a` or `['a']`. Several names in the last step return an object with these keys."""

    def __init__(self, names: Sequence[str], is_last: bool) -> None:
        self.names = tuple(names)
        self.is_definite = len(names) == 1 or is_last

    def __str__(self) -> str:
        return f"[{','.join(repr(name) for name in self.names)}]"

    def run(self, value: Any, context: Context) -> Iterator[Any]:
        """See `Step.run`."""
        if not isinstance(value, dict):
            if context.is_definite and not context.is_lax:
                raise JsonPathError(f"Expected to find an object with property {self} but found {_kind(value)}")
            return
        if len(self.names) > 1 and context.is_last:
            yield {name: value[name] for name in self.names if name in value}
            return
        for name in self.names:
            if name in value:
                yield value[name]
            elif context.is_definite and self.is_definite and not context.is_last and not context.is_lax:
                raise JsonPathError(f"Missing property in path {self}")

    def scans(self, value: Any, context: Context) -> Iterator[Any]:
        """See `Step.scans`."""
        if isinstance(value, dict) and (not self.is_definite or all(name in value for name in self.names)):
            yield from self.run(value, context)


class Elements(Step):
    """`[0]`, `[0,-1]`, `[1:3]`: elements of an array. Indexes out of range are ignored."""

    def __init__(self, text: str, pick: Callable[[int], Iterable[int]], is_definite: bool) -> None:
        self.text, self.pick = text, pick
        self.is_definite = is_definite

    def __str__(self) -> str:
        return f"[{self.text}]"

    def run(self, value: Any, context: Context) -> Iterator[Any]:
        """See `Step.run`."""
        if not isinstance(value, list):
            if context.is_definite and not context.is_lax:
                raise JsonPathError(f"Filter: {self} can only be applied to arrays, and not to {_kind(value)}")
            return
        length = len(value)
        for index in self.pick(length):
            position = index + length if index < 0 else index
            if 0 <= position < length:
                yield value[position]


class Wildcard(Step):
    """`*` or `[*]`: all children of an object or array."""

    def __str__(self) -> str:
        return "[*]"

    def run(self, value: Any, context: Context) -> Iterator[Any]:
        """See `Step.run`."""
        if isinstance(value, dict):
            yield from value.values()
        elif isinstance(value, list):
            yield from value


class Filtered(Step):
    """`[?(@.a > 1)]`: the elements of an array that satisfy a condition, or an object that does."""

    def __init__(self, text: str, accepts: Callable[[Any, Any], bool]) -> None:
        self.text, self.accepts = text, accepts

    def __str__(self) -> str:
        return f"[?({self.text})]"

    def run(self, value: Any, context: Context) -> Iterator[Any]:
        """See `Step.run`."""
        if isinstance(value, list):
            yield from (element for element in value if self.accepts(element, context.root))
        elif isinstance(value, dict):
            if self.accepts(value, context.root):
                yield value
        elif context.is_definite:
            raise JsonPathError(f"Filter: {self} can not be applied to primitives, such as {_kind(value)}")

    def scans(self, value: Any, context: Context) -> Iterator[Any]:
        """See `Step.scans`."""
        if isinstance(value, dict) and self.accepts(value, context.root):
            yield value


class Scan(Step):
    """`..` and the following step, at every depth."""

    def __init__(self, step: Step) -> None:
        self.step = step

    def __str__(self) -> str:
        return f"..{self.step}"

    def run(self, value: Any, context: Context) -> Iterator[Any]:
        """See `Step.run`."""
        if not isinstance(value, dict | list):
            return
        yield from self.step.scans(value, context)
        for part in value.values() if isinstance(value, dict) else value:
            yield from self.run(part, context)


@dataclass(frozen=True)
class JsonPath:
    """A parsed path."""

    steps: tuple[Step, ...]
    #: functions applied to the result, such as `.length()`
    functions: tuple[Callable[[Any], Any], ...] = ()

    def __str__(self) -> str:
        return "$" + "".join(map(str, self.steps))

    @property
    def is_definite(self) -> bool:
        """Whether it finds at most one value."""
        return all(step.is_definite for step in self.steps)

    def read(self, document: Any, is_lax: bool, start: Any = None, is_relative: bool = False) -> Any:
        """Return the value of a definite path, or the list of values of an indefinite one.

        Raises `JsonPathError` if a definite path finds nothing. A relative path begins at `start`.
        """
        try:
            return self._read(start if is_relative else document, document, is_lax)
        except JsonPathError:
            if not is_lax:
                raise
            return None if self.is_definite else []

    def _read(self, start: Any, document: Any, is_lax: bool) -> Any:
        results = list(self._found(start, document, is_lax))
        value: Any = results
        if self.is_definite:
            if not results:
                raise JsonPathError(f"No results for path: {self}")
            value = results[-1]
        for function in self.functions:
            value = function(value)
        return value

    def _found(self, start: Any, document: Any, is_lax: bool) -> Iterable[Any]:
        values: Iterable[Any] = (start,)
        is_definite = True
        for position, step in enumerate(self.steps):
            context = Context(document, is_lax, is_definite, position == len(self.steps) - 1)
            if is_definite and isinstance(step, Name) and len(step.names) == 1 and type(start) is dict:
                member = start.get(step.names[0], _MISSING)
                values = tuple(step.run(start, context)) if member is _MISSING else (member,)
            else:
                values = _of_all(step, values, context)
            is_definite = is_definite and step.is_definite
            if is_definite:
                values = tuple(values)
                if not values:
                    return ()
                start = values[0]
        return values


def _of_all(step: Step, values: Iterable[Any], context: Context) -> Iterator[Any]:
    for value in values:
        yield from step.run(value, context)


def _kind(value: Any) -> str:
    names: dict[type, str] = {dict: "an object", list: "an array", str: "a text", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


Condition = Callable[[Any, Any], bool]
#: evaluates an operand for the current value and the whole document
Value = Callable[[Any, Any], Any]


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


def _numbers(value: Any) -> list[float]:
    parts = value if isinstance(value, list) else [value]
    numbers = [float(part) for part in parts if isinstance(part, int | float | Decimal) and not isinstance(part, bool)]
    if not numbers:
        raise JsonPathError("Aggregation function attempted to calculate value using empty array")
    return numbers


def _deviation(value: Any) -> float:
    numbers = _numbers(value)
    mean = sum(numbers) / len(numbers)
    return math.sqrt(sum((number - mean) ** 2 for number in numbers) / len(numbers))


def _average(value: Any) -> float:
    numbers = _numbers(value)
    return sum(numbers) / len(numbers)


def _length(value: Any) -> int | None:
    return len(value) if isinstance(value, list | dict | str) else None


def _keys(value: Any) -> list[str] | None:
    return list(value) if isinstance(value, dict) else None


def _concat(value: Any) -> str:
    parts = value if isinstance(value, list) else [value]
    return "".join(scalar_text(part) for part in parts if part is not None and not isinstance(part, dict | list))


def _get_element(value: Any, index: int) -> Any:
    if not isinstance(value, list):
        raise JsonPathError("Aggregation function attempted to calculate value using empty array")
    if not -len(value) <= index < len(value):
        raise JsonPathError(f"Target index:{index} larger than object count:{len(value)}")
    return value[index]


_FUNCTIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "length": _length,
    "size": _length,
    "keys": _keys,
    "min": lambda value: min(_numbers(value)),
    "max": lambda value: max(_numbers(value)),
    "sum": lambda value: sum(_numbers(value)),
    "avg": _average,
    "stddev": _deviation,
    "concat": _concat,
    "first": lambda value: _get_element(value, 0),
    "last": lambda value: _get_element(value, -1),
}


def _index(text: str) -> int:
    digits = text.strip()
    return -parse_digits(digits[1:]) if digits.startswith("-") else parse_digits(digits.removeprefix("+"))


def path_function(name: str, argument: str) -> Callable[[Any], Any]:
    """Return a function by name. Raises `JsonPathError` if it does not exist."""
    if name == "index" and argument.strip().lstrip("-").isdigit():
        return lambda value: _get_element(value, _index(argument))
    function = _FUNCTIONS.get(name)
    if function is None or argument.strip():
        raise JsonPathError(f"Function with name: {name} does not exist.")
    return function


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
            indices = [_index(index) for index in content.split(",")]
            return Elements(content.strip(), lambda length: indices, len(indices) == 1)
        borders = _SLICE.fullmatch(content) if end > 0 else None
        if borders is None or borders.groups() == (None, None):
            self.fail("Could not parse what is in brackets: expected ?, ', 0-9, *")
        assert borders is not None
        begin, to = (None if border is None else _index(border) for border in borders.groups())
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
