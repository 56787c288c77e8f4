"""Window assigners, which decide the windows of each record (C1). `WindowAssigner` is the base of all.

**Time windows** are tumbling, sliding and cumulative. Their event-time assigners provide `assign` in addition to
`assign_windows`. It answers for a whole range of timestamps; the operator of aligned windows uses it.

**Session windows** end when no record arrives for a gap, which may depend on the record.

**Windows independent of time** are count windows and the global window.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from typing import Any, Generic, TypeVar

from penstock.base.errors import WrongValueError
from penstock.base.time import to_millis
from penstock.base.typeinfo import Types, TypeSerializer
from penstock.runtime.records import MAX_WATERMARK, MIN_TIMESTAMP
from penstock.runtime.windowing import triggers
from penstock.runtime.windowing.windows import (
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
    TimeWindow,
    TimeWindowSerializer,
)
from penstock.state.states import ValueStateDescriptor

T = TypeVar("T")
V = TypeVar("V")
W = TypeVar("W")


class WindowAssigner(ABC, Generic[T, W]):
    """Puts each record into any number of windows. One object serves all keys, so it keeps no state of its own.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment, TimeWindow, WindowAssigner
        >>> from penstock.datastream.window import CountTrigger, TimeWindowSerializer
        >>> class ByTen(WindowAssigner):
        ...     def assign_windows(self, element, timestamp, context):
        ...         return [TimeWindow(element // 10 * 10, element // 10 * 10 + 10)]
        ...     def get_default_trigger(self, env):
        ...         return CountTrigger.of(2)
        ...     def get_window_serializer(self):
        ...         return TimeWindowSerializer()
        ...     def is_event_time(self):
        ...         return False
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.from_elements(1, 12, 2, 13).window_all(ByTen()).sum().collect()
        [3, 25]
    """

    class WindowAssignerContext(ABC):
        """The information available to an assigner besides the record."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Return the processing time in ms."""

        @abstractmethod
        def get_runtime_context(self) -> Any:
            """Return the operator's runtime context, whose keyed state belongs to the record's key."""

    @abstractmethod
    def assign_windows(self, element: T, timestamp: int, context: WindowAssignerContext) -> Collection[W]:
        """Return the windows of a record; `timestamp` is its event time in ms, or -2**63 if it has none."""

    @abstractmethod
    def get_default_trigger(self, env: Any) -> triggers.Trigger[T, W]:
        """Return the trigger for streams that set none."""

    @abstractmethod
    def get_window_serializer(self) -> TypeSerializer[W]:
        """Return the serializer of windows in state; used only if windows are not of a built-in type."""

    @abstractmethod
    def is_event_time(self) -> bool:
        """Return whether windows end by event time: then records need timestamps, and may be late."""


class MergingWindowAssigner(WindowAssigner[T, W]):
    """An assigner whose windows may merge, such as sessions.

    Examples:
        >>> from penstock.datastream import MergingWindowAssigner
        >>> from penstock.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
        >>> isinstance(EventTimeSessionWindows.with_gap(1_000), MergingWindowAssigner)
        True
        >>> isinstance(TumblingEventTimeWindows.of(1_000), MergingWindowAssigner)
        False
    """

    class MergeCallback(ABC, Generic[V]):
        """Receives the windows that merge."""

        @abstractmethod
        def merge(self, to_be_merged: Collection[V], merge_result: V) -> None:
            """Merge all of `to_be_merged` into the window `merge_result`."""

    @abstractmethod
    def merge_windows(self, windows: Iterable[W], callback: MergeCallback[W]) -> None:
        """Examine the windows of a key, and call `callback` for each group that merges into one window."""


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

    def get_default_trigger(self, env: Any) -> triggers.Trigger[Any, Any]:
        """Return a trigger that fires when the watermark passes the end."""
        return triggers.EventTimeTrigger()

    def is_event_time(self) -> bool:
        """Yes."""
        return True


class _OfProcessingTime(_AlignedWindows):
    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[TimeWindow]:
        """Return the windows of the current processing time."""
        return [TimeWindow(start, end) for start, end in self.assign(context.get_current_processing_time())[2]]

    def get_default_trigger(self, env: Any) -> triggers.Trigger[Any, Any]:
        """Return a trigger that fires when the clock passes the end."""
        return triggers.ProcessingTimeTrigger()

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
    """Consecutive event-time windows of a fixed size (ms), shifted by an offset (ms).

    Examples:
        >>> from penstock.common import Duration, WatermarkStrategy
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.window import TumblingEventTimeWindows
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> in_ms = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda ms: ms)
        >>> times = env.from_elements(1_000, 9_000, 70_000).assign_timestamps_and_watermarks(in_ms)
        >>> windows = times.window_all(TumblingEventTimeWindows.of(Duration.of_minutes(1)))
        >>> windows.apply(lambda window, times: [(window.start, window.end, list(times))]).collect()
        [(0, 60000, [1000, 9000]), (60000, 120000, [70000])]
    """

    @staticmethod
    def of(size: object, offset: object = None) -> TumblingEventTimeWindows:
        """Create windows of `size`, shifted by `offset`; both are durations, timedeltas or ms."""
        return TumblingEventTimeWindows(to_millis(size), _offset_ms(offset))


class TumblingProcessingTimeWindows(_Tumbling, _OfProcessingTime):
    """Consecutive processing-time windows of a fixed size (ms), shifted by an offset (ms).

    Examples:
        >>> from penstock.common import Duration
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.window import TumblingProcessingTimeWindows
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> cups = env.from_elements(("ann", 2), ("ann", 3)).key_by(lambda cup: cup[0])
        >>> totals = cups.window(TumblingProcessingTimeWindows.of(Duration.of_minutes(1))).sum(1)
    """

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
    """Event-time windows of a fixed size (ms), starting every slide (ms), shifted by an offset (ms).

    Examples:
        >>> from penstock.common import Duration, WatermarkStrategy
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.window import SlidingEventTimeWindows
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> in_ms = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda ms: ms)
        >>> times = env.from_elements(1_000, 9_000, 70_000).assign_timestamps_and_watermarks(in_ms)
        >>> windows = times.window_all(SlidingEventTimeWindows.of(Duration.of_minutes(2), 60_000))
        >>> windows.apply(lambda window, times: [(window.start, window.end, list(times))]).collect()
        [(-60000, 60000, [1000, 9000]), (0, 120000, [1000, 9000, 70000]), (60000, 180000, [70000])]
    """

    @staticmethod
    def of(size: object, slide: object, offset: object = None) -> SlidingEventTimeWindows:
        """Create windows of `size`, one every `slide`, shifted by `offset`; durations, timedeltas or ms."""
        return SlidingEventTimeWindows(to_millis(size), to_millis(slide), _offset_ms(offset))


class SlidingProcessingTimeWindows(_Sliding, _OfProcessingTime):
    """Processing-time windows of a fixed size (ms), starting every slide (ms), shifted by an offset (ms).

    Examples:
        >>> from penstock.common import Duration
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.window import SlidingProcessingTimeWindows
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> cups = env.from_elements(("ann", 2), ("ann", 3)).key_by(lambda cup: cup[0])
        >>> totals = cups.window(SlidingProcessingTimeWindows.of(Duration.of_minutes(2), 60_000)).sum(1)
    """

    @staticmethod
    def of(size: object, slide: object, offset: object = None) -> SlidingProcessingTimeWindows:
        """Create windows of `size`, one every `slide`, shifted by `offset`; durations, timedeltas or ms."""
        return SlidingProcessingTimeWindows(to_millis(size), to_millis(slide), _offset_ms(offset))


class CumulativeEventTimeWindows(_OfEventTime):
    """Windows that share a start and grow by a step (ms) up to a maximum size (ms); then the next series begins.

    A size of a day and a step of an hour give a result for each hour, over all records of the day so far.

    Examples:
        >>> from penstock.common import WatermarkStrategy
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.window import CumulativeEventTimeWindows
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> in_ms = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda ms: ms)
        >>> times = env.from_elements(1_000, 9_000, 70_000).assign_timestamps_and_watermarks(in_ms)
        >>> windows = times.window_all(CumulativeEventTimeWindows.of(120_000, 60_000))
        >>> windows.apply(lambda window, times: [(window.start, window.end, list(times))]).collect()
        [(0, 60000, [1000, 9000]), (0, 120000, [1000, 9000, 70000])]
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


def time_of_sessions(watermark: int) -> int:
    """Return the event time (ms) that merging windows use and forward at a watermark (ms): a millisecond earlier.

    Windows that touch merge. So a session that ends at 10 may get a record of time 10, which is not late until the
    watermark is 10. At 9, the last millisecond of the session, it could end before or after that record: the result
    would depend on batch size, mode and parallelism. Its result has the time 9, so the watermark 9 must not precede it.
    """
    return watermark - 1 if MIN_TIMESTAMP < watermark < MAX_WATERMARK else watermark


class SessionWindowTimeGapExtractor(ABC):
    """Determines how long a session stays open after a record.

    Examples:
        >>> from penstock.datastream.window import EventTimeSessionWindows, SessionWindowTimeGapExtractor
        >>> class Patience(SessionWindowTimeGapExtractor):
        ...     def extract(self, element):
        ...         return element["seconds"] * 1_000
        >>> sessions = EventTimeSessionWindows.with_dynamic_gap(Patience())
        >>> Patience().extract({"seconds": 30})
        30000
    """

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


class _EventTimeSessions(_Sessions):
    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[TimeWindow]:
        """Return a window that begins at the record's timestamp and lasts for the gap."""
        return [TimeWindow(timestamp, timestamp + self._extract_gap_ms(element))]

    def get_default_trigger(self, env: Any) -> triggers.Trigger[Any, Any]:
        """Return a trigger that fires when the watermark passes the end."""
        return triggers.EventTimeTrigger()

    def is_event_time(self) -> bool:
        """Yes."""
        return True


class _ProcessingTimeSessions(_Sessions):
    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[TimeWindow]:
        """Return a window that begins now and lasts for the gap."""
        now_ms = context.get_current_processing_time()
        return [TimeWindow(now_ms, now_ms + self._extract_gap_ms(element))]

    def get_default_trigger(self, env: Any) -> triggers.Trigger[Any, Any]:
        """Return a trigger that fires when the clock passes the end."""
        return triggers.ProcessingTimeTrigger()

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


class EventTimeSessionWindows(_FixedGap, _EventTimeSessions):
    """Windows that end after a gap (ms) in event time without records.

    Examples:
        >>> from penstock.common import Duration, WatermarkStrategy
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.window import EventTimeSessionWindows
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> in_ms = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda ms: ms)
        >>> times = env.from_elements(1_000, 9_000, 70_000).assign_timestamps_and_watermarks(in_ms)
        >>> windows = times.window_all(EventTimeSessionWindows.with_gap(Duration.of_seconds(30)))
        >>> windows.apply(lambda window, times: [(window.start, window.end, list(times))]).collect()
        [(1000, 39000, [1000, 9000]), (70000, 100000, [70000])]
    """

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


class ProcessingTimeSessionWindows(_FixedGap, _ProcessingTimeSessions):
    """Windows that end after a gap (ms) in processing time without records.

    Examples:
        >>> from penstock.common import Duration
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.window import ProcessingTimeSessionWindows
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> cups = env.from_elements(("ann", 2), ("ann", 3)).key_by(lambda cup: cup[0])
        >>> totals = cups.window(ProcessingTimeSessionWindows.with_gap(Duration.of_minutes(1))).sum(1)
    """

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


class DynamicEventTimeSessionWindows(_DynamicGap, _EventTimeSessions):
    """Event-time windows that stay open after each record for a gap that depends on the record.

    Examples:
        >>> from penstock.common import WatermarkStrategy
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.window import DynamicEventTimeSessionWindows
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> in_ms = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda ms: ms)
        >>> times = env.from_elements(1_000, 9_000, 70_000).assign_timestamps_and_watermarks(in_ms)
        >>> windows = times.window_all(DynamicEventTimeSessionWindows.with_dynamic_gap(lambda ms: 9_000))
        >>> windows.apply(lambda window, times: [(window.start, window.end, list(times))]).collect()
        [(1000, 18000, [1000, 9000]), (70000, 79000, [70000])]
    """

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | Callable[[Any], int],
    ) -> DynamicEventTimeSessionWindows:
        """Create sessions whose gap (ms) the extractor, or a plain callable, takes from each record."""
        return DynamicEventTimeSessionWindows(extractor)


class DynamicProcessingTimeSessionWindows(_DynamicGap, _ProcessingTimeSessions):
    """Processing-time windows that stay open after each record for a gap that depends on the record.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.window import DynamicProcessingTimeSessionWindows
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> cups = env.from_elements(("ann", 2), ("ann", 3)).key_by(lambda cup: cup[0])
        >>> gaps = DynamicProcessingTimeSessionWindows.with_dynamic_gap(lambda cup: cup[1] * 1_000)
        >>> totals = cups.window(gaps).sum(1)
    """

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | Callable[[Any], int],
    ) -> DynamicProcessingTimeSessionWindows:
        """Create sessions whose gap (ms) the extractor, or a plain callable, takes from each record."""
        return DynamicProcessingTimeSessionWindows(extractor)


