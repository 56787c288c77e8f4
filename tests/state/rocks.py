"""RocksDB backends for tests: small caches, and a storage of plain bytes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.codecs.pickling import dumps
from penstock.state.backend import Entries, KeyedStateBackend
from penstock.state.rocksdb.backend import RocksDBKeyedStateBackend
from penstock.state.rocksdb.settings import RocksDBSettings
from penstock.state.rocksdb.snapshot import RocksCapture, SourceFiles, fetch_files
from penstock.state.snapshot import KeyedCapture, read_keyed

GROUPS = 128
#: RocksDB syncs its files, for which tests need not wait: in memory, where the system has such a folder.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
#: Every settling point lets something go.
TINY = RocksDBSettings(cache_bytes=1, write_buffer_bytes=64 << 10, block_cache_bytes=64 << 10, file_bytes=64 << 10)


@contextmanager
def rocks(
    settings: RocksDBSettings = TINY, key_groups: tuple[int, int] = (0, GROUPS - 1), owner: str = "My Operator"
) -> Iterator[RocksDBKeyedStateBackend]:
    """A backend in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="penstock-rocks-", dir=MEMORY) as folder:
        backend = RocksDBKeyedStateBackend(GROUPS, Path(folder) / "state", owner, key_groups, settings)
        try:
            yield backend
        finally:
            backend.close()


class Storage:
    """Stands for a checkpoint storage: files by number, which can be deleted."""

    def __init__(self) -> None:
        self.files: dict[int, bytes] = {}
        self.stored: list[str] = []

    def store(self, name: str, path: Path) -> int:
        self.stored.append(name)
        number = len(self.stored)
        self.files[number] = path.read_bytes()
        return number

    def checkpoint(
        self, backend: RocksDBKeyedStateBackend, checkpoint_id: int, known: dict[str, int]
    ) -> dict[str, int]:
        (capture,) = backend.capture(checkpoint_id)
        references = capture.store_files(self.store, known)
        capture.discard()
        return references

    def fetch(self, references: dict[str, int], directory: Path, key_groups: tuple[int, int]) -> SourceFiles:
        fetch_files(references, self.files.__getitem__, directory)
        return SourceFiles(directory, *key_groups)


def exported(backend: RocksDBKeyedStateBackend, chunk_bytes: int = 1 << 20) -> dict[str, list[bytes]]:
    """All states in the canonical format."""
    captures: list[RocksCapture] = RocksDBKeyedStateBackend.capture(backend, 0)
    files: dict[str, list[bytes]] = {}
    for capture in captures:
        for name, data in capture.export(chunk_bytes):
            files.setdefault(name, []).append(data)
        capture.discard()
    return files


def keyed(backend: KeyedStateBackend, key: Any) -> Any:
    """Make a key current."""
    backend.current_key = key
    return key


class FolderRocks(RocksDBKeyedStateBackend):
    """A RocksDB backend in a folder of its own, made as the heap backend is; so it fits into the operator harness."""

    def __init__(self, max_parallelism: int, owner: str = "operator", settings: RocksDBSettings = TINY) -> None:
        # A test that does not close its harness leaves a folder behind, but no warning.
        self._folder = tempfile.mkdtemp(prefix="penstock-rocks-", dir=MEMORY)
        super().__init__(max_parallelism, Path(self._folder) / "state", owner, settings=settings)

    def close(self) -> None:
        super().close()
        shutil.rmtree(self._folder, ignore_errors=True)


class CanonicalRocks(FolderRocks):
    """One whose captures are canonical: each drops all that the ones before it said, and says all anew."""

    def __init__(self, max_parallelism: int, owner: str = "operator", settings: RocksDBSettings = TINY) -> None:
        super().__init__(max_parallelism, owner, settings)
        self._said: dict[str, set[Any]] = {}

    def restore(self, name: str, entries: Entries, is_written: bool, schema: str = "") -> None:
        self._said.setdefault(name, set()).update(entries)
        super().restore(name, entries, is_written, schema)

    def restore_canonical(self, name: str, *arguments: Any, **more: Any) -> bool:
        is_written = super().restore_canonical(name, *arguments, **more)
        self._said.setdefault(name, set()).update({None, *self.table(name).panes})
        return is_written

    def capture(self, checkpoint_id: int) -> list[Any]:
        now = {name: read_keyed(files, 0, self.max_parallelism - 1) for name, files in exported(self).items()}
        captures = []
        for name in {*now, *self._said}:
            entries, said = now.get(name, {}), self._said.setdefault(name, set())
            written: list[Any] = [
                (namespace, list(table), list(table.values()), []) for namespace, table in entries.items()
            ]
            captures.append(KeyedCapture(name, dumps((list(said), written))))
            said.update(entries)
        return captures
