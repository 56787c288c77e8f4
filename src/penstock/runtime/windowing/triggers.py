"""Triggers and evictors of windows (C1).

`Trigger` decides when a window is evaluated and when its records are purged. Triggers are based on event time or
processing time, depend on the number of records or on another trigger, or never fire.

`Evictor` removes records from a window that fires, before or after it is evaluated. A window with an evictor keeps all
its records, even if they are reduced or aggregated, which then happens when it fires.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import Any, Generic, TypeVar

from penstock.base.errors import WrongValueError
from penstock.base.metrics import MetricGroup
from penstock.base.time import to_millis
from penstock.base.typeinfo import Types
from penstock.runtime.records import MAX_TIMESTAMP, MIN_TIMESTAMP
from penstock.state.states import ReducingStateDescriptor, StateDescriptor

T = TypeVar("T")
W = TypeVar("W")


class TriggerResult(Enum):
    """The action on a window; the value is (is_fire, is_purge). An empty window that fires emits nothing.

    Examples:
        >>> from penstock.datastream import TriggerResult
        >>> TriggerResult.FIRE.is_fire(), TriggerResult.FIRE.is_purge()
        (True, False)
    """

    #: do nothing
    CONTINUE = (False, False)
    #: evaluate the window and purge its records
    FIRE_AND_PURGE = (True, True)
    #: evaluate the window and keep its records
    FIRE = (True, False)
    #: purge the window's records
    PURGE = (False, True)

    def is_fire(self) -> bool:
        """Return whether the window is evaluated."""
        return self.value[0]

    def is_purge(self) -> bool:
        """Return whether the window's records are purged."""
        return self.value[1]


class Trigger(ABC, Generic[T, W]):
    """Decides for each key and window. One object serves all of them, so it keeps its state in partitioned state.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment, Trigger, TriggerResult
        >>> from penstock.datastream.window import GlobalWindows
        >>> class AtLargeNumbers(Trigger):
        ...     def on_element(self, element, timestamp, window, ctx):
        ...         return TriggerResult.FIRE_AND_PURGE if element > 9 else TriggerResult.CONTINUE
        ...     def on_processing_time(self, time, window, ctx):
        ...         return TriggerResult.CONTINUE
        ...     on_event_time = on_processing_time
        ...     def on_merge(self, window, ctx):
        ...         pass
        ...     def clear(self, window, ctx):
        ...         pass
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> windows = env.from_elements(1, 2, 10, 3).window_all(GlobalWindows.create())
        >>> windows.trigger(AtLargeNumbers()).sum().collect()
        [13]
    """

    class TriggerContext(ABC):
        """Times, timers and state of the trigger's current key and window; all times in ms."""

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
        def register_processing_time_timer(self, time: int) -> None:
            """Call `on_processing_time` for this window when the clock has passed `time`, 1 ms after it."""

        @abstractmethod
        def register_event_time_timer(self, time: int) -> None:
            """Call `on_event_time` for this window when the watermark passes `time`."""

        @abstractmethod
        def delete_processing_time_timer(self, time: int) -> None:
            """Delete the timer if it exists."""

        @abstractmethod
        def delete_event_time_timer(self, time: int) -> None:
            """Delete the timer if it exists."""

        @abstractmethod
        def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
            """Return the value, list, map, reducing or aggregating state of this key and window, as declared."""

    class OnMergeContext(TriggerContext):
        """The context of `on_merge`; its window is the result of the merge."""

        @abstractmethod
        def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
            """Merge the state of the merged windows into this one; for list, reducing and aggregating state."""

    @abstractmethod
    def on_element(self, element: T, timestamp: int, window: W, ctx: TriggerContext) -> TriggerResult:
        """Handle a record (with its event time, or -2**63) that was added to the window."""

    @abstractmethod
    def on_processing_time(self, time: int, window: W, ctx: TriggerContext) -> TriggerResult:
        """Handle a processing-time timer of the window that is due."""

    @abstractmethod
    def on_event_time(self, time: int, window: W, ctx: TriggerContext) -> TriggerResult:
        """Handle an event-time timer of the window that is due."""

    def can_merge(self) -> bool:
        """Return whether the trigger supports merging windows, and so implements `on_merge`."""
        return False

    @abstractmethod
    def on_merge(self, window: W, ctx: OnMergeContext) -> None:
        """Merge state and set timers after several windows became `window`. Those windows are cleared afterwards."""

    @abstractmethod
    def clear(self, window: W, ctx: TriggerContext) -> None:
        """Remove the state and timers that the trigger set for `window`, which no longer exists."""


