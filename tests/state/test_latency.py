"""Timing of accesses to state: of each backend's states, of one of some calls (A1)."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from penstock.state.backend import HeapKeyedStateBackend
from penstock.state.states import (
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateLatency,
    ValueState,
    ValueStateDescriptor,
)


def clock() -> Any:
    """Each look at it is 10 ns after the one before."""
    return count(step=10).__next__


@pytest.fixture
def backend() -> HeapKeyedStateBackend:
    made = HeapKeyedStateBackend(8)
    made.current_key = "a"
    return made


def test_a_followed_state_works_as_ever(backend: HeapKeyedStateBackend) -> None:
    latency = StateLatency(1, 8, clock())
    value = latency.follow("v", backend.value_state(ValueStateDescriptor("v")))
    value.update(3)
    assert value.value() == 3
    items = latency.follow("l", backend.list_state(ListStateDescriptor("l")))
    items.add(1)
    items.add_all([2, 3])
    assert list(items.get()) == list(items) == [1, 2, 3]
    pairs = latency.follow("m", backend.map_state(MapStateDescriptor("m")))
    pairs["x"] = 1
    assert (pairs["x"], "x" in pairs, dict(pairs.items())) == (1, True, {"x": 1})
    least = latency.follow("r", backend.reducing_state(ReducingStateDescriptor("r", min)))
    least.add(4)
    assert least.get() == 4
    assert [type(one) for one in (value, items, pairs)] != [ValueState, ListState, MapState]
    assert isinstance(pairs, MapState)
    assert {name for name, figures in latency.figures().items() if figures[2] == 10} == {
        *("v.valueStateUpdateLatency", "v.valueStateGetLatency"),
        *("l.listStateAddLatency", "l.listStateAddAllLatency", "l.listStateGetLatency"),
        *("m.mapStatePutLatency", "m.mapStateGetLatency", "m.mapStateContainsLatency", "m.mapStateEntriesInitLatency"),
        *("r.reducingStateAddLatency", "r.reducingStateGetLatency"),
    }


def test_one_of_some_calls_is_timed_and_others_states_are_not(backend: HeapKeyedStateBackend) -> None:
    latency = StateLatency(3, 2, clock())
    followed = latency.follow("v", backend.value_state(ValueStateDescriptor("v")))
    other = backend.value_state(ValueStateDescriptor("w"))
    assert type(other) is ValueState
    for number in range(10):
        followed.update(number)
        other.update(number)
    assert latency.figures()["v.valueStateUpdateLatency"][0] == 4
    assert list(latency.figures()) == ["v.valueStateUpdateLatency"]


def test_a_call_that_raises_is_timed_too(backend: HeapKeyedStateBackend) -> None:
    latency = StateLatency(1, 8, clock())
    function = AggregatingStateDescriptor("g", None)
    state = latency.follow("g", backend.aggregating_state(function))
    with pytest.raises(AttributeError):
        state.add(1)
    assert latency.figures()["g.aggregatingStateAddLatency"][0] == 1
