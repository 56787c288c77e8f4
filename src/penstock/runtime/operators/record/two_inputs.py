"""Two inputs: connected streams, where the function has a method for the records of each input (A1, A2).

The operator's event time is the lower of the two inputs' event times, as the task's watermark is the lowest of all its
channels.

A stream beside a broadcast one: every subtask sees all broadcast records and keeps the ones it needs (A1).

Input 0 is the stream that is not broadcast, input 1 the broadcast one. Descriptors declare the broadcast states; the
first side reads them, the second writes them. Event time is the lower of the two inputs' event times.

The contexts of broadcast process functions: one for each side, and one for timers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Generic, TypeVar

from penstock.base.errors import WrongTypeError
from penstock.runtime.operators.base import FunctionOperator
from penstock.runtime.operators.emitting import NO_VALUES, check_items, wrong_value
from penstock.runtime.operators.function_context import OperatorContext
from penstock.runtime.operators.record.process import (
    KeyedProcessOperator,
    ProcessContext,
    TimeDomain,
    TimerService,
    UnkeyedTimerService,
)
from penstock.runtime.operators.record.stateless import method
from penstock.runtime.operators.results import ResultCheck, process_each
from penstock.runtime.records import Batch
from penstock.state.errors import StateError
from penstock.state.operator_state import BroadcastState, ReadOnlyBroadcastState
from penstock.state.states import (
    NO_KEY,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from penstock.state.ttl import (
    open_aggregating_state,
    open_list_state,
    open_map_state,
    open_reducing_state,
    open_value_state,
)


class _TwoInputs:
    """Finds the function's methods for both inputs, such as `map1` and `map2`, and wraps them to return iterables."""

    def __init__(self, function: Any, kind: str) -> None:
        self._function = function
        self._kind = kind

    def handlers(self) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
        """Return (first, second): called with record and context, they return an iterable or None."""
        function = self._function
        if self._kind == "process":
            return function.process_element1, function.process_element2
        if self._kind == "map":
            return _one_result(function.map1), _one_result(function.map2)
        return _items(function.flat_map1), _items(function.flat_map2)


def _one_result(function: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    def call(value: Any, ctx: Any) -> Any:
        result = function(value)
        if type(result) in NO_VALUES:
            raise wrong_value(result, f"{function.__name__}()")
        return None if result is None else [result]

    return call


def _items(function: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    @wraps(function)
    def call(value: Any, ctx: Any) -> Any:
        returned = function(value)
        return None if returned is None else check_items(returned, function)

    return call


class CoProcessOperator(FunctionOperator):
    """A two-input function on streams without keys; `kind` is map, flat_map or process."""

    def __init__(self, function: Any, kind: str) -> None:
        super().__init__(function)
        self._inputs = _TwoInputs(function, kind)

    def open(self) -> None:
        """Open the function."""
        self._timers = UnkeyedTimerService(self.context)
        self._ctx = ProcessContext(self._timers)
        super().open()
        self._check = ResultCheck(self)
        self._handlers = self._inputs.handlers()

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Call the input's method for every record."""
        process_each(self, batch, self._handlers[input_index], self._ctx, self._check)

    def process_watermark(self, timestamp: int) -> None:
        """Set event time, and pass the watermark on."""
        self._timers.watermark = timestamp
        self.output.emit_watermark(timestamp)


class KeyedCoProcessOperator(KeyedProcessOperator):
    """A two-input function on two keyed streams, which share their keys' state and timers."""

    def __init__(
        self, function: Any, kind: str, key_selector1: Callable[[Any], Any], key_selector2: Callable[[Any], Any]
    ) -> None:
        super().__init__(function, key_selector1)
        self._inputs = _TwoInputs(function, kind)
        self._key_selectors = (key_selector1, key_selector2)

    def open(self) -> None:
        """Open the function."""
        super().open()
        self._handlers = self._inputs.handlers()

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Call the input's method for every record, with the record's key as the current key."""
        self.process_records(batch, self._handlers[input_index], self._key_selectors[input_index])


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
