"""Snapshots of the RocksDB backend: incremental files, rescaling, and the canonical format that the heap shares."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.state.rocks import GROUPS, MEMORY, TINY, Storage, exported, keyed, rocks

from penstock.runtime.operators.watermarks import TimerQueue
from penstock.state.backend import HeapKeyedStateBackend, KeyedStateBackend
from penstock.state.errors import StateError
from penstock.state.keys import assign_key_group, key_group_range
from penstock.state.rocksdb.backend import RocksDBKeyedStateBackend
from penstock.state.rocksdb.settings import RocksDBSettings
from penstock.state.rocksdb.snapshot import SourceFiles
from penstock.state.snapshot import merge_keyed, read_keyed
from penstock.state.states import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield Path(folder)


ALL = (0, GROUPS - 1)
COUNT = 400
Entries = dict[Any, dict[Any, Any]]


def fill(backend: KeyedStateBackend, key_groups: tuple[int, int] = ALL) -> None:
    """All kinds of state for keys of these key groups."""
    value = backend.value_state(ValueStateDescriptor("value"))
    items = backend.list_state(ListStateDescriptor("list"))
    pairs = backend.map_state(MapStateDescriptor("map"))
    windows, timers = backend.table("windows"), TimerQueue(backend.table("timers"))
    for number in range(COUNT):
        key: Any = number if number % 2 else (f"k{number}", number)
        if not key_groups[0] <= assign_key_group(key, GROUPS) <= key_groups[1]:
            continue
        keyed(backend, key)
        value.update({"number": number})
        for item in range(number % 4):
            items.add(item)
            backend.settle()
        pairs.put_all({"a": number, number: None})
        window = (number % 5 * 10, number % 5 * 10 + 10)
        windows.entries(window)[key] = [number]
        windows.changed(window).add(key)
        timers.register(number * 7, key)
        backend.settle()


def expected() -> dict[str, Entries]:
    heap = HeapKeyedStateBackend(GROUPS)
    fill(heap)
    return read({capture.name: [capture.to_bytes(GROUPS)] for capture in heap.capture(1)})


def read(files: dict[str, list[bytes]], groups: tuple[int, int] = ALL) -> dict[str, Entries]:
    tables = {name: read_keyed(data, *groups) for name, data in files.items()}
    return {name: {n: entries for n, entries in table.items() if entries} for name, table in tables.items()}


def joined(parts: list[dict[str, Entries]]) -> dict[str, Entries]:
    whole: dict[str, Entries] = {}
    for part in parts:
        for name, table in part.items():
            for namespace, entries in table.items():
                mine = whole.setdefault(name, {}).setdefault(namespace, {})
                assert not mine.keys() & entries.keys(), "no key belongs to two subtasks"
                mine.update(entries)
    return whole


# --- incremental ------------------------------------------------------------------------------------------------------


def test_only_new_files_are_stored(tmp_path: Path) -> None:
    """G7: a checkpoint stores the files of rows that came since the one it builds on, however much there is."""
    storage = Storage()
    with rocks(RocksDBSettings()) as backend:
        state = backend.value_state(ValueStateDescriptor("v"))
        for key in range(20_000):
            keyed(backend, key)
            state.update(f"value {key}" * 5)
        first = storage.checkpoint(backend, 1, {})
        full = sum(len(data) for data in storage.files.values())
        before = len(storage.files)
        for key in range(50):
            keyed(backend, key)
            state.update("new")
        second = storage.checkpoint(backend, 2, first)
        added = sum(len(data) for number, data in storage.files.items() if number > before)
        assert added * 20 < full
        shared = [name for name in second if first.get(name) == second[name]]
        assert shared
        assert all(name.endswith(".sst") for name in shared)
        assert [name for name in storage.stored[before:] if name.endswith(".sst")] != []
        third = storage.checkpoint(backend, 3, second)
        assert [name for name in third if name.endswith(".sst")] == [name for name in second if name.endswith(".sst")]
        # What only the first needed may go.
        storage.files = {n: data for n, data in storage.files.items() if n in second.values()}
        other = RocksDBKeyedStateBackend(GROUPS, tmp_path / "other")
        other.restore_files([storage.fetch(second, tmp_path / "fetched", ALL)])
        restored = other.value_state(ValueStateDescriptor("v"))
        for key, value in ((0, "new"), (49, "new"), (50, "value 50" * 5), (19_999, "value 19999" * 5)):
            keyed(other, key)
            assert restored.value() == value
        assert not (tmp_path / "fetched").exists()
        # A store that goes on from the second shares files with it, and gives no name twice.
        keyed(other, 7)
        restored.update("newer")
        known = storage.checkpoint(other, 4, second)
        assert all(known[name] == second[name] for name in second if name.endswith(".sst") and name in known)
        assert read(exported(other))["v"][None][7] == "newer"
        other.close()


def test_changes_after_the_capture_do_not_reach_it() -> None:
    """G7: what the operator does while files are being stored, compactions included, is not in the checkpoint."""
    with rocks() as backend:
        fill(backend)
        (capture,) = backend.capture(1)
        state = backend.value_state(ValueStateDescriptor("value"))
        for number in range(COUNT):
            keyed(backend, number)
            state.clear()
            backend.settle()
        backend.table("windows").drop((0, 10))
        backend.capture(2)[0].discard()
        files: dict[str, list[bytes]] = {}
        for name, data in capture.export(1_000):
            files.setdefault(name, []).append(data)
        assert read(files) == expected()
        capture.discard()
        capture.discard()
        assert not capture.directory.exists()


def test_capture_of_an_id_that_was_used_before() -> None:
    """G7: what an attempt left in the directory does not matter."""
    with rocks() as backend:
        fill(backend)
        backend.capture(1)
        (capture,) = backend.capture(1)
        assert {file.name for file in capture.files} == {path.name for path in capture.directory.iterdir()}
        backend.confirm(1)


def test_incomplete_files(tmp_path: Path) -> None:
    """G11: a checkpoint whose files are missing, or lie elsewhere, is an error that says so."""
    storage = Storage()
    with rocks() as backend:
        fill(backend)
        references = storage.checkpoint(backend, 1, {})
    del references["CURRENT"]
    other = RocksDBKeyedStateBackend(GROUPS, tmp_path / "other", "My Operator")
    with pytest.raises(StateError, match=r"My Operator: .*files of the checkpoint are missing"):
        other.restore_files([storage.fetch(references, tmp_path / "fetched", ALL)])
    with pytest.raises(StateError, match="outside"):
        storage.fetch({"../x": 1}, tmp_path / "fetched", ALL)
    other.table("t")
    with pytest.raises(StateError, match="before state is used"):
        other.restore_files([])
    other.close()


# --- rescaling --------------------------------------------------------------------------------------------------------


def subtasks(tmp_path: Path, parallelism: int, prefix: str) -> list[RocksDBKeyedStateBackend]:
    groups = [key_group_range(i, GROUPS, parallelism) for i in range(parallelism)]
    sizes = RocksDBSettings(cache_bytes=1, file_bytes=2_000)
    return [
        RocksDBKeyedStateBackend(GROUPS, tmp_path / f"{prefix}-{i}", "Op", key_groups, sizes)
        for i, key_groups in enumerate(groups)
    ]


@pytest.mark.parametrize("canonical", [False, True], ids=["files", "canonical"])
def test_rescaling(tmp_path: Path, canonical: bool) -> None:
    """D4: every kind of state, timers and windows, over 1, 4, 2, 3 and 1 subtasks: each has just its key groups."""
    storage, wanted = Storage(), expected()
    now = subtasks(tmp_path, 1, "begin")
    fill(now[0])
    for step, parallelism in enumerate((4, 2, 3, 1)):
        handles = [(backend.key_groups, storage.checkpoint(backend, step, {})) for backend in now]
        histories = [exported(backend, 500) for backend in now]
        for backend in now:
            backend.close()
        now = subtasks(tmp_path, parallelism, str(step))
        for number, backend in enumerate(now):
            if canonical:
                for history in histories:
                    for name, files in history.items():
                        backend.restore_canonical(name, files)
            else:
                sources = [
                    storage.fetch(references, tmp_path / f"fetched-{number}-{i}", groups)
                    for i, (groups, references) in enumerate(handles)
                ]
                backend.restore_files(sources)
            # Declared after the restore, as operators do; appended to, which must come last.
            items = backend.list_state(ListStateDescriptor("list"))
            pairs = backend.map_state(MapStateDescriptor("map"))
            for key in wanted["list"][None]:
                if backend.key_groups[0] <= assign_key_group(key, GROUPS) <= backend.key_groups[1]:
                    keyed(backend, key)
                    items.add(("step", step))
                    pairs.put("step", step)
                    backend.settle()
        for key in wanted["list"][None]:
            wanted["list"][None][key].append(("step", step))
            wanted["map"][None][key]["step"] = step
        parts = [read(exported(backend)) for backend in now]
        for backend, part in zip(now, parts, strict=True):
            for table in part.values():
                for entries in table.values():
                    assert all(
                        backend.key_groups[0] <= assign_key_group(k, GROUPS) <= backend.key_groups[1] for k in entries
                    )
        assert joined(parts) == wanted
        for backend in now:
            due = list(backend.table("timers").panes)
            fired: list[int] = []
            TimerQueue(backend.table("timers")).fire(-1, lambda time, item, fired=fired: fired.append(time))  # type: ignore[misc]
            assert not fired
            assert len(due) == len(TimerQueue(backend.table("timers")))
    for backend in now:
        backend.close()


@pytest.mark.parametrize("appends", [(40, 2), (2, 40)])
@pytest.mark.parametrize("first_groups", [(0, 31), (0, 95)])
def test_lists_are_appended_to_at_their_ends_after_a_rescale(
    tmp_path: Path, first_groups: tuple[int, int], appends: tuple[int, int]
) -> None:
    """D4: though one store was written to much oftener than the other, whichever of them has more key groups."""
    storage, handles = Storage(), []
    wanted: dict[int, list[Any]] = {}
    for part, (groups, count) in enumerate(zip((first_groups, (first_groups[1] + 1, 127)), appends, strict=True)):
        keys = [key for key in range(200) if groups[0] <= assign_key_group(key, GROUPS) <= groups[1]]
        with rocks(key_groups=groups) as backend:
            items = backend.list_state(ListStateDescriptor("list"))
            for number in range(count):
                for key in keys[:3]:
                    keyed(backend, key)
                    items.add(number)
                    backend.settle()
            handles.append((groups, storage.checkpoint(backend, part, {})))
        wanted |= {key: list(range(count)) for key in keys[:3]}
    for turn in range(2):
        with rocks() as backend:
            fetched = enumerate(handles)
            backend.restore_files([storage.fetch(files, tmp_path / f"{turn}-{i}", own) for i, (own, files) in fetched])
            items = backend.list_state(ListStateDescriptor("list"))
            for key, values in wanted.items():
                values += [f"after {turn}", f"again {turn}"]
                keyed(backend, key)
                for value in values[-2:]:
                    items.add(value)
                    backend.settle()
            handles = [(ALL, storage.checkpoint(backend, 2 + turn, {}))]
            assert {key: list(items.get()) for key in wanted if keyed(backend, key) == key} == wanted


FEW = 7
#: For each of so few key groups a key.
KEY_OF = {assign_key_group(key, FEW): key for key in range(100)}


def at_parallelism(
    tmp_path: Path, parallelism: int, storage: Storage, handles: list[tuple[tuple[int, int], dict[str, int]]]
) -> list[RocksDBKeyedStateBackend]:
    """The subtasks of an operator that goes on from these files."""
    backends = []
    for number in range(parallelism):
        directory = Path(tempfile.mkdtemp(dir=tmp_path))
        backend = RocksDBKeyedStateBackend(FEW, directory / "db", "Op", key_group_range(number, FEW, parallelism))
        fetched = enumerate(handles)
        backend.restore_files([storage.fetch(files, directory / str(i), groups) for i, (groups, files) in fetched])
        backends.append(backend)
    return backends


@pytest.mark.parametrize("after", range(1, 5))
@pytest.mark.parametrize("before", range(1, 5))
def test_no_subtask_keeps_a_key_group_of_its_neighbour(tmp_path: Path, before: int, after: int) -> None:
    """D4: not at either end of its range. What it kept would come back when the operator has its former parallelism
    again, though the owner has long cleared it. All subtasks write, clear every value, and are read by one."""
    storage = Storage()
    handles: list[tuple[tuple[int, int], dict[str, int]]] = []
    for step, parallelism in enumerate((before, after, 1)):
        backends = at_parallelism(tmp_path, parallelism, storage, handles)
        handles = []
        for backend in backends:
            value = backend.value_state(ValueStateDescriptor("value"))
            for group in range(backend.key_groups[0], backend.key_groups[1] + 1):
                keyed(backend, KEY_OF[group])
                assert value.value() == (group if step == 1 else None)
                value.update(group) if step == 0 else value.clear()
                backend.settle()
            handles.append((backend.key_groups, storage.checkpoint(backend, step, {})))
            backend.close()


def test_nothing_of_ours_in_the_sources(tmp_path: Path) -> None:
    """D4: sources without one of the subtask's key groups leave it empty."""
    storage = Storage()
    with rocks(key_groups=(0, 63)) as backend:
        fill(backend, (0, 63))
        references = storage.checkpoint(backend, 1, {})
    other = RocksDBKeyedStateBackend(GROUPS, tmp_path / "other", key_groups=(64, 127))
    other.restore_files([storage.fetch(references, tmp_path / "fetched", (0, 63))])
    fill(other, (64, 127))
    assert not (tmp_path / "fetched").exists()
    assert joined([read(exported(other))]) == {
        name: {
            n: kept for n, e in table.items() if (kept := {k: v for k, v in e.items() if assign_key_group(k, 128) > 63})
        }
        for name, table in expected().items()
    }
    other.close()


