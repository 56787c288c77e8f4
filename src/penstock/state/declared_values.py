"""Keyed states of a declared type: the values follow the type, see `base.declared_values`.

Rows with names get the type's field order, and a FLOAT has single precision. A view around the backend's state does
this, with or without time-to-live. States of types that contain neither get no view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from typing import Any, TypeVar

from penstock.base.declared_values import Change, fitting
from penstock.state import states

D = TypeVar("D", bound=states.StateDescriptor)


def declared_value_state(
    descriptor: states.ValueStateDescriptor, state: states.ValueState[Any]
) -> states.ValueState[Any]:
    """Return the state, or the view whose values follow the type."""
    change = fitting(descriptor.type_info, True)
    return state if change is None else _Value(state, change)


def declared_list_state(descriptor: states.ListStateDescriptor, state: states.ListState[Any]) -> states.ListState[Any]:
    """Return the state, or the view whose values follow the type."""
    change = fitting(descriptor.type_info, True)
    return state if change is None else _List(state, change)


def declared_map_state(
    descriptor: states.MapStateDescriptor, state: states.MapState[Any, Any]
) -> states.MapState[Any, Any]:
    """Return the state, or the view whose values follow the type."""
    keys, values = fitting(descriptor.key_type_info, True), fitting(descriptor.type_info, True)
    return state if keys is None and values is None else _Map(state, keys or _as_it_is, values or _as_it_is)


def declared_reducing_state(
    descriptor: states.ReducingStateDescriptor,
    open_state: Callable[[states.ReducingStateDescriptor], states.ReducingState[Any]],
) -> states.ReducingState[Any]:
    """Return the state that `open_state` opens, or the view that converts each value and each result of the fold."""
    change = fitting(descriptor.type_info, True)
    if change is None:
        return open_state(descriptor)
    changed, reduce = copy(descriptor), descriptor.reduce_function
    changed.reduce_function = lambda left, right: change(reduce(left, right))
    return _Reducing(open_state(changed), change)


def declared_aggregating_state(
    descriptor: states.AggregatingStateDescriptor,
    open_state: Callable[[states.AggregatingStateDescriptor], states.AggregatingState[Any, Any]],
) -> states.AggregatingState[Any, Any]:
    """Return the state that `open_state` opens, or one whose accumulators follow the type."""
    change = fitting(descriptor.type_info, True)
    if change is None:
        return open_state(descriptor)
    changed = copy(descriptor)
    changed.agg_function = _Aggregate(descriptor.agg_function, change)
    return open_state(changed)


def _as_it_is(value: Any) -> Any:
    return value


class _Value(states.ValueState[Any]):
    __slots__ = ("_change", "_state")

    def __init__(self, state: states.ValueState[Any], change: Change) -> None:
        self._state = state
        self._change = change

    def value(self) -> Any:
        return self._state.value()

    def update(self, value: Any) -> None:
        self._state.update(self._change(value))

    def clear(self) -> None:
        self._state.clear()

    def sample(self) -> Iterable[Any]:
        return self._state.sample()


class _List(states.ListState[Any]):
    __slots__ = ("_change", "_state")

    def __init__(self, state: states.ListState[Any], change: Change) -> None:
        self._state = state
        self._change = change

    def get(self) -> list[Any]:
        return self._state.get()

    def add(self, value: Any) -> None:
        self._state.add(self._change(value))

    def add_all(self, values: Iterable[Any]) -> None:
        self._state.add_all(list(map(self._change, values)))

    def update(self, values: Iterable[Any]) -> None:
        self._state.update(list(map(self._change, values)))

    def clear(self) -> None:
        self._state.clear()

    def sample(self) -> Iterable[Any]:
        return self._state.sample()


class _Map(states.MapState[Any, Any]):
    __slots__ = ("_key", "_state", "_value")

    def __init__(self, state: states.MapState[Any, Any], key: Change, value: Change) -> None:
        self._state = state
        self._key = key
        self._value = value

    def get(self, key: Any) -> Any:
        return self._state.get(self._key(key))

    def put(self, key: Any, value: Any) -> None:
        self._state.put(self._key(key), self._value(value))

    def put_all(self, dict_value: dict[Any, Any]) -> None:
        self._state.put_all({self._key(key): self._value(value) for key, value in dict_value.items()})

    def remove(self, key: Any) -> None:
        self._state.remove(self._key(key))

    def contains(self, key: Any) -> bool:
        return self._state.contains(self._key(key))

    def items(self) -> states.StateView[tuple[Any, Any]]:
        return self._state.items()

    def keys(self) -> states.StateView[Any]:
        return self._state.keys()

    def values(self) -> states.StateView[Any]:
        return self._state.values()

    def is_empty(self) -> bool:
        return self._state.is_empty()

    def clear(self) -> None:
        self._state.clear()

    def sample(self) -> Iterable[Any]:
        return self._state.sample()

    def __getitem__(self, key: Any) -> Any:
        return self._state[self._key(key)]

    def __delitem__(self, key: Any) -> None:
        del self._state[self._key(key)]

    def __len__(self) -> int:
        return len(self._state)


class _Reducing(states.ReducingState[Any]):
    __slots__ = ("_change", "_state")

    def __init__(self, state: states.ReducingState[Any], change: Change) -> None:
        self._state = state
        self._change = change

    def get(self) -> Any:
        return self._state.get()

    def add(self, value: Any) -> None:
        self._state.add(self._change(value))

    def clear(self) -> None:
        self._state.clear()

    def sample(self) -> Iterable[Any]:
        return self._state.sample()


class _Aggregate:
    """An aggregate function whose accumulators follow the type."""

    def __init__(self, function: Any, change: Change) -> None:
        self._function = function
        self._change = change
        self.get_result = function.get_result

    def create_accumulator(self) -> Any:
        return self._change(self._function.create_accumulator())

    def add(self, value: Any, accumulator: Any) -> Any:
        return self._change(self._function.add(value, accumulator))

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return self._change(self._function.merge(acc_a, acc_b))
