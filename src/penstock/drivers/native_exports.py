"""Keyed state in RocksDB's own files, as files that any backend can read."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from penstock.storage.metadata import NativeStateHandle, StateFile


def export_native(
    handle: NativeStateHandle, read: Callable[[StateFile], bytes], owner: str
) -> Iterator[tuple[str, bytes]]:
    """The states of one subtask: (name, canonical file), the files of a state after each other.

    Args:
        handle: the files.
        read: the bytes of a file.
        owner: what errors call the state's owner.
    """
    # A job without RocksDB does not pay for its import.
    from penstock.state.rocksdb.capture import BACKEND_NAME, RocksCapture, fetch_files
    from penstock.state.rocksdb.settings import RocksDBSettings

    assert handle.backend == BACKEND_NAME, "only RocksDB has files of its own"
    with tempfile.TemporaryDirectory(prefix="penstock-savepoint-") as folder:
        directory = Path(folder) / "state"
        fetch_files(handle.files, read, directory)
        groups = handle.first_key_group, handle.last_key_group
        yield from RocksCapture(directory, owner, groups, (), RocksDBSettings(), handle.schemas).export()
