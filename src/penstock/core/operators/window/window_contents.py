"""A window's contents for one key and its result when it fires: the ways to aggregate and to emit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Generic, TypeAlias, TypeVar

from penstock.base.copies import detached
from penstock.base.typeinfo import TypeInformation
from penstock.core.operators.context import OperatorContext
from penstock.core.operators.keyed.keyed_aggregate import FieldReduce
from penstock.core.operators.keyed.keyed_reduce import typed_reduce
from penstock.core.operators.record.stateless import method
from penstock.core.operators.returned import check_results
from penstock.core.operators.runtime_context import KeyedStateStore
from penstock.core.operators.window.window_states import WindowStates, WindowStateStore
from penstock.core.windowing.windows import WindowTokens
from penstock.state.errors import StateError

W = TypeVar("W")
#: The function that returns the records to emit, called with a key, the second item, and a window's records or
#: aggregate.
Call: TypeAlias = tuple[Callable[[Any, Any, list[Any]], Iterable[Any] | None], Any]


class WindowContents(ABC):
    """Aggregates records into contents. `add` may change contents in place."""

    function: Any = None

    @abstractmethod
    def first(self, value: Any) -> Any:
        """Return the contents of a window with one record."""

    @abstractmethod
    def add(self, contents: Any, value: Any) -> Any:
        """Return the contents with one more record."""

    @abstractmethod
    def merge(self, contents: Any, other: Any) -> Any:
        """Return the contents of two merged windows."""

    def copy_records(self) -> None:  # noqa: B027 - a hook
        """Copy records before they can be changed, because other windows share them."""

    def result(self, contents: Any) -> Any:
        """Return the window's result."""
        return contents

    def result_function(self) -> Callable[[Any], Any]:
        """Return `result`, or a single call with the same effect."""
        return self.result


class ReducingContents(WindowContents):
    """A single value into which records are folded."""

    def __init__(self, function: Any, type_info: TypeInformation | None = None) -> None:
        self.function = function
        self._reduce: Callable[[Any, Any], Any] = typed_reduce(method(function, "reduce"), type_info)
        self._copies = False

    def copy_records(self) -> None:
        """Copy records, because the function may change both of its arguments."""
        self._copies = True

    def first(self, value: Any) -> Any:
        """Return the record itself."""
        return detached(value) if self._copies else value

    def add(self, contents: Any, value: Any) -> Any:
        """Fold."""
        return self._reduce(contents, detached(value) if self._copies else value)

    def merge(self, contents: Any, other: Any) -> Any:
        """Fold."""
        return self._reduce(contents, other)


class FieldContents(ReducingContents):
    """One record with the aggregate in one of its fields."""

    function: FieldReduce

    def __init__(self, function: FieldReduce) -> None:
        super().__init__(function)  # the function rounds by itself

    def copy_records(self) -> None:
        """Do nothing: the aggregate is a separate record."""

    def first(self, value: Any) -> Any:
        """Return the record itself, if it has the field."""
        self.function.check(value)
        return super().first(value)


class AggregatingContents(WindowContents):
    """The accumulator of an aggregate function."""

    def __init__(self, function: Any) -> None:
        self.function = function
        #: adds a record to an accumulator and returns the accumulator
        self.accumulate: Callable[[Any, Any], Any] = function.add
        self._create = function.create_accumulator
        self._get_result = function.get_result

    def copy_records(self) -> None:
        """Copy records: the accumulator may be or contain a record, and the function may change it."""
        add = self.function.add
        self.accumulate = lambda value, accumulator: add(detached(value), accumulator)

    def first(self, value: Any) -> Any:
        """Return a new accumulator with the record."""
        return self.accumulate(value, self._create())

    def add(self, contents: Any, value: Any) -> Any:
        """Add the record."""
        return self.accumulate(value, contents)

    def merge(self, contents: Any, other: Any) -> Any:
        """Merge the accumulators."""
        return self.function.merge(contents, other)

    def result(self, contents: Any) -> Any:
        """Return the function's result."""
        return self._get_result(contents)

    def result_function(self) -> Callable[[Any], Any]:
        """Return the user's own `get_result`."""
        function: Callable[[Any], Any] = self._get_result
        return function

    def __reduce__(self) -> Any:
        return (AggregatingContents, (self.function,))


