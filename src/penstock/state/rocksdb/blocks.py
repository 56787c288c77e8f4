"""State in columns on disk: immutable columns and arrays of numbers, in files that are mapped into memory.

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
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.state.errors import StateError


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
