"""Where a table of Delta Lake is, and its files."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.fs as pafs

from penstock.connectors.delta.errors import MissingTableError, UnsupportedTableError
from penstock.connectors.delta.library import require_library

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltalake import DeltaTable

#: In errors of delta-rs for tables with features that it does not read.
_UNSUPPORTED: Final = re.compile("not supported|unsupported|column mapping|catalog-managed", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TablePlace:
    """A directory, here or in an object store.

    Attributes:
        path: absolute, or a URL.
        options: how delta-rs reaches it, such as `aws_region`; what is not said comes from the environment.
    """

    path: str
    options: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def of(path: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> TablePlace:
        """The place of a path, which every machine understands alike."""
        text = os.fspath(path)
        if text.startswith("file://"):
            text = text.removeprefix("file://")
        if "://" not in text:
            text = os.path.abspath(text)
        return TablePlace(text.rstrip("/") or "/", tuple(sorted((options or {}).items())))

    @property
    def is_local(self) -> bool:
        """Whether it is in the file system of this machine."""
        return "://" not in self.path

    def exists(self) -> bool:
        """Whether there is a table."""
        require_library()
        from deltalake import DeltaTable

        return bool(DeltaTable.is_deltatable(self.path, dict(self.options)))

    def open(self, version: int | None = None) -> DeltaTable:
        """The table, as it is now or was at a version.

        Raises:
            MissingTableError: if there is none.
            UnsupportedTableError: for a table with features that delta-rs does not know.
        """
        require_library()
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            return DeltaTable(self.path, version=version, storage_options=dict(self.options))
        except TableNotFoundError as error:
            raise MissingTableError(f"there is no Delta table at {self.path}: {_first_line(error)}") from error
        except DeltaError as error:
            if not _UNSUPPORTED.search(str(error)):
                raise
            raise UnsupportedTableError(
                f"the Delta table {self.path} cannot be opened: {_first_line(error)}. Drop the feature, or use a copy "
                "of the table"
            ) from error

    def files(self) -> pafs.FileSystem:
        """The files below, by paths that are relative to the table."""
        require_library()
        from deltalake.fs import DeltaStorageHandler

        if self.is_local:
            os.makedirs(self.path, exist_ok=True)
        return pafs.PyFileSystem(DeltaStorageHandler(self.path, dict(self.options)))

    def make_durable(self, paths: Sequence[str]) -> None:
        """Let files that were written reach the disk, with their names, before anybody relies on them."""
        if not self.is_local:
            return
        directories = set()
        for path in paths:
            full = os.path.join(self.path, path)
            _sync(full)
            while full != self.path:
                full = os.path.dirname(full)
                directories.add(full)
        for one in directories:
            _sync(one)


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def schema_of(table: Any) -> pa.Schema:
    """The columns of an open table, as Arrow has them."""
    return pa.schema(table.schema().to_arrow())
