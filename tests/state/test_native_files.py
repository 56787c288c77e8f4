"""Checkpoints in RocksDB's own files: who reads them, and what they say of the states in them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from penstock.base.typeinfo import Types
from penstock.state.backend import HeapKeyedStateBackend, NativeFiles
from penstock.state.errors import StateError, StateMigrationError
from penstock.state.rocksdb.backend import RocksDBKeyedStateBackend
from penstock.state.states import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor

GROUPS = (0, 7)
COUNT = ValueStateDescriptor("count", Types.LONG())
BY_NAME = MapStateDescriptor("by name", Types.STRING(), Types.INT())


def captured(directory: Path) -> NativeFiles:
    """The files of a backend with a value and a map of one key."""
    backend = RocksDBKeyedStateBackend(8, directory / "before", "My Operator", GROUPS)
    backend.current_key = "k"
    backend.value_state(COUNT).update(7)
    backend.map_state(BY_NAME).put("a", 1)
    (capture,) = backend.capture(1)
    stored: dict[str, bytes] = {}
    capture.store(stored.__setitem__, {})
    backend.close()
    read = {name: partial(stored.__getitem__, name) for name in stored}
    return NativeFiles("rocksdb", *GROUPS, read, capture.schemas)


def restored(directory: Path) -> RocksDBKeyedStateBackend:
    backend = RocksDBKeyedStateBackend(8, directory / "after", "My Operator", GROUPS)
    backend.restore_native([captured(directory)])
    backend.current_key = "k"
    return backend


def test_the_same_backend_goes_on(tmp_path: Path) -> None:
    """D3, G7: states are there again under their declarations."""
    backend = restored(tmp_path)
    assert backend.value_state(COUNT).value() == 7
    assert dict(backend.map_state(BY_NAME).items()) == {"a": 1}
    backend.close()


def test_another_backend_refuses(tmp_path: Path) -> None:
    """D3, H4: what another backend wrote is refused, with the two ways out."""
    heap = HeapKeyedStateBackend(8, "My Operator")
    with pytest.raises(StateError, match=r"My Operator.*state\.backend\.type: rocksdb, or from a savepoint"):
        heap.restore_native([captured(tmp_path)])


def test_another_declaration(tmp_path: Path) -> None:
    """H4: what fits is converted, rows of maps included; another kind is an error."""
    backend = restored(tmp_path)
    with pytest.raises(StateMigrationError, match=r"My Operator.*'count' was written as ValueState.*ListState"):
        backend.list_state(ListStateDescriptor("count"))
    wider = backend.map_state(MapStateDescriptor("by name", Types.STRING(), Types.DOUBLE()))
    assert [(name, type(value)) for name, value in wider.items()] == [("a", float)]
    backend.close()
