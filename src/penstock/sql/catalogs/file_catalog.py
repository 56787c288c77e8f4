"""`FileCatalog`: databases, tables, views, functions and models in files of a directory, shared by several programs.

Each lookup reads the file, so all programs see a change by one of them at once. If two programs alter a table at the
same time, the later change wins.

A catalog object is stored as a JSON document; types and expressions in it are SQL text. Each document is one file:

    <directory>/<database>/database.json
    <directory>/<database>/tables/<name>.json
    <directory>/<database>/functions/<name>.json
    <directory>/<database>/models/<name>.json

A file is written under a hidden name and then renamed, so readers see either the old or the new document. Writers hold
a lock on the directory, so anything they look up before a change still holds when they make it.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Generic, ParamSpec, TypeVar
from urllib.parse import quote, unquote

from penstock.base.errors import PenstockError, UnsupportedError
from penstock.sql.catalogs.catalog import (
    Catalog,
    CatalogBaseTable,
    CatalogDatabase,
    CatalogFunction,
    CatalogModel,
    ObjectPath,
)
from penstock.sql.catalogs.columns import (
    Schema,
    UnresolvedColumn,
    UnresolvedWatermark,
    parse_data_type,
    parse_expression,
)
from penstock.sql.catalogs.manager import InlineView
from penstock.sql.data.errors import ValidationError
from penstock.sql.parser import to_sql
from penstock.sql.parser.statements import Distribution

#: increased when a release changes the document format
VERSION: Final = 1


def database_document(database: CatalogDatabase) -> str:
    """Return a database as JSON."""
    return _text({"properties": dict(database.properties), "comment": database.comment})


def build_catalog_database(text: str) -> CatalogDatabase:
    """Return the database in a document."""
    content = _content(text)
    return CatalogDatabase(content["properties"], content["comment"])


def function_document(function: CatalogFunction) -> str:
    """Return a user-defined function as JSON."""
    return _text({"target": function.target, "language": function.language})


def build_catalog_function(text: str) -> CatalogFunction:
    """Return the function in a document."""
    content = _content(text)
    return CatalogFunction(content["target"], content["language"])


def model_document(model: CatalogModel) -> str:
    """Return a model as JSON. Raises `ValidationError` for a model that an object of the program answers."""
    if model.source is not None:
        raise ValidationError(
            "an object of the program answers for this model, so no file can hold it: make the model temporary, or "
            "name a class with 'provider' = 'python' and 'class'"
        )
    return _text(
        {
            "input": [_column(column) for column in model.input_schema.columns],
            "output": [_column(column) for column in model.output_schema.columns],
            "options": dict(model.options),
            "comment": model.comment,
        }
    )


def build_catalog_model(text: str) -> CatalogModel:
    """Return the model in a document."""
    content = _content(text)
    inputs, outputs = (Schema(tuple(map(_to_column, content[side]))) for side in ("input", "output"))
    return CatalogModel(inputs, outputs, content["options"], content["comment"])


def table_document(table: CatalogBaseTable) -> str:
    """Return a table or view as JSON. Raises `ValidationError` if it has no SQL text, such as a Table API view."""
    if isinstance(table, InlineView):
        raise ValidationError(
            "a view that the Table API made has no text, so no file can hold it: make it temporary, or with CREATE VIEW"
        )
    content: dict[str, Any] = {
        "kind": "VIEW" if table.is_view else "TABLE",
        "columns": [_column(column) for column in table.schema.columns],
        "watermarks": [
            {"column": watermark.column, "as": to_sql(watermark.expression)} for watermark in table.schema.watermarks
        ],
        "primary_key": list(table.schema.primary_key),
        "primary_key_name": table.schema.primary_key_name,
        "options": dict(table.options),
        "comment": table.comment,
        "partitioned_by": list(table.partition_keys),
    }
    if table.distribution is not None:
        distribution = table.distribution
        content["distribution"] = {
            "kind": distribution.kind,
            "columns": list(distribution.columns),
            "buckets": distribution.buckets,
        }
    if table.is_view:
        content |= {"query": table.query, "place": None if table.place is None else list(table.place)}
    text = _text(content)
    _check(table, text)
    return text


def _check(table: CatalogBaseTable, text: str) -> None:
    """Raise `ValidationError` if the document does not read back with the same columns."""
    try:
        parsed = build_catalog_table(text)
        is_same = _text_of_columns(parsed) == _text_of_columns(table)
    except PenstockError as error:
        raise ValidationError(f"a file cannot hold this table: {error}") from error
    if not is_same:
        raise ValidationError("a file cannot hold this table: a type or expression of it has no text in SQL")


def _text_of_columns(table: CatalogBaseTable) -> list[dict[str, Any]]:
    return [_column(column) for column in table.schema.columns]


def build_catalog_table(text: str) -> CatalogBaseTable:
    """Return the table or view in a document."""
    content = _content(text)
    columns = tuple(_to_column(column) for column in content["columns"])
    marks = tuple(
        UnresolvedWatermark(watermark["column"], parse_expression(watermark["as"]))
        for watermark in content["watermarks"]
    )
    spread = content.get("distribution")
    namespace = content.get("place")
    return CatalogBaseTable(
        Schema(columns, marks, tuple(content["primary_key"]), content["primary_key_name"]),
        content["options"],
        content["comment"],
        tuple(content["partitioned_by"]),
        None if spread is None else Distribution(spread["kind"], tuple(spread["columns"]), spread["buckets"]),
        content.get("query"),
        None if namespace is None else (namespace[0], namespace[1]),
    )


def _column(column: UnresolvedColumn) -> dict[str, Any]:
    content: dict[str, Any] = {"name": column.name}
    if column.data_type is not None:
        content["type"] = str(column.data_type)
    if column.expression is not None:
        content["as"] = to_sql(column.expression)
    if column.is_metadata:
        content |= {"metadata": column.metadata_key, "virtual": column.is_virtual}
    return content if column.comment is None else {**content, "comment": column.comment}


def _to_column(content: dict[str, Any]) -> UnresolvedColumn:
    return UnresolvedColumn(
        content["name"],
        parse_data_type(content["type"]) if "type" in content else None,
        parse_expression(content["as"]) if "as" in content else None,
        "metadata" in content,
        content.get("metadata"),
        content.get("virtual", False),
        content.get("comment"),
    )


def _text(content: dict[str, Any]) -> str:
    return json.dumps({"version": VERSION, **content}, indent=2, ensure_ascii=False) + "\n"


def _content(text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ValidationError(f"it is no JSON: {error}") from error
    if not isinstance(content, dict) or content.get("version") != VERSION:
        raise ValidationError(f"it is no document of version {VERSION}, which this release reads")
    return content


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
    """The tables, functions or models of all databases, each a file.

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
        self._models = Objects(self._directory, databases, "models", model_document, build_catalog_model)
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
    create_model = _locked(Catalog.create_model)
    alter_model = _locked(Catalog.alter_model)
    rename_model = _locked(Catalog.rename_model)
    drop_model = _locked(Catalog.drop_model)


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
