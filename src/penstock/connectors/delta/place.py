"""The location of a Delta Lake table and its files."""

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

#: Matches delta-rs errors about table features that it cannot read.
_UNSUPPORTED: Final = re.compile("not supported|unsupported|column mapping|catalog-managed", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TablePlace:
    """A directory, local or in an object store.

    Attributes:
        path: an absolute path or a URL.
        options: the storage options of delta-rs, such as `aws_region`; others come from the environment.
    """

    path: str
    options: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def of(path: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> TablePlace:
        """Return the location for a path, in a form that is valid on every machine."""
        text = os.fspath(path)
        if text.startswith("file://"):
            text = text.removeprefix("file://")
        if "://" not in text:
            text = os.path.abspath(text)
        return TablePlace(text.rstrip("/") or "/", tuple(sorted((options or {}).items())))

    @property
    def is_local(self) -> bool:
        """Whether the table is in the local file system."""
        return "://" not in self.path

    def exists(self) -> bool:
        """Return whether the table exists."""
        require_library()
        from deltalake import DeltaTable

        return bool(DeltaTable.is_deltatable(self.path, dict(self.options)))

    def open(self, version: int | None = None) -> DeltaTable:
        """Open the table at its newest version or at the given one.

        Raises:
            MissingTableError: if the table does not exist.
            UnsupportedTableError: for a table with features that delta-rs does not support.
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
        """Return the table's file system, with paths relative to the table."""
        require_library()
        from deltalake.fs import DeltaStorageHandler

        if self.is_local:
            os.makedirs(self.path, exist_ok=True)
        return pafs.PyFileSystem(DeltaStorageHandler(self.path, dict(self.options)))

    def make_durable(self, paths: Sequence[str]) -> None:
        """Sync written files and their directory entries to disk before they are referenced."""
        if not self.is_local:
            return
        directories = set()
        for path in paths:
            full = os.path.join(self.path, path)
            _sync(full)
            while full != self.path:
                full = os.path.dirname(full)
                directories.add(full)
        for directory in directories:
            _sync(directory)


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def read_arrow_schema(table: Any) -> pa.Schema:
    """Return the Arrow schema of an open table."""
    return pa.schema(table.schema().to_arrow())
