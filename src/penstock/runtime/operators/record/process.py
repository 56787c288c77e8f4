"""Process functions: user code with access to timestamps, timers and side outputs (A1), with one input or two (A2).

`ProcessOperator` and `KeyedProcessOperator` have one input.

`CoProcessOperator` and `KeyedCoProcessOperator` process connected streams, where the function has a method for the
records of each input. The operator's event time is the lower of the two inputs' event times, as the task's watermark is
the lowest of all its channels.

`BroadcastProcessOperator` and `KeyedBroadcastProcessOperator` process a stream beside a broadcast one: every subtask
sees all broadcast records and keeps the ones it needs. Input 0 is the stream that is not broadcast, input 1 the
broadcast one. Descriptors declare the broadcast states; the first side reads them, the second writes them. Each side
has a context of its own, and so have timers. Event time is the lower of the two inputs' event times.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from types import GeneratorType
from typing import Any, Final, Generic, TypeVar

from penstock.base.errors import MisuseError, WrongTypeError
from penstock.base.time import timer_ms
from penstock.runtime.operators.base import FunctionOperator
from penstock.runtime.operators.emitting import NO_VALUES, check_items, check_results, wrong_value
from penstock.runtime.operators.function_context import OperatorContext
from penstock.runtime.operators.record.stateless import method
from penstock.runtime.operators.results import TRUSTED, ResultCheck, Results, as_emitted, can_never_change, process_each
from penstock.runtime.operators.watermarks import DROPPED_TIMERS, TimerQueue, TimersAfterEnd
from penstock.runtime.records import MAX_TIMESTAMP, MAX_WATERMARK, MIN_TIMESTAMP, Batch
from penstock.state import views
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

#: The number of timers whose results are emitted together; at the end of the input very many may be due.
FIRED_AT_ONCE: Final = 4096
EVENT_TIMERS = "_penstock_timers_event"
PROCESSING_TIMERS = "_penstock_timers_processing"


class TimeDomain(enum.Enum):
    """The time that a timer follows.

    Examples:
        >>> from penstock.datastream import KeyedProcessFunction
        >>> from penstock.testing import harness_for
        >>> class Alarm(KeyedProcessFunction):
        ...     def process_element(self, value, ctx):
        ...         ctx.timer_service().register_processing_time_timer(60_000)
        ...     def on_timer(self, timestamp, ctx):
        ...         yield ctx.time_domain().name
        >>> with harness_for(Alarm(), len) as harness:
        ...     harness.process("tea")
        ...     harness.advance_processing_time(60_000)
        ...     harness.values
        ['PROCESSING_TIME']
    """

    EVENT_TIME = 0
    PROCESSING_TIME = 1


class TimerService:
    """Times and timers of a process function; all times in ms since the epoch. Timers belong to the current key.

    The time of a timer is a 64-bit int; other times raise `MisuseError`. At the end of the input all event-time timers
    fire. A timer that is set then fires as well, up to `penstock.timers.after-end-of-input.max` for each key.

    Examples:
        >>> from penstock.datastream import KeyedProcessFunction
        >>> from penstock.testing import harness_for
        >>> class Alarm(KeyedProcessFunction):
        ...     def process_element(self, value, ctx):
        ...         ctx.timer_service().register_event_time_timer(ctx.timestamp() + 60_000)
        ...     def on_timer(self, timestamp, ctx):
        ...         yield ctx.get_current_key(), timestamp
        >>> with harness_for(Alarm(), lambda word: word) as harness:
        ...     harness.process("tea", timestamp=5)
        ...     harness.watermark(60_005)
        ...     harness.values
        [('tea', 60005)]
    """

    def __init__(self, context: OperatorContext) -> None:
        self._context = context
        self._keyed = context.keyed
        self.watermark = MIN_TIMESTAMP
        self._is_quiesced = False
        #: whether event time has ended, and whether processing time has, as it does for each key in batch execution
        self._has_ended = False
        self._has_clock_ended = False
        self._after_end = TimersAfterEnd(context)
        event_table = context.keyed.table(EVENT_TIMERS)
        self.event_timers = TimerQueue(event_table)
        self._event_buckets = event_table.panes
        self.processing_timers = TimerQueue(context.keyed.table(PROCESSING_TIMERS))

    def current_processing_time(self) -> int:
        """Return processing time in ms."""
        return self._context.clock.now_ms()

    def current_watermark(self) -> int:
        """Return the event time (ms) that this subtask has reached; 2**63 - 1 after the end of the input.

        Examples:
            >>> class Late(KeyedProcessFunction):
            ...     def process_element(self, value, ctx):
            ...         yield ctx.timestamp() <= ctx.timer_service().current_watermark()
            >>> with harness_for(Late(), len) as harness:
            ...     harness.watermark(10)
            ...     harness.process("tea", timestamp=5)
            ...     harness.values
            [True]
        """
        return self.watermark

    def register_event_time_timer(self, timestamp: int) -> None:
        """Register a timer that calls `on_timer` for the current key when the watermark passes `timestamp`.

        Args:
            timestamp: ms since the epoch. A key has at most one timer of a kind for each time.

        Raises:
            MisuseError: if it is not a 64-bit int.

        Examples:
            >>> class AtTheHour(Alarm):
            ...     def process_element(self, value, ctx):
            ...         ctx.timer_service().register_event_time_timer(3_600_000)
            >>> with harness_for(AtTheHour(), lambda word: word) as harness:
            ...     harness.process_batch(["tea", "tea"], timestamps=[5, 6])
            ...     harness.watermark(3_600_000)
            ...     harness.values
            [('tea', 3600000)]
        """
        key = self._keyed.current_key
        bucket = self._event_buckets.get(timestamp)
        if bucket is None:
            # A 64-bit int shifted by 63 is 0 or -1: one comparison instead of two.
            if timestamp.__class__ is not int or timestamp >> 63 not in (0, -1):
                timestamp = timer_ms(timestamp, "register_event_time_timer()")
        elif key in bucket:  # usually the timer exists already
            return
        elif timestamp.__class__ is not int:
            timestamp = timer_ms(timestamp, "register_event_time_timer()")
        if not self._has_ended or self._is_taken(key):
            self.event_timers.put(timestamp, key, bucket)

    def register_processing_time_timer(self, timestamp: int) -> None:
        """Register a timer that calls `on_timer` for the current key when the clock passes `timestamp`.

        If a stream ends first, the timer is dropped, unless the function sets `drain_processing_time_timers`.

        Args:
            timestamp: ms since the epoch. A key has at most one timer of a kind for each time.

        Raises:
            MisuseError: if it is not a 64-bit int.

        Examples:
            >>> class InAMinute(Alarm):
            ...     def process_element(self, value, ctx):
            ...         timers = ctx.timer_service()
            ...         timers.register_processing_time_timer(timers.current_processing_time() + 60_000)
            >>> with harness_for(InAMinute(), lambda word: word) as harness:
            ...     harness.process("tea")
            ...     harness.advance_processing_time(60_000)
            ...     harness.values
            [('tea', 60000)]
        """
        if timestamp.__class__ is not int or timestamp > MAX_TIMESTAMP or timestamp < MIN_TIMESTAMP:
            timestamp = timer_ms(timestamp, "register_processing_time_timer()")
        key = self._keyed.current_key
        if not self._has_clock_ended or self._is_taken(key):
            self.processing_timers.register(timestamp, key)

    def _is_taken(self, key: Any) -> bool:
        """Return whether a timer that is set after the end of the input will fire."""
        if self._is_quiesced:
            self._context.count(DROPPED_TIMERS)
            return False
        return self._after_end.admit(key)

    def quiesce(self) -> None:
        """Accept no more timers (F5): event time has ended, and processing time no longer counts."""
        self._is_quiesced = self._has_ended = self._has_clock_ended = True

    def advance(self, watermark: int) -> None:
        """Advance event time to the watermark (ms)."""
        self.watermark = watermark
        self._has_ended = watermark == MAX_WATERMARK or self._is_quiesced

    def end_clock(self) -> None:
        """Note in batch execution that all records of a key have come, so that timers of both kinds are due."""
        self._has_clock_ended = True

    def restart(self) -> None:
        """Begin event time again, because batch execution continues with other keys."""
        self._has_clock_ended = False
        self._after_end.clear()
        self.advance(MIN_TIMESTAMP)

    def delete_event_time_timer(self, timestamp: int) -> None:
        """Delete the current key's timer at `timestamp`, if there is one.

        Examples:
            >>> class Quiet(Alarm):
            ...     def process_element(self, value, ctx):
            ...         ctx.timer_service().register_event_time_timer(60_000)
            ...         ctx.timer_service().delete_event_time_timer(60_000)
            >>> with harness_for(Quiet(), lambda word: word) as harness:
            ...     harness.process("tea", timestamp=5)
            ...     harness.watermark(60_000)
            ...     harness.values
            []
        """
        if timestamp.__class__ is not int:
            timestamp = timer_ms(timestamp, "delete_event_time_timer()")
        self.event_timers.delete(timestamp, self._keyed.current_key)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Delete the current key's timer at `timestamp`, if there is one."""
        if timestamp.__class__ is not int:
            timestamp = timer_ms(timestamp, "delete_processing_time_timer()")
        self.processing_timers.delete(timestamp, self._keyed.current_key)


