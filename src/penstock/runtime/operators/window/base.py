"""The common base of window operators, the state of a key and a window (C1, D1), and windows' contents and results.

`WindowStates` serve triggers and process window functions. Each such state is a map state of the key, from a window's
token to the content of a plain state. So it is stored, restored, rescaled and converted like any map state, and a
removed window leaves no state. If a descriptor has a time to live, the state of a window expires as a whole, counted
from its last change.

`WindowContents` are a window's contents for one key: the ways to aggregate. `WindowResult` is the result when it fires:
the ways to emit.

`WindowOperatorBase` has the user functions, handles late records, and emits the results of fired windows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from types import GeneratorType
from typing import Any, Final, Generic, TypeAlias, TypeVar

from penstock.base.copies import detached
from penstock.base.errors import WrongTypeError
from penstock.base.typeinfo import TypeInformation, Types
from penstock.runtime.operators.base import FunctionOperator
from penstock.runtime.operators.emitting import check_results
from penstock.runtime.operators.function_context import KeyedStateStore, OperatorContext
from penstock.runtime.operators.keyed.aggregates import FieldReduce, typed_reduce
from penstock.runtime.operators.record.stateless import method
from penstock.runtime.operators.results import TRUSTED, ResultCheck, Results, as_emitted, can_never_change
from penstock.runtime.operators.watermarks import LATE_RECORDS
from penstock.runtime.records import MIN_TIMESTAMP, Batch
from penstock.runtime.windowing.windows import TimeWindow, WindowToken, WindowTokens
from penstock.state import views
from penstock.state.backend import KeyedStateBackend
from penstock.state.errors import StateError
from penstock.state.states import (
    NO_KEY,
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from penstock.state.views import open_map_state

#: The prefix of the state names of the general window operator's windows (`kept_windows`).
WINDOW_SLOTS: Final = "_penstock_window_slots"
#: The prefixes of the state names of triggers and window functions in snapshots.
TRIGGER_STATES: Final = "trigger-state:"
WINDOW_STATES: Final = "window-state:"


def runtime_map(name: str) -> MapStateDescriptor:
    """Return the descriptor of a runtime map state, with a name that user code cannot use."""
    descriptor = MapStateDescriptor("runtime")
    descriptor.name = name
    return descriptor


def open_runtime_map(keyed: KeyedStateBackend, name: str) -> MapState[Any, Any]:
    """Open a map state of the runtime."""
    return keyed.map_state(runtime_map(name))


class WindowStates:
    """The window states of one kind of owner, for the backend's current key."""

    def __init__(self, context: OperatorContext, prefix: str) -> None:
        self._keyed = context.keyed
        self._user_states = context.user_states
        self._prefix = prefix
        self._opened: dict[str, tuple[StateDescriptor, MapState[Any, Any]]] = {}

    def get(self, descriptor: StateDescriptor, token: WindowToken) -> Any:
        """Return the state that a descriptor names, for one window."""
        states = self._states(descriptor)
        if isinstance(descriptor, ListStateDescriptor):
            return WindowListState(states, token)
        if isinstance(descriptor, MapStateDescriptor):
            return WindowMapState(states, token)
        if isinstance(descriptor, ReducingStateDescriptor):
            return WindowReducingState(states, token, descriptor.reduce_function)
        if isinstance(descriptor, AggregatingStateDescriptor):
            return WindowAggregatingState(states, token, descriptor.agg_function)
        return WindowValueState(states, token)

    def merge(self, descriptor: StateDescriptor, target: WindowToken, sources: Iterable[WindowToken]) -> None:
        """Move the merged state of several windows to one window, leaving none for the others."""
        states = self._states(descriptor)
        merged: Any = None
        for source in sources:
            value = states.get(source)
            states.remove(source)
            if value is not None:
                merged = value if merged is None else self._merged(descriptor, merged, value)
        if merged is not None:
            states.put(target, merged)

    def _merged(self, descriptor: StateDescriptor, value: Any, other: Any) -> Any:
        if isinstance(descriptor, ListStateDescriptor):
            return [*value, *other]
        if isinstance(descriptor, ReducingStateDescriptor):
            return descriptor.reduce_function(value, other)
        if isinstance(descriptor, AggregatingStateDescriptor):
            return descriptor.agg_function.merge(value, other)
        raise WrongTypeError(
            f"state {descriptor.name!r}: only list, reducing and aggregating state of windows can be merged"
        )

    def _states(self, descriptor: StateDescriptor) -> MapState[Any, Any]:
        opened = self._opened.get(descriptor.name)
        if opened is None or opened[0] is not descriptor:
            opened = self._opened[descriptor.name] = (descriptor, open_map_state(self._keyed, self._as_map(descriptor)))
            self._user_states[self._prefix + descriptor.name] = opened[1]
        return opened[1]

    def _as_map(self, descriptor: StateDescriptor) -> MapStateDescriptor:
        type_info = descriptor.type_info
        if type_info is not None and isinstance(descriptor, ListStateDescriptor):
            type_info = Types.LIST(type_info)
        elif isinstance(descriptor, MapStateDescriptor):
            of_key = descriptor.key_type_info
            type_info = None if type_info is None or of_key is None else Types.MAP(of_key, type_info)
        as_map = MapStateDescriptor(self._prefix + descriptor.name, None, type_info)
        as_map.ttl_config = descriptor.ttl_config
        return as_map