# --- canonical --------------------------------------------------------------------------------------------------------


def test_from_rocksdb_to_the_heap_and_back(tmp_path: Path) -> None:
    """H4: a savepoint taken on RocksDB restores on the heap, and one taken there on RocksDB."""
    with rocks() as backend:
        fill(backend)
        files = exported(backend, 2_000)
    assert len(files["value"]) > 3
    assert read(files) == expected()
    heap = HeapKeyedStateBackend(GROUPS)
    for name, history in files.items():
        heap.restore(name, read_keyed([merge_keyed(history)], *ALL), False)
    captures = {capture.name: [capture.to_bytes(GROUPS)] for capture in heap.capture(1)}
    assert read(captures) == expected()
    other = RocksDBKeyedStateBackend(GROUPS, tmp_path / "other", settings=TINY)
    for name, history in captures.items():
        other.restore_canonical(name, history)
    assert read(exported(other)) == expected()
    again = HeapKeyedStateBackend(GROUPS)
    for name, history in exported(other).items():
        again.restore(name, read_keyed(history, *ALL), False)
    one, two = other.list_state(ListStateDescriptor("list")), again.list_state(ListStateDescriptor("list"))
    for key in (7, ("k6", 6), 8):
        assert list(one.get()) == list(two.get()) if keyed(other, key) == keyed(again, key) else False
    other.close()


