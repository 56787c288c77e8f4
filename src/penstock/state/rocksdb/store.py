"""The row store: RocksDB in one directory, without a write-ahead log, and the form of its rows.

A row's key is the concatenation of:

    key group (2 bytes), name's length (2), name, layout (1), namespace's length (2), namespace,
    key's length (4), key, rest

Numbers are big-endian, so a range of key groups is a contiguous range of rows. Within a key group, the rows of a state
are contiguous, and so are those of a namespace. The name is UTF-8; namespace and key are canonical bytes
(`state.keys`). The layout determines the rest and the value:

- WHOLE: no rest; one row holds the entry's value.
- MAP: the rest is the canonical bytes of a map key; the value is the value under that key.
- LIST: the rest is the number (8 bytes) of a segment of the list; the value is a list of items.

A row's value is pickled. A trailer follows, which unpickling ignores: it preserves the key types that the canonical
form loses. Canonical bytes of plain keys (str, int, bytes, None and tuples of these) can be decoded; other keys are
pickled into the trailer. Namespaces must be plain.

`RowStore`: rows that no checkpoint has captured are lost with the process, which is correct: recovery starts from a
checkpoint.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from rocksdict import (
    AccessType,
    Checkpoint,
    IngestExternalFileOptions,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from penstock.state.errors import StateError
from penstock.state.keys import decode_plain_key, is_plain, key_bytes
from penstock.state.rocksdb.settings import RocksDBSettings

WHOLE: Final = b"\x00"
MAP: Final = b"\x01"
LIST: Final = b"\x02"

#: Rows with this prefix belong to no key group: there are at most 32,768 key groups.
META_PREFIX: Final = b"\xff\xff"
NAME_BYTES_MAX: Final = 0xFFFF
_PLAIN: Final = b"\x00"
_PICKLED: Final = b"\x01"


class Place(NamedTuple):
    """The decoded prefix of a row: a namespace of a state in one key group."""

    group: int
    name: str
    layout: bytes
    namespace: Any


def state_head(name: str, layout: bytes) -> bytes:
    """Return the bytes of a row between the key group and the namespace."""
    data = name.encode()
    if len(data) > NAME_BYTES_MAX:
        raise StateError(f"state name {name[:80]!r}... has {len(data)} bytes, at most {NAME_BYTES_MAX}: shorten it")
    return len(data).to_bytes(2, "big") + data + layout


def namespace_head(name: str, layout: bytes, namespace: Any) -> bytes:
    """Return the bytes of a row between the key group and the key."""
    if not is_plain(namespace):
        raise StateError(
            f"state {name!r}: namespace {namespace!r} is not made of str, int, bytes, None and tuples of these, so it "
            "cannot be kept in RocksDB"
        )
    data = key_bytes(namespace)
    if len(data) > NAME_BYTES_MAX:
        raise StateError(f"state {name!r}: a namespace has {len(data)} bytes, at most {NAME_BYTES_MAX}")
    return state_head(name, layout) + len(data).to_bytes(2, "big") + data


def decode_place(row: bytes) -> tuple[Place, int]:
    """Return the decoded prefix of a row, and the offset of its key, which begins with the key's length."""
    at = 4 + int.from_bytes(row[2:4], "big")
    end = at + 3 + int.from_bytes(row[at + 1 : at + 3], "big")
    namespace = decode_plain_key(row[at + 3 : end])
    return Place(int.from_bytes(row[:2], "big"), row[4:at].decode(), row[at : at + 1], namespace), end


def sized(key: bytes) -> bytes:
    """Return a key with its length prepended."""
    return len(key).to_bytes(4, "big") + key


def key_end(row: bytes, at: int) -> int:
    """Return the end of the key whose length begins at byte `at` of a row."""
    return at + 4 + int.from_bytes(row[at : at + 4], "big")


def after(prefix: bytes) -> bytes:
    """Return the smallest bytes greater than all that begin with `prefix`."""
    number = int.from_bytes(prefix, "big") + 1
    return number.to_bytes(len(prefix), "big")


# --- values -----------------------------------------------------------------------------------------------------------


def encode(value: bytes, keys: tuple[Any, ...], pickle_keys: Callable[[Any], bytes]) -> bytes:
    """Encode a row's value: the pickled bytes, followed by the keys of the row unless all are plain."""
    for key in keys:
        if not is_plain(key):
            data = pickle_keys(keys)
            return value + data + len(data).to_bytes(4, "big") + _PICKLED
    return value + _PLAIN


def value_bytes(raw: bytes) -> bytes:
    """Return the pickled bytes in a row's value."""
    return raw[: -5 - int.from_bytes(raw[-5:-1], "big")] if raw[-1:] == _PICKLED else raw[:-1]


def pickled_keys(raw: bytes, loads: Callable[[bytes], Any] = pickle.loads) -> tuple[Any, ...] | None:
    """Return the keys in the trailer; None if they are plain."""
    if raw[-1:] != _PICKLED:
        return None
    length = int.from_bytes(raw[-5:-1], "big")
    keys: tuple[Any, ...] = loads(raw[-5 - length : -5])
    return keys


