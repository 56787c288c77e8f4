"""A stream beside a broadcast one: every subtask sees all broadcast records and keeps the ones it needs (A1).

Input 0 is the stream that is not broadcast, input 1 the broadcast one. Descriptors declare the broadcast states; the
first side reads them, the second writes them. Event time is the lower of the two inputs' event times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.core.operators.base import FunctionOperator
from penstock.core.operators.context import OperatorContext
from penstock.core.operators.emitted_values import ResultCheck, process_each
from penstock.core.operators.record.broadcast_contexts import (
    BroadcastContext,
    BroadcastOnTimerContext,
    KeyedBroadcastContext,
    KeyedReadOnlyContext,
    ReadOnlyContext,
)
from penstock.core.operators.record.process import KeyedProcessOperator, UnkeyedTimerService
from penstock.core.records import Batch
from penstock.state.broadcast_state import BroadcastState
from penstock.state.descriptors import MapStateDescriptor

BROADCAST_INPUT = 1


def _declare(
    context: OperatorContext, descriptors: Sequence[MapStateDescriptor]
) -> dict[str, BroadcastState[Any, Any]]:
    states: dict[str, BroadcastState[Any, Any]] = {}
    for descriptor in descriptors:
        states[descriptor.name] = context.operator_state.broadcast_state(descriptor.name)
        states[descriptor.name].declare(descriptor.type_info)
        context.user_states[descriptor.name] = states[descriptor.name]
    return states


class BroadcastProcessOperator(FunctionOperator):
    """A `BroadcastProcessFunction`."""

    def __init__(self, function: Any, descriptors: Sequence[MapStateDescriptor]) -> None:
        super().__init__(function)
        self._descriptors = tuple(descriptors)

    def initialize_state(self) -> None:
        """Look up the broadcast states."""
        self._states = _declare(self.context, self._descriptors)
        super().initialize_state()

    def open(self) -> None:
        """Open the function."""
        self._timers = UnkeyedTimerService(self.context)
        self._broadcast_ctx = BroadcastContext(self._timers, self._states)
        views = {name: state.read_only() for name, state in self._states.items()}
        self._ctx = ReadOnlyContext(self._timers, views)
        super().open()
        self._check = ResultCheck(self)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Call the input's method for every record."""
        if input_index == BROADCAST_INPUT:
            process_each(self, batch, self.function.process_broadcast_element, self._broadcast_ctx, self._check)
        else:
            process_each(self, batch, self.function.process_element, self._ctx, self._check)

    def process_watermark(self, timestamp: int) -> None:
        """Set event time, and pass the watermark on."""
        self._timers.watermark = timestamp
        self.output.emit_watermark(timestamp)


class KeyedBroadcastProcessOperator(KeyedProcessOperator):
    """A `KeyedBroadcastProcessFunction`: keyed state and timers beside the broadcast states."""

    def __init__(
        self, function: Any, key_selector: Callable[[Any], Any], descriptors: Sequence[MapStateDescriptor]
    ) -> None:
        super().__init__(function, key_selector)
        self._descriptors = tuple(descriptors)

    def initialize_state(self) -> None:
        """Look up the broadcast states."""
        self._states = _declare(self.context, self._descriptors)
        super().initialize_state()

    def make_contexts(self) -> None:
        """Create the contexts that see the broadcast states."""
        timers, keyed = self._timers, self.context.keyed
        views = {name: state.read_only() for name, state in self._states.items()}
        self._broadcast_ctx = KeyedBroadcastContext(timers, self._states, keyed)
        self._ctx = KeyedReadOnlyContext(timers, views, keyed)
        self._timer_ctx = BroadcastOnTimerContext(timers, views, keyed)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Call the input's method for every record; a broadcast record has no key."""
        if input_index == BROADCAST_INPUT:
            process_each(self, batch, self.function.process_broadcast_element, self._broadcast_ctx, self._check)
        else:
            super().process_batch(batch)