class UnkeyedTimerService(TimerService):
    """Timer service of a process function without keys: it may read times, but has no key to set a timer for."""

    def register_event_time_timer(self, timestamp: int) -> None:
        """Raise an error, because timers belong to a key."""
        raise WrongTypeError("timers can only be set on a keyed stream: call key_by first")

    register_processing_time_timer = register_event_time_timer
    delete_event_time_timer = register_event_time_timer
    delete_processing_time_timer = register_event_time_timer


class RefusingTimerService(TimerService):
    """Timer service of a function on a keyed stream without `on_timer`, so that a timer would have nothing to call."""

    def __init__(self, context: OperatorContext, function: Any) -> None:
        super().__init__(context)
        self._function_name = type(function).__name__

    def register_event_time_timer(self, timestamp: int, *_: Any) -> None:
        """Raise `MisuseError`: the function lacks the method that timers call."""
        raise MisuseError(
            f"{self._context.operator_name}: {self._function_name} has a timer but no on_timer() for it to call: "
            "derive the function from KeyedProcessFunction (with two inputs from KeyedCoProcessFunction), or define "
            "on_timer(self, timestamp, ctx)"
        )

    register_processing_time_timer = register_event_time_timer


class ProcessContext:
    """The context passed to `process_element` with the record."""

    __slots__ = ("_timers", "element_timestamp")

    def __init__(self, timers: TimerService) -> None:
        self._timers = timers
        self.element_timestamp: int | None = None

    def timestamp(self) -> int | None:
        """Return the event time of the record or timer in ms; None when the record carries none."""
        return self.element_timestamp

    def timer_service(self) -> TimerService:
        """Return the service for times and timers."""
        return self._timers