class _CountWindows(WindowAssigner[Any, Any]):
    """Numbers the records of each key; the counter is kept in state."""

    def __init__(self, window_size: int, state_name: str) -> None:
        if window_size <= 0:
            raise WrongValueError(f"a count window needs a size over 0 records, not {window_size}")
        self.window_size = window_size
        self._descriptor = ValueStateDescriptor(state_name, Types.LONG())

    def _next_number(self, context: WindowAssigner.WindowAssignerContext) -> int:
        state = context.get_runtime_context().get_state(self._descriptor)
        number: int = state.value() or 0
        state.update(number + 1)
        return number

    def get_default_trigger(self, env: Any) -> triggers.Trigger[Any, Any]:
        """Return a trigger that fires when the window is full, and purges it."""
        return triggers.PurgingTrigger(triggers.CountTrigger(self.window_size))

    def get_window_serializer(self) -> TypeSerializer[CountWindow]:
        """Return a serializer that writes the window's number."""
        return CountWindowSerializer()

    def is_event_time(self) -> bool:
        """No."""
        return False


class CountTumblingWindowAssigner(_CountWindows):
    """Consecutive windows of `window_size` records of a key.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.window import CountTumblingWindowAssigner
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> cups = env.from_elements(("ann", 2), ("ann", 3), ("ann", 4)).key_by(lambda cup: cup[0])
        >>> cups.window(CountTumblingWindowAssigner.of(2)).sum(1).collect()
        [('ann', 5)]
    """

    def __init__(self, window_size: int) -> None:
        super().__init__(window_size, "tumble-count-assigner")

    @staticmethod
    def of(window_size: int) -> CountTumblingWindowAssigner:
        """Create an assigner for windows of `window_size` records."""
        return CountTumblingWindowAssigner(window_size)

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[CountWindow]:
        """Return the window that is currently being filled."""
        return [CountWindow(self._next_number(context) // self.window_size)]

    def __repr__(self) -> str:
        return f"CountTumblingWindowAssigner(window_size={self.window_size})"


class CountSlidingWindowAssigner(_CountWindows):
    """Windows of `window_size` records of a key, starting every `window_slide` records. A full window fires.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.window import CountSlidingWindowAssigner
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> cups = env.from_elements(("ann", 2), ("ann", 3), ("ann", 4)).key_by(lambda cup: cup[0])
        >>> cups.window(CountSlidingWindowAssigner.of(2, 1)).sum(1).collect()
        [('ann', 5), ('ann', 7)]
    """

    def __init__(self, window_size: int, window_slide: int) -> None:
        super().__init__(window_size, "slide-count-assigner")
        if window_slide <= 0:
            raise WrongValueError(f"a sliding count window needs a slide over 0 records, not {window_slide}")
        self.window_slide = window_slide

    @staticmethod
    def of(window_size: int, window_slide: int) -> CountSlidingWindowAssigner:
        """Create an assigner for windows of `window_size` records, one every `window_slide`."""
        return CountSlidingWindowAssigner(window_size, window_slide)

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[CountWindow]:
        """Return the windows that are currently being filled, the newest first."""
        number = self._next_number(context)
        last, slide = number // self.window_slide, self.window_slide
        first = max(0, -((self.window_size - 1 - number) // slide))  # the first window that is not full yet
        return [CountWindow(window) for window in range(last, first - 1, -1)]

    def __repr__(self) -> str:
        return f"CountSlidingWindowAssigner(window_size={self.window_size}, window_slide={self.window_slide})"


def count_windows(size: int, slide: int) -> WindowAssigner[Any, Any]:
    """Create an assigner for windows of `size` records, one every `slide` records; consecutive if `slide` is 0."""
    return CountSlidingWindowAssigner(size, slide) if slide else CountTumblingWindowAssigner(size)


class GlobalWindows(WindowAssigner[Any, Any]):
    """One window per key, which never ends: it needs a trigger, and usually an evictor or a purging trigger.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.window import CountTrigger, GlobalWindows
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> cups = env.from_elements(("ann", 2), ("ann", 3), ("ann", 4)).key_by(lambda cup: cup[0])
        >>> cups.window(GlobalWindows.create()).trigger(CountTrigger.of(3)).sum(1).collect()
        [('ann', 9)]
    """

    def __init__(self) -> None:
        super().__init__()

    @staticmethod
    def create() -> GlobalWindows:
        """Create the assigner."""
        return GlobalWindows()

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[GlobalWindow]:
        """Return the global window."""
        return [GlobalWindow()]

    def get_default_trigger(self, env: Any) -> triggers.Trigger[Any, Any]:
        """Return a trigger that never fires."""
        return triggers.NeverTrigger()

    def get_window_serializer(self) -> TypeSerializer[GlobalWindow]:
        """Zeros."""
        return GlobalWindowSerializer()

    def is_event_time(self) -> bool:
        """No."""
        return False

    def __repr__(self) -> str:
        return "GlobalWindows()"
