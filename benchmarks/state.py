"""`python -m benchmarks.state`: keyed state on the heap and on RocksDB, beside a plain dictionary and plain rocksdict.

Four tables. Accesses: thousands a second of each kind of state, on the heap, on RocksDB with all keys in the cache,
and on RocksDB with many more keys than fit. Restoring: seconds against the size of the state, from files of the same
key groups, from those of other key groups, and from canonical files. Checkpoints: the pause and the bytes against the
share of keys that changed. Memory: accesses to the stores of one worker, with sizes of their own and with a budget.
"""

from __future__ import annotations

import pickle
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rocksdict import Options, Rdict

from penstock.runtime.operators.watermarks import TimerQueue
from penstock.state.backend import HeapKeyedStateBackend, KeyedStateBackend
from penstock.state.rocksdb.backend import RocksDBKeyedStateBackend
from penstock.state.rocksdb.settings import MemoryBudget, RocksDBSettings, SlotMemory
from penstock.state.rocksdb.snapshot import RocksCapture, SourceFiles
from penstock.state.snapshot import read_keyed
from penstock.state.states import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)

GROUPS = 128
#: Accesses between two settling points, as in a batch.
BATCH = 4096
COLD = RocksDBSettings(cache_bytes=1 << 20, write_buffer_bytes=4 << 20, block_cache_bytes=4 << 20)
HOT = RocksDBSettings(cache_bytes=1 << 30)


class Mean:
    """Sum and number."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]


@contextmanager
def rocks(settings: RocksDBSettings) -> Iterator[RocksDBKeyedStateBackend]:
    """A backend in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        backend = RocksDBKeyedStateBackend(GROUPS, Path(folder), settings=settings)
        try:
            yield backend
        finally:
            backend.close()


# --- accesses ---------------------------------------------------------------------------------------------------------


def operations(backend: KeyedStateBackend) -> dict[str, Callable[[int], Any]]:
    """What is measured: by name, what is done under the current key."""
    value = backend.value_state(ValueStateDescriptor("value"))
    items = backend.list_state(ListStateDescriptor("list"))
    pairs = backend.map_state(MapStateDescriptor("map"))
    total = backend.reducing_state(ReducingStateDescriptor("sum", lambda a, b: a + b))
    mean = backend.aggregating_state(AggregatingStateDescriptor("mean", Mean()))
    return {
        "value: update": lambda key: value.update((key, "a value")),
        "value: get": lambda key: value.value(),
        "value: get and update": lambda key: value.update((value.value() or (0,))[:1]),
        "list: add": items.add,
        "list: get": lambda key: items.get(),
        "map: put": lambda key: pairs.put(key % 8, key),
        "map: get": lambda key: pairs.get(key % 8),
        "reducing: add": total.add,
        "aggregating: add": mean.add,
    }