class KeyedProcessContext(ProcessContext):
    """The context passed to a keyed `process_element` with the record."""

    __slots__ = ("_keyed",)

    def __init__(self, timers: TimerService, keyed: Any) -> None:
        super().__init__(timers)
        self._keyed = keyed

    def get_current_key(self) -> Any:
        """Return the record's key."""
        return self._keyed.current_key


class OnTimerContext(KeyedProcessContext):
    """The context passed to `on_timer` with the timer's time."""

    __slots__ = ("domain",)

    domain: TimeDomain

    def time_domain(self) -> TimeDomain:
        """Return the time domain of the timer."""
        return self.domain


class ProcessOperator(FunctionOperator):
    """A `ProcessFunction` on a stream without keys."""

    def open(self) -> None:
        """Open the function."""
        self._timers = UnkeyedTimerService(self.context)
        self._ctx = ProcessContext(self._timers)
        super().open()
        self._check = ResultCheck(self)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Call the function for every record."""
        process_each(self, batch, self.function.process_element, self._ctx, self._check)

    def process_watermark(self, timestamp: int) -> None:
        """Set event time, and pass the watermark on."""
        self._timers.watermark = timestamp
        self.output.emit_watermark(timestamp)


class KeyedProcessOperator(FunctionOperator):
    """A `KeyedProcessFunction`, with keyed state and timers of both kinds."""

    is_keyed = True

    def __init__(self, function: Any, key_selector: Callable[[Any], Any]) -> None:
        super().__init__(function)
        self._key_selector = key_selector

    def open(self) -> None:
        """Open the function."""
        self._on_timer: Any = getattr(self.function, "on_timer", None)
        if self._on_timer is None:
            self._timers: TimerService = RefusingTimerService(self.context, self.function)
            self._on_timer = self._timers.register_event_time_timer  # for timers in a restored savepoint
        else:
            self._timers = TimerService(self.context)
        self.make_contexts()
        super().open()
        self._check, self._timer_check = ResultCheck(self), ResultCheck(self)

    def make_contexts(self) -> None:
        """Create the contexts that the function receives with records and timers."""
        self._ctx: Any = KeyedProcessContext(self._timers, self.context.keyed)
        self._timer_ctx: Any = OnTimerContext(self._timers, self.context.keyed)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Call the function for every record, with the record's key as the current key."""
        self.process_records(batch, self.function.process_element, self._key_selector)

    def process_records(self, batch: Batch, process: Callable[[Any, Any], Any], key_of: Callable[[Any], Any]) -> None:
        """Call `process` for every record, with the record's key as the current key, and emit the results."""
        process_each(self, batch, process, self._ctx, self._check, self.extract_keys(batch.values, key_of))
        for sweeper in self.context.keyed.sweepers.values():
            sweeper.on_records(len(batch))

    def process_watermark(self, timestamp: int) -> None:
        """Fire the event-time timers that are due, then pass the watermark on."""
        self._timers.advance(timestamp)
        self._fire(self._timers.event_timers, timestamp, TimeDomain.EVENT_TIME)
        self.output.emit_watermark(timestamp)

    def resume_event_time(self, watermark: int) -> None:
        """Set event time. Timers for earlier times fire at the next watermark, as they do without a restart."""
        self._timers.advance(watermark)

    def next_timer_ms(self) -> int | None:
        """Return the time of the earliest processing-time timer (ms), or None."""
        return self._timers.processing_timers.next_timestamp()

    def on_processing_time(self, now_ms: int) -> None:
        """Fire the processing-time timers that are due."""
        self._fire(self._timers.processing_timers, now_ms, TimeDomain.PROCESSING_TIME)

    def quiesce_timers(self) -> None:
        """Drop the pending processing-time timers, or fire them all now if the function asks for it."""
        self._timers.quiesce()
        if getattr(self.function, "drain_processing_time_timers", False):
            self._fire(self._timers.processing_timers, MAX_WATERMARK, TimeDomain.PROCESSING_TIME)
        self._timers.processing_timers.clear()

    def end_keys(self) -> None:
        """Fire all timers of both kinds, including timers that are set meanwhile, because all of them are due."""
        timers = self._timers
        timers.end_clock()
        super().end_keys()
        while timers.processing_timers.next_timestamp() is not None:
            self._fire(timers.processing_timers, MAX_WATERMARK, TimeDomain.PROCESSING_TIME)
            self._fire(timers.event_timers, MAX_WATERMARK, TimeDomain.EVENT_TIME)
        timers.restart()

    def advance_keys(self, timestamp: int) -> None:
        """Fire the event-time timers that are due."""
        before = self._timers.watermark
        self.process_watermark(timestamp)
        self._timers.advance(before)

    def _fire(self, queue: TimerQueue, up_to: int, domain: TimeDomain) -> None:
        self._timer_ctx.domain = domain
        due = queue.due(up_to)
        while self._fire_some(due) == FIRED_AT_ONCE:
            pass

    def _fire_some(self, due: Iterator[tuple[int, Any]]) -> int:
        """Fire timers and emit their results; returns how many have fired, `FIRED_AT_ONCE` at most."""
        keyed, ctx, on_timer, results = self.context.keyed, self._timer_ctx, self._on_timer, Results()
        values, times, take = results.values, results.times, results.take
        append, add_time = values.append, times.append
        is_close = self._timer_check.is_close()
        fired = 0
        try:
            for timestamp, keyed.current_key in due:
                fired += 1
                ctx.element_timestamp = timestamp
                yielded = on_timer(timestamp, ctx)
                if yielded is None:
                    pass
                elif is_close:
                    if yielded.__class__ is not list and yielded.__class__ is not GeneratorType:
                        yielded = check_results(yielded, on_timer)
                    take(yielded)
                    results.add_times(timestamp)
                elif yielded.__class__ is list:
                    values.extend(yielded)
                    for _ in yielded:
                        add_time(timestamp)
                else:
                    if yielded.__class__ is not GeneratorType:
                        yielded = check_results(yielded, on_timer)
                    for result in yielded:
                        if result.__class__ not in TRUSTED and not can_never_change(result):
                            results.has_mixed = True
                            result = as_emitted(result, yielded)
                        append(result)
                        add_time(timestamp)
                if fired == FIRED_AT_ONCE:
                    break
        except Exception as error:
            raise self.failed(("timer", ctx.element_timestamp, keyed.current_key)) from error
        finally:
            keyed.current_key = NO_KEY
        self.context.fired_timers += fired
        self._timer_check.note(results)
        results.emit(self.output, is_timed=True)
        return fired


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
    ValueStateDescriptor: views.open_value_state,
    ListStateDescriptor: views.open_list_state,
    MapStateDescriptor: views.open_map_state,
    ReducingStateDescriptor: views.open_reducing_state,
    AggregatingStateDescriptor: views.open_aggregating_state,
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
