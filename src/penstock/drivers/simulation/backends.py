"""Keyed state of simulated workers: on the heap, or in RocksDB, whose files are removed when the worker ends.

RocksDB is the real one, without background work: it does not compact on its own, so the number of files depends only on
the captures.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from rocksdict import Options

from penstock.core.protocol import ExecutionId
from penstock.state.backend import KeyedStateBackend
from penstock.state.heap import HeapKeyedStateBackend
from penstock.state.rocksdb.backend import RocksDBKeyedStateBackend
from penstock.state.rocksdb.settings import RocksDBSettings

#: RocksDB waits for its disk; a memory file system avoids that where there is one.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
FILES_MAX = 1_000_000


class QuietSettings(RocksDBSettings):
    """Small, and without background compaction."""

    def options(self) -> Options:
        options = super().options()
        options.set_disable_auto_compactions(True)
        options.set_level_zero_slowdown_writes_trigger(FILES_MAX)
        options.set_level_zero_stop_writes_trigger(FILES_MAX)
        return options


#: A cache of one byte: every settling point evicts something.
SETTINGS = QuietSettings(cache_bytes=1, write_buffer_bytes=64 << 10, block_cache_bytes=64 << 10, file_bytes=64 << 10)


class StateFolder:
    """A directory for the RocksDB stores of a history, created on demand."""

    def __init__(self) -> None:
        self._folder: str | None = None
        self._made = 0

    def next(self) -> Path:
        """Return a directory that no backend has used before."""
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="penstock-sim-", dir=MEMORY)
        self._made += 1
        return Path(self._folder) / f"{self._made}"

    def left(self) -> list[str]:
        """Return the directories that were not removed."""
        return [] if self._folder is None else sorted(os.listdir(self._folder))

    def __enter__(self) -> StateFolder:
        return self

    def __exit__(self, *error: object) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


class _Owned(RocksDBKeyedStateBackend):
    def close(self) -> None:
        super().close()
        shutil.rmtree(self.directory, ignore_errors=True)


class SimulatedBackends:
    """Implements the port `KeyedBackends` for one worker."""

    def __init__(self, name: str, folder: StateFolder) -> None:
        self._name = name
        self._folder = folder
        self._made: list[_Owned] = []

    def make(
        self, execution: ExecutionId, operator_id: str, owner: str, max_parallelism: int, key_groups: tuple[int, int]
    ) -> KeyedStateBackend:
        if self._name == "hashmap":
            return HeapKeyedStateBackend(max_parallelism, owner)
        backend = _Owned(max_parallelism, self._folder.next(), owner, key_groups, SETTINGS)
        self._made.append(backend)
        return backend

    def close(self) -> None:
        """Remove the directories of a worker that has ended."""
        for backend in self._made:
            backend.close()
        self._made.clear()