CONTINUE, FIRE = TriggerResult.CONTINUE, TriggerResult.FIRE


class EventTimeTrigger(Trigger[Any, Any]):
    """Fires when the watermark passes the window's end, and at once for each record that arrives later.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.window import EventTimeTrigger, GlobalWindows
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> cups = env.from_elements(("ann", 2), ("ann", 3), ("ann", 4)).key_by(lambda cup: cup[0])
        >>> cups.window(GlobalWindows.create()).trigger(EventTimeTrigger.create()).sum(1).collect()
        [('ann', 9)]
    """

    @staticmethod
    def create() -> EventTimeTrigger:
        """Create the trigger."""
        return EventTimeTrigger()

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Fire if the watermark has passed the window's end, or else set a timer for it."""
        end = window.max_timestamp()
        if end <= ctx.get_current_watermark():
            return FIRE
        ctx.register_event_time_timer(end)
        return CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Ignore processing time."""
        return CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Fire at the window's end."""
        return FIRE if time == window.max_timestamp() else CONTINUE

    def can_merge(self) -> bool:
        """Yes."""
        return True

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        """Set a timer for the new end."""
        end = window.max_timestamp()
        if end > ctx.get_current_watermark():
            ctx.register_event_time_timer(end)

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        """Delete the timer for the end."""
        ctx.delete_event_time_timer(window.max_timestamp())

    def __repr__(self) -> str:
        return "EventTimeTrigger()"


class ProcessingTimeTrigger(Trigger[Any, Any]):
    """Fires when the clock passes the window's end.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.window import ProcessingTimeTrigger, TumblingProcessingTimeWindows
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> minutes = env.from_elements(1, 2).window_all(TumblingProcessingTimeWindows.of(60_000))
        >>> totals = minutes.trigger(ProcessingTimeTrigger.create()).sum()
    """

    @staticmethod
    def create() -> ProcessingTimeTrigger:
        """Create the trigger."""
        return ProcessingTimeTrigger()

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Set a timer for the window's end."""
        ctx.register_processing_time_timer(window.max_timestamp())
        return CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Fire."""
        return FIRE

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Ignore event time."""
        return CONTINUE

    def can_merge(self) -> bool:
        """Yes."""
        return True

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        """Set a timer for the new end."""
        end = window.max_timestamp()
        if end > ctx.get_current_processing_time():
            ctx.register_processing_time_timer(end)

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        """Delete the timer for the end."""
        ctx.delete_processing_time_timer(window.max_timestamp())

    def __repr__(self) -> str:
        return "ProcessingTimeTrigger()"


class _Continuous(Trigger[Any, Any]):
    """Keeps the time of the next firing in state; merged windows use the earliest."""

    def __init__(self, interval: int) -> None:
        if interval <= 0:
            raise WrongValueError(f"{type(self).__name__} needs an interval over 0 ms, not {interval}")
        self.interval = interval
        self.state_desc = ReducingStateDescriptor("fire-time", min, Types.LONG())

    def can_merge(self) -> bool:
        """Yes."""
        return True

    def _merged(self, ctx: Trigger.OnMergeContext) -> int | None:
        ctx.merge_partitioned_state(self.state_desc)
        merged: int | None = ctx.get_partitioned_state(self.state_desc).get()
        return merged

    def _cleared(self, ctx: Trigger.TriggerContext) -> int | None:
        state = ctx.get_partitioned_state(self.state_desc)
        due: int | None = state.get()
        state.clear()
        return due

    def __repr__(self) -> str:
        return f"{type(self).__name__}(interval={self.interval})"


