"""Whatever is done to it, the RocksDB backend says what the heap says: results, contents, snapshots."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.state.rocks import GROUPS, MEMORY, Storage, exported

from penstock.state.backend import HeapKeyedStateBackend, KeyedStateBackend
from penstock.state.rocksdb.backend import RocksDBKeyedStateBackend
from penstock.state.rocksdb.settings import RocksDBSettings
from penstock.state.snapshot import read_keyed
from penstock.state.states import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)

pytestmark = pytest.mark.slow

ALL = (0, GROUPS - 1)


class Mean:
    """An aggregate whose accumulator is changed in place."""

    def create_accumulator(self) -> list[int]:
        return [0, 0]

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        accumulator[0] += value
        accumulator[1] += 1
        return accumulator

    def get_result(self, accumulator: list[int]) -> tuple[int, ...]:
        return tuple(accumulator)


class States:
    """One state of each kind, and a table with namespaces."""

    def __init__(self, backend: KeyedStateBackend) -> None:
        self.backend = backend
        self.value = backend.value_state(ValueStateDescriptor("value"))
        self.list = backend.list_state(ListStateDescriptor("list"))
        self.map = backend.map_state(MapStateDescriptor("map"))
        self.sum = backend.reducing_state(ReducingStateDescriptor("sum", lambda a, b: a + b))
        self.mean = backend.aggregating_state(AggregatingStateDescriptor("mean", Mean()))
        self.windows = backend.table("windows")

    def apply(self, step: Any) -> Any:
        """Carry a step out; returns what there is to see of it."""
        verb, key, *rest = step
        self.backend.current_key = key
        seen = getattr(self, verb)(key, *rest)
        return seen

    def value_set(self, key: Any, number: int) -> Any:
        before = self.value.value()
        self.value.update([number])
        return before

    def value_blind(self, key: Any, number: int) -> None:
        self.value.update([number])

    def value_in_place(self, key: Any, number: int) -> Any:
        found = self.value.value()
        if found is not None:
            found.append(number)
            self.value.update(found)
        return found

    def value_clear(self, key: Any, number: int) -> None:
        self.value.clear() if number else self.value.update(None)

    def list_add(self, key: Any, number: int) -> None:
        self.list.add(number)

    def list_more(self, key: Any, number: int) -> None:
        self.list.add_all([number] * (number % 3))

    def list_get(self, key: Any, number: int) -> Any:
        return list(self.list)

    def list_update(self, key: Any, number: int) -> None:
        self.list.update([number] * (number % 3))

    def list_clear(self, key: Any, number: int) -> None:
        self.list.clear()

    def map_put(self, key: Any, number: int) -> None:
        self.map.put(number % 5, number)

    def map_more(self, key: Any, number: int) -> None:
        self.map.put_all({number: None, ("pair", 1.5): number})

    def map_get(self, key: Any, number: int) -> Any:
        return self.map.get(number % 5), self.map.contains(number), self.map.is_empty()

    def map_remove(self, key: Any, number: int) -> None:
        self.map.remove(number % 5)

    def map_all(self, key: Any, number: int) -> Any:
        state = self.map
        return sorted(map(repr, state.items())), sorted(map(repr, state)), len(state), sorted(map(repr, state.values()))

    def map_clear(self, key: Any, number: int) -> None:
        self.map.clear()

    def map_change_while_reading(self, key: Any, number: int) -> Any:
        seen = []
        for found, _ in self.map.items():
            self.map.remove(found)
            self.map.put(number, number)
            seen.append(repr(found))
        return sorted(seen)

    def sum_add(self, key: Any, number: int) -> Any:
        self.sum.add(number)
        return self.sum.get()

    def sum_clear(self, key: Any, number: int) -> None:
        self.sum.clear()

    def mean_add(self, key: Any, number: int) -> Any:
        self.mean.add(number)
        return self.mean.get()

    def window_add(self, key: Any, number: int) -> Any:
        window = (number % 4, number % 4 + 10)
        pane = self.windows.panes.get(window)
        if pane is None:
            pane = self.windows.entries(window)
        held = pane.get(key)
        if held is None:
            pane[key] = [number]
        else:
            held.append(number)
        self.windows.changed(window).add(key)  # marked last, as window operators do
        return held

    def window_remove(self, key: Any, number: int) -> Any:
        window = (number % 4, number % 4 + 10)
        pane = self.windows.entries(window)
        self.windows.changed(window).add(key)
        return key in pane, pane.pop(key, None)

    def window_drop(self, key: Any, number: int) -> Any:
        window = (number % 4, number % 4 + 10)
        dropped = self.windows.drop(window)
        return sorted(map(repr, dropped.items())), sorted(map(repr, dropped)), bool(dropped), len(dropped)

    def window_fire(self, key: Any, number: int) -> Any:
        """As a window with allowed lateness does: what is dropped moves to another namespace."""
        dropped = self.windows.drop((number % 4, number % 4 + 10))
        self.windows.entries("fired").update(dropped)
        self.windows.changed("fired").update(dropped)
        return sorted(map(repr, dropped))

    def window_look(self, key: Any, number: int) -> Any:
        panes = self.windows.panes
        # An empty pane may or may not be there.
        return sorted((repr(n), sorted(map(repr, p.items())), len(p)) for n, p in panes.items() if p)

    def settle(self, key: Any, number: int) -> None:
        self.backend.settle()


@pytest.fixture
def memory_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield Path(folder)


KINDS = ["value", "list", "map", "sum", "mean", "window"]
KEYS = ["a", 1, ("x", 2), 2.5, None, b"b"]


@st.composite
def histories(draw: Any, others: Any, length_max: int) -> list:
    """Steps on one or two kinds of state and a few keys, so that they meet; `others` come in between."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=2))
    verbs = [name for name in vars(States) if name.split("_")[0] in kinds]
    keys = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3))
    step = st.tuples(st.sampled_from(verbs), st.sampled_from(keys), st.integers(0, 9))
    settle = st.tuples(st.just("settle"), st.none(), st.just(0))
    length = draw(st.integers(0, length_max))  # lists of any length are mostly short
    steps = st.one_of(step, step, step, settle, others)
    found: list = draw(st.lists(steps, min_size=length, max_size=length))
    return found