class WindowStateStore(KeyedStateStore):
    """The states of the current key and one window."""

    def __init__(self, states: WindowStates, token: WindowToken) -> None:
        self._states = states
        self._token = token

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """Return the value state of the window."""
        return views.declared_value_state(state_descriptor, self._states.get(state_descriptor, self._token))

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return the list state of the window."""
        return views.declared_list_state(state_descriptor, self._states.get(state_descriptor, self._token))

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """Return the map state of the window."""
        return views.declared_map_state(state_descriptor, self._states.get(state_descriptor, self._token))

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """Return the reducing state of the window."""
        return views.declared_reducing_state(
            state_descriptor, lambda descriptor: self._states.get(descriptor, self._token)
        )

    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]:
        """Return the aggregating state of the window."""
        return views.declared_aggregating_state(
            state_descriptor, lambda descriptor: self._states.get(descriptor, self._token)
        )


class WindowValueState(ValueState[Any]):
    """One value for each key and window."""

    __slots__ = ("_states", "_token")

    def __init__(self, states: MapState[Any, Any], token: WindowToken) -> None:
        self._states = states
        self._token = token

    def value(self) -> Any:
        return self._states.get(self._token)

    def update(self, value: Any) -> None:
        if value is None:
            self._states.remove(self._token)
        else:
            self._states.put(self._token, value)

    def clear(self) -> None:
        self._states.remove(self._token)


class WindowListState(ListState[Any]):
    """A list for each key and window."""

    __slots__ = ("_states", "_token")

    def __init__(self, states: MapState[Any, Any], token: WindowToken) -> None:
        self._states = states
        self._token = token

    def get(self) -> list[Any]:
        return list(self._states.get(self._token) or ())

    def add(self, value: Any) -> None:
        self.add_all((value,))

    def add_all(self, values: Iterable[Any]) -> None:
        added = list(values)
        if added:
            elements = self._states.get(self._token) or []
            elements.extend(added)
            self._states.put(self._token, elements)

    def update(self, values: Iterable[Any]) -> None:
        items = list(values)
        if items:
            self._states.put(self._token, items)
        else:
            self.clear()

    def clear(self) -> None:
        self._states.remove(self._token)


class WindowMapState(MapState[Any, Any]):
    """A map for each key and window."""

    __slots__ = ("_states", "_token")

    def __init__(self, states: MapState[Any, Any], token: WindowToken) -> None:
        self._states = states
        self._token = token

    def _map(self) -> dict[Any, Any]:
        entries: dict[Any, Any] = self._states.get(self._token) or {}
        return entries

    def put(self, key: Any, value: Any) -> None:
        self.put_all({key: value})

    def put_all(self, dict_value: dict[Any, Any]) -> None:
        if dict_value:
            entries = self._map()
            entries.update(dict_value)
            self._states.put(self._token, entries)

    def remove(self, key: Any) -> None:
        entries = self._map()
        if key in entries:
            del entries[key]
            if entries:
                self._states.put(self._token, entries)
            else:
                self.clear()

    def clear(self) -> None:
        self._states.remove(self._token)


class WindowReducingState(ReducingState[Any]):
    """One value for each key and window, into which added values are folded."""

    __slots__ = ("_states", "_token")

    def __init__(self, states: MapState[Any, Any], token: WindowToken, reduce_function: Any) -> None:
        self._states = states
        self._token = token
        self._reduce = reduce_function

    def get(self) -> Any:
        return self._states.get(self._token)

    def add(self, value: Any) -> None:
        current = self._states.get(self._token)
        self._states.put(self._token, value if current is None else self._reduce(current, value))

    def clear(self) -> None:
        self._states.remove(self._token)


class WindowAggregatingState(AggregatingState[Any, Any]):
    """One accumulator for each key and window; `get` returns the aggregate function's result."""

    __slots__ = ("_states", "_token")

    def __init__(self, states: MapState[Any, Any], token: WindowToken, function: Any) -> None:
        self._states = states
        self._token = token
        self._function = function

    def get(self) -> Any:
        accumulator = self._states.get(self._token)
        return None if accumulator is None else self._function.get_result(accumulator)

    def add(self, value: Any) -> None:
        current = self._states.get(self._token)
        accumulator = self._function.create_accumulator() if current is None else current
        self._states.put(self._token, self._function.add(value, accumulator))

    def clear(self) -> None:
        self._states.remove(self._token)


