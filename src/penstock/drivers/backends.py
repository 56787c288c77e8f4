"""The state backends of a worker: keyed state on the heap, or in RocksDB files below a directory of the worker."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.base.metric_options import ROCKSDB_METRICS
from penstock.core.ports import KeyedBackends
from penstock.core.task.heap_backends import HeapBackends
from penstock.drivers.worker_directories import WorkerDirectories
from penstock.state.rocksdb.budget import MemoryBudget
from penstock.storage.metadata import NativeStateHandle, StateFile


@dataclass(frozen=True)
class BackendSettings:
    """The options of the state backends, as sent to the workers."""

    name: str
    job_id: str
    local_directory: str | None
    block_cache_bytes: int
    write_buffer_bytes: int
    object_cache_bytes: int
    budget: MemoryBudget | None = None
    metrics: tuple[str, ...] = ()

    @classmethod
    def of(cls, configuration: Configuration, job_id: str) -> BackendSettings:
        """Read the options; raise `ConfigurationError` if the memory budget is too small for any store."""
        read = configuration.read
        return cls(
            read(options.STATE_BACKEND),
            job_id,
            read(options.ROCKSDB_LOCAL_DIR),
            read(options.ROCKSDB_BLOCK_CACHE_BYTES),
            read(options.ROCKSDB_WRITE_BUFFER_BYTES),
            read(options.ROCKSDB_OBJECT_CACHE_BYTES),
            _budget(configuration) if read(options.STATE_BACKEND) == "rocksdb" else None,
            tuple(name for name, reported in ROCKSDB_METRICS.items() if read(reported)),
        )

    def backends(self) -> KeyedBackends:
        """Create the factory of a worker's backends; called in the worker."""
        if self.name == "hashmap":
            return HeapBackends()
        # Jobs without RocksDB do not pay for its import.
        from penstock.drivers.rocksdb_backends import RocksDBBackends
        from penstock.state.rocksdb.memory import SlotMemory
        from penstock.state.rocksdb.settings import RocksDBSettings

        return RocksDBBackends(
            WorkerDirectories(self.local_directory, self.job_id),
            RocksDBSettings(
                cache_bytes=self.object_cache_bytes,
                write_buffer_bytes=self.write_buffer_bytes,
                block_cache_bytes=self.block_cache_bytes,
                memory=SlotMemory(self.budget) if self.budget else None,
                metrics=self.metrics,
            ),
        )


def _budget(configuration: Configuration) -> MemoryBudget | None:
    """Return the memory budget of all stores of a worker, if configured; a fixed size overrides managed memory."""
    read = configuration.read
    option = options.ROCKSDB_MEMORY_FIXED_PER_SLOT_BYTES
    total_bytes = read(option)
    if total_bytes is None and read(options.ROCKSDB_MEMORY_MANAGED):
        option = options.MANAGED_MEMORY_BYTES
        total_bytes = read(option)
    if total_bytes is None:
        return None
    return MemoryBudget(
        total_bytes,
        option.key(),
        read(options.ROCKSDB_WRITE_BUFFER_RATIO),
        read(options.ROCKSDB_OBJECT_CACHE_RATIO),
    )


def export_native(
    handle: NativeStateHandle, read: Callable[[StateFile], bytes], owner: str
) -> Iterator[tuple[str, bytes]]:
    """Export the states of one subtask from RocksDB's native files in a format that every backend can read.

    Yields (name, canonical file); the files of a state are adjacent.

    Args:
        handle: the native files of RocksDB.
        read: returns the bytes of a file.
        owner: the state's owner, for error messages.
    """
    # Jobs without RocksDB do not pay for its import.
    from penstock.state.rocksdb.capture import BACKEND_NAME, RocksCapture, fetch_files
    from penstock.state.rocksdb.settings import RocksDBSettings

    assert handle.backend == BACKEND_NAME, "only RocksDB has files of its own"
    with tempfile.TemporaryDirectory(prefix="penstock-savepoint-") as folder:
        directory = Path(folder) / "state"
        fetch_files(handle.files, read, directory)
        groups = handle.first_key_group, handle.last_key_group
        yield from RocksCapture(directory, owner, groups, (), RocksDBSettings(), handle.schemas).export()