SETTINGS = st.builds(RocksDBSettings, cache_bytes=st.sampled_from([1, 5_000, 1 << 20]))


def contents(files: dict[str, list[bytes]]) -> dict[str, dict[Any, dict[Any, Any]]]:
    read = {name: read_keyed(data, *ALL) for name, data in files.items()}
    full = {name: {n: e for n, e in table.items() if e} for name, table in read.items()}
    return {name: table for name, table in full.items() if table}


def heap_files(backend: HeapKeyedStateBackend) -> dict[str, list[bytes]]:
    for table in backend._tables.values():
        table.mark_all()
    return {capture.name: [capture.to_bytes(GROUPS)] for capture in backend.capture(10**6)}


@settings(deadline=None, max_examples=150)
@given(histories(st.nothing(), 60), SETTINGS)
def test_agrees_with_the_heap(steps: list, sizes: RocksDBSettings) -> None:
    """D1, D3: the same steps on both give the same results, and the same canonical snapshot."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        heap, other = HeapKeyedStateBackend(GROUPS), RocksDBKeyedStateBackend(GROUPS, Path(folder), settings=sizes)
        try:
            one, two = States(heap), States(other)
            for step in steps:
                assert one.apply(step) == two.apply(step), step
            assert contents(exported(other, 100)) == contents(heap_files(heap))
        finally:
            other.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cache_bytes", [1, 3_000])
def test_agrees_with_the_heap_for_long(memory_path: Path, kind: str, cache_bytes: int) -> None:
    """D1, D3, G7: the same over thousands of steps on few keys, with snapshots and recoveries in between."""
    chance = random.Random(f"{kind} {cache_bytes}")
    verbs = [name for name in vars(States) if name.split("_")[0] == kind] + ["settle"] * 2
    sizes = RocksDBSettings(cache_bytes=cache_bytes)
    heap, other = HeapKeyedStateBackend(GROUPS), RocksDBKeyedStateBackend(GROUPS, memory_path / "0", settings=sizes)
    storage, known, one, two = Storage(), dict[str, int](), States(heap), States(other)
    try:
        for number in range(4_000):
            step = (chance.choice(verbs), chance.choice(KEYS[:4]), chance.randrange(10))
            assert one.apply(step) == two.apply(step), (number, step)
            if number % 17 == 0:
                known = storage.checkpoint(other, number, known)
            if number % 501 == 500:
                assert contents(exported(other)) == contents(heap_files(heap))
                known = storage.checkpoint(other, number, known)
                other.close()
                other = RocksDBKeyedStateBackend(GROUPS, memory_path / str(number), settings=sizes)
                other.restore_files([storage.fetch(known, memory_path / "fetched", ALL)])
                two = States(other)
        assert contents(exported(other)) == contents(heap_files(heap))
    finally:
        other.close()


RECOVERY = st.one_of(
    st.tuples(st.just("checkpoint")),
    st.tuples(st.sampled_from(["restore", "restore canonical", "from heap"]), st.booleans()),
)


@settings(deadline=None, max_examples=40)
@given(histories(RECOVERY, 40), SETTINGS)
def test_agrees_with_the_heap_over_recoveries(steps: list, sizes: RocksDBSettings) -> None:
    """G7, H4: the same with checkpoints, and recoveries from files, from canonical files, and from a heap's snapshot;
    nothing but the files of the last checkpoint is kept."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        storage, root, runs = Storage(), Path(folder), 0
        heap, other = HeapKeyedStateBackend(GROUPS), RocksDBKeyedStateBackend(GROUPS, root / "0", settings=sizes)
        try:
            one, two = States(heap), States(other)
            known: dict[str, int] = {}
            for number, step in enumerate(steps):
                if step[0] == "checkpoint":
                    known = storage.checkpoint(other, number, known)
                    storage.files = {n: data for n, data in storage.files.items() if n in known.values()}
                elif step[0].startswith(("restore", "from")):
                    runs += 1
                    files = heap_files(heap)
                    if step[0] == "restore canonical":
                        files = exported(other, 100)
                    if step[0] == "restore":
                        known = storage.checkpoint(other, number, known)
                    other.close()
                    other = RocksDBKeyedStateBackend(GROUPS, root / str(runs), settings=sizes)
                    if step[0] == "restore":
                        other.restore_files([storage.fetch(known, root / f"{runs}-fetched", ALL)])
                    else:
                        known = {}
                        for name, data in files.items():
                            if step[1]:
                                other.restore_canonical(name, data)
                            else:
                                other.restore(name, read_keyed(data, *ALL), False)
                    two = States(other)
                    heap = HeapKeyedStateBackend(GROUPS)
                    for name, data in files.items():
                        heap.restore(name, read_keyed(data, *ALL), False)
                    one = States(heap)
                else:
                    assert one.apply(step) == two.apply(step), step
            assert contents(exported(other)) == contents(heap_files(heap))
        finally:
            other.close()
