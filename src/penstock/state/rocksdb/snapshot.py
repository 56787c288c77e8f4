"""Checkpoints of the store: hard links at once, files stored in the background (G7), and restores from several (D4).

`capture_store` writes the marked entries, flushes, and links the store's files into a directory of the checkpoint. From
then on the operator cannot change them. RocksDB never changes a file of rows (`*.sst`). It never reuses a file name
within one store and the stores that are restored from its checkpoints. So if the checkpoint that this one builds on has
stored a file of rows under the same name, this one only refers to it. The few files of other kinds, some kilobytes, are
stored each time.

The caller stores files: it passes `store_files` a function that stores one local file and returns a reference of any
type. It passes `fetch_files` a function that returns the bytes of a reference.

`assemble` makes a store from the files of one or more others. If the files cover exactly the subtask's key groups, they
are the store. Otherwise the store that shares the most key groups becomes the base, and one range deletion on each side
removes the key groups of other subtasks. The ranges of the other stores are copied into files that the base ingests.
Rows begin with their key group, so a range of key groups is a range of rows.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from rocksdict import SstFileWriter

from penstock.base.durable_files import write_for_now
from penstock.state.errors import StateError
from penstock.state.rocksdb import cache
from penstock.state.rocksdb.canonical import CHUNK_BYTES, export_keyed, state_names
from penstock.state.rocksdb.settings import RocksDBSettings
from penstock.state.rocksdb.store import META_PREFIX, Row, RowStore
from penstock.state.snapshot import CaptureWriter

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


@dataclass(frozen=True)
class SourceFiles:
    """A directory with all files of a captured store, and the store's first and last key group."""

    directory: Path
    first_key_group: int
    last_key_group: int

    def shared(self, key_groups: tuple[int, int]) -> int:
        """Return how many of these key groups the store has; zero or less if it has none."""
        return min(self.last_key_group, key_groups[1]) - max(self.first_key_group, key_groups[0]) + 1


def assemble(
    target: Path, sources: Sequence[SourceFiles], key_groups: tuple[int, int], settings: RocksDBSettings, owner: str
) -> None:
    """Make `target` a store of these key groups. Consumes the sources and deletes the previous contents of `target`."""
    shutil.rmtree(target, ignore_errors=True)
    useful = sorted((s for s in sources if s.shared(key_groups) > 0), key=lambda s: s.shared(key_groups))
    if useful:
        base = useful.pop()
        if not (base.directory / "CURRENT").is_file():
            raise StateError(f"{owner}: {base.directory} holds no RocksDB state: files of the checkpoint are missing")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(base.directory, target)
        if useful or (base.first_key_group, base.last_key_group) != key_groups:
            _merge(RowStore(target, settings, owner), base, useful, key_groups, settings)
    for source in sources:
        shutil.rmtree(source.directory, ignore_errors=True)


def _merge(
    store: RowStore,
    base: SourceFiles,
    others: list[SourceFiles],
    key_groups: tuple[int, int],
    settings: RocksDBSettings,
) -> None:
    first, last = key_groups
    try:
        if base.first_key_group < first:
            store.delete_range(_group(0), _group(first))
        if base.last_key_group > last:
            store.delete_range(_group(last + 1), META_PREFIX)
        segments, shapes = cache.read_segment_count(store), [cache.read_shapes(store)]
        is_present = cache.has_present_keys(store)
        for other in others:
            source = RowStore(other.directory, settings, read_only=True)
            try:
                begin, end = max(first, other.first_key_group), min(last, other.last_key_group)
                _copy(source.scan_once(_group(begin), _group(end + 1)), store, settings)
                segments = max(segments, cache.read_segment_count(source))
                shapes.append(cache.read_shapes(source))
                is_present = is_present and cache.has_present_keys(source)
            finally:
                source.close()
        batch = store.batch()
        cache.put_segments(batch, segments)
        if not is_present:
            cache.drop_keys_version(batch)
        cache.put_shapes(batch, cache.merged_shapes(shapes))
        batch.write()
        store.flush()
    finally:
        store.close()


def _group(number: int) -> bytes:
    return number.to_bytes(2, "big")


def _copy(rows: Iterable[Row], store: RowStore, settings: RocksDBSettings) -> None:
    """Copy sorted rows into a store by ingesting files."""
    path = store.directory / "incoming.sst"
    writer, size = None, 0
    for row, raw in rows:
        if writer is None:
            writer = SstFileWriter(options=settings.options())
            writer.open(str(path))
        writer[row] = raw
        size += len(row) + len(raw)
        if size >= settings.file_bytes:
            writer.finish()
            store.ingest(path)
            writer, size = None, 0
    if writer is not None:
        writer.finish()
        store.ingest(path)