class ContinuousEventTimeTrigger(_Continuous):
    """Fires at every multiple of an interval (ms) that the watermark passes while the window is open, and at its end.

    A record that arrives after the window's end fires it at once.

    Examples:
        >>> from penstock.common import WatermarkStrategy
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.window import ContinuousEventTimeTrigger, TumblingEventTimeWindows
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> in_ms = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda ms: ms)
        >>> times = env.from_elements(5, 50).assign_timestamps_and_watermarks(in_ms)
        >>> windows = times.window_all(TumblingEventTimeWindows.of(100))
        >>> every_20_ms = windows.trigger(ContinuousEventTimeTrigger.of(20))
        >>> counts = every_20_ms.apply(lambda window, times: [len(list(times))])
    """

    @staticmethod
    def of(interval: object) -> ContinuousEventTimeTrigger:
        """Create a trigger that fires every `interval`: a duration, a timedelta or ms."""
        return ContinuousEventTimeTrigger(to_millis(interval))

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Set timers for the window's end and the next multiple of the interval."""
        end = window.max_timestamp()
        if end <= ctx.get_current_watermark():
            return FIRE
        ctx.register_event_time_timer(end)
        state = ctx.get_partitioned_state(self.state_desc)
        if state.get() is None:
            self.register_next_fire_timestamp(timestamp - timestamp % self.interval, window, ctx, state)
        return CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Ignore processing time."""
        return CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Fire at the end, and when the interval has elapsed."""
        if time == window.max_timestamp():
            return FIRE
        state = ctx.get_partitioned_state(self.state_desc)
        if state.get() != time:
            return CONTINUE
        state.clear()
        self.register_next_fire_timestamp(time, window, ctx, state)
        return FIRE

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        """Set a timer for the earliest of the next firings."""
        due = self._merged(ctx)
        if due is not None:
            ctx.register_event_time_timer(due)

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        """Delete the timers for the next firing and the end."""
        due = self._cleared(ctx)
        if due is not None:
            ctx.delete_event_time_timer(due)
        ctx.delete_event_time_timer(window.max_timestamp())

    def register_next_fire_timestamp(
        self, time: int, window: Any, ctx: Trigger.TriggerContext, fire_timestamp_state: Any
    ) -> None:
        """Schedule a firing one interval after `time` (ms), or at the window's end if that is earlier."""
        end = window.max_timestamp()
        due = min(time + self.interval, end)
        if end == MAX_TIMESTAMP == ctx.get_current_watermark():
            due = end  # there are too many multiples up to the end of time
        fire_timestamp_state.add(due)
        ctx.register_event_time_timer(due)


