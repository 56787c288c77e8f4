"""Triggers based on event time or processing time (C1)."""

from __future__ import annotations

from typing import Any

from penstock.base.errors import WrongValueError
from penstock.base.time import to_millis
from penstock.base.typeinfo import Types
from penstock.core.records import MAX_TIMESTAMP
from penstock.core.windowing.triggers import Trigger, TriggerResult
from penstock.state.descriptors import ReducingStateDescriptor

CONTINUE, FIRE = TriggerResult.CONTINUE, TriggerResult.FIRE


class EventTimeTrigger(Trigger[Any, Any]):
    """Fires when the watermark passes the window's end, and at once for each record that arrives later."""

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
    """Fires when the clock passes the window's end."""

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
