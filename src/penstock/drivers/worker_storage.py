"""The state storage of a worker: the job's checkpoints, with copies on the worker's own disk if configured."""

from __future__ import annotations

import threading
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path

import xxhash

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.base.durable_files import write_for_now
from penstock.core.ports import StateStorage
from penstock.drivers.backends import export_native
from penstock.drivers.worker_directories import WorkerDirectories, WorkerDirectory
from penstock.storage.file_store import FileCheckpointStore
from penstock.storage.files import absolute_url
from penstock.storage.local_copies import LocalCopies
from penstock.storage.signatures import parse_signing_key


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
