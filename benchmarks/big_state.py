"""`python -m benchmarks.big_state --gigabytes 10`: keyed state much larger than memory, on the RocksDB backend.

One value for each key, in batches as an operator has them, with a settling point after each. Printed are the rates of
the first writing, of updates and of reads at random, the memory of the process meanwhile, the size on disk, the pause
and the bytes of a first and of an incremental checkpoint, and how long a restore takes until the first access.

Values are random bytes, which do not compress, so the state is as large on disk as it says. Files of a store that fits
into the memory of the machine lie in the cache of the system: a read at random then costs no seek of a disk.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from penstock.state.rocksdb.backend import RocksDBKeyedStateBackend
from penstock.state.rocksdb.settings import RocksDBSettings
from penstock.state.rocksdb.snapshot import SourceFiles, fetch_files
from penstock.state.states import ValueState, ValueStateDescriptor

GROUPS = 128
BATCH = 4096
#: Accesses between two lines of progress.
REPORT = 500 * BATCH
#: Random bytes from which values are cut.
_POOL = random.Random(1).randbytes(1 << 20)


def memory_mb(which: str = "VmRSS") -> float:
    """The memory of this process in MB of 10^6 bytes: what it has now, or the most that it ever had (`VmHWM`)."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{which}:")[2].split()[0]) * 1024 / 1e6


def megabytes(directory: Path) -> float:
    """What lies in a directory."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) / 1e6


class Run:
    """One state, and what was measured of it."""

    def __init__(self, root: Path, settings: RocksDBSettings, value_bytes: int, console: Console) -> None:
        self.console = console
        self._root = root
        self._settings = settings
        self._value_bytes = value_bytes
        self._chance = random.Random(2)
        self.stored = root / "stored"
        self.stored.mkdir()
        self.open("first")

    def open(self, name: str, *sources: SourceFiles) -> None:
        """Begin with an empty state, or with the files of a checkpoint."""
        self.backend = RocksDBKeyedStateBackend(GROUPS, self._root / name, settings=self._settings)
        if sources:
            self.backend.restore_files(sources)
        self.state: ValueState[bytes] = self.backend.value_state(ValueStateDescriptor("value"))

    def value(self) -> bytes:
        """A value that no other has."""
        begin = self._chance.randrange(len(_POOL) - self._value_bytes)
        return _POOL[begin : begin + self._value_bytes - 8] + self._chance.randbytes(8)

    def go(self, what: str, keys: Iterable[int], access: Callable[[], object]) -> tuple[int, float]:
        """Carry out an access for each key, in batches; returns accesses and seconds."""
        backend, count = self.backend, 0
        begun = last = time.perf_counter()
        for count, key in enumerate(keys, 1):
            backend.current_key = key
            access()
            if count % BATCH == 0:
                backend.settle()
                if count % REPORT == 0:
                    now = time.perf_counter()
                    rate = REPORT / (now - last) / 1e3
                    self.console.print(
                        f"{what}: {count:,}, {rate:,.0f} thousand a second, memory {memory_mb():,.0f} MB"
                    )
                    last = now
        backend.settle()
        return count, time.perf_counter() - begun

    def update(self) -> None:
        self.state.update(self.value())

    def read(self) -> None:
        assert self.state.value() is not None

    def change(self) -> None:
        found = self.state.value()
        assert found is not None
        self.state.update(found[8:] + found[:8])

    def checkpoint(self, number: int, known: dict[str, str]) -> tuple[dict[str, str], float, float, float]:
        """Take one, and copy what `known` lacks; returns its files, the pause and the copying (s), and MB copied."""
        begun = time.perf_counter()
        (capture,) = self.backend.capture(number)
        captured = time.perf_counter()
        copied = 0

        def copy(name: str, path: Path) -> str:
            nonlocal copied
            target = self.stored / f"{number}-{name}"
            shutil.copyfile(path, target)
            copied += target.stat().st_size
            return target.name

        files = capture.store_files(copy, known)
        capture.discard()
        return files, captured - begun, time.perf_counter() - captured, copied / 1e6

    def restore(self, files: dict[str, str]) -> tuple[float, float]:
        """Seconds of copying the files here, and from then to the first access."""
        begun = time.perf_counter()
        directory = self._root / "fetched"
        fetch_files(files, lambda name: (self.stored / name).read_bytes(), directory)
        fetched = time.perf_counter()
        self.open("second", SourceFiles(directory, 0, GROUPS - 1))
        self.backend.current_key = 1
        self.read()
        return fetched - begun, time.perf_counter() - fetched


@click.command()
@click.option("--gigabytes", default=1.0, show_default=True, help="Size of the state, in 10^9 bytes.")
@click.option("--cache-megabytes", default=64, show_default=True, help="RocksDB's block cache, in MiB.")
@click.option("--value-bytes", default=1000, show_default=True, help="Size of a value.")
@click.option("--accesses", default=1_000_000, show_default=True, help="Updates, and reads, at random.")
@click.option("--directory", default=None, help="Where the state goes; a temporary folder otherwise.")
def main(gigabytes: float, cache_megabytes: int, value_bytes: int, accesses: int, directory: str | None) -> None:
    """Fill, update, read, checkpoint and restore a big state."""
    console = Console()
    keys = int(gigabytes * 1e9 / value_bytes)
    settings = RocksDBSettings(block_cache_bytes=cache_megabytes << 20)
    chance = random.Random(3)
    table = Table(title=f"{keys:,} keys with {value_bytes:,} bytes each, block cache {cache_megabytes} MiB")
    table.add_column("what")
    table.add_column("figure", justify="right")
    with tempfile.TemporaryDirectory(prefix="penstock-big-", dir=directory) as folder:
        root = Path(folder)
        run = Run(root, settings, value_bytes, console)
        table.add_row("memory at the beginning", f"{memory_mb():,.0f} MB")
        phases: tuple[tuple[str, Iterable[int], Callable[[], object]], ...] = (
            ("first writing", range(keys), run.update),
            ("updates at random", (chance.randrange(keys) for _ in range(accesses)), run.change),
            ("reads at random", (chance.randrange(keys) for _ in range(accesses)), run.read),
        )
        for what, wanted, access in phases:
            count, seconds = run.go(what, wanted, access)
            rate = f"{count / seconds / 1e3:,.0f} thousand a second, {seconds:,.0f} s"
            console.print(f"{what}: {rate}")
            table.add_row(what, rate)
        files, pause, copying, copied = run.checkpoint(1, {})
        table.add_row("first checkpoint", f"{pause:,.2f} s pause, {copied:,.0f} MB in {copying:,.0f} s")
        table.add_row("size on disk", f"{megabytes(run.backend.directory / 'db'):,.0f} MB")
        run.go("1 % changed", chance.sample(range(keys), keys // 100), run.change)
        files, pause, copying, copied = run.checkpoint(2, files)
        table.add_row("checkpoint after 1 % changed", f"{pause:,.2f} s pause, {copied:,.0f} MB in {copying:,.0f} s")
        run.backend.close()
        shutil.rmtree(run.backend.directory)
        fetching, opening = run.restore(files)
        table.add_row("restore", f"{fetching:,.0f} s copying, {opening:,.2f} s to the first access")
        table.add_row("highest memory", f"{memory_mb('VmHWM'):,.0f} MB")
        run.backend.close()
    console.print(table)


if __name__ == "__main__":
    main()
