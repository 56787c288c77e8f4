"""The RocksDB backend by itself: states, the write cache and its settling points, timers, errors."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.state.rocks import GROUPS, TINY, exported, keyed, rocks

from penstock.runtime.operators.watermarks import TimerQueue
from penstock.state.errors import StateError
from penstock.state.rocksdb.backend import RocksDBKeyedStateBackend
from penstock.state.rocksdb.settings import RocksDBSettings
from penstock.state.snapshot import read_keyed
from penstock.state.states import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)

BIG = RocksDBSettings()


@pytest.fixture
def backend() -> Iterator[RocksDBKeyedStateBackend]:
    with rocks() as backend:
        yield backend


def forget(backend: RocksDBKeyedStateBackend) -> None:
    """Let go of all entries in memory."""
    for _ in range(2):
        assert backend._cache is not None
        backend._cache.turn()


def calls_of(backend: RocksDBKeyedStateBackend, name: str) -> list[bytes]:
    """What a method of the store is called with from now on."""
    assert backend._cache is not None
    store, calls = backend._cache.store, list[bytes]()
    method = getattr(store, name)

    def noted(row: bytes) -> Any:
        calls.append(row)
        return method(row)

    setattr(store, name, noted)
    return calls


def test_no_state_no_directory(tmp_path: Path) -> None:
    """D3: an operator without keyed state has nothing on the disk, and nothing to snapshot."""
    backend = RocksDBKeyedStateBackend(GROUPS, tmp_path / "state")
    backend.settle()
    assert backend.capture(1) == []
    backend.close()
    assert not (tmp_path / "state").exists()


def test_entries_survive_being_put_out_of_memory(backend: RocksDBKeyedStateBackend) -> None:
    """D3: a value is the same whether it was in memory, about to leave it, or only in the store."""
    state = backend.value_state(ValueStateDescriptor("v"))
    for key in range(1_000):
        keyed(backend, key)
        state.update({"n": key})
        backend.settle()
    for key in range(1_000):
        keyed(backend, key)
        assert state.value() == {"n": key}
        backend.settle()
    assert len(backend.table("v").entries(None).in_memory()) < 5


def test_between_settling_points_a_value_is_one_object(backend: RocksDBKeyedStateBackend) -> None:
    """D3: however full the cache is, what was handed out stays the state's own object until the next settling point,
    and may be marked at any time before it."""
    table = backend.table("t")
    entries, changed = table.entries(None), table.changed(None)
    for key in range(100):
        entries[key] = [key]
        changed.add(key)
    forget(backend)
    first = entries[0]
    for key in range(100):
        assert entries[key] == [key]
    assert entries[0] is first
    first.append("in place")
    changed.add(0)
    forget(backend)
    assert entries[0] == [0, "in place"]
    assert entries[0] is not first


def test_hot_entries_are_not_serialised() -> None:
    """D3: an entry that is asked for again and again stays in memory while others come and go."""

    class Counted:
        pickled = 0

        def __reduce__(self) -> Any:
            Counted.pickled += 1
            return str, ("hot",)

    with rocks(RocksDBSettings(cache_bytes=30_000)) as backend:
        state = backend.value_state(ValueStateDescriptor("v"))
        for key in range(5_000):
            keyed(backend, "hot")
            state.update(Counted() if key == 0 else state.value())
            keyed(backend, key)
            state.update("cold")
            backend.settle()
        assert Counted.pickled == 0
        backend.capture(1)
        assert Counted.pickled == 1


def test_cleared_while_a_stale_copy_is_in_the_old_generation(backend: RocksDBKeyedStateBackend) -> None:
    """D1: a value that was replaced without being read, and then cleared, does not come back."""
    state = backend.value_state(ValueStateDescriptor("v"))
    keyed(backend, "k")
    state.update(1)
    assert backend._cache is not None
    backend._cache.turn()
    state.update(2)
    state.clear()
    assert state.value() is None
    forget(backend)
    assert state.value() is None


def test_cleared_after_it_was_written_by_a_checkpoint(backend: RocksDBKeyedStateBackend) -> None:
    """D1, G7: what a checkpoint wrote can be cleared, though the store lacked it when it was first looked for."""
    state = backend.value_state(ValueStateDescriptor("v"))
    keyed(backend, "other")
    state.update(0)
    backend.capture(1)
    keyed(backend, "k")
    assert state.value() is None
    state.update(1)
    backend.capture(2)
    state.clear()
    forget(backend)
    assert state.value() is None
    assert read_keyed(exported(backend)["v"], 0, GROUPS - 1) == {None: {"other": 0}}


def test_short_lived_namespaces_never_reach_the_store() -> None:
    """C1: a window or timer that comes and goes within the cache costs the store nothing."""
    with rocks(BIG) as backend:
        table = backend.table("windows")
        for start in range(200):
            pane = table.entries((start, start + 10))
            pane["k"] = start
            table.changed((start, start + 10)).add("k")
            if start >= 5:
                assert table.drop((start - 5, start + 5)) == {"k": start - 5}
            backend.settle()
        assert list(table.panes) == [(start, start + 10) for start in range(195, 200)]
        backend.capture(1)
        assert sum(1 for _ in backend._open().store.scan(b"\x00")) == 5


def test_big_namespace_is_gone_through_without_loading_it(backend: RocksDBKeyedStateBackend) -> None:
    """C1: the entries of a window that fires come one after the other out of the store."""
    table = backend.table("windows")
    pane, changed = table.entries((0, 10)), table.changed((0, 10))
    for key in range(3_000):
        pane[key] = [key]
        changed.add(key)
        backend.settle()
    dropped = table.drop((0, 10))
    again = table.entries((0, 10))
    again["new"] = 1
    table.changed((0, 10)).add("new")
    assert len(dropped) == 3_000
    assert sum(key for key, _ in dropped.items()) == sum(range(3_000))
    assert sorted(dropped.values()) == [[key] for key in range(3_000)]
    assert (dropped[17], 17 in dropped, "new" in dropped, dropped.get("new")) == ([17], True, False, None)
    assert dict(again) == {"new": 1}
    assert dropped == {key: [key] for key in range(3_000)}
    forget(backend)
    assert read_keyed(exported(backend)["windows"], 0, GROUPS - 1) == {(0, 10): {"new": 1}}


def test_a_pane_that_is_held_is_the_one_that_is_found(backend: RocksDBKeyedStateBackend) -> None:
    """C1: whoever holds on to a namespace's entries sees the changes of whoever asks for them later."""
    table = backend.table("windows")
    held = table.entries(5)
    forget(backend)
    assert table.panes.get(5) is None
    assert table.entries(5) is held
    held["a"] = 1
    table.changed(5).add("a")
    forget(backend)
    forget(backend)
    assert table.panes[5] is held
    assert held["a"] == 1


