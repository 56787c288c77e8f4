"""The RocksDB backend: tables, states and snapshots over one store (D1, D3, G7).

The directory belongs to the backend: `db` is the store, `chk-<n>` the capture of checkpoint n, `blocks` has the files
of state in columns (`blocks`). It is created at the
first use of state, or by `restore_files`; an operator without keyed state never touches the disk.

A plain value, an accumulator, and an entry of a window or timer are one row each. Map state has a row for each key of a
map, list state a row for each run of items appended between two writes.

State in columns on disk: immutable columns and arrays of numbers, in files that are mapped into memory.

A state in columns needs no store that finds and orders its rows: its operator indexes them itself. It needs memory, and
possibly more than the machine has. So columns are written to a file in Arrow's IPC format, and the mapped file takes
their place: reading it copies nothing, and the operating system keeps the pages in memory that are in use. Arrays of
numbers are mapped files from the beginning, which the operating system writes back when memory is short.

A file is removed as soon as it is mapped. Its space is free again once nothing refers to the columns, and nothing is
left when the process dies. Checkpoints hold the columns in files of their own (`state.key_columns`).
"""

from __future__ import annotations

import mmap
import os
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.state.backend import Entries, KeyedStateBackend, NativeFiles
from penstock.state.errors import StateError
from penstock.state.rocksdb import canonical, snapshot
from penstock.state.rocksdb.cache import WriteCache, has_present_keys, put_keys_version, read_shapes
from penstock.state.rocksdb.collections import Lists, Maps, RocksListState, RocksMapState
from penstock.state.rocksdb.settings import RocksDBSettings
from penstock.state.rocksdb.store import LIST, MAP, WHOLE, RowStore
from penstock.state.rocksdb.table import RocksTable, RowSweeper, Sweepable
from penstock.state.schema import Converter
from penstock.state.snapshot import iterate_keyed
from penstock.state.states import ListState, ListStateDescriptor, MapState, MapStateDescriptor, StateDescriptor
from penstock.state.ttl_config import StateTtlConfig


def reserve(descriptor: int, size: int) -> None:
    """Give a file its size, and reserve the space if the system can.

    Otherwise a full disk kills the process when it writes to the mapped file.
    """
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:  # macOS
        os.ftruncate(descriptor, size)


class MappedBlocks:
    """Maps columns and arrays from files in a directory, which is created when it is needed."""

    def __init__(self, directory: Path, owner: str) -> None:
        self._directory = directory
        self._owner = owner
        self._number = 0

    def store_columns(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        """Write the columns to a file, and return the columns of the mapped file.

        Raises:
            StateError: if the file cannot be written, for example because the disk is full.
        """
        path = self._new_path(columns.nbytes)
        try:
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, columns.schema) as writer:
                writer.write_batch(columns)
            stored: pa.RecordBatch = pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)
        except OSError as error:
            raise self._failed(columns.nbytes, error) from error
        finally:
            path.unlink(missing_ok=True)
        return stored

    def allocate(self, length: int, dtype: Any) -> Any:
        """Return a NumPy array of zeros, mapped from a file.

        Raises:
            StateError: if the disk has no space for it.
        """
        kind = np.dtype(dtype)
        size = max(1, length) * kind.itemsize
        path = self._new_path(size)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                reserve(descriptor, size)
                mapped = mmap.mmap(descriptor, size)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise self._failed(size, error) from error
        finally:
            path.unlink(missing_ok=True)
        return np.frombuffer(mapped, kind, length)

    def _new_path(self, size: int) -> Path:
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._failed(size, error) from error
        self._number += 1
        return self._directory / f"{self._number}.block"

    def _failed(self, size: int, error: OSError) -> StateError:
        return StateError(
            f"{self._owner}: {size} bytes of state cannot be written to {self._directory}: {error}. Free space there, "
            "or set state.backend.rocksdb.localdir to another disk"
        )


_LAYOUTS: Final = {WHOLE: "whole values", MAP: "maps", LIST: "lists"}


