"""The base of all triggers, which decide when a window is evaluated and when its records are purged (C1)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Any, Generic, TypeVar

from penstock.base.metrics import MetricGroup
from penstock.state.descriptors import StateDescriptor

T = TypeVar("T")
W = TypeVar("W")


class TriggerResult(Enum):
    """The action on a window; the value is (is_fire, is_purge). An empty window that fires emits nothing."""

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
    """Decides for each key and window. One object serves all of them, so it keeps its state in partitioned state."""

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
