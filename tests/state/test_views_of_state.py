"""Lists and maps in state: what reading them returns, how often it can be read, and what later changes do to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.state.rocks import FolderRocks

from penstock.base.typeinfo import Types
from penstock.runtime.operators.window.base import WindowListState, WindowMapState, open_runtime_map
from penstock.state.backend import HeapKeyedStateBackend, KeyedStateBackend
from penstock.state.operator_state import BroadcastState
from penstock.state.rocksdb.backend import RocksDBKeyedStateBackend
from penstock.state.states import (
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    StateDescriptor,
    StateView,
)
from penstock.state.ttl_config import StateTtlConfig
from penstock.state.views import declared_list_state, declared_map_state, open_list_state, open_map_state

#: More entries than a RocksDB map reads at once.
MANY = 700
BACKENDS = {"heap": HeapKeyedStateBackend, "rocksdb": FolderRocks}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Iterator[KeyedStateBackend]:
    """A backend with a current key."""
    made: KeyedStateBackend = BACKENDS[request.param](128, "Op")
    made.now_ms = lambda: 1_000
    made.current_key = "k"
    yield made
    made.close()


def expiring(descriptor: Any) -> Any:
    descriptor.enable_time_to_live(
        StateTtlConfig.new_builder(10).set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite).build()
    )
    return descriptor


def windows(backend: KeyedStateBackend) -> MapState[Any, Any]:
    return open_runtime_map(backend, "window-state:s")


Open = Callable[[KeyedStateBackend], Any]
LISTS: dict[str, Open] = {
    "plain": lambda backend: open_list_state(backend, ListStateDescriptor("s")),
    "expiring": lambda backend: open_list_state(backend, expiring(ListStateDescriptor("s"))),
    "rounded": lambda backend: rounded(backend, ListStateDescriptor("s", Types.FLOAT()), declared_list_state),
    "of a window": lambda backend: WindowListState(windows(backend), (0, 10)),
}
MAPS: dict[str, Open] = {
    "plain": lambda backend: open_map_state(backend, MapStateDescriptor("s")),
    "expiring": lambda backend: open_map_state(backend, expiring(MapStateDescriptor("s"))),
    "rounded": lambda backend: rounded(backend, MapStateDescriptor("s", None, Types.FLOAT()), declared_map_state),
    "of a window": lambda backend: WindowMapState(windows(backend), (0, 10)),
}


def rounded(backend: KeyedStateBackend, descriptor: StateDescriptor, wrap: Callable[[Any, Any], Any]) -> Any:
    opened = open_map_state if isinstance(descriptor, MapStateDescriptor) else open_list_state
    return wrap(descriptor, opened(backend, descriptor))  # type: ignore[arg-type]


def put_aside(backend: KeyedStateBackend) -> None:
    """Let RocksDB write all entries, so that none is in memory."""
    if isinstance(backend, RocksDBKeyedStateBackend):
        cache = backend._open()
        cache.flush()
        cache.turn()
        cache.turn()


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("is_aside", [False, True])
def test_a_list_may_be_read_twice(backend: KeyedStateBackend, kind: str, is_aside: bool) -> None:
    """D1: `get` returns a list, on every backend, so a mean is one even if two passes compute it."""
    state: ListState[Any] = LISTS[kind](backend)
    assert state.get() == []
    state.add_all([10, 20, 30])
    if is_aside:
        put_aside(backend)
    values = state.get()
    count = sum(1 for _ in values)
    assert (sum(values) / count, len(values), values[0], list(state)) == (20.0, 3, 10, [10, 20, 30])


@pytest.mark.parametrize("kind", LISTS)
def test_a_list_that_was_read_is_the_readers_own(backend: KeyedStateBackend, kind: str) -> None:
    """D1: changes of the state do not reach it, and changes of it do not reach the state."""
    state: ListState[Any] = LISTS[kind](backend)
    state.add_all([1, 2])
    before = state.get()
    state.add(3)
    assert before == [1, 2]
    before.clear()
    assert state.get() == [1, 2, 3]
    state.get().sort(reverse=True)
    assert state.get() == [1, 2, 3]
    after = state.get()
    state.clear()
    assert (after, state.get()) == ([1, 2, 3], [])


@pytest.mark.parametrize("kind", LISTS)
def test_a_list_may_grow_while_it_is_read(backend: KeyedStateBackend, kind: str) -> None:
    """D1: the loop sees what was there when it began, and ends."""
    state: ListState[Any] = LISTS[kind](backend)
    state.add_all([1, 2])
    for value in state.get():
        state.add(value)
    assert state.get() == [1, 2, 1, 2]
    for value in state:
        state.add(value)
    assert len(state.get()) == 8
    state.add_all(state.get())
    assert len(state.get()) == 16
    state.add_all(value for value in state)
    assert len(state.get()) == 32
    state.update(value + 1 for value in state.get()[:2])
    assert state.get() == [2, 3]
    state.update(state.get())
    assert state.get() == [2, 3]


@pytest.mark.parametrize("kind", LISTS)
def test_adding_all_adds_nothing_when_the_values_raise(backend: KeyedStateBackend, kind: str) -> None:
    """D1: an iterable that raises half-way leaves the list as it was, on every backend."""
    state: ListState[Any] = LISTS[kind](backend)
    state.add(0)

    def values() -> Iterator[int]:
        yield 1
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        state.add_all(values())
    assert state.get() == [0]


@pytest.mark.parametrize("kind", MAPS)
@pytest.mark.parametrize("size", [4, MANY])
@pytest.mark.parametrize("is_aside", [False, True])
def test_views_of_a_map_may_be_read_twice(backend: KeyedStateBackend, kind: str, size: int, is_aside: bool) -> None:
    """D1: keys, items and values are views of one kind on every backend, which end and begin again."""
    state: MapState[Any, Any] = MAPS[kind](backend)
    assert not state.keys()
    state.put_all({number: number * 10 for number in range(size)})
    if is_aside:
        put_aside(backend)
    keys, values, items = state.keys(), state.values(), state.items()
    for view in (keys, values, items):
        assert type(view) is StateView
        assert view
        assert len(view) == size
        assert list(view) == list(view)
    assert dict(items) == dict(zip(keys, values, strict=True)) == {number: number * 10 for number in range(size)}
    assert sum(values) / sum(1 for _ in values) == (size - 1) * 5
    next(iter(items))
    begun = iter(items)
    first = next(begun)
    assert sorted([first, *begun]) == sorted(items), "a pass that another one interrupts goes on"
    assert [3 in keys, 30 in values, (2, 20) in items] == [True] * 3
    assert [size in keys, 31 in values, (2, 21) in items] == [False] * 3
    assert sorted(state) == list(range(size))


@pytest.mark.parametrize("kind", MAPS)
@pytest.mark.parametrize("size", [4, MANY])
@pytest.mark.parametrize("is_aside", [False, True])
def test_views_of_a_map_stay_as_they_are(backend: KeyedStateBackend, kind: str, size: int, is_aside: bool) -> None:
    """D1: a view shows the map as it was when it was asked for, whatever changes afterwards, also during a pass."""
    state: MapState[Any, Any] = MAPS[kind](backend)
    state.put_all(dict.fromkeys(range(size), 1))
    if is_aside:
        put_aside(backend)
    keys, items, values = state.keys(), state.items(), state.values()
    state.put(-1, 2)
    state.put(0, 2)
    state.remove(1)
    put_aside(backend)
    for view in (keys, values, items):
        assert len(view) == size
    assert sorted(keys) == list(range(size))
    assert set(values) == {1}
    assert dict(items) == dict.fromkeys(range(size), 1)
    for key, value in state.items():
        state.put(("copy", key), value)
        state.remove(key)
    assert len(state.keys()) == size
    before = state.items()
    state.clear()
    assert (len(before), list(state.items())) == (size, [])


def test_a_view_shows_some_of_what_it_lists() -> None:
    """D1: in a debugger a view of a large map does not read all of it."""
    backend = HeapKeyedStateBackend(128)
    backend.current_key = "k"
    state = backend.map_state(MapStateDescriptor("m"))
    state.put("a", 1)
    assert repr(state.items()) == "StateView([('a', 1)])"
    state.put_all(dict.fromkeys(range(100)))
    assert repr(state.keys()).endswith("18, ...])")


def test_views_of_broadcast_state_stay_as_they_are() -> None:
    """D2: the side that writes and the side that reads get the views that keyed state has."""
    state: BroadcastState[Any, Any] = BroadcastState("rules")
    for side in (state, state.read_only()):
        state.clear()
        assert not side.values()
        state.put("a", 1)
        state.put("b", 2)
        keys, values, items = side.keys(), side.values(), side.items()
        for key, value in state.items():
            state.put(key * 2, value)
            state.remove(key)
        for view in (keys, values, items):
            assert isinstance(view, StateView)
            assert (len(view), list(view)) == (2, list(view))
        assert dict(items) == dict(zip(keys, values, strict=True)) == {"a": 1, "b": 2}
        assert dict(side.items()) == {"aa": 1, "bb": 2}
        state.restore([("c", 3)])
        del state["aa"]
        assert list(side) == ["bb", "c"]