W = TypeVar("W")
#: The function that returns the records to emit, called with a key, the second item, and a window's records or
#: aggregate.
Call: TypeAlias = tuple[Callable[[Any, Any, list[Any]], Iterable[Any] | None], Any]


class WindowContents(ABC):
    """Aggregates records into contents. `add` may change contents in place."""

    function: Any = None

    @abstractmethod
    def first(self, value: Any) -> Any:
        """Return the contents of a window with one record."""

    @abstractmethod
    def add(self, contents: Any, value: Any) -> Any:
        """Return the contents with one more record."""

    @abstractmethod
    def merge(self, contents: Any, other: Any) -> Any:
        """Return the contents of two merged windows."""

    def copy_records(self) -> None:  # noqa: B027 - a hook
        """Copy records before they can be changed, because other windows share them."""

    def result(self, contents: Any) -> Any:
        """Return the window's result."""
        return contents

    def result_function(self) -> Callable[[Any], Any]:
        """Return `result`, or a single call with the same effect."""
        return self.result


class ReducingContents(WindowContents):
    """A single value into which records are folded."""

    def __init__(self, function: Any, type_info: TypeInformation | None = None) -> None:
        self.function = function
        self._reduce: Callable[[Any, Any], Any] = typed_reduce(method(function, "reduce"), type_info)
        self._copies = False

    def copy_records(self) -> None:
        """Copy records, because the function may change both of its arguments."""
        self._copies = True

    def first(self, value: Any) -> Any:
        """Return the record itself."""
        return detached(value) if self._copies else value

    def add(self, contents: Any, value: Any) -> Any:
        """Fold."""
        return self._reduce(contents, detached(value) if self._copies else value)

    def merge(self, contents: Any, other: Any) -> Any:
        """Fold."""
        return self._reduce(contents, other)


class FieldContents(ReducingContents):
    """One record with the aggregate in one of its fields."""

    function: FieldReduce

    def __init__(self, function: FieldReduce) -> None:
        super().__init__(function)  # the function rounds by itself

    def copy_records(self) -> None:
        """Do nothing: the aggregate is a separate record."""

    def first(self, value: Any) -> Any:
        """Return the record itself, if it has the field."""
        self.function.check(value)
        return super().first(value)