def test_pane_behaves_as_a_dictionary(backend: RocksDBKeyedStateBackend) -> None:
    """D1: all that a dictionary can do, wherever the entries are."""
    pane = backend.table("t").entries(None)
    pane.update({"a": 1, "b": None}, c=3)
    forget(backend)
    assert pane.copy() == {"a": 1, "b": None, "c": 3} == dict(pane.items())
    assert pane == {"a": 1, "b": None, "c": 3}
    assert pane != {}
    assert sorted(pane) == ["a", "b", "c"]
    assert len(pane) == 3
    assert "b" in pane
    assert "z" not in pane
    assert pane.get("b", 7) is None
    assert pane.get("z", 7) == 7
    assert pane.setdefault("b", 7) is None
    assert pane.setdefault("d", 4) == 4
    with pytest.raises(KeyError):
        pane["z"]
    with pytest.raises(KeyError):
        del pane["z"]
    with pytest.raises(KeyError):
        pane.pop("z")
    del pane["a"]
    assert pane.pop("b", 7) is None
    forget(backend)
    assert pane | {"e": 5} == {"c": 3, "d": 4, "e": 5}
    assert {pane.popitem(), pane.popitem()} == {("c", 3), ("d", 4)}
    assert not pane
    with pytest.raises(KeyError):
        pane.popitem()
    pane["x"] = 1
    pane.clear()
    assert pane == {}
    assert "state 't'" in repr(pane)
    panes = backend.table("t").panes
    assert panes == {None: {}}
    assert panes
    assert len(panes) == 1