def test_histories_of_the_heap_restore(tmp_path: Path) -> None:
    """G7, H4: an incremental history of the heap, with what was removed and dropped in it, restores on RocksDB."""
    heap, files = HeapKeyedStateBackend(GROUPS), dict[str, list[bytes]]()

    def snapshot(checkpoint_id: int) -> None:
        for capture in heap.capture(checkpoint_id):
            files.setdefault(capture.name, []).append(capture.to_bytes(GROUPS))
        heap.confirm(checkpoint_id)

    fill(heap)
    snapshot(1)
    heap.table("windows").drop((10, 20))
    heap.table("windows").entries((20, 30)).pop(7)
    heap.table("windows").changed((20, 30)).add(7)
    keyed(heap, 9)
    heap.value_state(ValueStateDescriptor("value")).clear()
    heap.map_state(MapStateDescriptor("map")).put("later", 1)
    snapshot(2)
    heap.table("windows").entries((10, 20))["again"] = [1]
    heap.table("windows").changed((10, 20)).add("again")
    snapshot(3)
    assert len(files["windows"]) == 3
    backend = RocksDBKeyedStateBackend(GROUPS, tmp_path / "other", settings=TINY)
    for name, history in files.items():
        backend.restore_canonical(name, history)
    assert read(exported(backend)) == read(files)
    assert backend.table("windows").panes[(10, 20)] == {"again": [1]}
    backend.close()


