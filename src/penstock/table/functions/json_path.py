"""JSON paths with the semantics of Jayway's JsonPath: `$.a[0].b`, `$['a','b']`, `$.a[1:3]`, `$..b`, `$[?(@.b > 1)]`.

A definite path finds at most one value; an indefinite path returns a list of all that it finds. With `is_lax`, missing
parts are not an error: a definite path returns None and an indefinite one the values that exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.table.data.errors import TableRuntimeError


class JsonPathError(TableRuntimeError):
    """Raised if a path is invalid or finds nothing."""


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


_MISSING = object()


def _of_all(step: Step, values: Iterable[Any], context: Context) -> Iterator[Any]:
    for value in values:
        yield from step.run(value, context)


def _kind(value: Any) -> str:
    names: dict[type, str] = {dict: "an object", list: "an array", str: "a text", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
