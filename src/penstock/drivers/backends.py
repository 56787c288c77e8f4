"""Where the keyed state of a worker lives: on the heap, or in RocksDB's files below a directory of the worker."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from penstock.common import options
from penstock.common.configuration import Configuration
from penstock.core.ports import KeyedBackends
from penstock.core.protocol import ExecutionId
from penstock.core.task.heap_backends import HeapBackends
from penstock.state.backend import KeyedStateBackend

PREFIX = "penstock-state-"


@dataclass(frozen=True)
class BackendSettings:
    """The options of state backends; travels to the workers."""

    name: str
    job_id: str
    local_directory: str | None
    block_cache_bytes: int
    write_buffer_bytes: int
    object_cache_bytes: int

    @classmethod
    def of(cls, configuration: Configuration, job_id: str) -> BackendSettings:
        """Read the options."""
        read = configuration.read
        return cls(
            read(options.STATE_BACKEND),
            job_id,
            read(options.ROCKSDB_LOCAL_DIR),
            read(options.ROCKSDB_BLOCK_CACHE_BYTES),
            read(options.ROCKSDB_WRITE_BUFFER_BYTES),
            read(options.ROCKSDB_OBJECT_CACHE_BYTES),
        )

    def backends(self) -> KeyedBackends:
        """What makes the backends of a worker; called in the worker."""
        return HeapBackends() if self.name == "hashmap" else RocksDBBackends(self)


class RocksDBBackends:
    """Implements the port `KeyedBackends`: each backend has a directory, which goes when the backend is closed.

    A process that is killed leaves its directories behind; the next one of the same job on the machine removes them.
    """

    def __init__(self, settings: BackendSettings) -> None:
        from penstock.state.rocksdb.settings import RocksDBSettings

        self._sizes = RocksDBSettings(
            cache_bytes=settings.object_cache_bytes,
            write_buffer_bytes=settings.write_buffer_bytes,
            block_cache_bytes=settings.block_cache_bytes,
        )
        self._parent = Path(settings.local_directory or tempfile.gettempdir())
        self._job_prefix = f"{PREFIX}{settings.job_id}-"
        remove_left_behind(self._parent, self._job_prefix)

    def make(
        self, execution: ExecutionId, operator_id: str, owner: str, max_parallelism: int, key_groups: tuple[int, int]
    ) -> KeyedStateBackend:
        """A backend over RocksDB."""
        from penstock.state.rocksdb.backend import RocksDBKeyedStateBackend

        class Owned(RocksDBKeyedStateBackend):
            def close(self) -> None:
                super().close()
                shutil.rmtree(self.directory, ignore_errors=True)

        self._parent.mkdir(parents=True, exist_ok=True)
        directory = tempfile.mkdtemp(prefix=f"{self._job_prefix}{os.getpid()}-", dir=self._parent)
        return Owned(max_parallelism, Path(directory), owner, key_groups, self._sizes)


def remove_left_behind(parent: Path, prefix: str) -> None:
    """Remove the directories of processes that are no more."""
    for directory in parent.glob(f"{prefix}*"):
        process_id = directory.name.removeprefix(prefix).partition("-")[0]
        if process_id.isdigit() and not _is_alive(int(process_id)):
            shutil.rmtree(directory, ignore_errors=True)


def _is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