class ContinuousProcessingTimeTrigger(_Continuous):
    """Fires every interval (ms) of processing time while the window is open.

    A processing-time window also fires at its end.

    Examples:
        >>> from penstock.common import Duration
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.window import ContinuousProcessingTimeTrigger, GlobalWindows
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> windows = env.from_elements(1, 2).window_all(GlobalWindows.create())
        >>> totals = windows.trigger(ContinuousProcessingTimeTrigger.of(Duration.of_seconds(10))).sum()
    """

    @staticmethod
    def of(interval: object) -> ContinuousProcessingTimeTrigger:
        """Create a trigger that fires every `interval`: a duration, a timedelta or ms."""
        return ContinuousProcessingTimeTrigger(to_millis(interval))

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Set a timer for the next multiple of the interval."""
        state = ctx.get_partitioned_state(self.state_desc)
        if state.get() is None:
            now_ms = ctx.get_current_processing_time()
            self.register_next_fire_timestamp(now_ms - now_ms % self.interval, window, ctx, state)
        return CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Fire when the interval has elapsed."""
        state = ctx.get_partitioned_state(self.state_desc)
        if state.get() != time:
            return CONTINUE
        state.clear()
        self.register_next_fire_timestamp(time, window, ctx, state)
        return FIRE

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Ignore event time."""
        return CONTINUE

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        """Set a timer for the earliest of the next firings."""
        due = self._merged(ctx)
        if due is not None:
            ctx.register_processing_time_timer(due)

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        """Delete the timer for the next firing."""
        due = self._cleared(ctx)
        if due is not None:
            ctx.delete_processing_time_timer(due)

    def register_next_fire_timestamp(
        self, time: int, window: Any, ctx: Trigger.TriggerContext, fire_timestamp_state: Any
    ) -> None:
        """Schedule a firing one interval after `time` (ms), or at the window's end if that is earlier."""
        due, end = time + self.interval, window.max_timestamp()
        if time < end < due:
            # The end of an event-time window may already lie in the past by the clock, and then needs no timer.
            due = end
        fire_timestamp_state.add(due)
        ctx.register_processing_time_timer(due)


FIRE_AND_PURGE = TriggerResult.FIRE_AND_PURGE


class CountTrigger(Trigger[Any, Any]):
    """Fires every `window_size` records of a window, which keeps its records, and restarts the count at 0.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.window import CountTrigger, GlobalWindows
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> cups = env.from_elements(("ann", 2), ("ann", 3), ("ann", 4)).key_by(lambda cup: cup[0])
        >>> cups.window(GlobalWindows.create()).trigger(CountTrigger.of(2)).sum(1).collect()
        [('ann', 5)]
    """

    def __init__(self, window_size: int) -> None:
        if window_size <= 0:
            raise WrongValueError(f"CountTrigger needs a count over 0, not {window_size}")
        self.window_size = window_size
        self._descriptor = ReducingStateDescriptor("count", operator.add, Types.LONG())

    @staticmethod
    def of(window_size: int) -> CountTrigger:
        """Create a trigger that fires every `window_size` records."""
        return CountTrigger(window_size)

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Count."""
        count = ctx.get_partitioned_state(self._descriptor)
        count.add(1)
        if count.get() < self.window_size:
            return CONTINUE
        count.clear()
        return FIRE

    def on_processing_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Ignore processing time."""
        return CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Ignore event time."""
        return CONTINUE

    def can_merge(self) -> bool:
        """Yes."""
        return True

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        """Add up the counts; if the sum reaches the size, the next record fires."""
        ctx.merge_partitioned_state(self._descriptor)

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        """Clear the count."""
        ctx.get_partitioned_state(self._descriptor).clear()

    def __repr__(self) -> str:
        return f"CountTrigger(window_size={self.window_size})"


class PurgingTrigger(Trigger[Any, Any]):
    """Wraps another trigger, and purges the window's records whenever that one fires.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.window import CountTrigger, GlobalWindows, PurgingTrigger
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> cups = env.from_elements(("ann", 2), ("ann", 3), ("ann", 4)).key_by(lambda cup: cup[0])
        >>> cups.window(GlobalWindows.create()).trigger(PurgingTrigger.of(CountTrigger.of(1))).sum(1).collect()
        [('ann', 2), ('ann', 3), ('ann', 4)]
    """

    def __init__(self, nested_trigger: Trigger[Any, Any]) -> None:
        self.nested_trigger = nested_trigger

    @staticmethod
    def of(nested_trigger: Trigger[Any, Any]) -> PurgingTrigger:
        """Create a trigger that purges whenever `nested_trigger` fires."""
        return PurgingTrigger(nested_trigger)

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Ask the nested trigger."""
        return _purging(self.nested_trigger.on_element(element, timestamp, window, ctx))

    def on_processing_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Ask the nested trigger."""
        return _purging(self.nested_trigger.on_processing_time(time, window, ctx))

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Ask the nested trigger."""
        return _purging(self.nested_trigger.on_event_time(time, window, ctx))

    def can_merge(self) -> bool:
        """Return whether the nested trigger can merge."""
        return self.nested_trigger.can_merge()

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        """Delegate to the nested trigger."""
        self.nested_trigger.on_merge(window, ctx)

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        """Delegate to the nested trigger."""
        self.nested_trigger.clear(window, ctx)

    def __repr__(self) -> str:
        return f"PurgingTrigger({self.nested_trigger!r})"


