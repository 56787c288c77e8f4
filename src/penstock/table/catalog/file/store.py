"""Documents in files: one file each, written atomically, shared by several processes.

    <directory>/<database>/database.json
    <directory>/<database>/tables/<name>.json
    <directory>/<database>/functions/<name>.json

A file is written under a hidden name and then renamed, so readers see either the old or the new document. Writers hold
a lock on the directory, so anything they look up before a change still holds when they make it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Generic, TypeVar
from urllib.parse import quote, unquote

from penstock.table.catalog.file.documents import build_catalog_database, database_document
from penstock.table.catalog.objects import CatalogDatabase, ObjectPath
from penstock.table.data.errors import ValidationError

T = TypeVar("T")

_LOCK: Final = ".lock"
_ENDING: Final = ".json"
_DATABASE: Final = "database.json"


class Directory:
    """The directory of a catalog; created if missing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._depth = 0
        self._mutex = threading.RLock()
        path.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold an exclusive lock on the directory. The lock is reentrant."""
        with self._mutex:
            if self._depth:
                yield
                return
            with open(self.path / _LOCK, "w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                self._depth += 1
                try:
                    yield
                finally:
                    self._depth -= 1


def _name(text: str) -> str:
    """Return a name as a file name, without separators and not hidden."""
    return quote(text, safe=" ").replace(".", "%2E")


def write_whole(path: Path, text: str) -> None:
    """Write a file atomically and durably."""
    handle, partial = tempfile.mkstemp(prefix=".", dir=path.parent)
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        os.unlink(partial)
        raise
    _sync(path.parent)


def _sync(directory: Path) -> None:
    """Flush the entries of a directory to disk."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _read(path: Path, parse: Callable[[str], T], key: object) -> T:
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise KeyError(key) from None
    try:
        return parse(text)
    except (ValidationError, KeyError, TypeError) as error:
        raise ValidationError(f"the file {path} of the catalog cannot be read: {error}") from error


class Databases(MutableMapping[str, CatalogDatabase]):
    """The databases, each a directory."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def __getitem__(self, name: str) -> CatalogDatabase:
        return _read(self._path(name) / _DATABASE, build_catalog_database, name)

    def __setitem__(self, name: str, database: CatalogDatabase) -> None:
        self._path(name).mkdir(exist_ok=True)
        write_whole(self._path(name) / _DATABASE, database_document(database))

    def __delitem__(self, name: str) -> None:
        path = self._path(name)
        if not (path / _DATABASE).exists():
            raise KeyError(name)
        # Without its document the directory is not a database, even if this process dies before removing the rest.
        (path / _DATABASE).unlink()
        shutil.rmtree(path)
        _sync(self._directory.path)

    def __iter__(self) -> Iterator[str]:
        for path in sorted(self._directory.path.iterdir()):
            if not path.name.startswith(".") and (path / _DATABASE).exists():
                yield unquote(path.name)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _path(self, name: str) -> Path:
        return self._directory.path / _name(name)


class Objects(MutableMapping[ObjectPath, T], Generic[T]):
    """The tables or functions of all databases, each a file.

    Args:
        directory: the catalog's directory.
        databases: the existing databases.
        folder: the name of the subdirectory for these objects in a database's directory.
        write: converts an object to its document.
        parse: converts a document to its object.
    """

    def __init__(
        self,
        directory: Directory,
        databases: Databases,
        folder: str,
        write: Callable[[T], str],
        parse: Callable[[str], T],
    ) -> None:
        self._directory = directory
        self._databases = databases
        self._folder = folder
        self._write = write
        self._parse = parse

    def __getitem__(self, path: ObjectPath) -> T:
        return _read(self._path(path), self._parse, path)

    def __setitem__(self, path: ObjectPath, value: T) -> None:
        text = self._write(value)
        file = self._path(path)
        file.parent.mkdir(exist_ok=True)
        write_whole(file, text)

    def __delitem__(self, path: ObjectPath) -> None:
        try:
            self._path(path).unlink()
        except (FileNotFoundError, NotADirectoryError):
            raise KeyError(path) from None
        _sync(self._path(path).parent)

    def __contains__(self, path: object) -> bool:
        return isinstance(path, ObjectPath) and self._path(path).exists()

    def __iter__(self) -> Iterator[ObjectPath]:
        for database in self._databases:
            folder = self._directory.path / _name(database) / self._folder
            for file in sorted(folder.glob(f"*{_ENDING}")) if folder.is_dir() else ():
                if not file.name.startswith("."):
                    yield ObjectPath(database, unquote(file.name.removesuffix(_ENDING)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _path(self, path: ObjectPath) -> Path:
        folder = self._directory.path / _name(path.database_name) / self._folder
        return folder / f"{_name(path.object_name)}{_ENDING}"