class AggregatingContents(WindowContents):
    """The accumulator of an aggregate function."""

    def __init__(self, function: Any) -> None:
        self.function = function
        #: adds a record to an accumulator and returns the accumulator
        self.accumulate: Callable[[Any, Any], Any] = function.add
        self._create = function.create_accumulator
        self._get_result = function.get_result

    def copy_records(self) -> None:
        """Copy records: the accumulator may be or contain a record, and the function may change it."""
        add = self.function.add
        self.accumulate = lambda value, accumulator: add(detached(value), accumulator)

    def first(self, value: Any) -> Any:
        """Return a new accumulator with the record."""
        return self.accumulate(value, self._create())

    def add(self, contents: Any, value: Any) -> Any:
        """Add the record."""
        return self.accumulate(value, contents)

    def merge(self, contents: Any, other: Any) -> Any:
        """Merge the accumulators."""
        return self.function.merge(contents, other)

    def result(self, contents: Any) -> Any:
        """Return the function's result."""
        return self._get_result(contents)

    def result_function(self) -> Callable[[Any], Any]:
        """Return the user's own `get_result`."""
        function: Callable[[Any], Any] = self._get_result
        return function

    def __reduce__(self) -> Any:
        return (AggregatingContents, (self.function,))


class ListContents(WindowContents):
    """A list of all records."""

    def first(self, value: Any) -> Any:
        """Return a list with the record."""
        return [value]

    def add(self, contents: Any, value: Any) -> Any:
        """Append."""
        contents.append(value)
        return contents

    def merge(self, contents: Any, other: Any) -> Any:
        """Concatenate."""
        return [*contents, *other]


class WindowEnvironment:
    """The part of the operator that window function contexts can reach; `states` is None if windows merge."""

    def __init__(self, context: OperatorContext, tokens: WindowTokens, states: WindowStates | None) -> None:
        self.now_ms: Callable[[], int] = context.clock.now_ms
        self.global_state = KeyedStateStore(context)
        self._tokens = tokens
        self._states = states

    def open_window_state(self, window: Any) -> WindowStateStore:
        """Return the states of the current key and a window."""
        if self._states is None:
            raise StateError(
                "window_state() cannot be used with windows that merge, because a window may become part of another: "
                "use global_state()"
            )
        return WindowStateStore(self._states, self._tokens.to_token(window))


class WindowProcessContext(Generic[W]):
    """The context that a process window function receives besides key and records."""

    __slots__ = ("_environment", "_watermark", "_window")

    def __init__(self, window: W, watermark: int, environment: WindowEnvironment) -> None:
        self._window = window
        self._watermark = watermark
        self._environment = environment

    def window(self) -> W:
        """Return the window that fires or is cleaned up."""
        return self._window

    def current_watermark(self) -> int:
        """Return the event time in ms."""
        return self._watermark

    def current_processing_time(self) -> int:
        """Return the processing time in ms."""
        return self._environment.now_ms()

    def window_state(self) -> KeyedStateStore:
        """Return the state of this key and window, to be removed in `clear`. Not for merging windows."""
        return self._environment.open_window_state(self._window)

    def global_state(self) -> KeyedStateStore:
        """Return the state of this key across all windows."""
        return self._environment.global_state


class WindowResult(ABC):
    """Handles a window's result when it fires; `is_list`: whether the result is the list of its records."""

    def __init__(self, function: Any, is_list: bool) -> None:
        self.function = function
        self.is_list = is_list

    @abstractmethod
    def call(self, window: Any, watermark: int, environment: WindowEnvironment) -> Call:
        """Return the call to make for each key of a firing window."""

    def emit(
        self, key: Any, window: Any, result: Any, watermark: int, environment: WindowEnvironment
    ) -> Iterable[Any] | None:
        """Return the records to emit for one key."""
        call, beside = self.call(window, watermark, environment)
        emitted = call(key, beside, result if self.is_list else [result])
        return None if emitted is None else check_results(emitted, call)

    def clear(self, window: Any, watermark: int, environment: WindowEnvironment) -> None:  # noqa: B027 - a hook
        """Clean up after the window."""


