"""What a window holds for one key, and what it gives when it fires: the ways to aggregate and to emit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from penstock.common.typeinfo import TypeInformation
from penstock.core.operators.base import OperatorContext
from penstock.core.operators.keyed_reduce import rounded_reduce
from penstock.core.operators.runtime_context import KeyedStateStore
from penstock.core.operators.stateless import method
from penstock.core.operators.window_states import WindowStates, WindowStateStore
from penstock.core.windowing.windows import WindowTokens
from penstock.state.errors import StateError

W = TypeVar("W")


class WindowContents(ABC):
    """How records become contents. Contents may be changed in place by `add`."""

    function: Any = None

    @abstractmethod
    def first(self, value: Any) -> Any:
        """Contents of a window with one record."""

    @abstractmethod
    def add(self, contents: Any, value: Any) -> Any:
        """Contents with one more record."""

    @abstractmethod
    def merge(self, one: Any, other: Any) -> Any:
        """Contents of two windows that became one."""

    def result(self, contents: Any) -> Any:
        """What the window gives."""
        return contents


class ReducingContents(WindowContents):
    """One value, into which records are folded."""

    def __init__(self, function: Any, type_info: TypeInformation | None = None) -> None:
        self.function = function
        self._reduce: Callable[[Any, Any], Any] = rounded_reduce(method(function, "reduce"), type_info)

    def first(self, value: Any) -> Any:
        """The record itself."""
        return value

    def add(self, contents: Any, value: Any) -> Any:
        """Fold."""
        return self._reduce(contents, value)

    def merge(self, one: Any, other: Any) -> Any:
        """Fold."""
        return self._reduce(one, other)


class AggregatingContents(WindowContents):
    """An accumulator of an aggregate function."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self._add = function.add
        self._create = function.create_accumulator
        self._get_result = function.get_result

    def first(self, value: Any) -> Any:
        """A new accumulator with the record."""
        return self._add(value, self._create())

    def add(self, contents: Any, value: Any) -> Any:
        """Add the record."""
        return self._add(value, contents)

    def merge(self, one: Any, other: Any) -> Any:
        """Merge the accumulators."""
        return self.function.merge(one, other)

    def result(self, contents: Any) -> Any:
        """The function's result."""
        return self._get_result(contents)

    def __reduce__(self) -> Any:
        return (AggregatingContents, (self.function,))


class ListContents(WindowContents):
    """All records."""

    def first(self, value: Any) -> Any:
        """A list of one."""
        return [value]

    def add(self, contents: Any, value: Any) -> Any:
        """Append."""
        contents.append(value)
        return contents

    def merge(self, one: Any, other: Any) -> Any:
        """Concatenate."""
        return [*one, *other]


class WindowEnvironment:
    """What the context of a window function reaches of the operator; `states` is None where windows merge."""

    def __init__(self, context: OperatorContext, tokens: WindowTokens, states: WindowStates | None) -> None:
        self.now_ms: Callable[[], int] = context.clock.now_ms
        self.global_state = KeyedStateStore(context)
        self._tokens = tokens
        self._states = states

    def state_of(self, window: Any) -> WindowStateStore:
        """The states of the current key and a window."""
        if self._states is None:
            raise StateError(
                "window_state() cannot be used with windows that merge, for a window may become part of another: use "
                "global_state()"
            )
        return WindowStateStore(self._states, self._tokens.token_of(window))


class WindowProcessContext(Generic[W]):
    """What a process window function is handed beside key and records."""

    __slots__ = ("_environment", "_watermark", "_window")

    def __init__(self, window: W, watermark: int, environment: WindowEnvironment) -> None:
        self._window = window
        self._watermark = watermark
        self._environment = environment

    def window(self) -> W:
        """The window that fires, or is cleaned up."""
        return self._window

    def current_watermark(self) -> int:
        """Event time, ms."""
        return self._watermark

    def current_processing_time(self) -> int:
        """Processing time, ms."""
        return self._environment.now_ms()

    def window_state(self) -> KeyedStateStore:
        """State of this key and window; what is set here is to be removed in `clear`. Not for windows that merge."""
        return self._environment.state_of(self._window)

    def global_state(self) -> KeyedStateStore:
        """State of this key over all windows."""
        return self._environment.global_state


class WindowResult(ABC):
    """What becomes of a window's result when it fires; `is_list` tells whether that is the list of its records."""

    def __init__(self, function: Any, is_list: bool) -> None:
        self.function = function
        self._is_list = is_list

    @property
    @abstractmethod
    def called(self) -> Callable[..., Any]:
        """What `emit` calls."""

    @abstractmethod
    def emit(
        self, key: Any, window: Any, result: Any, watermark: int, environment: WindowEnvironment
    ) -> Iterable[Any] | None:
        """The records to emit."""

    def clear(self, window: Any, watermark: int, environment: WindowEnvironment) -> None:  # noqa: B027 - a hook
        """The window is cleaned up."""


class ProcessResult(WindowResult):
    """A `ProcessWindowFunction`."""

    @property
    def called(self) -> Callable[..., Any]:
        """The function's `process`."""
        called: Callable[..., Any] = self.function.process
        return called

    def emit(
        self, key: Any, window: Any, result: Any, watermark: int, environment: WindowEnvironment
    ) -> Iterable[Any] | None:
        """Call the function with a context."""
        context = WindowProcessContext(window, watermark, environment)
        records: Iterable[Any] | None = self.function.process(key, context, result if self._is_list else [result])
        return records

    def clear(self, window: Any, watermark: int, environment: WindowEnvironment) -> None:
        """Let the function remove the window's state."""
        clear = getattr(self.function, "clear", None)
        if clear is not None:
            clear(WindowProcessContext(window, watermark, environment))


class ProcessAllResult(ProcessResult):
    """A `ProcessAllWindowFunction`."""

    def emit(
        self, key: Any, window: Any, result: Any, watermark: int, environment: WindowEnvironment
    ) -> Iterable[Any] | None:
        """Call the function with a context."""
        context = WindowProcessContext(window, watermark, environment)
        records: Iterable[Any] | None = self.function.process(context, result if self._is_list else [result])
        return records


class ApplyResult(WindowResult):
    """A `WindowFunction`."""

    @property
    def called(self) -> Callable[..., Any]:
        """The function's `apply`, or the function itself."""
        called: Callable[..., Any] = method(self.function, "apply")
        return called

    def emit(
        self, key: Any, window: Any, result: Any, watermark: int, environment: WindowEnvironment
    ) -> Iterable[Any] | None:
        """Call the function with the window."""
        apply = method(self.function, "apply")
        records: Iterable[Any] | None = apply(key, window, result if self._is_list else [result])
        return records


class ApplyAllResult(ApplyResult):
    """An `AllWindowFunction`."""

    def emit(
        self, key: Any, window: Any, result: Any, watermark: int, environment: WindowEnvironment
    ) -> Iterable[Any] | None:
        """Call the function with the window."""
        apply = method(self.function, "apply")
        records: Iterable[Any] | None = apply(window, result if self._is_list else [result])
        return records
