"""States of which user code need only know that values are added to them."""

from __future__ import annotations

import pytest
from tests.state.rocks import FolderRocks

from penstock.datastream.state import (
    AggregatingStateDescriptor,
    AppendingState,
    ListStateDescriptor,
    MapState,
    MergingState,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueState,
)
from penstock.state.backend import KeyedStateBackend
from penstock.state.heap import HeapKeyedStateBackend
from penstock.state.ttl.states import open_aggregating_state, open_list_state, open_reducing_state


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
