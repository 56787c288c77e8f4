"""Windows of event time: the windows themselves, and assigners that say which windows a timestamp belongs to (C1)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.common.time import to_millis


class TimeWindow:
    """The window [start, end), in ms."""

    __slots__ = ("end", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end

    def max_timestamp(self) -> int:
        """The last ms that belongs to the window."""
        return self.end - 1

    def intersects(self, other: TimeWindow) -> bool:
        """Whether the windows overlap or touch."""
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: TimeWindow) -> TimeWindow:
        """The smallest window that covers both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """The start of the aligned window that contains `timestamp`."""
        return timestamp - (timestamp - offset) % window_size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TimeWindow) and (self.start, self.end) == (other.start, other.end)

    def __lt__(self, other: TimeWindow) -> bool:
        return (self.start, self.end) < (other.start, other.end)

    def __hash__(self) -> int:
        return hash((self.start, self.end))

    def __repr__(self) -> str:
        return f"TimeWindow(start={self.start}, end={self.end})"


@dataclass(frozen=True)
class TumblingEventTimeWindows:
    """Windows of one size, one behind the other."""

    size_ms: int
    offset_ms: int = 0

    def __post_init__(self) -> None:
        if self.size_ms <= 0:
            raise ValueError(f"a tumbling window needs a size over 0 ms, not {self.size_ms}")
        if abs(self.offset_ms) >= self.size_ms:
            raise ValueError(f"the offset {self.offset_ms} ms must be smaller than the window's size {self.size_ms} ms")

    @classmethod
    def of(cls, size: object, offset: object = None) -> TumblingEventTimeWindows:
        """Windows of `size`, moved by `offset`; both are durations, timedeltas or ms."""
        return cls(to_millis(size), 0 if offset is None else to_millis(offset))

    def assign(self, timestamp: int) -> tuple[int, int, list[tuple[int, int]]]:
        """(low, high, windows): all timestamps in [low, high) belong to exactly these windows."""
        start = timestamp - (timestamp - self.offset_ms) % self.size_ms
        end = start + self.size_ms
        return start, end, [(start, end)]


@dataclass(frozen=True)
class SlidingEventTimeWindows:
    """Windows of one size, a new one every slide."""

    size_ms: int
    slide_ms: int
    offset_ms: int = 0

    def __post_init__(self) -> None:
        if self.size_ms <= 0 or self.slide_ms <= 0:
            raise ValueError(
                f"a sliding window needs a size and a slide over 0 ms, not {self.size_ms} and {self.slide_ms}"
            )
        if abs(self.offset_ms) >= self.slide_ms:
            raise ValueError(f"the offset {self.offset_ms} ms must be smaller than the slide {self.slide_ms} ms")

    @classmethod
    def of(cls, size: object, slide: object, offset: object = None) -> SlidingEventTimeWindows:
        """Windows of `size`, one every `slide`, moved by `offset`; durations, timedeltas or ms."""
        return cls(to_millis(size), to_millis(slide), 0 if offset is None else to_millis(offset))

    def assign(self, timestamp: int) -> tuple[int, int, list[tuple[int, int]]]:
        """(low, high, windows): all timestamps in [low, high) belong to exactly these windows."""
        last_start = timestamp - (timestamp - self.offset_ms) % self.slide_ms
        starts = range(last_start, timestamp - self.size_ms, -self.slide_ms)
        # The set of windows changes where one begins or one ends: at every multiple of this step.
        step = math.gcd(self.size_ms, self.slide_ms)
        low = timestamp - (timestamp - self.offset_ms) % step
        return low, low + step, [(start, start + self.size_ms) for start in starts]


@dataclass(frozen=True)
class EventTimeSessionWindows:
    """Windows that end when nothing came for a gap."""

    gap_ms: int

    def __post_init__(self) -> None:
        if self.gap_ms <= 0:
            raise ValueError(f"a session window needs a gap over 0 ms, not {self.gap_ms}")

    @classmethod
    def with_gap(cls, size: object) -> EventTimeSessionWindows:
        """Sessions that end after a gap; a duration, a timedelta or ms."""
        return cls(to_millis(size))


AlignedAssigner = TumblingEventTimeWindows | SlidingEventTimeWindows
