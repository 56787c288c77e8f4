"""E2, D3: the RocksDB stores of a worker share one budget of memory evenly, and give the same results."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.state.rocks import GROUPS, Storage, exported, keyed, rocks

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError
from penstock.drivers.worker_storage import BackendSettings
from penstock.runtime.protocol import ExecutionId
from penstock.state.errors import StateError
from penstock.state.keys import assign_key_group
from penstock.state.rocksdb.backend import RocksDBKeyedStateBackend
from penstock.state.rocksdb.settings import MemoryBudget, RocksDBSettings, SlotMemory
from penstock.state.rocksdb.store import RowStore
from penstock.state.states import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor

MANAGED = "taskmanager.memory.managed.size"
FIXED = "state.backend.rocksdb.memory.fixed-per-slot"
PROPERTIES = ("rocksdb.cur-size-all-mem-tables", "rocksdb.block-cache-usage", "rocksdb.block-cache-capacity")


def budget(total_bytes: int, write_buffer_ratio: float = 0.5, object_cache_ratio: float = 0.33) -> MemoryBudget:
    return MemoryBudget(total_bytes, MANAGED, write_buffer_ratio, object_cache_ratio)


def store_of(backend: RocksDBKeyedStateBackend) -> RowStore:
    assert backend._cache is not None
    return backend._cache.store


def told(backend: RocksDBKeyedStateBackend) -> tuple[int, int, int]:
    """What RocksDB says: bytes in write buffers, in the block cache, and the cache's capacity."""
    in_buffers, in_blocks, capacity = (store_of(backend)._db.property_int_value(name) or 0 for name in PROPERTIES)
    return in_buffers, in_blocks, capacity


def write(backend: RocksDBKeyedStateBackend, keys: Iterator[Any], value: Any = b"x" * 100) -> None:
    state = backend.value_state(ValueStateDescriptor("v"))
    for key in keys:
        keyed(backend, key)
        state.update(value)
        backend.settle()


@contextmanager
def slot(of: MemoryBudget, stores: int) -> Iterator[list[RocksDBKeyedStateBackend]]:
    """Backends that share a budget, each with a state."""
    settings = RocksDBSettings(memory=SlotMemory(of))
    with ExitStack() as stack:
        backends = [stack.enter_context(rocks(settings, owner=f"operator {n}")) for n in range(stores)]
        for backend in backends:
            backend.value_state(ValueStateDescriptor("v"))
        yield backends


# --- within the budget ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stores", "total_bytes"), [(1, 2 << 20), (6, 8 << 20), (3, 32 << 20)])
def test_all_stores_stay_within_one_budget(stores: int, total_bytes: int) -> None:
    """E2: however many rows go through however many stores, blocks and write buffers have what the budget says."""
    shares, chance = budget(total_bytes), random.Random(1)
    with slot(shares, stores) as backends:
        for turn in range(80):
            for backend in backends:
                write(backend, (chance.randrange(1 << 30) for _ in range(400)))
                backend.value_state(ValueStateDescriptor("v")).value()
            in_buffers = sum(told(backend)[0] for backend in backends)
            in_blocks = max(told(backend)[1] for backend in backends)
            assert in_buffers <= shares.write_buffers_bytes, turn
            assert in_blocks <= shares.rocksdb_bytes, turn
        if total_bytes <= 8 << 20:
            assert all(store_of(backend).sizes()["file_bytes"] for backend in backends)


def test_the_stores_share_one_cache_of_blocks() -> None:
    """E2: what one store has in the cache the others see, and its capacity does not grow with the stores."""
    shares = budget(16 << 20)
    with slot(shares, 4) as (first, *others):
        write(first, iter(range(3_000)))
        first._cache.flush()  # type: ignore[union-attr]
        usage = told(first)
        assert usage[0] > 300_000
        assert usage[1] >= usage[0]  # write buffers are charged to the cache
        for other in others:
            assert told(other)[1:] == usage[1:]
            assert usage[2] <= shares.rocksdb_bytes


