"""Triggers that depend on the number of records, on another trigger, or never fire (C1)."""

from __future__ import annotations

import operator
from typing import Any

from penstock.base.errors import WrongValueError
from penstock.base.typeinfo import Types
from penstock.core.windowing.triggers import Trigger, TriggerResult
from penstock.state.descriptors import ReducingStateDescriptor

CONTINUE, FIRE, FIRE_AND_PURGE = TriggerResult.CONTINUE, TriggerResult.FIRE, TriggerResult.FIRE_AND_PURGE


class CountTrigger(Trigger[Any, Any]):
    """Fires every `window_size` records of a window, which keeps its records, and restarts the count at 0."""

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
    """Wraps another trigger, and purges the window's records whenever that one fires."""

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
    """Never fires: the default of `GlobalWindows`."""

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
