"""Triggers that go by event time or by the clock (C1)."""

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
    """Fires when the watermark passes the window's end, and at once for each record that comes after that."""

    @staticmethod
    def create() -> EventTimeTrigger:
        """The trigger."""
        return EventTimeTrigger()

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Fire when the window's end has passed."""
        end = window.max_timestamp()
        if end <= ctx.get_current_watermark():
            return FIRE
        ctx.register_event_time_timer(end)
        return CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """The clock does not matter."""
        return CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Fire at the window's end."""
        return FIRE if time == window.max_timestamp() else CONTINUE

    def can_merge(self) -> bool:
        """Yes."""
        return True

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        """The end has moved."""
        end = window.max_timestamp()
        if end > ctx.get_current_watermark():
            ctx.register_event_time_timer(end)

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        """Forget the end."""
        ctx.delete_event_time_timer(window.max_timestamp())

    def __repr__(self) -> str:
        return "EventTimeTrigger()"


class ProcessingTimeTrigger(Trigger[Any, Any]):
    """Fires when the clock passes the window's end."""

    @staticmethod
    def create() -> ProcessingTimeTrigger:
        """The trigger."""
        return ProcessingTimeTrigger()

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Note the window's end."""
        ctx.register_processing_time_timer(window.max_timestamp())
        return CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Fire."""
        return FIRE

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Event time does not matter."""
        return CONTINUE

    def can_merge(self) -> bool:
        """Yes."""
        return True

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        """The end has moved."""
        end = window.max_timestamp()
        if end > ctx.get_current_processing_time():
            ctx.register_processing_time_timer(end)

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        """Forget the end."""
        ctx.delete_processing_time_timer(window.max_timestamp())

    def __repr__(self) -> str:
        return "ProcessingTimeTrigger()"


class _Continuous(Trigger[Any, Any]):
    """Keeps the time of the next firing in state; where windows merge, the earliest counts."""

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

    A record that comes after the window's end fires it at once.
    """

    @staticmethod
    def of(interval: object) -> ContinuousEventTimeTrigger:
        """Fire every `interval`: a duration, a timedelta or ms."""
        return ContinuousEventTimeTrigger(to_millis(interval))

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Note the window's end and the next multiple of the interval."""
        end = window.max_timestamp()
        if end <= ctx.get_current_watermark():
            return FIRE
        ctx.register_event_time_timer(end)
        state = ctx.get_partitioned_state(self.state_desc)
        if state.get() is None:
            self.register_next_fire_timestamp(timestamp - timestamp % self.interval, window, ctx, state)
        return CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """The clock does not matter."""
        return CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Fire at the end, and when the interval has passed."""
        if time == window.max_timestamp():
            return FIRE
        state = ctx.get_partitioned_state(self.state_desc)
        if state.get() != time:
            return CONTINUE
        state.clear()
        self.register_next_fire_timestamp(time, window, ctx, state)
        return FIRE

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        """The earliest of the next firings counts."""
        due = self._merged(ctx)
        if due is not None:
            ctx.register_event_time_timer(due)

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        """Forget the next firing, and the end."""
        due = self._cleared(ctx)
        if due is not None:
            ctx.delete_event_time_timer(due)
        ctx.delete_event_time_timer(window.max_timestamp())

    def register_next_fire_timestamp(
        self, time: int, window: Any, ctx: Trigger.TriggerContext, fire_timestamp_state: Any
    ) -> None:
        """Fire an interval after `time` (ms), at the latest at the window's end."""
        end = window.max_timestamp()
        due = min(time + self.interval, end)
        if end == MAX_TIMESTAMP == ctx.get_current_watermark():
            due = end  # the multiples up to the end of time are too many to wait for
        fire_timestamp_state.add(due)
        ctx.register_event_time_timer(due)


class ContinuousProcessingTimeTrigger(_Continuous):
    """Fires every interval (ms) by the clock while the window is open; a window of processing time also at its end."""

    @staticmethod
    def of(interval: object) -> ContinuousProcessingTimeTrigger:
        """Fire every `interval`: a duration, a timedelta or ms."""
        return ContinuousProcessingTimeTrigger(to_millis(interval))

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Note the next multiple of the interval."""
        state = ctx.get_partitioned_state(self.state_desc)
        if state.get() is None:
            now_ms = ctx.get_current_processing_time()
            self.register_next_fire_timestamp(now_ms - now_ms % self.interval, window, ctx, state)
        return CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Fire when the interval has passed."""
        state = ctx.get_partitioned_state(self.state_desc)
        if state.get() != time:
            return CONTINUE
        state.clear()
        self.register_next_fire_timestamp(time, window, ctx, state)
        return FIRE

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Event time does not matter."""
        return CONTINUE

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        """The earliest of the next firings counts."""
        due = self._merged(ctx)
        if due is not None:
            ctx.register_processing_time_timer(due)

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        """Forget the next firing."""
        due = self._cleared(ctx)
        if due is not None:
            ctx.delete_processing_time_timer(due)

    def register_next_fire_timestamp(
        self, time: int, window: Any, ctx: Trigger.TriggerContext, fire_timestamp_state: Any
    ) -> None:
        """Fire an interval after `time` (ms), or at the window's end when that comes before."""
        due, end = time + self.interval, window.max_timestamp()
        if time < end < due:
            # A window of event time may lie in the past of the clock: then its end is nothing to wait for.
            due = end
        fire_timestamp_state.add(due)
        ctx.register_processing_time_timer(due)