def test_write_buffers_that_nobody_needs_serve_reads() -> None:
    """E2: only the bytes in write buffers count against blocks, not the bytes that could be in them."""
    shares = budget(8 << 20, write_buffer_ratio=0.9)
    with slot(shares, 2) as (read, silent):
        write(read, iter(range(60_000)))
        store = store_of(read)
        store.flush()
        for _ in store.scan(b"\x00"):
            pass
        in_buffers, in_blocks, _ = told(read)
        assert in_buffers + told(silent)[0] < 1 << 20
        assert in_blocks > 0.3 * shares.rocksdb_bytes


def test_a_silent_store_does_not_shrink_the_buffers_of_others() -> None:
    """E2: stores that keep rows in their buffers leave a busy one its share, so its files do not become tiny."""
    with slot(budget(16 << 20), 12) as backends:
        *silent, busy = backends
        for backend in silent:
            store, batch = store_of(backend), store_of(backend).batch()
            for n in range(1_000):
                batch.put(b"%06d" % n, b"x" * 100)
            batch.write()
            assert store.sizes()["write_buffer_bytes"] > 100_000
        store = store_of(busy)
        store.flush()
        store._db.set_options({"disable_auto_compactions": "true"})
        before, rows = len(store._db.live_files()), 40_000
        for begin in range(0, rows, 100):
            batch = store.batch()
            for n in range(begin, begin + 100):
                batch.put(b"%06d" % n, b"x" * 100)
            batch.write()
        files = len(store._db.live_files()) - before
        assert 0 < files <= rows * 200 / budget(16 << 20).write_buffer_bytes(12)


# --- fairly -----------------------------------------------------------------------------------------------------------


def test_shares_follow_the_stores_that_are_open() -> None:
    """E2: all open stores have the same share; one that is opened or closed changes what the others have."""
    shares = budget(24 << 20)
    memory = SlotMemory(shares)
    settings = RocksDBSettings(memory=memory)
    with rocks(settings) as first:
        write(first, iter(range(10)))
        alone = first._cache.generation_max  # type: ignore[union-attr]
        with rocks(settings) as second, rocks(settings) as third:
            for backend in (second, third):
                write(backend, iter(range(10)))
            limits = [backend._cache.generation_max for backend in (first, second, third)]  # type: ignore[union-attr]
            assert limits == [limits[0]] * 3
            assert alone // 3 - 1 <= limits[0] <= alone // 3
            for backend in (first, second, third):
                assert buffer_of(backend) == shares.write_buffer_bytes(3)
            first._cache.resize()  # type: ignore[union-attr]
            third_of_all = first._cache.generation_max  # type: ignore[union-attr]
        assert first._cache.generation_max >= 3 * third_of_all  # type: ignore[union-attr]
        assert buffer_of(first) == shares.write_buffer_bytes(1)


def buffer_of(backend: RocksDBKeyedStateBackend) -> int:
    """The size of a write buffer from the next batch on, as RocksDB has written it into its file of options."""
    backend._cache.flush()  # type: ignore[union-attr]
    (newest,) = sorted((backend.directory / "db").glob("OPTIONS-*"))[-1:]
    (line,) = [line for line in newest.read_text().splitlines() if line.strip().startswith("write_buffer_size=")]
    return int(line.partition("=")[2])


def test_objects_beyond_a_smaller_share_go() -> None:
    """E2: what a store has in memory beyond the share that is left for it goes within a generation."""
    settings = RocksDBSettings(memory=SlotMemory(budget(8 << 20)))
    with ExitStack() as stack:
        first = stack.enter_context(rocks(settings))
        write(first, iter(range(1_000)))
        assert objects_of(first) == 1_000
        for _ in range(9):
            backend = stack.enter_context(rocks(settings))
            backend.value_state(ValueStateDescriptor("v"))
        generation = budget(8 << 20).object_cache_bytes(10) // 512
        write(first, iter(range(1_000, 1_000 + generation + 10)))
        assert objects_of(first) < 2 * generation


def objects_of(backend: RocksDBKeyedStateBackend) -> int:
    pane = backend.table("v").entries(None)
    return len({*dict.keys(pane), *pane._old})


