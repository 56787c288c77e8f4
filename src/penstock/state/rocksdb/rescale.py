"""Assembles a store from the files of one or more others (D4).

If the files cover exactly the subtask's key groups, they are the store. Otherwise the store that shares the most key
groups becomes the base, and one range deletion on each side removes the key groups of other subtasks. The ranges of the
other stores are copied into files that the base ingests. Rows begin with their key group, so a range of key groups is a
range of rows.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocksdict import SstFileWriter

from penstock.state.errors import StateError
from penstock.state.rocksdb.cache import drop_keys_version, has_present_keys, put_segments, read_segment_count
from penstock.state.rocksdb.classes import merged_shapes, put_shapes, read_shapes
from penstock.state.rocksdb.rows import META_PREFIX
from penstock.state.rocksdb.settings import RocksDBSettings
from penstock.state.rocksdb.store import Row, RowStore


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
        segments, shapes = read_segment_count(store), [read_shapes(store)]
        is_present = has_present_keys(store)
        for other in others:
            source = RowStore(other.directory, settings, read_only=True)
            try:
                begin, end = max(first, other.first_key_group), min(last, other.last_key_group)
                _copy(source.scan_once(_group(begin), _group(end + 1)), store, settings)
                segments = max(segments, read_segment_count(source))
                shapes.append(read_shapes(source))
                is_present = is_present and has_present_keys(source)
            finally:
                source.close()
        batch = store.batch()
        put_segments(batch, segments)
        if not is_present:
            drop_keys_version(batch)
        put_shapes(batch, merged_shapes(shapes))
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
