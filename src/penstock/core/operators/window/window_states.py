"""State of a key and a window, for triggers and process window functions (C1, D1).

Each such state is a map state of the key, from a window's token to the content of a plain state. So it is stored,
restored, rescaled and converted like any map state, and a removed window leaves no state. If a descriptor has a time to
live, the state of a window expires as a whole, counted from its last change.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from penstock.base.errors import WrongTypeError
from penstock.base.typeinfo import Types
from penstock.core.operators.context import OperatorContext
from penstock.core.operators.runtime_context import KeyedStateStore
from penstock.core.windowing.windows import WindowToken
from penstock.state.backend import KeyedStateBackend
from penstock.state.declared_values import (
    declared_aggregating_state,
    declared_list_state,
    declared_map_state,
    declared_reducing_state,
    declared_value_state,
)
from penstock.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from penstock.state.states import AggregatingState, ListState, MapState, ReducingState, ValueState
from penstock.state.ttl.states import open_map_state

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
        return declared_value_state(state_descriptor, self._states.get(state_descriptor, self._token))

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return the list state of the window."""
        return declared_list_state(state_descriptor, self._states.get(state_descriptor, self._token))

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """Return the map state of the window."""
        return declared_map_state(state_descriptor, self._states.get(state_descriptor, self._token))

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """Return the reducing state of the window."""
        return declared_reducing_state(state_descriptor, lambda descriptor: self._states.get(descriptor, self._token))

    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]:
        """Return the aggregating state of the window."""
        return declared_aggregating_state(
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