def rates(backend: KeyedStateBackend, keys: list[int]) -> dict[str, float]:
    """Accesses a second of the thread's CPU time (which other programs do not change), by name.

    Each operation goes over the keys twice, and the second time counts.
    """
    found = {}
    for name, operate in operations(backend).items():
        for _ in range(2):
            begun = time.thread_time()
            for start in range(0, len(keys), BATCH):
                for key in keys[start : start + BATCH]:
                    backend.current_key = key
                    operate(key)
                backend.settle()
            seconds = time.thread_time() - begun
        found[name] = len(keys) / seconds
    queue = TimerQueue(backend.table("timers"))
    begun = time.thread_time()
    for start in range(0, len(keys), BATCH):
        for key in keys[start : start + BATCH]:
            queue.register(key // 10, key)
        backend.settle()
    queue.fire(1 << 60, lambda due, key: None)
    found["timer: set and fire"] = len(keys) / (time.thread_time() - begun)
    return found


def raw_rates(keys: list[int]) -> dict[str, tuple[float, float]]:
    """What a dictionary and rocksdict do without anything around them: (dict, rocksdict) accesses a second."""

    def timed(work: Callable[[], None]) -> float:
        begun = time.thread_time()
        work()
        return len(keys) / (time.thread_time() - begun)

    entries: dict[Any, Any] = {}

    def put() -> None:
        for key in keys:
            entries[key] = (key, "a value")

    def get() -> None:
        for key in keys:
            entries.get(key)

    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        store = Rdict(folder, Options(raw_mode=True))

        def store_put() -> None:
            for key in keys:
                store[b"i%d" % key] = pickle.dumps((key, "a value"), protocol=5)

        def store_get() -> None:
            for key in keys:
                pickle.loads(store[b"i%d" % key])  # type: ignore[arg-type]

        found = {"value: update": (timed(put), timed(store_put)), "value: get": (timed(get), timed(store_get))}
        store.close()
    return found


def accesses(console: Console, count: int) -> None:
    """Print the rates."""
    keys = list(range(count))
    random.Random(1).shuffle(keys)
    raw = raw_rates(keys)
    heap = rates(HeapKeyedStateBackend(GROUPS), keys)
    with rocks(HOT) as backend:
        hot = rates(backend, keys)
    with rocks(COLD) as backend:
        cold = rates(backend, keys)
    table = Table(title=f"thousand accesses a second of CPU, {count:,} keys in random order")
    for column in ("access", "dict", "rocksdict and pickle", "heap", "RocksDB, in cache", "RocksDB, not in cache"):
        table.add_column(column, justify="left" if column == "access" else "right")
    for name in heap:
        bare = raw.get(name)
        cells = [f"{rate / 1e3:,.0f}" for rate in (*(bare or ()), heap[name], hot[name], cold[name])]
        table.add_row(name, *([] if bare else ["", ""]), *cells)
    console.print(table)


# --- restoring --------------------------------------------------------------------------------------------------------


def fill(backend: KeyedStateBackend, count: int) -> None:
    """A value of about 100 bytes for each key."""
    state = backend.value_state(ValueStateDescriptor("value"))
    for key in range(count):
        backend.current_key = key
        state.update((key, random.Random(key).randbytes(90)))
        if key % BATCH == 0:
            backend.settle()


def restoring(console: Console, sizes: list[int]) -> None:
    """Print how long it takes to have state back, first access included."""
    table = Table(title="seconds to restore")
    columns = ("keys", "MB", "heap", "RocksDB: same key groups", "half of them", "two halves into one", "canonical")
    for column in columns:
        table.add_column(column, justify="right")
    for count in sizes:
        table.add_row(*restore_times(count))
    console.print(table)


def restore_times(count: int) -> list[str]:
    """One row of the table."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        root = Path(folder)
        backend = RocksDBKeyedStateBackend(GROUPS, root / "old")
        fill(backend, count)
        captures = [backend.capture(number)[0] for number in range(4)]
        size = sum(file.length for file in captures[0].files)
        canonical = [data for _, data in captures[3].export()]
        backend.close()
        half = GROUPS // 2

        def restored(name: str, sources: list[SourceFiles], groups: tuple[int, int]) -> float:
            begun = time.perf_counter()
            other = RocksDBKeyedStateBackend(GROUPS, root / name, key_groups=groups)
            other.restore_files(sources)
            other.current_key = 1
            other.value_state(ValueStateDescriptor("value")).value()
            seconds = time.perf_counter() - begun
            other.capture(1)[0].directory.rename(root / f"{name}-files")
            other.close()
            return seconds

        def files(capture: RocksCapture) -> SourceFiles:
            return SourceFiles(capture.directory, 0, GROUPS - 1)

        same = restored("same", [files(captures[0])], (0, GROUPS - 1))
        lower = restored("lower", [files(captures[1])], (0, half - 1))
        restored("upper", [files(captures[2])], (half, GROUPS - 1))
        halves = [
            SourceFiles(root / "lower-files", 0, half - 1),
            SourceFiles(root / "upper-files", half, GROUPS - 1),
        ]
        joined = restored("joined", halves, (0, GROUPS - 1))
        begun = time.perf_counter()
        other = RocksDBKeyedStateBackend(GROUPS, root / "canonical")
        other.restore_canonical("value", canonical)
        from_canonical = time.perf_counter() - begun
        other.close()
        begun = time.perf_counter()
        HeapKeyedStateBackend(GROUPS).restore("value", read_keyed(canonical, 0, GROUPS - 1), True)
        heap = time.perf_counter() - begun
    seconds = (heap, same, lower, joined, from_canonical)
    return [f"{count:,}", f"{size / 1e6:,.0f}", *(f"{second:.2f}" for second in seconds)]


# --- checkpoints ------------------------------------------------------------------------------------------------------


def checkpoints(console: Console, count: int) -> None:
    """Print pause and bytes of incremental checkpoints."""
    table = Table(title=f"incremental checkpoints of {count:,} keys, medians of 5")
    for column in ("changed", "keys", "pause ms", "new MB", "of MB"):
        table.add_column(column, justify="right")
    chance = random.Random(1)
    with rocks(RocksDBSettings()) as backend:
        fill(backend, count)
        capture = backend.capture(0)[0]
        state = backend.value_state(ValueStateDescriptor("value"))
        known = {file.name for file in capture.files}
        number = 0
        for share in (0.001, 0.01, 0.1, 0.5):
            figures = []
            for _ in range(5):
                number += 1
                for index, key in enumerate(chance.sample(range(count), int(count * share))):
                    backend.current_key = key
                    state.update((number, chance.randbytes(90)))
                    if index % BATCH == 0:
                        backend.settle()
                begun = time.perf_counter()
                following = backend.capture(number)[0]
                pause = time.perf_counter() - begun
                new = sum(file.length for file in following.files if not (file.is_shared and file.name in known))
                figures.append((pause, new, sum(file.length for file in following.files)))
                known = {file.name for file in following.files}
                capture.discard()
                capture = following
            pause, new, total = (sorted(column)[2] for column in zip(*figures, strict=True))
            cells = (f"{int(count * share):,}", f"{pause * 1e3:.1f}", f"{new / 1e6:.2f}", f"{total / 1e6:.1f}")
            table.add_row(f"{share:.1%}", *cells)
    console.print(table)


# --- memory -----------------------------------------------------------------------------------------------------------


def memory(console: Console, stores: int, keys: int) -> None:
    """Print accesses a second of processor time, when the stores of a worker take turns."""
    table = Table(title=f"{stores} stores of {keys:,} keys in one worker")
    for column in ("memory", "MB", "thousands a second"):
        table.add_column(column, justify="right")
    own = RocksDBSettings()
    each = own.cache_bytes + own.write_buffers * own.write_buffer_bytes + own.block_cache_bytes
    table.add_row("their own", f"{stores * each >> 20}", f"{in_turns(own, stores, keys) / 1e3:,.0f}")
    for part in (3, 12):
        total = stores * each // part
        settings = RocksDBSettings(memory=SlotMemory(MemoryBudget(total, "total")))
        table.add_row("a budget", f"{total >> 20}", f"{in_turns(settings, stores, keys) / 1e3:,.0f}")
    console.print(table)


def in_turns(settings: RocksDBSettings, stores: int, keys: int) -> float:
    """Reads and writes a second; a batch goes to one store, the next to the next one."""
    chance = random.Random(1)
    with ExitStack() as stack:
        backends = [stack.enter_context(rocks(settings)) for _ in range(stores)]
        for backend in backends:
            fill(backend, keys)
        states = [backend.value_state(ValueStateDescriptor("value")) for backend in backends]
        begun, count = time.process_time(), 60 * BATCH
        for number in range(count):
            index = number // BATCH % stores
            backends[index].current_key = chance.randrange(keys)
            value: Any = states[index].value()
            states[index].update((number, value[1]))
            if number % BATCH == BATCH - 1:
                backends[index].settle()
        return count / (time.process_time() - begun)


@click.command()
@click.option("--keys", default=200_000, show_default=True, help="Keys of the accesses.")
@click.option("--sizes", default="100000,1000000", show_default=True, help="Keys to restore.")
@click.option("--checkpointed", default=1_000_000, show_default=True, help="Keys of the checkpoints.")
@click.option("--stores", default=8, show_default=True, help="Stores of one worker that share its memory.")
def main(keys: int, sizes: str, checkpointed: int, stores: int) -> None:
    """Print the four tables."""
    console = Console()
    accesses(console, keys)
    restoring(console, [int(size) for size in sizes.split(",")])
    checkpoints(console, checkpointed)
    memory(console, stores, checkpointed // 4)


if __name__ == "__main__":
    main()
