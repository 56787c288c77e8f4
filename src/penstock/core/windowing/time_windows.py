"""Tumbling, sliding and cumulative time windows (C1).

The event-time assigners provide `assign` in addition to `assign_windows`. It answers for a whole range of timestamps;
the operator of aligned windows uses it.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

from penstock.base.errors import WrongValueError
from penstock.base.serializer import TypeSerializer
from penstock.base.time import to_millis
from penstock.core.windowing.assigners import WindowAssigner
from penstock.core.windowing.time_triggers import EventTimeTrigger, ProcessingTimeTrigger
from penstock.core.windowing.triggers import Trigger
from penstock.core.windowing.windows import TimeWindow, TimeWindowSerializer

#: (low, high, windows): all timestamps in [low, high) belong to exactly these windows, each (start, end).
Assigned = tuple[int, int, list[tuple[int, int]]]


class _AlignedWindows(WindowAssigner[Any, Any]):
    """Windows whose bounds depend only on the time."""

    @abstractmethod
    def assign(self, timestamp: int) -> Assigned:
        """Return (low, high, windows): all timestamps in [low, high) belong to exactly these windows."""

    def get_window_serializer(self) -> TypeSerializer[TimeWindow]:
        """Return a serializer that writes start and end."""
        return TimeWindowSerializer()


class _OfEventTime(_AlignedWindows):
    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[TimeWindow]:
        """Return the windows of the record's timestamp."""
        return [TimeWindow(start, end) for start, end in self.assign(timestamp)[2]]

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        """Return a trigger that fires when the watermark passes the end."""
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        """Yes."""
        return True


class _OfProcessingTime(_AlignedWindows):
    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[TimeWindow]:
        """Return the windows of the current processing time."""
        return [TimeWindow(start, end) for start, end in self.assign(context.get_current_processing_time())[2]]

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        """Return a trigger that fires when the clock passes the end."""
        return ProcessingTimeTrigger()

    def is_event_time(self) -> bool:
        """No."""
        return False


class _Tumbling(_AlignedWindows):
    def __init__(self, size: int, offset: int = 0) -> None:
        if size <= 0:
            raise WrongValueError(f"a tumbling window needs a size over 0 ms, not {size}")
        if abs(offset) >= size:
            raise WrongValueError(f"the offset {offset} ms must be smaller than the window's size {size} ms")
        self.size_ms = size
        self.offset_ms = offset

    def assign(self, timestamp: int) -> Assigned:
        """Return (low, high, windows): all timestamps in [low, high) belong to exactly these windows."""
        start = timestamp - (timestamp - self.offset_ms) % self.size_ms
        end = start + self.size_ms
        return start, end, [(start, end)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size_ms}, offset={self.offset_ms})"


class TumblingEventTimeWindows(_Tumbling, _OfEventTime):
    """Consecutive event-time windows of a fixed size (ms), shifted by an offset (ms)."""

    @staticmethod
    def of(size: object, offset: object = None) -> TumblingEventTimeWindows:
        """Create windows of `size`, shifted by `offset`; both are durations, timedeltas or ms."""
        return TumblingEventTimeWindows(to_millis(size), _offset_ms(offset))


class TumblingProcessingTimeWindows(_Tumbling, _OfProcessingTime):
    """Consecutive processing-time windows of a fixed size (ms), shifted by an offset (ms)."""

    @staticmethod
    def of(size: object, offset: object = None) -> TumblingProcessingTimeWindows:
        """Create windows of `size`, shifted by `offset`; both are durations, timedeltas or ms."""
        return TumblingProcessingTimeWindows(to_millis(size), _offset_ms(offset))


class _Sliding(_AlignedWindows):
    def __init__(self, size: int, slide: int, offset: int = 0) -> None:
        if size <= 0 or slide <= 0:
            raise WrongValueError(f"a sliding window needs a size and a slide over 0 ms, not {size} and {slide}")
        if abs(offset) >= slide:
            raise WrongValueError(f"the offset {offset} ms must be smaller than the slide {slide} ms")
        self.size_ms = size
        self.slide_ms = slide
        self.offset_ms = offset

    def assign(self, timestamp: int) -> Assigned:
        """Return (low, high, windows): all timestamps in [low, high) belong to exactly these windows."""
        last_start = timestamp - (timestamp - self.offset_ms) % self.slide_ms
        starts = range(last_start, timestamp - self.size_ms, -self.slide_ms)
        # The set of windows changes where a window begins or ends: at multiples of this step.
        step = math.gcd(self.size_ms, self.slide_ms)
        low = timestamp - (timestamp - self.offset_ms) % step
        return low, low + step, [(start, start + self.size_ms) for start in starts]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size_ms}, slide={self.slide_ms}, offset={self.offset_ms})"


class SlidingEventTimeWindows(_Sliding, _OfEventTime):
    """Event-time windows of a fixed size (ms), starting every slide (ms), shifted by an offset (ms)."""

    @staticmethod
    def of(size: object, slide: object, offset: object = None) -> SlidingEventTimeWindows:
        """Create windows of `size`, one every `slide`, shifted by `offset`; durations, timedeltas or ms."""
        return SlidingEventTimeWindows(to_millis(size), to_millis(slide), _offset_ms(offset))


class SlidingProcessingTimeWindows(_Sliding, _OfProcessingTime):
    """Processing-time windows of a fixed size (ms), starting every slide (ms), shifted by an offset (ms)."""

    @staticmethod
    def of(size: object, slide: object, offset: object = None) -> SlidingProcessingTimeWindows:
        """Create windows of `size`, one every `slide`, shifted by `offset`; durations, timedeltas or ms."""
        return SlidingProcessingTimeWindows(to_millis(size), to_millis(slide), _offset_ms(offset))


class CumulativeEventTimeWindows(_OfEventTime):
    """Windows that share a start and grow by a step (ms) up to a maximum size (ms); then the next series begins.

    A size of a day and a step of an hour give a result for each hour, over all records of the day so far.
    """

    def __init__(self, max_size: int, step: int, offset: int = 0) -> None:
        if step <= 0 or max_size <= 0 or max_size % step:
            raise WrongValueError(
                f"a cumulative window needs a size that is a multiple of its step, both over 0 ms, not {max_size} and "
                f"{step}"
            )
        if abs(offset) >= max_size:
            raise WrongValueError(f"the offset {offset} ms must be smaller than the window's size {max_size} ms")
        self.max_size_ms = max_size
        self.step_ms = step
        self.offset_ms = offset

    @staticmethod
    def of(max_size: object, step: object, offset: object = None) -> CumulativeEventTimeWindows:
        """Create windows that grow by `step` up to `max_size`, shifted by `offset`; durations, timedeltas or ms."""
        return CumulativeEventTimeWindows(to_millis(max_size), to_millis(step), _offset_ms(offset))

    def assign(self, timestamp: int) -> Assigned:
        """Return (low, high, windows): all timestamps in [low, high) belong to exactly these windows."""
        start = timestamp - (timestamp - self.offset_ms) % self.max_size_ms
        low = timestamp - (timestamp - start) % self.step_ms
        high = low + self.step_ms
        return low, high, [(start, end) for end in range(high, start + self.max_size_ms + 1, self.step_ms)]

    def __repr__(self) -> str:
        return f"CumulativeEventTimeWindows(max_size={self.max_size_ms}, step={self.step_ms}, offset={self.offset_ms})"


def _offset_ms(offset: object) -> int:
    return 0 if offset is None else to_millis(offset)


AlignedAssigner = TumblingEventTimeWindows | SlidingEventTimeWindows | CumulativeEventTimeWindows
