"""`FileCatalog`: databases, tables, views and functions in files of a directory, shared by several programs.

Each lookup reads the file, so all programs see a change by one of them at once. If two programs alter a table at the
same time, the later change wins.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

from penstock.base.errors import UnsupportedError
from penstock.table.catalog.catalog import Catalog
from penstock.table.catalog.file.documents import (
    build_catalog_function,
    build_catalog_table,
    function_document,
    table_document,
)
from penstock.table.catalog.file.store import Databases, Directory, Objects
from penstock.table.catalog.objects import CatalogDatabase
from penstock.table.data.errors import ValidationError

P = ParamSpec("P")
R = TypeVar("R")

#: the value of the option `type`
TYPE: Final = "file"
_OPTIONS: Final = ("type", "path", "default-database")


def _locked(method: Callable[P, R]) -> Callable[P, R]:
    """Wrap a modifying method so that it holds the lock of the directory."""

    @functools.wraps(method)
    def locked(*args: P.args, **more: P.kwargs) -> R:
        catalog: Any = args[0]
        with catalog._directory.locked():
            return method(*args, **more)

    return locked


class FileCatalog(Catalog):
    """A catalog in files; see the module docstring.

    Args:
        name: the name of the catalog.
        path: a directory of a local file system, created if it does not exist.
        default_database: the default database, created if it does not exist.
    """

    def __init__(self, name: str, path: str | os.PathLike[str], default_database: str = "default") -> None:
        super().__init__(name, default_database)
        self._directory = Directory(Path(path).absolute())
        databases = Databases(self._directory)
        self._databases = databases
        self._tables = Objects(self._directory, databases, "tables", table_document, build_catalog_table)
        self._functions = Objects(self._directory, databases, "functions", function_document, build_catalog_function)
        self.create_database(default_database, CatalogDatabase(), ignore_if_exists=True)

    create_database = _locked(Catalog.create_database)
    drop_database = _locked(Catalog.drop_database)
    alter_database = _locked(Catalog.alter_database)
    create_table = _locked(Catalog.create_table)
    drop_table = _locked(Catalog.drop_table)
    alter_table = _locked(Catalog.alter_table)
    rename_table = _locked(Catalog.rename_table)
    create_function = _locked(Catalog.create_function)
    alter_function = _locked(Catalog.alter_function)
    drop_function = _locked(Catalog.drop_function)


def file_catalog(name: str, options: dict[str, str]) -> FileCatalog:
    """Return a catalog from the options of CREATE CATALOG.

    Raises:
        ValidationError: for unknown options, or without `path`.
        UnsupportedError: for a path that is not in a local file system.
    """
    unknown = sorted(options.keys() - set(_OPTIONS))
    if unknown:
        raise ValidationError(
            f"Unsupported options found for catalog '{name}': {', '.join(unknown)}. A catalog of type '{TYPE}' takes "
            "path and default-database."
        )
    path = options.get("path", "")
    if not path:
        raise ValidationError(f"catalog '{name}' of type '{TYPE}' needs the option 'path': a directory")
    scheme, separator, rest = path.partition("://")
    if separator and scheme != "file":
        raise UnsupportedError(
            f"catalog '{name}': '{path}' is not in a local file system, where files can be locked and renamed: use a "
            "directory, which may be of a shared file system"
        )
    return FileCatalog(
        name, rest if separator else path.removeprefix("file:"), options.get("default-database", "default")
    )