def _purging(result: TriggerResult) -> TriggerResult:
    return FIRE_AND_PURGE if result.is_fire() else result


class NeverTrigger(Trigger[Any, Any]):
    """Never fires: the default of `GlobalWindows`.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.window import GlobalWindows, NeverTrigger
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> windows = env.from_elements(1, 2).window_all(GlobalWindows.create()).trigger(NeverTrigger())
        >>> windows.sum().collect()
        []
    """

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Do not fire."""
        return CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Do not fire."""
        return CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Do not fire."""
        return CONTINUE

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        """Do nothing: the trigger has no state to merge."""

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        """Do nothing: the trigger has no state to clear."""

    def __repr__(self) -> str:
        return "NeverTrigger()"


class TimestampedValue(Generic[T]):
    """A record of a window with its event time.

    Examples:
        >>> from penstock.datastream.window import TimestampedValue
        >>> element = TimestampedValue("tea", 10)
        >>> element.get_value(), element.has_timestamp(), element.get_timestamp()
        ('tea', True, 10)
    """

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
    """Removes records from windows. One object serves all keys and windows, so it keeps no state of its own.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.window import Evictor
        >>> class Positive(Evictor):
        ...     def evict_before(self, elements, size, window, evictor_context):
        ...         elements[:] = [element for element in elements if element.get_value() > 0]
        ...     def evict_after(self, elements, size, window, evictor_context):
        ...         pass
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> windows = env.from_elements(1, -5, 2).count_window_all(3).evictor(Positive())
        >>> windows.sum().collect()
        [3]
    """

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
    """Keeps the last `max_count` records.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.window import CountEvictor, CountTrigger, GlobalWindows
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> cups = env.from_elements(("ann", 2), ("ann", 3), ("ann", 4)).key_by(lambda cup: cup[0])
        >>> windows = cups.window(GlobalWindows.create()).trigger(CountTrigger.of(1))
        >>> windows.evictor(CountEvictor.of(2)).sum(1).collect()
        [('ann', 2), ('ann', 5), ('ann', 7)]
    """

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
    """Keeps the records less than `window_size` ms older than the latest; does nothing without timestamps.

    Examples:
        >>> from penstock.common import WatermarkStrategy
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.window import CountTrigger, GlobalWindows, TimeEvictor
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> in_ms = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda ms: ms)
        >>> times = env.from_elements(1, 2, 50).assign_timestamps_and_watermarks(in_ms)
        >>> windows = times.window_all(GlobalWindows.create()).trigger(CountTrigger.of(3))
        >>> windows.evictor(TimeEvictor.of(10)).apply(lambda window, times: [list(times)]).collect()
        [[50]]
    """

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
    """Keeps the records that differ from the last one by less than a threshold.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.window import CountTrigger, DeltaEvictor, GlobalWindows
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> cups = env.from_elements(("ann", 2), ("ann", 3), ("ann", 4)).key_by(lambda cup: cup[0])
        >>> windows = cups.window(GlobalWindows.create()).trigger(CountTrigger.of(1))
        >>> windows.evictor(DeltaEvictor.of(2, lambda one, last: last[1] - one[1])).sum(1).collect()
        [('ann', 2), ('ann', 5), ('ann', 7)]
    """

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
