"""Map, filter and flat map on a keyed stream, for functions that use keyed state (A1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock.core.operators.record.process import KeyedProcessOperator
from penstock.core.operators.returned import NO_VALUES, wrong_value


class KeyedFunctionOperator(KeyedProcessOperator):
    """Calls a map, filter or flat-map function with its record's key as the current one."""

    def __init__(self, function: Any, key_selector: Callable[[Any], Any], kind: str) -> None:
        super().__init__(_AsProcessFunction(function, kind), key_selector)
        self._user_function = function

    def user_functions(self) -> tuple[Any, ...]:
        """The map, filter or flat-map function."""
        return (self._user_function,)


class _AsProcessFunction:
    """A function of records in the shape of a keyed process function."""

    def __init__(self, function: Any, kind: str) -> None:
        self._function = function
        self._kind = kind

    def open(self, runtime_context: Any) -> None:
        self._function.open(runtime_context)
        self.process_element = {"map": self.map, "filter": self.filter, "flat_map": self.flat_map}[self._kind]

    def close(self) -> None:
        self._function.close()

    def map(self, value: Any, ctx: Any) -> list[Any]:
        """One record."""
        result = self._function.map(value)
        if type(result) in NO_VALUES:
            raise wrong_value(result, "map()")
        return [result]

    def filter(self, value: Any, ctx: Any) -> list[Any] | None:
        """The record, or none."""
        return [value] if self._function.filter(value) else None

    def flat_map(self, value: Any, ctx: Any) -> Iterable[Any] | None:
        """What the function gives."""
        expanded: Iterable[Any] | None = self._function.flat_map(value)
        return expanded

    def on_timer(self, timestamp: int, ctx: Any) -> None:
        """No timer is ever set."""
