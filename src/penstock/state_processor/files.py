"""State files of a savepoint under construction (H5). Runs in this process and in Spark tasks.

A file is closed when it reaches `CHUNK_BYTES`, and the next one continues it: a history that only puts entries. So a
writer never holds more than that, whatever the size of the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from penstock.codecs.pickling import dumps
from penstock.state.key_bytes import key_bytes
from penstock.state.key_groups import key_group_of_bytes
from penstock.state.keys import with_one_nan
from penstock.state.loading import StateLoader
from penstock.state.snapshot import PUT, KeyedRows
from penstock.state_processor.history import live_rows
from penstock.state_processor.layouts import NO_NAMESPACE
from penstock.state_processor.rows import RowBlock
from penstock.state_processor.shapes import NOTHING, Shape
from penstock.storage.file_store import FileCheckpointStore
from penstock.storage.metadata import KeyedStateHandle, StateFile

CHUNK_BYTES: Final = 32 << 20
Entry = tuple[int, bytes, bytes, bytes]  # key group; key, namespace and value, pickled


@dataclass(frozen=True)
class Target:
    """The destination of a savepoint's files, which is sent to Spark tasks."""

    path: str
    checkpoint_id: int
    storage: FileCheckpointStore

    def write(self, name: str, data: bytes) -> StateFile:
        """Write one file, or keep it inline if it is small."""
        return self.storage.write(self.checkpoint_id, name, data, self.path)

    def write_entries(self, name: str, entries: Iterable[Entry]) -> tuple[StateFile, ...]:
        """Write the entries of some key groups as a history; no entry may occur twice."""
        files, rows, size = [], KeyedRows(), 0
        for group, key, namespace, value in entries:
            rows.add(group, PUT, key, namespace, value)
            size += len(key) + len(namespace) + len(value)
            if size >= CHUNK_BYTES:
                files.append(self.write(name, rows.to_bytes()))
                rows, size = KeyedRows(), 0
        if size:
            files.append(self.write(name, rows.to_bytes()))
        return tuple(files)


def keyed_rows(shape: Shape, blocks: Iterable[RowBlock], max_parallelism: int) -> Iterator[Any]:
    """Yield (key group, canonical bytes of key and namespace, key, namespace, item) for each row."""
    for block in blocks:
        for key, namespace, item in shape.rows(block):
            key = with_one_nan(key)
            data = key_bytes(key)
            entry_key = data if namespace is None else b"%d:" % len(data) + data + key_bytes(namespace)
            yield key_group_of_bytes(data, max_parallelism), entry_key, key, namespace, item


def entries_in_memory(shape: Shape, blocks: Iterable[RowBlock], max_parallelism: int) -> list[list[Entry]]:
    """Return the entries built from rows, by key group; holds all of them in memory."""
    numbers: dict[bytes, int] = {}
    first: list[tuple[int, Any, Any, Any]] = []
    others: dict[int, list[Any]] = {}  # the further items of entries with several rows
    for group, entry_key, key, namespace, item in keyed_rows(shape, blocks, max_parallelism):
        number = numbers.setdefault(entry_key, len(first))
        if number == len(first):
            first.append((group, key, namespace, item))
        else:
            others.setdefault(number, []).append(item)
    entries: list[list[Entry]] = [[] for _ in range(max_parallelism)]
    for number, (group, key, namespace, item) in enumerate(first):
        value = shape.combine(key, namespace, [item, *others.get(number, ())])
        if value is not NOTHING:
            namespace_data = NO_NAMESPACE if namespace is None else dumps(namespace)
            entries[group].append((group, dumps(key), namespace_data, dumps(value)))
    return entries


def transformed(
    storage: FileCheckpointStore,
    handle: KeyedStateHandle,
    key_groups: tuple[int, int],
    functions: tuple[Callable[[Any, Any, Any], Any], ...],
    loader: StateLoader,
) -> Iterator[Entry]:
    """Yield the entries of some key groups, with each value passed through functions of (key, namespace, value).

    An entry is dropped if a function returns None.
    """
    for rows in live_rows(storage, handle.files, *key_groups, loader):
        loads = rows.loads
        for group, key_data, namespace_data, value_data in zip(*rows[:4], strict=True):
            key, namespace, value = loads(key_data), loads(namespace_data), loads(value_data)
            for function in functions:
                value = function(key, namespace, value)
                if value is None:
                    break
            else:
                yield group, key_data, namespace_data, dumps(value)
