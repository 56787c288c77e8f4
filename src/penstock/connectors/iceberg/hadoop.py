"""`HadoopCatalog`: a directory as a catalog, with the layout of Iceberg's own of this name; pyiceberg has none.

    <warehouse>/<namespace>/<table>/metadata/v<n>.metadata.json
    <warehouse>/<namespace>/<table>/metadata/version-hint.text

A table is at the highest version whose file exists; the hint only says where to begin to look. A commit writes its
metadata under a hidden name and then links it to the next version, which fails if that file exists: of two writers one
is refused, and readers see whole files. Only a local or shared file system has such a link, so an object store is
refused.

Namespaces are directories without properties, and tables are not renamed, as in Iceberg's own catalog.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog import Catalog, MetastoreCatalog, PropertiesUpdateSummary
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.serializers import FromInputFile, ToOutputFile
from pyiceberg.table import CommitTableResponse, StagedTable, Table

from penstock.base.errors import ConfigurationError, UnsupportedError

_METADATA: Final = re.compile(r"v(\d+)((?:\.gz)?\.metadata\.json(?:\.gz)?)")
_HINT: Final = "version-hint.text"
_ENDINGS: Final = (".metadata.json", ".gz.metadata.json", ".metadata.json.gz")


def _names(identifier: Any) -> tuple[str, ...]:
    names: tuple[str, ...] = Catalog.identifier_to_tuple(identifier)
    for name in names:
        if name in ("", ".", "..") or "/" in name or name.startswith("."):
            raise UnsupportedError(f"{name!r} is no name in a catalog of directories: leave out dots and slashes")
    return names


class HadoopCatalog(MetastoreCatalog):
    """See the module docstring. The property `warehouse` is the directory, which is created if it does not exist."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        warehouse = properties.get("warehouse", "")
        parts = urlsplit(warehouse)
        if not warehouse or parts.scheme not in ("", "file") or parts.netloc:
            raise ConfigurationError(
                f"catalog {name!r} of type 'hadoop' keeps its tables in a local or shared file system, where of two "
                f"writers one is refused, and not at {warehouse!r}: use a catalog of type 'rest', 'sql', 'hive' or "
                "'glue' for an object store"
            )
        self._root = Path(unquote(parts.path) if parts.scheme else warehouse).absolute()
        self._root.mkdir(parents=True, exist_ok=True)

    # --- files -------------------------------------------------------------------------------------------------------

    def _folder(self, identifier: Any) -> Path:
        return self._root.joinpath(*_names(identifier))

    def _find_metadata(self, folder: Path) -> tuple[int, Path] | None:
        """Return the newest version of a table and its file; None if the directory has no table."""
        version = self._hinted(folder)
        file = _existing(folder, version) if version else None
        if file is None:
            versions = [
                int(match[1])
                for entry in (folder.iterdir() if folder.is_dir() else ())
                if (match := _METADATA.fullmatch(entry.name))
            ]
            if not versions:
                return None
            version = max(versions)
            file = _existing(folder, version)
        while (later := _existing(folder, version + 1)) is not None:
            version, file = version + 1, later
        return None if file is None else (version, file)

    def _hinted(self, folder: Path) -> int:
        try:
            return int((folder / _HINT).read_text())
        except (OSError, ValueError):
            return 0

    def _publish(self, folder: Path, version: int, metadata: Any) -> Path | None:
        """Make a version of a table visible; return None if the version exists already."""
        folder.mkdir(parents=True, exist_ok=True)
        hidden, target = folder / f".{uuid.uuid4()}.metadata.json", folder / f"v{version}.metadata.json"
        io = self._load_file_io(location=target.as_uri())
        ToOutputFile.table_metadata(metadata, io.new_output(hidden.as_uri()))
        try:
            _sync(hidden)
            if any(_existing(folder, version + ahead) for ahead in (0, 1)):
                return None
            os.link(hidden, target)
        except FileExistsError:
            return None
        finally:
            hidden.unlink(missing_ok=True)
        _sync(folder)
        hint = folder / f".{uuid.uuid4()}.hint"
        hint.write_text(str(version))
        os.replace(hint, folder / _HINT)
        return target

    # --- tables ------------------------------------------------------------------------------------------------------

    def load_table(self, identifier: Any) -> Table:
        """See pyiceberg's `Catalog`."""
        metadata_file = self._find_metadata(self._folder(identifier) / "metadata")
        if metadata_file is None:
            raise NoSuchTableError(f"Table does not exist: {'.'.join(_names(identifier))}")
        location = metadata_file[1].as_uri()
        io = self._load_file_io(location=location)
        metadata = FromInputFile.table_metadata(io.new_input(location))
        return Table(_names(identifier), metadata, location, self._load_file_io(metadata.properties, location), self)

    def create_table(self, identifier: Any, *arguments: Any, **settings: Any) -> Table:
        """See pyiceberg's `Catalog`."""
        return self.create_table_transaction(identifier, *arguments, **settings).commit_transaction()

    def _create_staged_table(
        self, identifier: Any, schema: Any, location: str | None = None, *arguments: Any, **settings: Any
    ) -> StagedTable:
        self._require_namespace(_names(identifier)[:-1])
        own = self._folder(identifier).as_uri()
        if location not in (None, own):
            raise UnsupportedError(f"a catalog of type 'hadoop' keeps each table in its own place: not at {location!r}")
        return super()._create_staged_table(identifier, schema, own, *arguments, **settings)

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        """See pyiceberg's `Catalog`."""
        identifier = table.name()
        folder = self._folder(identifier) / "metadata"
        metadata_file = self._find_metadata(folder)
        current = None if metadata_file is None else self.load_table(identifier)
        staged = self._update_and_stage_table(current, identifier, requirements, updates)
        if current is not None and staged.metadata == current.metadata:
            return _response(current.metadata, current.metadata_location)
        title = ".".join(identifier)
        target = self._publish(folder, 1 if metadata_file is None else metadata_file[0] + 1, staged.metadata)
        if target is None:
            if metadata_file is None:
                raise TableAlreadyExistsError(f"Table {title} already exists")
            raise CommitFailedException(f"Table has been updated by another process: {title}")
        return _response(staged.metadata, target.as_uri())

    def register_table(self, identifier: Any, metadata_location: str, overwrite: bool = False) -> Table:
        """Refuse, as Iceberg's own catalog does: tables elsewhere are in no directory of this catalog."""
        self._refuse("register tables")

    def drop_table(self, identifier: Any) -> None:
        """Remove a table and its files, because its directory makes it a table."""
        folder = self._folder(identifier)
        if self._find_metadata(folder / "metadata") is None:
            raise NoSuchTableError(f"Table does not exist: {'.'.join(_names(identifier))}")
        gone = folder.parent / f".{uuid.uuid4()}"  # from now on nobody finds it, even if this process dies
        os.rename(folder, gone)
        shutil.rmtree(gone)

    def purge_table(self, identifier: Any) -> None:
        """See `drop_table`."""
        self.drop_table(identifier)

    def rename_table(self, from_identifier: Any, to_identifier: Any) -> Table:
        """Refuse, as Iceberg's own catalog does: the metadata names the files with the directory."""
        self._refuse("rename tables")

    def list_tables(self, namespace: Any) -> list[Any]:
        """See pyiceberg's `Catalog`."""
        names = self._require_namespace(namespace)
        return [(*names, entry.name) for entry in self._entries(names) if self._is_table(entry)]

    def _is_table(self, folder: Path) -> bool:
        return self._find_metadata(folder / "metadata") is not None

    def _entries(self, names: tuple[str, ...]) -> list[Path]:
        folder = self._root.joinpath(*names)
        return sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))

    # --- namespaces --------------------------------------------------------------------------------------------------

    def _require_namespace(self, namespace: Any) -> tuple[str, ...]:
        names = _names(namespace) if namespace else ()
        if names and not self.namespace_exists(names):
            raise NoSuchNamespaceError(f"Namespace does not exist: {'.'.join(names)}")
        return names

    def namespace_exists(self, namespace: Any) -> bool:
        """See pyiceberg's `Catalog`."""
        folder = self._folder(namespace)
        return folder.is_dir() and not self._is_table(folder)

    def create_namespace(self, namespace: Any, properties: Any = None) -> None:
        """See pyiceberg's `Catalog`."""
        if properties:
            raise UnsupportedError(
                f"namespace {'.'.join(_names(namespace))} is a directory in a catalog of type 'hadoop', which keeps no "
                "properties or comment: leave them out, or use another type of catalog"
            )
        try:
            self._folder(namespace).mkdir()
        except FileExistsError as error:
            raise NamespaceAlreadyExistsError(f"Namespace {'.'.join(_names(namespace))} already exists") from error

    def drop_namespace(self, namespace: Any) -> None:
        """See pyiceberg's `Catalog`."""
        names = self._require_namespace(namespace)
        if self._entries(names):
            raise NamespaceNotEmptyError(f"Namespace {'.'.join(names)} is not empty")
        shutil.rmtree(self._root.joinpath(*names))

    def list_namespaces(self, namespace: Any = ()) -> list[Any]:
        """See pyiceberg's `Catalog`."""
        names = self._require_namespace(namespace)
        return [(*names, entry.name) for entry in self._entries(names) if not self._is_table(entry)]

    def load_namespace_properties(self, namespace: Any) -> Any:
        """See pyiceberg's `Catalog`."""
        names = self._require_namespace(namespace)
        return {"location": self._root.joinpath(*names).as_uri()}

    def update_namespace_properties(
        self, namespace: Any, removals: Any = None, updates: Any = None
    ) -> PropertiesUpdateSummary:
        """Refuse, as Iceberg's own catalog does."""
        self._refuse("keep properties of namespaces")

    # --- views -------------------------------------------------------------------------------------------------------

    def view_exists(self, identifier: Any) -> bool:
        """Return False: there are no views."""
        return False

    def list_views(self, namespace: Any) -> list[Any]:
        """Return an empty list."""
        return []

    def load_view(self, identifier: Any) -> Any:
        """Refuse: there are no views."""
        self._refuse("keep views")

    def register_view(self, identifier: Any, metadata_location: str) -> Any:
        """Refuse: there are no views."""
        self._refuse("keep views")

    def drop_view(self, identifier: Any) -> None:
        """Refuse: there are no views."""
        self._refuse("keep views")

    def _refuse(self, what: str) -> NoReturn:
        raise UnsupportedError(
            f"catalog {self.name} of type 'hadoop' does not {what}: use a catalog of type 'rest', 'sql', 'hive' or "
            "'glue'"
        )


def _response(metadata: Any, location: str) -> CommitTableResponse:
    return CommitTableResponse(metadata=metadata, **{"metadata-location": location})


def _existing(folder: Path, version: int) -> Path | None:
    for ending in _ENDINGS:
        file = folder / f"v{version}{ending}"
        if file.exists():
            return file
    return None


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


__all__ = ["HadoopCatalog"]
