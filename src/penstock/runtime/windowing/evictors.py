"""Evictors: remove records from a window that fires, before or after it is evaluated (C1).

A window with an evictor keeps all its records, even if they are reduced or aggregated, which then happens when it
fires.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from penstock.base.errors import WrongValueError
from penstock.base.metrics import MetricGroup
from penstock.base.time import to_millis
from penstock.runtime.records import MIN_TIMESTAMP

T = TypeVar("T")


class TimestampedValue(Generic[T]):
    """A record of a window with its event time."""

    __slots__ = ("_timestamp", "_value")

    def __init__(self, value: T, timestamp: int | None = None) -> None:
        self._value = value
        self._timestamp = timestamp

    def get_value(self) -> T:
        """Return the record."""
        return self._value

    def has_timestamp(self) -> bool:
        """Return whether the record has an event time."""
        return self._timestamp is not None

    def get_timestamp(self) -> int:
        """Return the record's event time in ms; -2**63 if it has none."""
        return MIN_TIMESTAMP if self._timestamp is None else self._timestamp

    def __repr__(self) -> str:
        return f"TimestampedValue({self._value!r}, {self._timestamp})"


class Evictor(ABC):
    """Removes records from windows. One object serves all keys and windows, so it keeps no state of its own."""

    class EvictorContext(ABC):
        """The times (in ms) and metrics available to an evictor."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Return the processing time."""

        @abstractmethod
        def get_metric_group(self) -> MetricGroup:
            """Return the operator's metrics; requesting a metric again returns the same object."""

        @abstractmethod
        def get_current_watermark(self) -> int:
            """Return the current event time of the subtask."""

    @abstractmethod
    def evict_before(
        self, elements: list[TimestampedValue[Any]], size: int, window: Any, evictor_context: EvictorContext
    ) -> None:
        """Before the evaluation, remove records from `elements`, the window's `size` records in arrival order."""

    @abstractmethod
    def evict_after(
        self, elements: list[TimestampedValue[Any]], size: int, window: Any, evictor_context: EvictorContext
    ) -> None:
        """After the evaluation, remove from `elements` the records that the window should forget."""


class _OneWay(Evictor):
    """An evictor that works the same before or after the evaluation."""

    def __init__(self, do_evict_after: bool) -> None:
        self.do_evict_after = do_evict_after

    @abstractmethod
    def _evict(self, elements: list[TimestampedValue[Any]]) -> None:
        """Remove records."""

    def evict_before(
        self, elements: list[TimestampedValue[Any]], size: int, window: Any, evictor_context: Evictor.EvictorContext
    ) -> None:
        """Evict, unless the evictor is set to do so after the evaluation."""
        if not self.do_evict_after:
            self._evict(elements)

    def evict_after(
        self, elements: list[TimestampedValue[Any]], size: int, window: Any, evictor_context: Evictor.EvictorContext
    ) -> None:
        """Evict, if the evictor is set to do so after the evaluation."""
        if self.do_evict_after:
            self._evict(elements)


class CountEvictor(_OneWay):
    """Keeps the last `max_count` records."""

    def __init__(self, max_count: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        if max_count < 0:
            raise WrongValueError(f"CountEvictor cannot keep {max_count} records")
        self.max_count = max_count

    @staticmethod
    def of(max_count: int, do_evict_after: bool = False) -> CountEvictor:
        """Keep the last `max_count` records; evict others before the evaluation, or after it with `do_evict_after`."""
        return CountEvictor(max_count, do_evict_after)

    def _evict(self, elements: list[TimestampedValue[Any]]) -> None:
        del elements[: max(0, len(elements) - self.max_count)]


class TimeEvictor(_OneWay):
    """Keeps the records less than `window_size` ms older than the latest; does nothing without timestamps."""

    def __init__(self, window_size: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        self.window_size = window_size

    @staticmethod
    def of(window_size: object, do_evict_after: bool = False) -> TimeEvictor:
        """Keep the records less than `window_size` (a duration, a timedelta or ms) older than the latest one."""
        return TimeEvictor(to_millis(window_size), do_evict_after)

    def _evict(self, elements: list[TimestampedValue[Any]]) -> None:
        if elements and elements[0].has_timestamp():
            cut_ms = max(element.get_timestamp() for element in elements) - self.window_size
            elements[:] = [element for element in elements if element.get_timestamp() > cut_ms]


class DeltaEvictor(_OneWay):
    """Keeps the records that differ from the last one by less than a threshold."""

    def __init__(
        self, threshold: float, delta_function: Callable[[Any, Any], float] | Any, do_evict_after: bool = False
    ) -> None:
        super().__init__(do_evict_after)
        self.threshold = threshold
        self._delta: Callable[[Any, Any], float] = getattr(delta_function, "get_delta", delta_function)

    @staticmethod
    def of(
        threshold: float, delta_function: Callable[[Any, Any], float] | Any, do_evict_after: bool = False
    ) -> DeltaEvictor:
        """Evict the records that differ from the last one by `threshold` or more.

        `delta_function(record, last)`, or the `get_delta` of an object, returns the difference between two records.
        """
        return DeltaEvictor(threshold, delta_function, do_evict_after)

    def _evict(self, elements: list[TimestampedValue[Any]]) -> None:
        if elements:
            last = elements[-1].get_value()
            elements[:] = [element for element in elements if self._delta(element.get_value(), last) < self.threshold]
