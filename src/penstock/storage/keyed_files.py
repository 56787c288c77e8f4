"""Small files with known names in object stores (G8, G11).

An object store returns the contents of a key immediately after they were put. Its listings may be late: an object that
was just put may be missing, and one that was just deleted may still appear. So correctness never depends on a listing,
which may only say where to look.
"""

from __future__ import annotations

import contextlib
import posixpath
from typing import Any, Protocol

from penstock.storage.files import create, write_named


class KeyedFiles(Protocol):
    """The operations required of an object store. Any call may raise `OSError`, for example on too many requests."""

    def read(self, path: str) -> bytes | None:
        """Return the contents last put under a path, or None."""

    def create(self, path: str, data: bytes) -> bool:
        """Put a file unless it exists; return False if it does. Of several concurrent calls, one returns True."""

    def put(self, path: str, data: bytes) -> None:
        """Put a file, replacing an existing one."""

    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory; the listing may be late."""


class ObjectFiles:
    """The files of an fsspec file system with object storage. Implements `KeyedFiles`."""

    def __init__(self, fs: Any) -> None:
        self._fs = fs

    def read(self, path: str) -> bytes | None:
        try:
            data: bytes = self._fs.cat_file(path)
        except FileNotFoundError:
            return None
        return data

    def create(self, path: str, data: bytes) -> bool:
        return create(self._fs, posixpath.dirname(path), posixpath.basename(path), data)

    def put(self, path: str, data: bytes) -> None:
        write_named(self._fs, posixpath.dirname(path), posixpath.basename(path), data)

    def delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(path)

    def names(self, directory: str) -> list[str]:
        self._fs.invalidate_cache(directory)
        try:
            return [posixpath.basename(path.rstrip("/")) for path in self._fs.ls(directory, detail=False)]
        except FileNotFoundError:
            return []