@pytest.mark.parametrize(("declared", "wanted"), [("map", "dict"), ("list", "list")])
def test_canonical_value_of_another_kind(tmp_path: Path, declared: str, wanted: str) -> None:
    """H4: a state that was restored as one kind and is declared as another is an error that names it."""
    heap = HeapKeyedStateBackend(GROUPS)
    keyed(heap, "k")
    heap.value_state(ValueStateDescriptor("s")).update(5)
    (capture,) = heap.capture(1)
    backend = RocksDBKeyedStateBackend(GROUPS, tmp_path / "state", "My Operator")
    backend.restore_canonical("s", [capture.to_bytes(GROUPS)])
    with pytest.raises(StateError, match=rf"My Operator: state 's' was restored with a int.*hold a {wanted}"):
        backend.map_state(MapStateDescriptor("s")) if declared == "map" else backend.list_state(
            ListStateDescriptor("s")
        )
    backend.close()


def test_files_of_another_kind(tmp_path: Path) -> None:
    """H4: the same for files of RocksDB, where a map is known as one."""
    with rocks() as backend:
        fill(backend)
        (capture,) = backend.capture(1)
        other = RocksDBKeyedStateBackend(GROUPS, tmp_path / "state", "My Operator")
        other.restore_files([SourceFiles(capture.directory, *ALL)])
        with pytest.raises(StateError, match=r"My Operator: state 'map' was restored with maps.*whole values"):
            other.value_state(ValueStateDescriptor("map"))
        with pytest.raises(StateError, match=r"state 'list' was restored with lists.*hold maps"):
            other.map_state(MapStateDescriptor("list"))
        other.map_state(MapStateDescriptor("later"))
        with pytest.raises(StateError, match="before it is declared"):
            other.restore("later", {}, False)
        other.close()


def test_state_that_is_not_declared_is_carried_along(tmp_path: Path) -> None:
    """H4: state of a job whose new version does not use it (yet) stays in its snapshots."""
    with rocks() as backend:
        fill(backend)
        (capture,) = backend.capture(1)
        other = RocksDBKeyedStateBackend(GROUPS, tmp_path / "state")
        other.restore_files([SourceFiles(capture.directory, *ALL)])
        assert read(exported(other)) == expected()
        other.close()


def test_a_storage_that_cannot_be_read_just_now_is_no_changed_class() -> None:
    """G11: what the storage raises comes as it is, so that another attempt may read what this one could not."""

    def files() -> Iterator[bytes]:
        raise OSError("the connection broke")
        yield b""

    with rocks() as backend, pytest.raises(OSError, match="the connection broke"):
        backend.restore_canonical("count", files())
