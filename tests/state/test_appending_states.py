"""States of which user code need only know that values are added to them."""

from __future__ import annotations

import pytest
from tests.state.rocks import FolderRocks

from penstock.base.typeinfo import Types
from penstock.datastream.functions import ReduceFunction
from penstock.datastream.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    AppendingState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    MergingState,
    ReducingState,
    ReducingStateDescriptor,
    State,
    StateDescriptor,
    StateTtlConfig,
    ValueState,
    ValueStateDescriptor,
)
from penstock.state.backend import HeapKeyedStateBackend, KeyedStateBackend
from penstock.state.views import open_aggregating_state, open_list_state, open_reducing_state


class Total:
    """Sums up."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + value

    def get_result(self, accumulator: int) -> int:
        return accumulator


@pytest.mark.parametrize("make", [HeapKeyedStateBackend, FolderRocks])
@pytest.mark.parametrize("expires", [False, True])
def test_list_reducing_and_aggregating_states_are_appended_to(make: type[KeyedStateBackend], expires: bool) -> None:
    """D1: all of them are merging states, with `add`, `get` and `clear`, on each backend, expiring or not."""
    backend = make(128, "Op")
    backend.now_ms = lambda: 1_000
    backend.current_key = "k"
    items = ListStateDescriptor("items")
    most = ReducingStateDescriptor("most", max)
    total = AggregatingStateDescriptor("total", Total())
    if expires:
        for descriptor in (items, most, total):
            descriptor.enable_time_to_live(StateTtlConfig.new_builder(10).build())
    states: list[AppendingState[int, object]] = [
        open_list_state(backend, items),
        open_reducing_state(backend, most),
        open_aggregating_state(backend, total),
    ]
    for state in states:
        for number in (3, 4):
            state.add(number)
        assert isinstance(state, MergingState)
    listed, *folded = (state.get() for state in states)
    assert list(listed) == [3, 4]  # type: ignore[call-overload]
    assert folded == [4, 7]
    for state in states:
        state.clear()
    listed, *folded = (state.get() for state in states)
    assert list(listed) == []  # type: ignore[call-overload]
    assert folded == [None, None]
    backend.close()


def test_value_and_map_states_are_not() -> None:
    """D1: a value is updated, and a map is put into."""
    assert not issubclass(ValueState, AppendingState)
    assert not issubclass(MapState, AppendingState)


def test_a_descriptor_tells_what_it_declares() -> None:
    """D1: name and functions are those given, whatever the kind of state."""

    class Greatest(ReduceFunction):
        def reduce(self, value1: int, value2: int) -> int:
            return max(value1, value2)

    total, greatest = Total(), Greatest()
    reducing = ReducingStateDescriptor(name="s", reduce_function=greatest, type_info=Types.INT())
    aggregating = AggregatingStateDescriptor(name="s", agg_function=total, state_type_info=Types.INT())
    descriptors: list[StateDescriptor] = [
        ValueStateDescriptor(name="s", value_type_info=Types.INT()),
        ListStateDescriptor(name="s", elem_type_info=Types.INT()),
        MapStateDescriptor(name="s", key_type_info=Types.STRING(), value_type_info=Types.INT()),
        reducing,
        aggregating,
    ]
    for descriptor in descriptors:
        assert isinstance(descriptor, StateDescriptor)
        assert descriptor.get_name() == "s"
    assert reducing.get_reduce_function() is greatest
    assert aggregating.get_agg_function() is total
    assert ReducingStateDescriptor("s", max, Types.INT()).get_reduce_function() is max


def test_reducing_and_aggregating_states_are_of_the_declared_classes() -> None:
    """D1: what is asked for by a descriptor can be annotated with PyFlink's class of the state."""
    backend = HeapKeyedStateBackend(128, "Op")
    backend.current_key = "k"
    most = open_reducing_state(backend, ReducingStateDescriptor("most", max, Types.INT()))
    total = open_aggregating_state(backend, AggregatingStateDescriptor("total", Total(), Types.INT()))
    assert isinstance(most, ReducingState)
    assert isinstance(total, AggregatingState)
    assert (most.get(), total.get()) == (None, None)
    for state in (most, total):
        assert isinstance(state, State)
        state.add(2)
        state.add(1)
    assert (most.get(), total.get()) == (2, 3)
    most.clear()
    assert most.get() is None
