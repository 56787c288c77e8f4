"""Classes that have changed since their instances went into RocksDB: in its own files, and in savepoints of it (H4)."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.state.rocks import GROUPS, TINY, Storage, exported, keyed, rocks

from penstock.state import migrations
from penstock.state.backend import HeapKeyedStateBackend, KeyedStateBackend
from penstock.state.errors import StateMigrationError
from penstock.state.keys import assign_key_group
from penstock.state.rocksdb.backend import RocksDBKeyedStateBackend
from penstock.state.rocksdb.snapshot import SourceFiles
from penstock.state.snapshot import PUT, KeyedRows, iterate_keyed
from penstock.state.states import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor

MODULE = "shop_of_the_store"
VISIT = "@dataclass\nclass Visit:\n    page: str\n"
LATER = VISIT + "    tags: list = field(default_factory=list)\n"
KEY = "@dataclass(frozen=True)\nclass Key:\n    id: int\n"
ALL = (0, GROUPS - 1)
KINDS = ["value", "list", "map"]


def program(source: str, module: str = MODULE) -> Any:
    """Today's version of the user's module."""
    made = types.ModuleType(module)
    sys.modules[module] = made
    exec(f"from dataclasses import dataclass, field\nimport enum\n{source}", made.__dict__)
    return made


@pytest.fixture(autouse=True)
def _no_traces() -> Iterator[None]:
    yield
    for name in [name for name in sys.modules if name.startswith(MODULE)]:
        del sys.modules[name]
    for path in migrations.registered():
        migrations.unregister(path)


def put(backend: KeyedStateBackend, kind: str, key: Any, value: Any) -> None:
    """Store a value in the state of a kind."""
    keyed(backend, key)
    if kind == "value":
        backend.value_state(ValueStateDescriptor(kind)).update(value)
    elif kind == "list":
        backend.list_state(ListStateDescriptor(kind)).add(value)
    else:
        backend.map_state(MapStateDescriptor(kind)).put("m", value)


def got(backend: KeyedStateBackend, kind: str, key: Any) -> list[Any]:
    """What the state of a kind holds."""
    keyed(backend, key)
    if kind == "value":
        return [backend.value_state(ValueStateDescriptor(kind)).value()]
    if kind == "list":
        return list(backend.list_state(ListStateDescriptor(kind)))
    return list(backend.map_state(MapStateDescriptor(kind)).values())


def restored(path: Path, *sources: SourceFiles, key_groups: tuple[int, int] = ALL) -> RocksDBKeyedStateBackend:
    backend = RocksDBKeyedStateBackend(GROUPS, path, "My Operator", key_groups, TINY)
    backend.migrations = migrations.registered()
    backend.restore_files(sources)
    return backend


def files(storage: Storage, backend: RocksDBKeyedStateBackend, path: Path, groups: tuple[int, int] = ALL) -> Any:
    """The files of a checkpoint, as a restore finds them."""
    return storage.fetch(storage.checkpoint(backend, 1, {}), path, groups)


def test_fields_come_in_every_kind_of_state(tmp_path: Path) -> None:
    """H4: each instance in values, lists and maps gets the default of a new field, and no read has to see to it."""
    old = program(VISIT)
    with rocks() as before:
        for kind in KINDS:
            for number in range(100):
                put(before, kind, number, old.Visit(str(number)))
        source = files(Storage(), before, tmp_path / "files")
    new = program(LATER)
    after = restored(tmp_path / "after", source)
    for kind in KINDS:
        assert [got(after, kind, number) for number in range(100)] == [[new.Visit(str(n), [])] for n in range(100)]
    after.close()


def test_moved_keys_of_streams_and_maps(tmp_path: Path) -> None:
    """H4, D4: classes of keys may move, for where their rows lie follows from name and fields."""
    key = program(KEY).Key
    with rocks() as before:
        put(before, "value", key(1), "v")
        keyed(before, key(2))
        before.map_state(MapStateDescriptor("map")).put(key(3), "m")
        source = files(Storage(), before, tmp_path / "files")
    del sys.modules[MODULE]
    moved = program(KEY, f"{MODULE}_moved").Key
    migrations.register(f"{MODULE}:Key", moved)
    after = restored(tmp_path / "after", source)
    assert got(after, "value", moved(1)) == ["v"]
    keyed(after, moved(2))
    assert list(after.map_state(MapStateDescriptor("map")).items()) == [(moved(3), "m")]
    after.close()


@pytest.mark.parametrize("where", ["stream", "map"])
def test_keys_that_would_not_be_found(tmp_path: Path, where: str) -> None:
    """H4, D4: a class of keys that hashes otherwise is an error at the restore."""
    key = program(KEY).Key(1)
    with rocks() as before:
        if where == "stream":
            put(before, "value", key, "v")
        else:
            keyed(before, "k")
            before.map_state(MapStateDescriptor("value")).put(key, "m")
        source = files(Storage(), before, tmp_path / "files")
    program(KEY + "    shop: str = ''\n")
    with pytest.raises(StateMigrationError, match=r"My Operator: state 'value': its keys are instances of Key.*must"):
        restored(tmp_path / "after", source)


def test_a_class_that_is_gone(tmp_path: Path) -> None:
    """H4: the error comes with the restore, names all that must be known, and also meets states not declared yet."""
    with rocks() as before:
        put(before, "map", "k", program(VISIT).Visit("/"))
        source = files(Storage(), before, tmp_path / "files")
    del sys.modules[MODULE]
    with pytest.raises(StateMigrationError) as error:
        restored(tmp_path / "after", source)
    assert str(error.value).startswith("My Operator: state 'map' holds instances of class 'Visit' of module")
    assert f'penstock.state.migrations.register("{MODULE}:Visit"' in str(error.value)


def test_a_value_that_its_class_refuses(tmp_path: Path) -> None:
    """H4: an enum that lost a member is found out by the read, whose error names operator and state."""
    with rocks() as before:
        put(before, "value", "k", program("class Color(enum.Enum):\n    RED = 1\n    BLUE = 2\n").Color.BLUE)
        source = files(Storage(), before, tmp_path / "files")
    program("class Color(enum.Enum):\n    RED = 1\n")
    after = restored(tmp_path / "after", source)
    # Python before 3.11.4 pickles members by name.
    refusal = r"My Operator: a value in state 'value' can no longer be read.*(Color|AttributeError: BLUE)"
    with pytest.raises(StateMigrationError, match=refusal):
        got(after, "value", "k")
    after.close()


def test_rows_of_several_subtasks(tmp_path: Path) -> None:
    """D4, H4: classes are known of the rows of each former subtask, whichever store was taken as it is."""
    half = GROUPS // 2
    old = program(VISIT)
    sources = []
    for number, groups in enumerate([(0, half - 1), (half, GROUPS - 1)]):
        with rocks(key_groups=groups) as before:
            mine = [key for key in range(50) if groups[0] <= _group(key) <= groups[1]]
            for key in mine:
                put(before, "value", key, old.Visit(str(key)) if number else str(key))
            sources.append(files(Storage(), before, tmp_path / str(number), groups))
    new = program(LATER)
    after = restored(tmp_path / "after", *sources)
    expected = [new.Visit(str(key), []) if _group(key) >= half else str(key) for key in range(50)]
    assert [got(after, "value", key)[0] for key in range(50)] == expected
    after.close()


def _group(key: int) -> int:
    return assign_key_group(key, GROUPS)


def test_unchanged_classes_leave_the_files_alone(tmp_path: Path) -> None:
    """G7, H4: when nothing has changed, no row is written anew, and the next checkpoint stores no file of rows."""
    storage, visit = Storage(), program(VISIT).Visit
    with rocks() as before:
        for number in range(100):
            put(before, "value", number, visit(str(number)))
        known = storage.checkpoint(before, 1, {})
    after = restored(tmp_path / "after", storage.fetch(known, tmp_path / "files", ALL))
    storage.stored.clear()
    storage.checkpoint(after, 2, known)
    assert [name for name in storage.stored if name.endswith(".sst")] == []
    after.close()


@pytest.mark.parametrize("target", ["heap", "rocksdb"])
@pytest.mark.parametrize("told", [True, False])
def test_savepoints_of_rocksdb_tell_their_classes(tmp_path: Path, target: str, told: bool) -> None:
    """H4, H5: fields that come are dealt with wherever a savepoint is restored, also in one that tells nothing."""
    old = program(VISIT)
    with rocks() as before:
        for kind in KINDS:
            put(before, kind, "k", old.Visit("/"))
        savepoint = exported(before)
    if not told:
        for name, parts in savepoint.items():
            rows = KeyedRows()
            for row in (row for data in parts for row in iterate_keyed(data)):
                rows.add(row[0], PUT, *row[2:])
            savepoint[name] = [rows.to_bytes()]
    new = program(LATER)
    after: KeyedStateBackend = HeapKeyedStateBackend(GROUPS, "My Operator")
    if target == "rocksdb":
        after = RocksDBKeyedStateBackend(GROUPS, tmp_path / "after", "My Operator", ALL, TINY)
    for name, parts in savepoint.items():
        after.restore_canonical(name, parts, ALL, False)
    for kind in KINDS:
        assert got(after, kind, "k") == [new.Visit("/", [])]
    after.close()


def test_rows_in_conflict_are_loaded_with_care(tmp_path: Path) -> None:
    """H4: where former subtasks knew a class by other fields, what its rows hold decides."""
    half = GROUPS // 2
    sources = []
    for number, groups in enumerate([(0, half - 1), (half, GROUPS - 1)]):
        visit = program(LATER if number else VISIT).Visit
        with rocks(key_groups=groups) as before:
            for key in range(50):
                if groups[0] <= _group(key) <= groups[1]:
                    put(before, "value", key, visit(str(key)))
            sources.append(files(Storage(), before, tmp_path / str(number), groups))
    after = restored(tmp_path / "after", *sources)
    new = sys.modules[MODULE].Visit
    assert [got(after, "value", key)[0] for key in range(50)] == [new(str(key), []) for key in range(50)]
    after.close()
