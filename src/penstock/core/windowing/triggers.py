"""What every trigger is: it decides when a window is evaluated, and when its records are forgotten (C1)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Any, Generic, TypeVar

from penstock.base.metrics import MetricGroup
from penstock.state.descriptors import StateDescriptor

T = TypeVar("T")
W = TypeVar("W")


class TriggerResult(Enum):
    """What happens to a window: the value is (is_fire, is_purge). An empty window gives nothing when it fires."""

    #: nothing happens
    CONTINUE = (False, False)
    #: the window is evaluated, and its records are forgotten
    FIRE_AND_PURGE = (True, True)
    #: the window is evaluated, and keeps its records
    FIRE = (True, False)
    #: its records are forgotten
    PURGE = (False, True)

    def is_fire(self) -> bool:
        """Whether the window is evaluated."""
        return self.value[0]

    def is_purge(self) -> bool:
        """Whether its records are forgotten."""
        return self.value[1]


class Trigger(ABC, Generic[T, W]):
    """Decides for each key and window. One object serves all, so it keeps what it remembers in partitioned state."""

    class TriggerContext(ABC):
        """Times, timers and state of the key and window that a trigger is asked about; all times in ms."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Processing time."""

        @abstractmethod
        def get_metric_group(self) -> MetricGroup:
            """The operator's metrics; asking for one again gives the same one."""

        @abstractmethod
        def get_current_watermark(self) -> int:
            """The event time that the subtask has reached."""

        @abstractmethod
        def register_processing_time_timer(self, time: int) -> None:
            """Call `on_processing_time` for this window when the clock has passed `time`, 1 ms after it."""

        @abstractmethod
        def register_event_time_timer(self, time: int) -> None:
            """Call `on_event_time` for this window when the watermark passes `time`."""

        @abstractmethod
        def delete_processing_time_timer(self, time: int) -> None:
            """Forget the timer, when there is one."""

        @abstractmethod
        def delete_event_time_timer(self, time: int) -> None:
            """Forget the timer, when there is one."""

        @abstractmethod
        def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
            """State of this key and window: value, list, map, reducing or aggregating, as the descriptor says."""

    class OnMergeContext(TriggerContext):
        """What `on_merge` is handed: the window is the one that others have become."""

        @abstractmethod
        def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
            """Give the window the state of those that it is made of; for list, reducing and aggregating state."""

    @abstractmethod
    def on_element(self, element: T, timestamp: int, window: W, ctx: TriggerContext) -> TriggerResult:
        """A record (with its event time, or -2**63) was put into the window."""

    @abstractmethod
    def on_processing_time(self, time: int, window: W, ctx: TriggerContext) -> TriggerResult:
        """A processing-time timer of the window is due."""

    @abstractmethod
    def on_event_time(self, time: int, window: W, ctx: TriggerContext) -> TriggerResult:
        """An event-time timer of the window is due."""

    def can_merge(self) -> bool:
        """Whether the trigger may be used with windows that merge, and so implements `on_merge`."""
        return False

    @abstractmethod
    def on_merge(self, window: W, ctx: OnMergeContext) -> None:
        """Several windows became `window`: merge state, set timers. Those windows are cleared after this."""

    @abstractmethod
    def clear(self, window: W, ctx: TriggerContext) -> None:
        """The window is gone: remove the state and the timers that the trigger set for it."""
