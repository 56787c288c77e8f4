"""Each invariant of keyed state is found to be broken when it is: a fault is planted, and `validate` names it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.state.backend import HeapKeyedStateBackend
from penstock.state.keys import assign_key_group, sample_keys
from penstock.state.rocksdb.backend import RocksDBKeyedStateBackend
from penstock.state.states import ValueStateDescriptor

MAX = 16
OWN = (0, 7)
MINE = [key for key in range(200) if assign_key_group(key, MAX) <= OWN[1]]
FOREIGN = next(key for key in range(200) if assign_key_group(key, MAX) > OWN[1])


def filled(backend: Any) -> Any:
    """A plain state of many keys, and timers: a namespace with a few keys, and one with a single key."""
    state = backend.value_state(ValueStateDescriptor("sums"))
    for key in MINE[:20]:
        backend.current_key = key
        state.update(key)
    timers = backend.table("timers")
    for key in MINE[:2]:
        timers.entries(100)[key] = None
        timers.changed(100).add(key)
    backend.settle()
    return backend


@pytest.fixture
def heap() -> HeapKeyedStateBackend:
    backend: HeapKeyedStateBackend = filled(HeapKeyedStateBackend(MAX, "op"))
    backend.table("timers").lone[200] = MINE[0]  # type: ignore[index]
    backend.validate(OWN)
    return backend


@pytest.fixture
def rocksdb(tmp_path: Path) -> Iterator[RocksDBKeyedStateBackend]:
    backend: RocksDBKeyedStateBackend = filled(RocksDBKeyedStateBackend(MAX, tmp_path, "op", OWN))
    backend.validate(OWN)
    yield backend
    backend.close()


def refuses(backend: Any, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        backend.validate(OWN)


def test_the_oldest_and_the_newest_keys_are_looked_at() -> None:
    assert sample_keys(dict.fromkeys(range(9))) == [0, 1, 2, 8, 7, 6]
    assert sample_keys({1: None}) == [1]
    assert sample_keys({}) == []


@pytest.mark.parametrize("namespace", [None, 100])
def test_a_key_of_another_subtask_is_found(namespace: Any, heap: Any, rocksdb: Any) -> None:
    """D4."""
    for backend in (heap, rocksdb):
        backend.table("sums" if namespace is None else "timers").entries(namespace)[FOREIGN] = 1
        refuses(backend, f"key {FOREIGN} is of group")


def test_a_lone_key_of_another_subtask_is_found(heap: Any) -> None:
    """D4."""
    heap.table("timers").lone[300] = FOREIGN
    refuses(heap, f"key {FOREIGN} is of group")


def test_a_namespace_in_two_places_is_found(heap: Any) -> None:
    heap.table("timers").lone[100] = MINE[0]
    refuses(heap, "namespace 100 lies in two places")


def test_a_removal_that_no_snapshot_would_tell_of_is_found(heap: Any) -> None:
    """D3: the entries are gone, the marks are left, and nothing says that the namespace was dropped."""
    table = heap.table("timers")
    heap.capture(1)
    table.changed(100).add(MINE[0])
    heap.validate(OWN)
    del table.panes[100]
    refuses(heap, "was not dropped")


def test_changes_without_a_snapshot_to_build_on_are_found(heap: Any) -> None:
    table = heap.table("sums")
    heap.capture(2)
    table._unconfirmed[1] = None
    refuses(heap, "taken in the order .2, 1.")
    table._has_base = False
    refuses(heap, "for a snapshot to build on")


def test_a_store_of_other_key_groups_is_found(rocksdb: Any) -> None:
    """D4."""
    with pytest.raises(AssertionError, match="the key groups of its subtask"):
        rocksdb.validate((8, 15))


def turned(rocksdb: Any) -> Any:
    """The panes of the timers, which are not in memory any more."""
    for _ in range(3):
        rocksdb._cache.flush()
        rocksdb._cache.turn()
    panes = rocksdb.table("timers")._panes
    assert 100 in panes._stored
    rocksdb.validate(OWN)
    return panes


def test_rows_in_the_key_groups_of_others_are_found(rocksdb: Any) -> None:
    """D4: in memory, and of namespaces that are not."""
    pane = rocksdb.table("sums").entries(None)
    rocksdb._cache.flush()
    groups, pane.groups = pane.groups, 1 << 8
    refuses(rocksdb, "key groups of other subtasks")
    pane.groups = groups
    panes = turned(rocksdb)
    panes._stored[100] = 1 << 8
    refuses(rocksdb, "key groups of other subtasks")
    panes._stored[100] = 0
    refuses(rocksdb, "neither rows nor entries")


def test_two_panes_of_a_namespace_are_found(rocksdb: Any) -> None:
    panes = turned(rocksdb)
    stored = panes._stored[100]
    pane = panes.open(100)
    rocksdb.validate(OWN)
    panes._stored[100] = stored
    refuses(rocksdb, "lies in two places")
    del panes._stored[100]
    panes._held[100] = pane
    refuses(rocksdb, "has two panes")


def test_rows_that_are_forgotten_are_found(rocksdb: Any) -> None:
    pane = rocksdb.table("sums").entries(None)
    rocksdb._cache.flush()
    groups, pane.groups, pane.has_rows = pane.groups, 0, False
    rocksdb.validate(OWN)
    pane._gone[MINE[30]] = True
    refuses(rocksdb, "deletes some")
    pane.groups = groups
    refuses(rocksdb, "has key groups")