def test_a_big_map_is_not_read_as_a_whole() -> None:
    """D1: one entry of a big map costs one row, to read and to write."""
    with rocks() as backend:
        state = backend.map_state(MapStateDescriptor("m"))
        keyed(backend, "k")
        state.put_all(dict.fromkeys(range(2000), "x" * 100))
        forget(backend)
        reads = calls_of(backend, "get")
        assert state.get(1_234) == "x" * 100
        assert state.contains(5)
        assert 2_001 not in state
        assert len(reads) == 3
        pairs = state.items()
        state.clear()
        state.put("new", 1)
        assert len(list(pairs)) == 2_000, "what is gone through is as it was"
        assert dict(state.items()) == {"new": 1}


def test_appending_does_not_read_the_list() -> None:
    """D1: adding to a list, however long, costs what the new items take."""
    with rocks() as backend:
        state = backend.list_state(ListStateDescriptor("l"))
        keyed(backend, "k")
        state.add_all(range(10_000))
        scans = calls_of(backend, "scan")
        for number in range(20):
            forget(backend)
            state.add(number)
        assert not scans
        forget(backend)
        assert list(state) == [*range(10_000), *range(20)]
        forget(backend)
        rows = backend.sizes()["rows"]
        assert list(state) == [*range(10_000), *range(20)], "many segments were made one"
        backend.capture(1)
        assert rows >= 1


def test_timers(backend: RocksDBKeyedStateBackend) -> None:
    """A1: timers that are set, deleted and fired while all of them go through the store."""
    queue = TimerQueue(backend.table("timers"))
    for time in range(300):
        for item in ("a", ("b", time)):
            queue.register(time * 1_000, item)
            backend.settle()
    forget(backend)
    for time in range(0, 300, 3):
        queue.delete(time * 1_000, "a")
        backend.settle()
    queue = TimerQueue(backend.table("timers"))
    assert len(queue) == 500
    fired: list[tuple[int, Any]] = []

    def on_timer(time: int, item: Any) -> None:
        fired.append((time, item))
        if item == ("b", 5):
            queue.register(5_500, "later")
            queue.delete(6_000, ("b", 6))

    assert queue.fire(200_000, on_timer)
    times = [time for time, _ in fired]
    assert times == sorted(times)
    assert (5_500, "later") in fired
    assert (6_000, ("b", 6)) not in fired
    assert len(fired) == len(set(fired)) == 201 + 201 - 67 + 1 - 1
    assert queue.next_timestamp() == 201_000
    assert len(backend.table("timers").panes) == 99
    queue.fire(10**9, on_timer)
    assert queue.next_timestamp() is None
    assert backend.table("timers").panes == {}
    forget(backend)
    assert exported(backend) == {}


def test_restored_timers_are_in_order(tmp_path: Path) -> None:
    """A1, G7: a queue over restored files finds what is due, without looking at every timer."""
    with rocks() as backend:
        queue = TimerQueue(backend.table("timers"))
        for time in (500, -3, 70_000, 2**40):
            queue.register(time, "k")
        (capture,) = backend.capture(1)
        from penstock.state.rocksdb.snapshot import SourceFiles

        other = RocksDBKeyedStateBackend(GROUPS, tmp_path, settings=TINY)
        other.restore_files([SourceFiles(capture.directory, 0, GROUPS - 1)])
        fired: list[int] = []
        TimerQueue(other.table("timers")).fire(10**6, lambda time, item: fired.append(time))
        assert fired == [-3, 500, 70_000]
        other.close()


def test_state_larger_than_the_caches() -> None:
    """D3: state many times the size of all caches; what is in memory stays small."""
    with rocks() as backend:
        state = backend.value_state(ValueStateDescriptor("v"))
        for key in range(20_000):
            keyed(backend, key)
            state.update(b"x" * 200)
            if key % 100 == 0:
                backend.settle()
        chunks = exported(backend, 100_000)["v"]
        assert len(chunks) > 20
        assert max(map(len, chunks)) < 300_000
        assert sum(len(read_keyed([chunk], 0, GROUPS - 1)[None]) for chunk in chunks) == 20_000
        sizes = backend.sizes()
        assert sizes["block_cache_bytes"] < 200_000
        assert sizes["write_buffer_bytes"] < 300_000
        keyed(backend, 12_345)
        assert state.value() == b"x" * 200