def test_writebuffer_size_is_the_most() -> None:
    """D3: with a budget a write buffer still never exceeds the option for it; blocks may have what is left."""
    settings = RocksDBSettings(write_buffer_bytes=1 << 20, memory=SlotMemory(budget(1 << 30)))
    with rocks(settings) as backend:
        write(backend, iter(range(10)))
        assert buffer_of(backend) == 1 << 20


# --- the same results -------------------------------------------------------------------------------------------------


def work(backend: RocksDBKeyedStateBackend, seed: int) -> None:
    chance = random.Random(seed)
    value = backend.value_state(ValueStateDescriptor("v"))
    items = backend.list_state(ListStateDescriptor("l"))
    maps = backend.map_state(MapStateDescriptor("m"))
    for step in range(4_000):
        keyed(backend, chance.randrange(900))
        value.update((value.value() or 0) + step)
        items.add(step)
        maps.put(chance.randrange(5), "x" * chance.randrange(200))
        if not chance.randrange(20):
            items.clear()
        backend.settle()


def read(backend: RocksDBKeyedStateBackend) -> list[Any]:
    value = backend.value_state(ValueStateDescriptor("v"))
    items = backend.list_state(ListStateDescriptor("l"))
    maps = backend.map_state(MapStateDescriptor("m"))
    rows = []
    for key in range(900):
        keyed(backend, key)
        rows.append((value.value(), list(items.get()), sorted(maps.items())))
    return rows


def test_results_do_not_depend_on_the_budget(tmp_path: Path) -> None:
    """D3: state of stores that share the least budget equals that of stores with memory of their own."""
    least = MemoryBudget(2_000_000, MANAGED)
    with slot(least, 3) as backends, rocks(RocksDBSettings()) as alone:
        for seed, backend in enumerate(backends):
            work(backend, seed)
        for seed, backend in enumerate(backends):
            with rocks(RocksDBSettings()) as alone_too:
                work(alone_too, seed)
                assert read(backend) == read(alone_too)
                assert set(exported(backend)) == set(exported(alone_too))
        storage = Storage()
        files = storage.fetch(storage.checkpoint(backends[0], 1, {}), tmp_path / "fetched", (0, GROUPS - 1))
        alone.restore_files([files])
        assert read(alone) == read(backends[0])


def test_state_is_restored_and_rescaled_within_a_budget(tmp_path: Path) -> None:
    """D4: two halves of the key groups become one store, and none of the stores of the restore keeps its share."""
    memory = SlotMemory(MemoryBudget(4 << 20, MANAGED))
    settings, storage, halves = RocksDBSettings(memory=memory), Storage(), ((0, 63), (64, 127))
    files = []
    for number, half in enumerate(halves):
        with rocks(settings, half) as backend:
            write(backend, (key for key in range(500) if half[0] <= assign_key_group(key, GROUPS) <= half[1]), number)
            files.append(storage.fetch(storage.checkpoint(backend, 1, {}), tmp_path / f"{number}", half))
    with rocks(settings) as whole:
        whole.restore_files(files)
        state = whole.value_state(ValueStateDescriptor("v"))
        for key in range(500):
            keyed(whole, key)
            assert state.value() == (0 if assign_key_group(key, GROUPS) <= 63 else 1)
        assert len(memory._sharers) == 1
    assert not memory._sharers


# --- without one ------------------------------------------------------------------------------------------------------


def build_settings(**options: Any) -> BackendSettings:
    values = {"state.backend.type": "rocksdb"} | options
    return BackendSettings.of(Configuration.from_dict(values), "job")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"state.backend.rocksdb.memory.managed": True},
        {MANAGED: "64 mb", "state.backend.rocksdb.memory.managed": False},
    ],
)
def test_without_a_budget_each_store_has_sizes_of_its_own(options: dict[str, Any]) -> None:
    """D3: no default gives a budget, and managed memory can be left to others."""
    assert build_settings(**options).budget is None
    with rocks(RocksDBSettings()) as first, rocks(RocksDBSettings()) as second:
        for backend in (first, second):
            write(backend, iter(range(2_000)))
            assert buffer_of(backend) == 16 << 20
            assert told(backend)[2] == 32 << 20
            assert backend._cache._settings.object_bytes == 32 << 20  # type: ignore[union-attr]
        assert len(list((first.directory / "db").glob("OPTIONS-*"))) == 1  # nobody changed it