class ProcessResult(WindowResult):
    """A `ProcessWindowFunction`."""

    def call(self, window: Any, watermark: int, environment: WindowEnvironment) -> Call:
        """Return the function, with a context."""
        return self.function.process, WindowProcessContext(window, watermark, environment)

    def clear(self, window: Any, watermark: int, environment: WindowEnvironment) -> None:
        """Let the function remove the window's state."""
        clear = getattr(self.function, "clear", None)
        if clear is not None:
            clear(WindowProcessContext(window, watermark, environment))


class ProcessAllResult(ProcessResult):
    """A `ProcessAllWindowFunction`."""

    def call(self, window: Any, watermark: int, environment: WindowEnvironment) -> Call:
        """Return the function, with a context and without the key."""
        return _without_key(self.function.process), WindowProcessContext(window, watermark, environment)


class ApplyResult(WindowResult):
    """A `WindowFunction`."""

    def call(self, window: Any, watermark: int, environment: WindowEnvironment) -> Call:
        """Return the function, with the window."""
        return method(self.function, "apply"), window


class ApplyAllResult(ApplyResult):
    """An `AllWindowFunction`."""

    def call(self, window: Any, watermark: int, environment: WindowEnvironment) -> Call:
        """Return the function, with the window and without the key."""
        return _without_key(method(self.function, "apply")), window


def _without_key(function: Callable[[Any, list[Any]], Iterable[Any] | None]) -> Callable[[Any, Any, list[Any]], Any]:
    @wraps(function)
    def call(key: Any, beside: Any, records: list[Any]) -> Iterable[Any] | None:
        return function(beside, records)

    return call


