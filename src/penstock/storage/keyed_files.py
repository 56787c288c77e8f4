"""Small files by names that are known beforehand, in stores of objects (G8, G11).

A store of objects gives back what was put under a key as soon as it was put. What it lists may be late: an object that
was just put may be missing, and one that was just deleted may still be there. So nothing that has to be right follows
from a listing. It may say where to look.
"""

from __future__ import annotations

import contextlib
import posixpath
from typing import Any, Protocol

from penstock.storage.files import create, write_named


class KeyedFiles(Protocol):
    """What is needed of such a store. Any call may raise `OSError`, for instance when there are too many requests."""

    def read(self, path: str) -> bytes | None:
        """What was put last under a path, or None."""

    def create(self, path: str, data: bytes) -> bool:
        """Put what is not there yet; False if it is. Of several that ask at a time one gets True."""

    def put(self, path: str, data: bytes) -> None:
        """Put, in place of what is there."""

    def delete(self, path: str) -> None:
        """Delete; nothing happens when there is nothing."""

    def names(self, directory: str) -> list[str]:
        """The names in a directory, as far as the store has got round to listing them."""


class ObjectFiles:
    """Those of an fsspec file system that has objects. Implements `KeyedFiles`."""

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