class RocksDBKeyedStateBackend(KeyedStateBackend):
    """See the module docstring. `key_groups` are the first and the last that the subtask owns."""

    def __init__(
        self,
        max_parallelism: int,
        directory: Path,
        owner: str = "operator",
        key_groups: tuple[int, int] | None = None,
        settings: RocksDBSettings | None = None,
    ) -> None:
        super().__init__(max_parallelism, owner)
        self.directory = directory
        self.key_groups = key_groups or (0, max_parallelism - 1)
        self._settings = settings or RocksDBSettings()
        self._cache: WriteCache | None = None
        self._is_closed = False
        self._blocks = MappedBlocks(directory / "blocks", owner)
        self._tables: dict[str, RocksTable] = {}
        self._maps: dict[str, Maps] = {}
        self._lists: dict[str, Lists] = {}
        self._sweepers: list[RowSweeper] = []
        #: by state, the time to live (ms) after which canonical snapshots omit entries
        self._left_out_after_ms: dict[str, int] = {}
        #: the contents of the store when it was opened: state -> layout -> namespace -> key groups as bits
        self._stored: dict[str, dict[bytes, dict[Any, int]]] = {}

    # --- the store ----------------------------------------------------------------------------------------------------

    def _open(self) -> WriteCache:
        if self._cache is None:
            if self._is_closed:
                raise StateError(f"{self.owner}: the state in {self.directory} is closed")
            store = RowStore(self.directory / "db", self._settings, self.owner)
            self._cache = WriteCache(store, self._settings, self.owner)
            for location in store.places():
                self._note(location.name, location.layout, location.namespace, location.group)
            if not has_present_keys(store):
                self._take_over_keys(self._cache)
        return self._cache

    def _take_over_keys(self, cache: WriteCache) -> None:
        """Check the keys of a store that an older release wrote, or that is new, and note their version."""
        for name in self._stored:
            canonical.check_old_keys(cache, name, self.key_groups, self._loader(name))
        batch = cache.store.batch()
        put_keys_version(batch)
        batch.write()

    def _note(self, name: str, layout: bytes, namespace: Any, group: int) -> None:
        namespaces = self._stored.setdefault(name, {}).setdefault(layout, {})
        namespaces[namespace] = namespaces.get(namespace, 0) | 1 << group

    def settle(self) -> None:
        if self._cache is not None:
            self._cache.settle()
            for sweeper in self._sweepers:
                sweeper.on_settle()

    def build_sweeper(self, descriptor: StateDescriptor, config: StateTtlConfig) -> RowSweeper | None:
        name, strategies = descriptor.name, config.get_cleanup_strategies()
        if strategies.in_full_snapshot():
            self._left_out_after_ms[name] = config.ttl_ms
        if (
            strategies.get_rocksdb_compact_filter_cleanup_strategy() is None
            and not strategies.chose_incremental_cleanup()
        ):
            return None
        rows: Sweepable
        if name in self._maps:
            rows, layout = self._maps[name], MAP
        elif name in self._lists:
            rows, layout = self._lists[name], LIST
        else:
            rows, layout = self.table(name).entries(None), WHOLE
        sweeper = RowSweeper(self._open(), rows, name, layout, self.key_groups, config, self.now_ms)
        self._sweepers.append(sweeper)
        return sweeper

    def validate(self, key_groups: tuple[int, int]) -> None:
        assert self.key_groups == key_groups, f"{self.owner}: the store holds the key groups of its subtask"
        for table in self._tables.values():
            table.validate(key_groups)

    def close(self) -> None:
        """Close the store; changes after the last checkpoint are lost. The caller removes the directory.

        Raises:
            StateError: if RocksDB cannot write its buffers. The store is closed nevertheless.
        """
        self._is_closed = True
        cache, self._cache = self._cache, None
        if cache is not None:
            cache.store.close()

    @property
    def store_columns(self) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
        return self._blocks.store_columns

    def allocate(self, length: int, dtype: Any) -> Any:
        return self._blocks.allocate(length, dtype)

    # --- states -------------------------------------------------------------------------------------------------------

    def table(self, name: str) -> RocksTable:
        table = self._tables.get(name)
        if table is None:
            cache = self._open()
            self._only(name, WHOLE)
            stored = self._stored.get(name, {}).pop(WHOLE, {})
            table = self._tables[name] = RocksTable(cache, name, self.max_parallelism, stored)
        return table

    def map_state(self, descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        self.declare(descriptor)
        name = descriptor.name
        maps = self._maps.get(name)
        if maps is None:
            cache = self._open()
            self._spread(descriptor, MAP)
            maps = self._maps[name] = Maps(cache, name, self.max_parallelism)
        return RocksMapState(self, maps)

    def list_state(self, descriptor: ListStateDescriptor) -> ListState[Any]:
        self.declare(descriptor)
        name = descriptor.name
        lists = self._lists.get(name)
        if lists is None:
            cache = self._open()
            self._spread(descriptor, LIST)
            lists = self._lists[name] = Lists(cache, name, self.max_parallelism)
        return RocksListState(self, lists)

    def rewrite(self, descriptor: StateDescriptor, convert: Converter) -> None:
        """Convert all rows of a restored, undeclared state. No marks are needed: a snapshot covers the whole store."""
        name, cache = descriptor.name, self._open()
        self._only(name, {"map": MAP, "list": LIST}.get(descriptor.kind, WHOLE), WHOLE)
        if convert is not None:
            if name in self._tables:
                cache.flush()
                cache.turn()
                cache.turn()  # now none of its entries are in memory
            canonical.convert_rows(cache, name, self.key_groups, convert)

    def list_keys(self, descriptor: StateDescriptor) -> list[Any]:
        if not isinstance(descriptor, MapStateDescriptor | ListStateDescriptor):
            return super().list_keys(descriptor)
        cache = self._open()
        cache.flush()
        files = canonical.export_keyed(cache.store, descriptor.name, self.key_groups)
        return list(dict.fromkeys(pickle.loads(row[2]) for data in files for row in iterate_keyed(data)))

    def _only(self, name: str, *layouts: bytes) -> None:
        for layout in self._stored.get(name, {}):
            if layout not in layouts:
                raise StateError(
                    f"{self.owner}: state {name!r} was restored with {_LAYOUTS[layout]}, but is now declared to hold "
                    f"{_LAYOUTS[layouts[0]]}; declare it as before, or give the new state another name"
                )

    def _spread(self, descriptor: StateDescriptor, layout: bytes) -> None:
        """Split whole values into rows: a canonical snapshot does not distinguish maps and lists from other values."""
        name, cache = descriptor.name, self._open()
        self._only(name, layout, WHOLE)
        table = self._tables.pop(name, None)
        if table is not None:
            cache.flush()
            cache.remove(table)
        whole_values = self._stored.get(name, {}).pop(WHOLE, None)
        if table is not None or whole_values is not None:
            canonical.spread(cache, name, layout, self.key_groups)

    # --- snapshots ----------------------------------------------------------------------------------------------------

    def restore_files(self, sources: Sequence[snapshot.SourceFiles]) -> None:
        """Restore the files of checkpoints, which are consumed; must be the first call on a backend."""
        if self._cache is not None:
            raise StateError(f"{self.owner}: files can only be restored before state is used")
        snapshot.assemble(self.directory / "db", sources, self.key_groups, self._settings, self.owner)
        cache = self._open()
        for name, shapes in read_shapes(cache.store).items():
            canonical.renew_classes(cache, name, self.key_groups, shapes, self._loader(name, self.schema_text(name)))

    def restored_names(self) -> list[str]:
        """Return the states with a schema, and the states in the files of checkpoints."""
        return list(dict.fromkeys([*super().restored_names(), *self._stored]))

    def _require_undeclared(self, name: str) -> None:
        if name in self._maps or name in self._lists:
            raise StateError(f"{self.owner}: state {name!r} can only be restored before it is declared")

    def restore(self, name: str, entries: Entries, is_written: bool, schema: str = "") -> None:
        """Restore the entries of a snapshot. `restore_canonical` does so without holding them all in memory."""
        self._require_undeclared(name)
        self.note_schema(name, schema, any(entries.values()))
        table, cache = self.table(name), self._open()
        for namespace, restored in entries.items():
            pane = table.entries(namespace)
            for key, value in restored.items():
                pane.update({key: value})
                cache.settle()

    def restore_native(self, files: Sequence[NativeFiles]) -> None:
        sources = []
        for number, native_files in enumerate(files):
            if native_files.backend != snapshot.BACKEND_NAME:
                super().restore_native([native_files])
            directory = self.directory / f"restored-{number}"
            snapshot.fetch_files(native_files.read, lambda read: read(), directory)
            sources.append(snapshot.SourceFiles(directory, native_files.first_key_group, native_files.last_key_group))
        for native_files in files:
            for name, schema in native_files.schemas.items():
                self.note_schema(name, schema, has_entries=True)
        if sources:
            self.restore_files(sources)

    def restore_canonical(
        self,
        name: str,
        files: Iterable[bytes],
        key_groups: tuple[int, int] | None = None,
        is_written: bool = False,
        schema: str = "",
    ) -> bool:
        """Restore canonical files without holding all entries in memory; the next snapshot stores them all anyway."""
        self._require_undeclared(name)
        table, cache = self.table(name), self._open()
        cache.flush()
        loader = self._loader(name, schema)
        imported = canonical.import_keyed(cache, name, files, self.key_groups, loader)
        for namespace, groups in imported.items():
            table.note_rows(namespace, groups)
            cache.settle()
        self.note_schema(name, schema, bool(table.panes))
        return False

    def capture(self, checkpoint_id: int) -> list[snapshot.RocksCapture]:
        """Flush, and create hard links of the files; raises `StateError` for values that cannot be stored."""
        if self._cache is None:
            return []
        for sweeper in self._sweepers:
            sweeper.on_settle()
        self._cache.flush()
        directory = self.directory / f"chk-{checkpoint_id}"
        schemas = {name: self.schema_text(name) for name in {**self._schemas, **self._restored}}
        now_ms = self.now_ms() if self._left_out_after_ms else 0
        expired_ms = {name: now_ms - ttl_ms for name, ttl_ms in self._left_out_after_ms.items()}
        capture = snapshot.capture_store(
            self._cache.store, directory, self.owner, self.key_groups, self._settings, schemas, expired_ms
        )
        return [capture]

    def confirm(self, checkpoint_id: int) -> None:
        """Do nothing: the checkpoint's handle determines which files need not be stored again."""

    def take_back(self, checkpoint_id: int) -> None:
        """Do nothing: a savepoint leaves no handle."""

    def sizes(self) -> Mapping[str, int]:
        """Return sizes (bytes) and estimates, for metrics."""
        return {} if self._cache is None else self._cache.store.sizes()

    def measured(self) -> dict[str, int | float]:
        return {} if self._cache is None else self._cache.store.measured()