# --- options ----------------------------------------------------------------------------------------------------------


def test_a_fixed_size_goes_before_managed_memory() -> None:
    """E2: as in Flink, and with managed memory turned off too."""
    found = build_settings(**{MANAGED: "64 mb", FIXED: "32 mb", "state.backend.rocksdb.memory.managed": False}).budget
    assert found is not None
    assert (found.total_bytes, found.option) == (32 << 20, FIXED)
    managed = build_settings(**{MANAGED: "64 mb", "state.backend.rocksdb.memory.write-buffer-ratio": 0.25}).budget
    assert managed == MemoryBudget(64 << 20, MANAGED, 0.25, 0.33)
    assert build_settings(**{"state.backend.type": "hashmap", MANAGED: "64 mb"}).budget is None


def test_the_backends_of_a_worker_share_its_budget(tmp_path: Path) -> None:
    """E2: the settings that travel to a worker make one slot there."""
    made = build_settings(**{MANAGED: "16 mb", "state.backend.rocksdb.localdir": str(tmp_path)}).backends()
    backends = [made.make(ExecutionId(0, 0, n), "id", "operator", GROUPS, (0, GROUPS - 1)) for n in range(2)]
    for backend in backends:
        assert isinstance(backend, RocksDBKeyedStateBackend)
        write(backend, iter(range(10)))
    assert [told(b)[2] for b in backends] == [told(backends[0])[2]] * 2  # type: ignore[arg-type]
    assert [buffer_of(b) for b in backends] == [budget(16 << 20).write_buffer_bytes(2)] * 2  # type: ignore[arg-type]
    for backend in backends:
        backend.close()


@pytest.mark.parametrize("option", [MANAGED, FIXED])
def test_a_budget_below_what_one_store_needs_is_refused(option: str) -> None:
    """E2: before anything runs, with the option and the least that works."""
    with pytest.raises(ConfigurationError, match=rf"option {option} is 1024 bytes.* at least (\d+) bytes") as refused:
        build_settings(**{option: "1 kb"})
    minimum = int(str(refused.value).partition("at least ")[2].split()[0])
    assert build_settings(**{option: minimum}).budget is not None
    with pytest.raises(ConfigurationError, match="at least"):
        build_settings(**{option: minimum - 1})


def test_one_store_too_many_is_refused() -> None:
    """E2: the error says how many there are and what they need; the stores that are open go on."""
    shares = MemoryBudget(budget(1 << 20).minimum_bytes(2), MANAGED)
    with slot(shares, 2) as backends, rocks(backends[0]._settings) as third:
        need = shares.minimum_bytes(3)
        with pytest.raises(ConfigurationError, match=f"the 3 RocksDB stores of this worker need at least {need} bytes"):
            third.value_state(ValueStateDescriptor("v"))
        write(backends[0], iter(range(100)))
        backends[1].close()
        write(third, iter(range(100)))


def test_a_store_that_cannot_be_opened_has_no_share(tmp_path: Path) -> None:
    """E2: the others keep what they have."""
    memory = SlotMemory(budget(8 << 20))
    (tmp_path / "taken").write_bytes(b"a file, not a directory")
    with pytest.raises(StateError, match="cannot open"):
        RowStore(tmp_path / "taken", RocksDBSettings(memory=memory))
    assert memory.buffer_bytes == budget(8 << 20).write_buffer_bytes(1)


@pytest.mark.parametrize("ratio", [0, 1, -0.5, "nan"])
@pytest.mark.parametrize("name", ["write-buffer-ratio", "object-cache-ratio"])
def test_ratios_leave_something_to_each_part(name: str, ratio: Any) -> None:
    """E2: a part of nothing would work as badly as none, so it is a mistake."""
    with pytest.raises(ConfigurationError, match=f"{name}.*greater than 0 and less than 1"):
        build_settings(**{MANAGED: "64 mb", f"state.backend.rocksdb.memory.{name}": ratio})
