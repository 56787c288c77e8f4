"""RocksDB backends of a worker: each has its own directory, removed when the backend is closed."""

from __future__ import annotations

import logging

from penstock.drivers.directories import WorkerDirectories, WorkerDirectory
from penstock.runtime.protocol import ExecutionId
from penstock.state.backend import KeyedStateBackend
from penstock.state.errors import StateError
from penstock.state.rocksdb.backend import RocksDBKeyedStateBackend
from penstock.state.rocksdb.settings import RocksDBSettings

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
