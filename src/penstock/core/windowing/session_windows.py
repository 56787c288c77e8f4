"""Session windows: end when no record arrives for a gap, which may depend on the record (C1)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from penstock.base.errors import WrongValueError
from penstock.base.serializer import TypeSerializer
from penstock.base.time import to_millis
from penstock.core.records import MAX_WATERMARK, MIN_TIMESTAMP
from penstock.core.windowing.assigners import MergingWindowAssigner, WindowAssigner
from penstock.core.windowing.time_triggers import EventTimeTrigger, ProcessingTimeTrigger
from penstock.core.windowing.triggers import Trigger
from penstock.core.windowing.windows import TimeWindow, TimeWindowSerializer


def time_of_sessions(watermark: int) -> int:
    """Return the event time (ms) that merging windows use and forward at a watermark (ms): a millisecond earlier.

    Windows that touch merge. So a session that ends at 10 may get a record of time 10, which is not late until the
    watermark is 10. At 9, the last millisecond of the session, it could end before or after that record: the result
    would depend on batch size, mode and parallelism. Its result has the time 9, so the watermark 9 must not precede it.
    """
    return watermark - 1 if MIN_TIMESTAMP < watermark < MAX_WATERMARK else watermark


class SessionWindowTimeGapExtractor(ABC):
    """Determines how long a session stays open after a record."""

    @abstractmethod
    def extract(self, element: Any) -> int:
        """Return the gap in ms, which must be greater than 0."""


class _Sessions(MergingWindowAssigner[Any, Any]):
    @abstractmethod
    def _extract_gap_ms(self, element: Any) -> int:
        """Return how long (ms) a session stays open after the record."""

    def merge_windows(self, windows: Iterable[TimeWindow], callback: MergingWindowAssigner.MergeCallback[Any]) -> None:
        """Merge windows that overlap or touch."""
        TimeWindow.merge_windows(windows, callback)

    def get_window_serializer(self) -> TypeSerializer[TimeWindow]:
        """Return a serializer that writes start and end."""
        return TimeWindowSerializer()


class _OfEventTime(_Sessions):
    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[TimeWindow]:
        """Return a window that begins at the record's timestamp and lasts for the gap."""
        return [TimeWindow(timestamp, timestamp + self._extract_gap_ms(element))]

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        """Return a trigger that fires when the watermark passes the end."""
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        """Yes."""
        return True


class _OfProcessingTime(_Sessions):
    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[TimeWindow]:
        """Return a window that begins now and lasts for the gap."""
        now_ms = context.get_current_processing_time()
        return [TimeWindow(now_ms, now_ms + self._extract_gap_ms(element))]

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        """Return a trigger that fires when the clock passes the end."""
        return ProcessingTimeTrigger()

    def is_event_time(self) -> bool:
        """No."""
        return False


class _FixedGap(_Sessions):
    def __init__(self, session_gap: int) -> None:
        self.gap_ms = _require_gap(session_gap)

    def _extract_gap_ms(self, element: Any) -> int:
        return self.gap_ms

    def __repr__(self) -> str:
        return f"{type(self).__name__}(session_gap={self.gap_ms})"


class _DynamicGap(_Sessions):
    def __init__(self, session_window_time_gap_extractor: SessionWindowTimeGapExtractor | Callable[[Any], int]) -> None:
        extractor = session_window_time_gap_extractor
        self._extract = extractor.extract if isinstance(extractor, SessionWindowTimeGapExtractor) else extractor

    def _extract_gap_ms(self, element: Any) -> int:
        return _require_gap(self._extract(element))


def _require_gap(gap_ms: int) -> int:
    if gap_ms <= 0:
        raise WrongValueError(f"a session window needs a gap over 0 ms, not {gap_ms}")
    return gap_ms


class EventTimeSessionWindows(_FixedGap, _OfEventTime):
    """Windows that end after a gap (ms) in event time without records."""

    @staticmethod
    def with_gap(size: object) -> EventTimeSessionWindows:
        """Create sessions that end after a gap: a duration, a timedelta or ms."""
        return EventTimeSessionWindows(to_millis(size))

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | Callable[[Any], int],
    ) -> DynamicEventTimeSessionWindows:
        """Create sessions whose gap depends on the record."""
        return DynamicEventTimeSessionWindows(extractor)


class ProcessingTimeSessionWindows(_FixedGap, _OfProcessingTime):
    """Windows that end after a gap (ms) in processing time without records."""

    @staticmethod
    def with_gap(size: object) -> ProcessingTimeSessionWindows:
        """Create sessions that end after a gap: a duration, a timedelta or ms."""
        return ProcessingTimeSessionWindows(to_millis(size))

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | Callable[[Any], int],
    ) -> DynamicProcessingTimeSessionWindows:
        """Create sessions whose gap depends on the record."""
        return DynamicProcessingTimeSessionWindows(extractor)


class DynamicEventTimeSessionWindows(_DynamicGap, _OfEventTime):
    """Event-time windows that stay open after each record for a gap that depends on the record."""

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | Callable[[Any], int],
    ) -> DynamicEventTimeSessionWindows:
        """Create sessions whose gap (ms) the extractor, or a plain callable, takes from each record."""
        return DynamicEventTimeSessionWindows(extractor)


class DynamicProcessingTimeSessionWindows(_DynamicGap, _OfProcessingTime):
    """Processing-time windows that stay open after each record for a gap that depends on the record."""

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | Callable[[Any], int],
    ) -> DynamicProcessingTimeSessionWindows:
        """Create sessions whose gap (ms) the extractor, or a plain callable, takes from each record."""
        return DynamicProcessingTimeSessionWindows(extractor)