class WindowOperatorBase(FunctionOperator):
    """Base class of `AlignedWindowOperator`, `SessionWindowOperator` and the general `WindowOperator`."""

    #: Whether windows may merge.
    merges = False

    is_keyed = True

    def __init__(
        self,
        key_selector: Callable[[Any], Any],
        contents: WindowContents,
        result: WindowResult | None,
        allowed_lateness_ms: int,
        late_tag: str | None,
    ) -> None:
        super().__init__(contents.function)
        self._key_selector = key_selector
        self._contents = contents
        self._result = result
        self._lateness_ms = allowed_lateness_ms
        self._late_tag = late_tag
        self._watermark = MIN_TIMESTAMP
        #: whether state, or another window, still has the contents of a window that has fired
        self._keeps_fired = allowed_lateness_ms > 0
        self._fired = Results()
        self._late: list[Any] = []
        self._late_times: list[int] = []

    def share_records(self) -> None:
        """Copy records and results, because windows may share a record or fire several times."""
        self._keeps_fired = True
        self._contents.copy_records()

    def user_functions(self) -> tuple[Any, ...]:
        """Return the aggregating function and the window function."""
        return (self.function, self._result and self._result.function)

    def late_outputs(self) -> tuple[str, ...]:
        """Return the tag of the operator's late-record output, if it has one."""
        return () if self._late_tag is None else (self._late_tag,)

    def initialize_state(self) -> None:
        """Create the environment of the window function's contexts."""
        super().initialize_state()
        states = None if self.merges else WindowStates(self.context, WINDOW_STATES)
        self._environment = WindowEnvironment(self.context, self.window_tokens(), states)

    def window_tokens(self) -> WindowTokens:
        """Return the converter between windows and their tokens in state."""
        return WindowTokens(None)

    def open(self) -> None:
        """Open both user functions."""
        super().open()
        opener = getattr(self._result and self._result.function, "open", None)
        if opener is not None:
            self.call_user(opener, self.runtime_context(), what="open()")
        self._check = ResultCheck(self)

    def close(self) -> None:
        """Close both user functions."""
        opened = self._opened
        super().close()
        closer = getattr(self._result and self._result.function, "close", None)
        if closer is not None and opened:
            self.call_user(closer, what="close()")

    def end_keys(self) -> None:
        """Fire all windows."""
        super().end_keys()
        self._watermark = MIN_TIMESTAMP

    def advance_keys(self, timestamp: int) -> None:
        """Fire the windows that are due."""
        before = self._watermark
        self.process_watermark(timestamp)
        self._watermark = before

    def require_timestamps(self, batch: Batch) -> list[int]:
        """Return the batch's timestamps; raises if its records have none."""
        if batch.timestamps is None:
            raise WrongTypeError(
                f"{self.context.operator_name}: event-time windows need timestamps, but these records have none; give "
                "the source a WatermarkStrategy with a timestamp assigner, or call assign_timestamps_and_watermarks "
                "before key_by"
            )
        return batch.timestamps

    def fire_all(self, start: int, end: int, pane: Mapping[Any, Any]) -> None:
        """Collect a window's results for all its keys, to be emitted next.

        Raises:
            UserCodeError: if a function raises.
        """
        keyed, copy_result, results = self.context.keyed, self._result_function(), self._fired
        append, extend, is_close = results.values.append, results.values.extend, self._check.is_close()
        key: Any = None
        try:
            if self._result is None:
                for key, contents in pane.items():  # noqa: B007 - an error names it
                    append(copy_result(contents))
            else:
                is_list = self._result.is_list
                call, beside = self._result.call(TimeWindow(start, end), self._watermark, self._environment)
                for key, contents in pane.items():
                    keyed.current_key = key
                    result = copy_result(contents)
                    emitted = call(key, beside, result if is_list else [result])
                    if emitted is None:
                        continue
                    if emitted.__class__ is list and not is_close:
                        extend(emitted)
                        continue
                    if emitted.__class__ is not GeneratorType and emitted.__class__ is not list:
                        emitted = check_results(emitted, call)
                    if is_close:
                        results.take(emitted)
                        continue
                    for record in emitted:
                        if record.__class__ not in TRUSTED and not can_never_change(record):
                            results.has_mixed = True
                            record = as_emitted(record, emitted)
                        append(record)
        except Exception as error:
            raise self.failed(("window of key", key)) from error
        results.add_times(end - 1)
        self.context.fired_timers += len(pane)

    def fire(self, key: Any, start: int, end: int, contents: Any) -> None:
        """Collect a window's result, to be emitted next."""
        result = self._result_function()(contents)
        if self._result is None:
            self._fired.values.append(result)
            self._fired.times.append(end - 1)
        else:
            self.emit_result(key, TimeWindow(start, end), result)

    def _result_function(self) -> Callable[[Any], Any]:
        """Return the function from a window's contents to its result, as a copy if the contents stay in state."""
        return self.copy_result if self._keeps_fired else self._contents.result_function()

    def copy_result(self, contents: Any) -> Any:
        """Return a window's result as a copy, because the window keeps its contents."""
        return detached(self._contents.result(contents))

    def emit_result(self, key: Any, window: Any, result: Any) -> None:
        """Apply the window function to a window's result, and collect its output to be emitted next."""
        if self._result is None:
            self._fired.values.append(result)
        else:
            self.context.keyed.current_key = key
            emitted = self._result.emit(key, window, result, self._watermark, self._environment)
            if emitted is not None:
                self._fired.take(emitted)
        self._fired.add_times(window.max_timestamp())

    def is_late(self, end: int) -> bool:
        """Return whether a window has already been cleaned up."""
        return end - 1 + self._lateness_ms <= self._watermark

    def late_record(self, value: Any, timestamp: int) -> None:
        """Collect a record whose windows have all been cleaned up."""
        self._late.append(value)
        self._late_times.append(timestamp)

    def emit_collected(self) -> None:
        """Emit the collected results and late records."""
        self.context.keyed.current_key = NO_KEY
        if self._fired.values:
            fired, self._fired = self._fired, Results()
            self._check.note(fired)
            fired.emit(self.output, is_timed=True)
        if self._late:
            late, late_times = self._late, self._late_times
            self._late, self._late_times = [], []
            if self._late_tag is None:
                self.context.count(LATE_RECORDS, len(late))
            else:
                self.output.collect_side(self._late_tag, Batch(late, late_times))
