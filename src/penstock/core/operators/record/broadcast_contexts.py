"""The contexts of broadcast process functions: one for each side, and one for timers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from penstock.base.errors import WrongTypeError
from penstock.core.operators.record.process import TimeDomain, TimerService
from penstock.core.operators.record.stateless import method
from penstock.state.broadcast_state import BroadcastState, ReadOnlyBroadcastState
from penstock.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from penstock.state.errors import StateError
from penstock.state.states import NO_KEY
from penstock.state.ttl.states import (
    open_aggregating_state,
    open_list_state,
    open_map_state,
    open_reducing_state,
    open_value_state,
)

StateT = TypeVar("StateT")

_OPENERS: dict[type[StateDescriptor], Callable[[Any, Any], Any]] = {
    ValueStateDescriptor: open_value_state,
    ListStateDescriptor: open_list_state,
    MapStateDescriptor: open_map_state,
    ReducingStateDescriptor: open_reducing_state,
    AggregatingStateDescriptor: open_aggregating_state,
}


def undeclared(states: Mapping[str, Any], descriptor: Any) -> Exception:
    """Return the error for a descriptor that was not passed to `broadcast()`."""
    if not isinstance(descriptor, MapStateDescriptor):
        return WrongTypeError(f"a broadcast state is identified by a MapStateDescriptor, not by {descriptor!r}")
    declared = ", ".join(map(repr, states))
    return StateError(
        f"there is no broadcast state {descriptor.name!r} here, only {declared}: pass its descriptor to broadcast()"
    )


class BroadcastBaseContext(Generic[StateT]):
    """Access to times, all in ms since the epoch, and to broadcast states."""

    __slots__ = ("_states", "_timers", "element_timestamp")

    def __init__(self, timers: TimerService, states: Mapping[str, StateT]) -> None:
        self._timers = timers
        self._states = states
        self.element_timestamp: int | None = None

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> StateT:
        """Return the broadcast state of a descriptor; raises `StateError` unless `broadcast()` received it."""
        try:
            return self._states[state_descriptor.name]
        except (KeyError, AttributeError):
            raise undeclared(self._states, state_descriptor) from None

    def timestamp(self) -> int | None:
        """Return the event time of the record or timer in ms; None when the record carries none."""
        return self.element_timestamp

    def current_processing_time(self) -> int:
        """Return processing time in ms."""
        return self._timers.current_processing_time()

    def current_watermark(self) -> int:
        """Return the event time (ms) that both streams have reached in this subtask."""
        return self._timers.current_watermark()


class BroadcastContext(BroadcastBaseContext[BroadcastState[Any, Any]]):
    """The context for a record of the broadcast stream: broadcast states are writable."""

    __slots__ = ()


class ReadOnlyContext(BroadcastBaseContext[ReadOnlyBroadcastState[Any, Any]]):
    """The context for a record of the other stream: broadcast states are read-only."""

    __slots__ = ()


class KeyedBroadcastContext(BroadcastContext):
    """The context for a broadcast record beside a keyed stream: no key is current, and all keys may be visited."""

    __slots__ = ("_keyed",)

    def __init__(self, timers: TimerService, states: Mapping[str, BroadcastState[Any, Any]], keyed: Any) -> None:
        super().__init__(timers, states)
        self._keyed = keyed

    def apply_to_key_state(self, state_descriptor: StateDescriptor, function: Callable[[Any, Any], Any]) -> None:
        """Call `function(key, state)` for every key of this subtask that has an entry in a keyed state (A1).

        Each key is current during its call, so the function may also use and change the key's other state. The call
        visits the keys in no particular order, holds a list of them in memory, and finishes before the next record. The
        function's results are dropped: collect the values in a list that `process_broadcast_element` should yield.

        Args:
            state_descriptor: the descriptor that the function's `open` used to look up the state.
            function: takes the key and its state, or has a method `process` that does (Flink's KeyedStateFunction).

        Raises:
            TypeError: if the descriptor does not describe a keyed state.
        """
        keyed, visit = self._keyed, method(function, "process")
        opener = next((opens for kind, opens in _OPENERS.items() if isinstance(state_descriptor, kind)), None)
        if opener is None:
            raise WrongTypeError(f"a keyed state is identified by its state descriptor, not by {state_descriptor!r}")
        state = opener(keyed, state_descriptor)
        try:
            for key in keyed.list_keys(state_descriptor):
                keyed.current_key = key
                visit(key, state)
                keyed.settle()
        finally:
            keyed.current_key = NO_KEY

    #: Flink's name for it.
    apply_to_keyed_state = apply_to_key_state


class KeyedReadOnlyContext(ReadOnlyContext):
    """The context for a record of the keyed stream."""

    __slots__ = ("_keyed",)

    def __init__(
        self, timers: TimerService, states: Mapping[str, ReadOnlyBroadcastState[Any, Any]], keyed: Any
    ) -> None:
        super().__init__(timers, states)
        self._keyed = keyed

    def timer_service(self) -> TimerService:
        """Return the service for times and timers."""
        return self._timers

    def get_current_key(self) -> Any:
        """Return the key of the record or timer."""
        return self._keyed.current_key


class BroadcastOnTimerContext(KeyedReadOnlyContext):
    """The context for a timer."""

    __slots__ = ("domain",)

    domain: TimeDomain

    def time_domain(self) -> TimeDomain:
        """Return the time domain of the timer."""
        return self.domain
