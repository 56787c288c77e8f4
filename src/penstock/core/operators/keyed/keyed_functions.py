"""Map, filter and flat map on a keyed stream, for functions that use keyed state (A1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from penstock.core.operators.record.process import KeyedProcessOperator
from penstock.core.operators.returned import NO_VALUES, check_items, wrong_value


class KeyedFunctionOperator(KeyedProcessOperator):
    """Calls a map, filter or flat-map function with its record's key as the current key."""

    def __init__(self, function: Any, key_selector: Callable[[Any], Any], kind: str) -> None:
        super().__init__(_KINDS[kind](function), key_selector)
        self._user_function = function

    def user_functions(self) -> tuple[Any, ...]:
        """Return the map, filter or flat-map function."""
        return (self._user_function,)


class _AsProcessFunction:
    """Adapts a function of records to the interface of a keyed process function."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def open(self, runtime_context: Any) -> None:
        self._function.open(runtime_context)

    def close(self) -> None:
        self._function.close()

    def on_timer(self, timestamp: int, ctx: Any) -> None:
        """Do nothing, because no timer is ever set."""


class _Map(_AsProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> list[Any]:
        result = self._function.map(value)
        if type(result) in NO_VALUES:
            raise wrong_value(result, "map()")
        return [result]


class _Filter(_AsProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> list[Any] | None:
        return [value] if self._function.filter(value) else None


class _FlatMap(_AsProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterable[Any] | None:
        expanded = self._function.flat_map(value)
        return None if expanded is None else check_items(expanded, self._function.flat_map)


_KINDS: Final = {"map": _Map, "filter": _Filter, "flat_map": _FlatMap}