class ListContents(WindowContents):
    """A list of all records."""

    def first(self, value: Any) -> Any:
        """Return a list with the record."""
        return [value]

    def add(self, contents: Any, value: Any) -> Any:
        """Append."""
        contents.append(value)
        return contents

    def merge(self, contents: Any, other: Any) -> Any:
        """Concatenate."""
        return [*contents, *other]


class WindowEnvironment:
    """The part of the operator that window function contexts can reach; `states` is None if windows merge."""

    def __init__(self, context: OperatorContext, tokens: WindowTokens, states: WindowStates | None) -> None:
        self.now_ms: Callable[[], int] = context.clock.now_ms
        self.global_state = KeyedStateStore(context)
        self._tokens = tokens
        self._states = states

    def open_window_state(self, window: Any) -> WindowStateStore:
        """Return the states of the current key and a window."""
        if self._states is None:
            raise StateError(
                "window_state() cannot be used with windows that merge, because a window may become part of another: "
                "use global_state()"
            )
        return WindowStateStore(self._states, self._tokens.to_token(window))


class WindowProcessContext(Generic[W]):
    """The context that a process window function receives besides key and records."""

    __slots__ = ("_environment", "_watermark", "_window")

    def __init__(self, window: W, watermark: int, environment: WindowEnvironment) -> None:
        self._window = window
        self._watermark = watermark
        self._environment = environment

    def window(self) -> W:
        """Return the window that fires or is cleaned up."""
        return self._window

    def current_watermark(self) -> int:
        """Return the event time in ms."""
        return self._watermark

    def current_processing_time(self) -> int:
        """Return the processing time in ms."""
        return self._environment.now_ms()

    def window_state(self) -> KeyedStateStore:
        """Return the state of this key and window, to be removed in `clear`. Not for merging windows."""
        return self._environment.open_window_state(self._window)

    def global_state(self) -> KeyedStateStore:
        """Return the state of this key across all windows."""
        return self._environment.global_state


class WindowResult(ABC):
    """Handles a window's result when it fires; `is_list`: whether the result is the list of its records."""

    def __init__(self, function: Any, is_list: bool) -> None:
        self.function = function
        self.is_list = is_list

    @abstractmethod
    def call(self, window: Any, watermark: int, environment: WindowEnvironment) -> Call:
        """Return the call to make for each key of a firing window."""

    def emit(
        self, key: Any, window: Any, result: Any, watermark: int, environment: WindowEnvironment
    ) -> Iterable[Any] | None:
        """Return the records to emit for one key."""
        call, beside = self.call(window, watermark, environment)
        emitted = call(key, beside, result if self.is_list else [result])
        return None if emitted is None else check_results(emitted, call)

    def clear(self, window: Any, watermark: int, environment: WindowEnvironment) -> None:  # noqa: B027 - a hook
        """Clean up after the window."""


class ProcessResult(WindowResult):
    """A `ProcessWindowFunction`."""

    def call(self, window: Any, watermark: int, environment: WindowEnvironment) -> Call:
        """Return the function, with a context."""
        return self.function.process, WindowProcessContext(window, watermark, environment)

    def clear(self, window: Any, watermark: int, environment: WindowEnvironment) -> None:
        """Let the function remove the window's state."""
        clear = getattr(self.function, "clear", None)
        if clear is not None:
            clear(WindowProcessContext(window, watermark, environment))


class ProcessAllResult(ProcessResult):
    """A `ProcessAllWindowFunction`."""

    def call(self, window: Any, watermark: int, environment: WindowEnvironment) -> Call:
        """Return the function, with a context and without the key."""
        return _without_key(self.function.process), WindowProcessContext(window, watermark, environment)


class ApplyResult(WindowResult):
    """A `WindowFunction`."""

    def call(self, window: Any, watermark: int, environment: WindowEnvironment) -> Call:
        """Return the function, with the window."""
        return method(self.function, "apply"), window


class ApplyAllResult(ApplyResult):
    """An `AllWindowFunction`."""

    def call(self, window: Any, watermark: int, environment: WindowEnvironment) -> Call:
        """Return the function, with the window and without the key."""
        return _without_key(method(self.function, "apply")), window


def _without_key(function: Callable[[Any, list[Any]], Iterable[Any] | None]) -> Callable[[Any, Any, list[Any]], Any]:
    @wraps(function)
    def call(key: Any, beside: Any, records: list[Any]) -> Iterable[Any] | None:
        return function(beside, records)

    return call
