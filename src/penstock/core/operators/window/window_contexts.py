"""The contexts that the general window operator passes to assigners, triggers and evictors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from penstock.base.metrics import MetricGroup
from penstock.base.timestamps import timer_ms
from penstock.core.operators.context import OperatorContext
from penstock.core.operators.runtime_context import RuntimeContext
from penstock.core.operators.timers import DROPPED_TIMERS, TimersAfterEnd
from penstock.core.operators.window.window_states import TRIGGER_STATES, WindowStates
from penstock.core.operators.window.window_timers import WindowTimers
from penstock.core.records import MAX_TIMESTAMP, MAX_WATERMARK, MIN_TIMESTAMP
from penstock.core.windowing.assigners import WindowAssigner
from penstock.core.windowing.evictors import Evictor
from penstock.core.windowing.triggers import Trigger
from penstock.core.windowing.windows import WindowToken
from penstock.state.descriptors import StateDescriptor, ValueStateDescriptor
from penstock.state.states import ValueState

EVENT_TIMERS: Final = "_penstock_window_event_timers"
PROCESSING_TIMERS: Final = "_penstock_window_processing_timers"


class Times(Protocol):
    """An operator that knows event time."""

    context: OperatorContext

    @property
    def watermark(self) -> int: ...


class _AssignerRuntimeContext(RuntimeContext):
    """Caches the requested value states: an assigner has no `open`, so it requests them with every record."""

    def __init__(self, context: OperatorContext) -> None:
        super().__init__(context)
        self._opened: dict[str, tuple[ValueStateDescriptor, ValueState[Any]]] = {}

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        opened = self._opened.get(state_descriptor.name)
        if opened is None or opened[0] is not state_descriptor:
            opened = self._opened[state_descriptor.name] = (state_descriptor, super().get_state(state_descriptor))
        return opened[1]


class AssignerContext(WindowAssigner.WindowAssignerContext):
    """The context that an assigner receives besides the record."""

    def __init__(self, context: OperatorContext) -> None:
        self._now_ms = context.clock.now_ms
        self._runtime_context = _AssignerRuntimeContext(context)

    def get_current_processing_time(self) -> int:
        """Return the processing time in ms."""
        return self._now_ms()

    def get_runtime_context(self) -> RuntimeContext:
        """Return the operator's runtime context, whose keyed state belongs to the record's key."""
        return self._runtime_context


class _TimesContext:
    """Times in ms, and the operator's metrics."""

    def __init__(self, times: Times) -> None:
        self._times = times

    def get_current_processing_time(self) -> int:
        return self._times.context.clock.now_ms()

    def get_current_watermark(self) -> int:
        return self._times.watermark

    def get_metric_group(self) -> MetricGroup:
        return MetricGroup(self._times.context.metrics)


class EvictorContext(_TimesContext, Evictor.EvictorContext):
    """The context that an evictor receives besides the records."""


class TriggerContext(_TimesContext, Trigger.OnMergeContext):
    """Timers and state of the window that was entered last, under the backend's current key."""

    def __init__(self, times: Times) -> None:
        super().__init__(times)
        keyed = times.context.keyed
        self._keyed = keyed
        self._states = WindowStates(times.context, TRIGGER_STATES)
        self._token: WindowToken = ()
        self._merged: Sequence[WindowToken] = ()
        #: Whether processing-time timers are accepted; no longer at the end of the input, or of a key in batch.
        self.takes_processing_timers = True
        self.after_end = TimersAfterEnd(times.context)
        self.event_timers = WindowTimers(keyed.table(EVENT_TIMERS))
        self.processing_timers = WindowTimers(keyed.table(PROCESSING_TIMERS))

    def enter(self, token: WindowToken, merged: Sequence[WindowToken] = ()) -> TriggerContext:
        """Switch to a window, into which other windows (`merged`) may just have been merged."""
        self._token = token
        self._merged = merged
        return self

    def register_processing_time_timer(self, time: int) -> None:
        if time.__class__ is not int or not MIN_TIMESTAMP <= time <= MAX_TIMESTAMP:
            time = timer_ms(time, "register_processing_time_timer()")
        if self.takes_processing_timers:
            self.processing_timers.register(time, self._keyed.current_key, self._token)
        else:
            self._times.context.count(DROPPED_TIMERS)

    def register_event_time_timer(self, time: int) -> None:
        if time.__class__ is not int or not MIN_TIMESTAMP <= time <= MAX_TIMESTAMP:
            time = timer_ms(time, "register_event_time_timer()")
        timers, key, token = self.event_timers, self._keyed.current_key, self._token
        if self._times.watermark == MAX_WATERMARK and (timers.holds(time, key, token) or not self.after_end.admit(key)):
            return
        timers.register(time, key, token)

    def delete_processing_time_timer(self, time: int) -> None:
        if time.__class__ is not int:
            time = timer_ms(time, "delete_processing_time_timer()")
        self.processing_timers.delete(time, self._keyed.current_key, self._token)

    def delete_event_time_timer(self, time: int) -> None:
        if time.__class__ is not int:
            time = timer_ms(time, "delete_event_time_timer()")
        self.event_timers.delete(time, self._keyed.current_key, self._token)

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
        return self._states.get(state_descriptor, self._token)

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        self._states.merge(state_descriptor, self._token, self._merged)
