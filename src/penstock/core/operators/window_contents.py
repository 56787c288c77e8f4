"""What a window holds for one key, and what it gives when it fires: the ways to aggregate and to emit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from penstock.core.operators.stateless import method
from penstock.core.windowing import TimeWindow


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

    def __init__(self, function: Any) -> None:
        self.function = function
        self._reduce: Callable[[Any, Any], Any] = method(function, "reduce")

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


class WindowProcessContext:
    """What a process window function is handed beside key and records."""

    def __init__(self, window: TimeWindow, watermark: int, now_ms: Callable[[], int]) -> None:
        self._window = window
        self._watermark = watermark
        self._now_ms = now_ms

    def window(self) -> TimeWindow:
        """The window that fires."""
        return self._window

    def current_watermark(self) -> int:
        """Event time, ms."""
        return self._watermark

    def current_processing_time(self) -> int:
        """Processing time, ms."""
        return self._now_ms()

    def window_state(self) -> Any:
        """State of this key and window."""
        raise NotImplementedError("per-window state is not available yet: use a KeyedProcessFunction with state")

    def global_state(self) -> Any:
        """State of this key over all windows."""
        raise NotImplementedError("global window state is not available yet: use a KeyedProcessFunction with state")


class WindowResult(ABC):
    """What becomes of a window's result when it fires."""

    function: Any = None

    @abstractmethod
    def emit(
        self, key: Any, window: TimeWindow, result: Any, watermark: int, now_ms: Callable[[], int]
    ) -> Iterable[Any]:
        """The records to emit."""


class ProcessResult(WindowResult):
    """A `ProcessWindowFunction`; `is_list` tells whether the result is the list of records or a single one."""

    def __init__(self, function: Any, is_list: bool) -> None:
        self.function = function
        self._is_list = is_list

    def emit(
        self, key: Any, window: TimeWindow, result: Any, watermark: int, now_ms: Callable[[], int]
    ) -> Iterable[Any]:
        """Call the function with a context."""
        records = result if self._is_list else [result]
        yielded = self.function.process(key, WindowProcessContext(window, watermark, now_ms), records)
        return yielded if yielded is not None else ()


class ApplyResult(WindowResult):
    """A `WindowFunction`."""

    def __init__(self, function: Any, is_list: bool) -> None:
        self.function = function
        self._is_list = is_list

    def emit(
        self, key: Any, window: TimeWindow, result: Any, watermark: int, now_ms: Callable[[], int]
    ) -> Iterable[Any]:
        """Call the function with the window."""
        yielded = method(self.function, "apply")(key, window, result if self._is_list else [result])
        return yielded if yielded is not None else ()