# --- errors -----------------------------------------------------------------------------------------------------------


def test_without_a_key(backend: RocksDBKeyedStateBackend) -> None:
    """D1: state without a key is refused, as on the heap."""
    for state in (
        backend.value_state(ValueStateDescriptor("v")),
        backend.list_state(ListStateDescriptor("l")),
        backend.map_state(MapStateDescriptor("m")),
    ):
        with pytest.raises(StateError, match="no key is current"):
            state.clear()


def test_one_name_one_kind(backend: RocksDBKeyedStateBackend) -> None:
    """D1: a name that was declared as another kind of state is refused, and declaring it again is not."""
    backend.map_state(MapStateDescriptor("s"))
    backend.map_state(MapStateDescriptor("s"))
    with pytest.raises(StateError, match=r"My Operator.*'s' was declared as MapState.*different names"):
        backend.list_state(ListStateDescriptor("s"))


@pytest.mark.parametrize("kind", ["value", "list", "map"])
def test_unstorable_value_names_operator_and_state(backend: RocksDBKeyedStateBackend, kind: str) -> None:
    """D1: what cannot be pickled is an error that names the operator and the state, whenever it is written."""
    keyed(backend, "k")
    if kind == "value":
        backend.value_state(ValueStateDescriptor("counts")).update(threading.Lock())
    elif kind == "list":
        backend.list_state(ListStateDescriptor("counts")).add(threading.Lock())
    else:
        backend.map_state(MapStateDescriptor("counts")).put("p", threading.Lock())
    with pytest.raises(StateError, match=r"My Operator.*'counts' cannot be pickled"):
        backend.capture(1)


def test_unstorable_map_key(backend: RocksDBKeyedStateBackend) -> None:
    """D1: a key of a map that has no stable value is refused with what to use instead."""
    keyed(backend, "k")
    state = backend.map_state(MapStateDescriptor("m"))
    with pytest.raises(StateError, match=r"My Operator: map state 'm'.*type object.*use a str"):
        state.contains(object())


def test_unusable_namespace(backend: RocksDBKeyedStateBackend) -> None:
    """C1: a namespace that cannot be read back is refused."""
    with pytest.raises(StateError, match=r"'t': namespace 1\.5"):
        backend.table("t").entries(1.5)


def test_directory_that_cannot_be_used(tmp_path: Path) -> None:
    """D3: a directory that is a file, or that another backend has, is an error that says what to see to."""
    (tmp_path / "file").write_text("")
    backend = RocksDBKeyedStateBackend(GROUPS, tmp_path / "file", "My Operator")
    with pytest.raises(StateError, match=r"My Operator: cannot open .*file/db.*disk has space"):
        backend.table("t")
    one = RocksDBKeyedStateBackend(GROUPS, tmp_path / "shared")
    one.table("t")
    with pytest.raises(StateError, match="nothing else uses"):
        RocksDBKeyedStateBackend(GROUPS, tmp_path / "shared").table("t")
    one.close()


def test_after_close(backend: RocksDBKeyedStateBackend) -> None:
    """F1: closing twice is closing once; state after it is an error."""
    state = backend.value_state(ValueStateDescriptor("v"))
    backend.capture(1)
    backend.close()
    backend.close()
    backend.settle()
    with pytest.raises(StateError, match="closed"):
        backend.table("new")
    keyed(backend, "k")
    state.update(1)


def test_settings_are_positive() -> None:
    """D3: a size of nothing is refused by name."""
    with pytest.raises(ValueError, match="block_cache_bytes must be positive"):
        RocksDBSettings(block_cache_bytes=0)


def test_equal_keys_are_one_key(backend: RocksDBKeyedStateBackend) -> None:
    """D4: 1, 1.0 and True are one key, in memory and in the store; a key comes back with a type that it had."""
    state = backend.reducing_state(ReducingStateDescriptor("sum", lambda a, b: a + b))
    for key in (1, 1.0, True):
        keyed(backend, key)
        state.add(1)
        forget(backend)
    (files,) = exported(backend).values()
    assert read_keyed(files, 0, GROUPS - 1) == {None: {1: 3}}
