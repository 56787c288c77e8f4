"""The storage of a worker: state backends, and the job's checkpoints.

`BackendSettings` select the state backend: keyed state on the heap, or in RocksDB files below a directory of the
worker.

`StorageSettings` make the state storage: the job's checkpoints, with copies on the worker's own disk if configured.

RocksDB backends of a worker: each has its own directory, removed when the backend is closed.
"""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path

import xxhash

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.base.durable_files import write_for_now
from penstock.base.metrics import ROCKSDB_METRICS
from penstock.drivers.directories import WorkerDirectories, WorkerDirectory
from penstock.runtime.ports import KeyedBackends, StateStorage
from penstock.runtime.protocol import ExecutionId
from penstock.state.backend import HeapBackends, KeyedStateBackend
from penstock.state.errors import StateError
from penstock.state.rocksdb.backend import RocksDBKeyedStateBackend
from penstock.state.rocksdb.settings import MemoryBudget, RocksDBSettings
from penstock.storage.file_store import FileCheckpointStore, LocalCopies
from penstock.storage.files import absolute_url, parse_signing_key
from penstock.storage.metadata import NativeStateHandle, StateFile

_log = logging.getLogger("penstock.state")


class RocksDBBackends:
    """Implements the port `KeyedBackends`. The settings hold the memory that the backends share (E2)."""

    def __init__(self, directories: WorkerDirectories, settings: RocksDBSettings) -> None:
        self._directories = directories
        self._settings = settings

    def make(
        self, execution: ExecutionId, operator_id: str, owner: str, max_parallelism: int, key_groups: tuple[int, int]
    ) -> KeyedStateBackend:
        """Create a RocksDB backend."""
        return _OwnDirectory(max_parallelism, self._directories.make(), owner, key_groups, self._settings)


class _OwnDirectory(RocksDBKeyedStateBackend):
    def __init__(
        self,
        max_parallelism: int,
        directory: WorkerDirectory,
        owner: str,
        key_groups: tuple[int, int],
        settings: RocksDBSettings,
    ) -> None:
        self._own = directory
        super().__init__(max_parallelism, directory.path, owner, key_groups, settings)

    def close(self) -> None:
        """Close the store and remove the directory.

        RocksDB flushes its buffers on close, which fails if the disk is full. The store is removed anyway, so the
        failure is logged and does not fail the task.
        """
        try:
            super().close()
        except StateError as error:
            _log.warning("%s", error)
        finally:
            self._own.remove()


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
        from penstock.drivers.worker_storage import RocksDBBackends
        from penstock.state.rocksdb.settings import RocksDBSettings, SlotMemory

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
    from penstock.state.rocksdb.settings import RocksDBSettings
    from penstock.state.rocksdb.snapshot import BACKEND_NAME, RocksCapture, fetch_files

    assert handle.backend == BACKEND_NAME, "only RocksDB has files of its own"
    with tempfile.TemporaryDirectory(prefix="penstock-savepoint-") as folder:
        directory = Path(folder) / "state"
        fetch_files(handle.files, read, directory)
        groups = handle.first_key_group, handle.last_key_group
        yield from RocksCapture(directory, owner, groups, (), RocksDBSettings(), handle.schemas).export()


@dataclass(frozen=True)
class StorageSettings:
    """The options of checkpoint storage. Sent to the workers, whose working directory differs."""

    directory: str | None
    job_id: str
    inline_bytes: int
    keeps_copies: bool
    reads_copies: bool
    copies_directory: str | None
    signing_key: bytes | None = field(default=None, repr=False)

    @classmethod
    def of(cls, configuration: Configuration, job_id: str) -> StorageSettings:
        """Read the options from the configuration."""
        read = configuration.read
        directory = read(options.CHECKPOINTING_DIR)
        reads = read(options.RECOVERY_FROM_LOCAL)
        keeps = read(options.LOCAL_BACKUP_ENABLED)
        return cls(
            None if directory is None else absolute_url(directory),
            job_id,
            read(options.CHECKPOINTING_INLINE_BYTES),
            reads if keeps is None else keeps,
            reads,
            read(options.LOCAL_BACKUP_DIR),
            parse_signing_key(read(options.SIGNING_KEY)),
        )

    def store(self) -> FileCheckpointStore:
        """Return the store of the job's checkpoints."""
        return FileCheckpointStore(self.directory, self.job_id, self.inline_bytes, export_native, self.signing_key)

    def storage(self) -> StateStorage:
        """Return the storage of one worker; called in the worker, which closes it."""
        store = self.store()
        if not self.keeps_copies or self.directory is None:
            return store
        directories = WorkerDirectories(self.copies_directory, self.job_id)
        copies = FilesByPath(directories)
        return LocalCopies(store, copies, self.reads_copies, stored=store.stored, content=store.content)


class FilesByPath(MutableMapping[str, bytes]):
    """Maps the paths of remote files to their bytes, each in a file of a local directory that `clear` removes."""

    def __init__(self, directories: WorkerDirectories) -> None:
        self._directories = directories
        self._directory: WorkerDirectory | None = None
        self._lock = threading.Lock()
        self._paths: set[str] = set()

    def _file(self, path: str) -> Path:
        with self._lock:
            if self._directory is None:
                self._directory = self._directories.make()
            return self._directory.path / xxhash.xxh3_128_hexdigest(path.encode())

    def __setitem__(self, path: str, data: bytes) -> None:
        self._paths.add(path)
        write_for_now(self._file(path), data)

    def __getitem__(self, path: str) -> bytes:
        if path not in self._paths:
            raise KeyError(path)
        return self._file(path).read_bytes()

    def __delitem__(self, path: str) -> None:
        self._paths.remove(path)
        self._file(path).unlink(missing_ok=True)

    def clear(self) -> None:
        self._paths.clear()
        with self._lock:
            directory, self._directory = self._directory, None
        if directory is not None:
            directory.remove()

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._paths))

    def __len__(self) -> int:
        return len(self._paths)


_log = logging.getLogger("penstock.state")