#: Up to this many rows are deleted one by one; a range tombstone slows down every later read a little.
_SINGLE_DELETES_MAX = 32
#: A batch of writes is handed to the store when it reaches this size.
BATCH_BYTES_MAX = 1 << 20
_BATCHES_IN_BUFFER = 8
_PAGE_BYTES = 4096
_FILES_AT_LEVEL = "num-files-at-level"
_LEVELS = 7

Row = tuple[bytes, bytes]


def _nothing() -> None: ...


def _arena_block_bytes(buffer_bytes: int) -> int:
    """Return the arena block size that RocksDB derives when a store opens; a change of the buffer size must set it
    explicitly.
    """
    return min(1 << 20, -(-buffer_bytes // 8 // _PAGE_BYTES) * _PAGE_BYTES)


def _holding(rows: Iterator[Any], *references: Any) -> Iterator[Row]:
    """Yield the rows and keep `references` alive: RocksDB points into an iterator's options, which would be freed."""
    yield from rows
    del references


class Batch:
    """Changes of rows, which reach the store by `write`, or when they exceed the store's `batch_bytes_max`."""

    __slots__ = ("_batch", "_bytes_max", "_store")

    def __init__(self, store: RowStore) -> None:
        self._store = store
        self._bytes_max = store.batch_bytes_max
        self._batch = WriteBatch(raw_mode=True)

    def put(self, row: bytes, raw: bytes) -> None:
        """Set a row."""
        batch = self._batch
        batch.put(row, raw)
        if batch.size_in_bytes() > self._bytes_max:
            self.write()

    def delete(self, row: bytes) -> None:
        """Delete a row."""
        batch = self._batch
        batch.delete(row)
        if batch.size_in_bytes() > self._bytes_max:
            self.write()

    def delete_range(self, begin: bytes, end: bytes) -> None:
        """Delete the rows from `begin` (inclusive) to `end` (exclusive)."""
        self._batch.delete_range(begin, end)

    def delete_prefix(self, prefix: bytes) -> None:
        """Delete all rows that begin with `prefix`, including rows of this batch."""
        self.write()  # the scan finds only rows in the store
        rows = []
        for row, _ in self._store.scan(prefix):
            rows.append(row)
            if len(rows) > _SINGLE_DELETES_MAX:
                self.delete_range(prefix, after(prefix))
                return
        for row in rows:
            self.delete(row)

    def write(self) -> None:
        """Write the batch to the store."""
        if len(self._batch):
            batch, self._batch = self._batch, WriteBatch(raw_mode=True)
            self._store.write(batch)


class View:
    """A stable view of the rows as of its creation; the binding's own snapshots are not stable."""

    def __init__(self, rows: RdictIter) -> None:
        self._rows = rows
        self._turn: object = None

    def scan(self, prefix: bytes) -> Iterator[Row]:
        """Yield all rows that begin with `prefix`, in order; scans may be interleaved."""
        rows = self._rows
        rows.seek(prefix)
        self._turn = turn = object()
        while rows.valid():
            row = rows.key()
            if not row.startswith(prefix):
                return
            yield row, rows.value()
            if self._turn is not turn:
                rows.seek(row)
                self._turn = turn
            rows.next()

    def get(self, row: bytes) -> bytes | None:
        """Return the value of a row, or None."""
        rows = self._rows
        rows.seek(row)
        self._turn = None
        value: bytes | None = rows.value() if rows.valid() and rows.key() == row else None
        return value


class RowStore:
    """Rows ordered by key. RocksDB errors are raised as `StateError` with the owner and the directory."""

    def __init__(
        self, directory: Path, settings: RocksDBSettings, owner: str = "operator", *, read_only: bool = False
    ) -> None:
        self.directory = directory
        #: Called when the number of bytes allowed for Python objects changes.
        self.on_resize: Callable[[], None] = _nothing
        self._owner = owner
        self._settings = settings
        self._memory = None if read_only else settings.memory
        self._has_new_share = False
        self._is_closed = False
        if self._memory is not None:
            self._memory.join(self)
        self._set_buffer_bytes()
        self._write_options = WriteOptions()
        self._write_options.disable_wal = True  # type: ignore[assignment, method-assign]  # a property in truth
        access = AccessType.read_only() if read_only else AccessType.read_write()
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._db = Rdict(str(directory), settings.options(), access_type=access)
        except Exception as error:
            self._leave_memory()
            raise self._failed("open", error) from error

    def _leave_memory(self) -> None:
        if self._memory is not None:
            self._memory.leave(self)

    def on_share(self) -> None:
        """Let the next batch take the new share of the slot's memory, after other stores opened or closed."""
        self._has_new_share = True
        self.on_resize()

    def _set_buffer_bytes(self) -> None:
        self._buffer_bytes = self._settings.buffer_bytes
        # With shared memory, a batch must be small relative to a buffer, which takes it whole.
        in_share = BATCH_BYTES_MAX if self._memory is None else self._buffer_bytes // _BATCHES_IN_BUFFER
        self.batch_bytes_max = min(BATCH_BYTES_MAX, in_share)

    def _take_share(self) -> None:
        self._has_new_share = False
        before = self._buffer_bytes
        self._set_buffer_bytes()
        size = self._buffer_bytes
        if size == before:
            return
        try:
            self._db.set_options({"write_buffer_size": str(size), "arena_block_size": str(_arena_block_bytes(size))})
            if size < before:
                self._db.flush(False)  # the new size applies from the next buffer on
        except Exception as error:
            raise self._failed("change the write buffers of", error) from error

    def _failed(self, action: str, error: Exception) -> StateError:
        return StateError(
            f"{self._owner}: cannot {action} the RocksDB state in {self.directory}: {error}; check that the disk has "
            "space and is writable, and that nothing else uses the directory"
        )

    def get(self, row: bytes) -> bytes | None:
        """Return the value of a row, or None."""
        try:
            value: bytes | None = self._db.get(row)
        except Exception as error:
            raise self._failed("read", error) from error
        return value

    def scan(self, prefix: bytes) -> Iterator[Row]:
        """Iterate over the current rows that begin with `prefix`, in order."""
        return self._scan(prefix, after(prefix), ReadOptions())

    def scan_once(self, begin: bytes, end: bytes) -> Iterator[Row]:
        """Iterate over the rows from `begin` to `end` (exclusive), without evicting blocks that are read more often."""
        options = ReadOptions()
        options.fill_cache(False)  # type: ignore[call-arg]  # its published type forgets the argument
        return self._scan(begin, end, options)

    def _scan(self, begin: bytes, end: bytes, options: ReadOptions) -> Iterator[Row]:
        options.set_iterate_upper_bound(end)
        rows: Iterator[Any] = self._db.items(from_key=begin, read_opt=options)
        return _holding(rows, options)

    def view(self) -> View:
        """Return a view of the current rows."""
        return View(self._db.iter())

    def batch(self) -> Batch:
        """Return an empty batch."""
        if self._has_new_share:
            self._take_share()
        return Batch(self)

    def write(self, batch: WriteBatch) -> None:
        """Write a RocksDB batch, consuming it."""
        try:
            self._db.write(batch, self._write_options)
        except Exception as error:
            raise self._failed("write to", error) from error

    def delete_range(self, begin: bytes, end: bytes) -> None:
        """Delete the rows from `begin` (inclusive) to `end` (exclusive)."""
        batch = self.batch()
        batch.delete_range(begin, end)
        batch.write()

    def ingest(self, path: Path) -> None:
        """Ingest a file made by an `SstFileWriter`, consuming it."""
        options = IngestExternalFileOptions()
        options.set_move_files(True)
        try:
            self._db.ingest_external_file([str(path)], options)
        except Exception as error:
            raise self._failed("take a file into", error) from error

    def places(self) -> Iterator[Place]:
        """Yield each (key group, state, layout, namespace) that has rows, at the cost of one lookup each instead of a
        scan.
        """
        rows = self._db.iter()
        rows.seek(b"")
        while rows.valid():
            row = rows.key()
            if row.startswith(META_PREFIX):
                return
            location, end = decode_place(row)
            yield location
            rows.seek(after(row[:end]))

    def flush(self) -> None:
        """Flush all rows to files: without a log, closing would lose the rest."""
        try:
            self._db.flush()
        except Exception as error:
            raise self._failed("write to", error) from error

    def checkpoint(self, directory: Path) -> None:
        """Flush, then make `directory` a hard-linked copy of the store; it must not exist."""
        directory.parent.mkdir(parents=True, exist_ok=True)
        try:
            Checkpoint(self._db).create_checkpoint(str(directory))
        except Exception as error:
            raise self._failed("make a checkpoint of", error) from error

    def sizes(self) -> dict[str, int]:
        """Return sizes reported by RocksDB: rows (an estimate), and bytes in files, buffers and caches."""
        names = {
            "rows": "rocksdb.estimate-num-keys",
            "file_bytes": "rocksdb.total-sst-files-size",
            "write_buffer_bytes": "rocksdb.cur-size-all-mem-tables",
            "block_cache_bytes": "rocksdb.block-cache-usage",
        }
        return {name: self._db.property_int_value(of) or 0 for name, of in names.items()}

    def measured(self) -> dict[str, int | float]:
        """Return the properties that the settings name."""
        names = [f"rocksdb.{name}" for name in self._settings.metrics if name != _FILES_AT_LEVEL]
        if len(names) < len(self._settings.metrics):
            names += [f"rocksdb.{_FILES_AT_LEVEL}{level}" for level in range(_LEVELS)]
        return {name: self._db.property_int_value(name) or 0 for name in names}

    def close(self) -> None:
        """Close the store. A second call has no effect.

        Raises:
            StateError: if RocksDB cannot write its buffers. The store is closed nevertheless.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._db.close()
        except Exception as error:
            raise self._failed("close", error) from error
        finally:
            self._leave_memory()
