"""Keyed states whose declared type holds a FLOAT: what is put into them is rounded to single precision.

It is a view around the state that the backend gives, with or without time-to-live. States of other types are handed on
as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from typing import Any, TypeVar

from penstock.base.single_precision import Rounding, rounding
from penstock.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from penstock.state.states import AggregatingState, ListState, MapState, ReducingState, StateView, ValueState

D = TypeVar("D", bound=StateDescriptor)


def single_value_state(descriptor: ValueStateDescriptor, state: ValueState[Any]) -> ValueState[Any]:
    """The state, or the view that rounds."""
    made = rounding(descriptor.type_info)
    return state if made is None else _Value(state, made)


def single_list_state(descriptor: ListStateDescriptor, state: ListState[Any]) -> ListState[Any]:
    """The state, or the view that rounds."""
    made = rounding(descriptor.type_info)
    return state if made is None else _List(state, made)


def single_map_state(descriptor: MapStateDescriptor, state: MapState[Any, Any]) -> MapState[Any, Any]:
    """The state, or the view that rounds."""
    keys, values = rounding(descriptor.key_type_info), rounding(descriptor.type_info)
    return state if keys is None and values is None else _Map(state, keys or _as_it_is, values or _as_it_is)


def single_reducing_state(
    descriptor: ReducingStateDescriptor, open_state: Callable[[ReducingStateDescriptor], ReducingState[Any]]
) -> ReducingState[Any]:
    """The state that `open_state` gives, or the view that rounds each value and what they are folded to."""
    made = rounding(descriptor.type_info)
    if made is None:
        return open_state(descriptor)
    rounded, reduce = copy(descriptor), descriptor.reduce_function
    rounded.reduce_function = lambda one, other: made(reduce(one, other))
    return _Reducing(open_state(rounded), made)


def single_aggregating_state(
    descriptor: AggregatingStateDescriptor,
    open_state: Callable[[AggregatingStateDescriptor], AggregatingState[Any, Any]],
) -> AggregatingState[Any, Any]:
    """The state that `open_state` gives, or one whose accumulators are rounded."""
    made = rounding(descriptor.type_info)
    if made is None:
        return open_state(descriptor)
    rounded = copy(descriptor)
    rounded.agg_function = _Aggregate(descriptor.agg_function, made)
    return open_state(rounded)


def _as_it_is(value: Any) -> Any:
    return value


class _Value(ValueState[Any]):
    __slots__ = ("_round", "_state")

    def __init__(self, state: ValueState[Any], made: Rounding) -> None:
        self._state = state
        self._round = made

    def value(self) -> Any:
        return self._state.value()

    def update(self, value: Any) -> None:
        self._state.update(self._round(value))

    def clear(self) -> None:
        self._state.clear()

    def sample(self) -> Iterable[Any]:
        return self._state.sample()


class _List(ListState[Any]):
    __slots__ = ("_round", "_state")

    def __init__(self, state: ListState[Any], made: Rounding) -> None:
        self._state = state
        self._round = made

    def get(self) -> list[Any]:
        return self._state.get()

    def add(self, value: Any) -> None:
        self._state.add(self._round(value))

    def add_all(self, values: Iterable[Any]) -> None:
        self._state.add_all(list(map(self._round, values)))

    def update(self, values: Iterable[Any]) -> None:
        self._state.update(list(map(self._round, values)))

    def clear(self) -> None:
        self._state.clear()

    def sample(self) -> Iterable[Any]:
        return self._state.sample()


class _Map(MapState[Any, Any]):
    __slots__ = ("_key", "_state", "_value")

    def __init__(self, state: MapState[Any, Any], key: Rounding, value: Rounding) -> None:
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

    def items(self) -> StateView[tuple[Any, Any]]:
        return self._state.items()

    def keys(self) -> StateView[Any]:
        return self._state.keys()

    def values(self) -> StateView[Any]:
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


class _Reducing(ReducingState[Any]):
    __slots__ = ("_round", "_state")

    def __init__(self, state: ReducingState[Any], made: Rounding) -> None:
        self._state = state
        self._round = made

    def get(self) -> Any:
        return self._state.get()

    def add(self, value: Any) -> None:
        self._state.add(self._round(value))

    def clear(self) -> None:
        self._state.clear()

    def sample(self) -> Iterable[Any]:
        return self._state.sample()


class _Aggregate:
    """An aggregate function whose accumulators are rounded."""

    def __init__(self, function: Any, made: Rounding) -> None:
        self._function = function
        self._round = made
        self.get_result = function.get_result

    def create_accumulator(self) -> Any:
        return self._round(self._function.create_accumulator())

    def add(self, value: Any, accumulator: Any) -> Any:
        return self._round(self._function.add(value, accumulator))

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return self._round(self._function.merge(acc_a, acc_b))
