"""Checkpoints of the store: hard links at once, files stored in the background (G7).

Capturing writes the marked entries, flushes, and links the store's files into a directory of the checkpoint. From then
on the operator cannot change them. RocksDB never changes a file of rows (`*.sst`). It never reuses a file name within
one store and the stores that are restored from its checkpoints. So if the checkpoint that this one builds on has stored
a file of rows under the same name, this one only refers to it. The few files of other kinds, some kilobytes, are stored
each time.

The caller stores files: it passes `store_files` a function that stores one local file and returns a reference of any
type. It passes `fetch_files` a function that returns the bytes of a reference.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from penstock.base.durable_files import write_for_now
from penstock.state.captures import CaptureWriter
from penstock.state.errors import StateError
from penstock.state.rocksdb.canonical import CHUNK_BYTES, export_keyed, state_names
from penstock.state.rocksdb.settings import RocksDBSettings
from penstock.state.rocksdb.store import RowStore

Reference = TypeVar("Reference")

BACKEND_NAME = "rocksdb"
_SHARED_SUFFIX = ".sst"


@dataclass(frozen=True)
class LocalFile:
    """A file of a captured store. If `is_shared`, all files of that name have the same bytes."""

    name: str
    length: int
    is_shared: bool


@dataclass(frozen=True)
class RocksCapture:
    """The keyed state of one operator in one subtask as of a checkpoint, in its own directory."""

    directory: Path
    owner: str
    key_groups: tuple[int, int]
    files: tuple[LocalFile, ...]
    settings: RocksDBSettings
    schemas: Mapping[str, str] = field(default_factory=dict)
    #: by state, the latest access time (ms) of the entries that canonical files omit, if they omit any
    expired_ms: Mapping[str, int] = field(default_factory=dict)

    def store_files(
        self, store: Callable[[str, Path], Reference], known: Mapping[str, Reference]
    ) -> dict[str, Reference]:
        """Store the files missing from `known`, the previous checkpoint's files; returns references to all by name."""
        stored = {}
        for file in self.files:
            if file.is_shared and file.name in known:
                stored[file.name] = known[file.name]
            else:
                stored[file.name] = store(file.name, self.directory / file.name)
        return stored

    @property
    def backend(self) -> str:
        return BACKEND_NAME

    def store(self, write: Callable[[str, bytes], Reference], known: Mapping[str, Reference]) -> dict[str, Reference]:
        """Do the same as `store_files`, passing the bytes of each file."""
        return self.store_files(lambda name, path: write(name, path.read_bytes()), known)

    def write_capture(self, writer: CaptureWriter) -> None:
        """See `StateCapture`."""
        writer.write_native(self)

    @contextmanager
    def opened(self) -> Iterator[RowStore]:
        """Open the captured rows, read-only."""
        store = RowStore(self.directory, self.settings, self.owner, read_only=True)
        try:
            yield store
        finally:
            store.close()

    def export(self, chunk_bytes: int = CHUNK_BYTES) -> Iterator[tuple[str, bytes]]:
        """Yield all states in the canonical format: (state name, file), one state's files after another's."""
        with self.opened() as store:
            for name in state_names(store):
                for data in export_keyed(store, name, self.key_groups, chunk_bytes, self.expired_ms.get(name)):
                    yield name, data

    def discard(self) -> None:
        """Remove the directory: its files are stored, or not needed. A second call has no effect."""
        shutil.rmtree(self.directory, ignore_errors=True)


def capture_store(
    store: RowStore,
    directory: Path,
    owner: str,
    key_groups: tuple[int, int],
    settings: RocksDBSettings,
    schemas: Mapping[str, str],
    expired_ms: Mapping[str, int],
) -> RocksCapture:
    """Flush a store and link its files into `directory`, replacing the files of an earlier attempt."""
    shutil.rmtree(directory, ignore_errors=True)
    store.checkpoint(directory)
    files = []
    for path in sorted(directory.iterdir()):
        length = path.stat().st_size
        # The settings determine the options, and the log is empty because the store keeps none.
        if path.name.startswith("OPTIONS") or (path.suffix == ".log" and not length):
            path.unlink()
        else:
            files.append(LocalFile(path.name, length, path.suffix == _SHARED_SUFFIX))
    return RocksCapture(directory, owner, key_groups, tuple(files), settings, schemas, expired_ms)


def fetch_files(references: Mapping[str, Reference], fetch: Callable[[Reference], bytes], directory: Path) -> None:
    """Write the files of a checkpoint into a new directory, for `RocksDBKeyedStateBackend.restore_files`."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for name, reference in references.items():
        if "/" in name or name.startswith("."):
            raise StateError(f"a checkpoint names a file {name!r}, which would lie outside of its directory")
        write_for_now(directory / name, fetch(reference))
