"""`DeltaCatalog`: a directory whose folders are databases, with Delta Lake tables below them.

    <path>/<database>/<table>/_delta_log
    <path>/<database>/.database.json        properties and comment of the database, if it has any

So whatever Spark, delta-rs or another program puts there is in the catalog, and a table that is made here is theirs.
The connector `delta` reads and writes the tables. In an object store a database without tables exists by its document.

A primary key is kept in the metadata of its columns, which other programs leave alone: Delta Lake has no keys.
Features that Delta Lake lacks (watermarks, computed columns, views, functions) are refused; a TEMPORARY table LIKE the
catalog's table adds them. So are changes that delta-rs lacks: it cannot drop or rename columns, or widen types.
"""

from __future__ import annotations

import datetime
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.fs as pafs

from penstock.base.errors import OperationError, PenstockError, UnsupportedError
from penstock.base.secrets import remember
from penstock.connectors.delta.commits import NewTable
from penstock.connectors.delta.log import load_first_version
from penstock.connectors.delta.table import MissingTableError, TablePlace, list_invariants, require_library
from penstock.sql.catalogs.catalog import CatalogBaseTable, CatalogDatabase, LakeCatalog, ObjectPath
from penstock.sql.catalogs.columns import Schema, UnresolvedColumn
from penstock.sql.catalogs.file_catalog import build_catalog_database, database_document, write_whole
from penstock.sql.connectors import delta as connector
from penstock.sql.data import types
from penstock.sql.data.arrow import logical_type
from penstock.sql.data.errors import ValidationError
from penstock.sql.parser.statements import AlterAction

if TYPE_CHECKING:
    from deltalake import DeltaTable

#: the value of the option `type`
TYPE: Final = "delta"
_DOCUMENT: Final = ".database.json"
_LOG: Final = "_delta_log"
#: the metadata of a column that is in the primary key: its place there, from 1
_KEY: Final = "penstock.key"
_COMMENT: Final = "comment"
#: How often a change is tried again after other writers.
_ATTEMPTS: Final = 30
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
#: what another version of a table allows that delta-rs does not do
_REBUILD: Final = "alter it with Spark, or replace the table with CREATE OR REPLACE TABLE … AS"


# --- types of columns -------------------------------------------------------------------------------------------------

_PLAIN: Final[dict[str, types.DataType]] = {
    "boolean": types.BooleanType(),
    "byte": types.TinyIntType(),
    "short": types.SmallIntType(),
    "integer": types.IntType(),
    "long": types.BigIntType(),
    "float": types.FloatType(),
    "double": types.DoubleType(),
    "date": types.DateType(),
    "string": types.VarCharType(types.LENGTH_MAX),
    "binary": types.VarBinaryType(types.LENGTH_MAX),
    "timestamp": types.LocalZonedTimestampType(6),
    "timestamp_ntz": types.TimestampType(6),
}


def from_delta_type(kind: Any) -> types.DataType:
    """Return the type of a column, given as in Delta Lake's JSON. Raises `UnsupportedError` for other types."""
    if isinstance(kind, str):
        if kind.startswith("decimal("):
            precision, scale = kind.removeprefix("decimal(").removesuffix(")").split(",")
            return types.DecimalType(int(precision), int(scale))
        if kind in _PLAIN:
            return _PLAIN[kind]
    elif kind["type"] == "struct":
        return types.RowType(
            [
                types.RowField(field["name"], _from_field(field), field["metadata"].get(_COMMENT))
                for field in kind["fields"]
            ]
        )
    elif kind["type"] == "array":
        element = from_delta_type(kind["elementType"])
        return types.ArrayType(element if kind["containsNull"] else element.not_null())
    elif kind["type"] == "map":
        value = from_delta_type(kind["valueType"])
        key = from_delta_type(kind["keyType"]).not_null()
        return types.MapType(key, value if kind["valueContainsNull"] else value.not_null())
    raise UnsupportedError(f"a column of Delta Lake's type {kind} is not read here: read it with Spark")


def _from_field(field: Mapping[str, Any]) -> types.DataType:
    data_type = from_delta_type(field["type"])
    return data_type if field["nullable"] else data_type.not_null()


def to_delta_type(data_type: types.DataType) -> Any:
    """Return a type as in Delta Lake's JSON. Raises `UnsupportedError` for a type that Delta Lake lacks."""
    match data_type:
        case types.RowType(fields=fields) if not isinstance(data_type, types.StructuredType):
            inner = [_to_field(field.name, field.data_type, field.description) for field in fields]
            return {"type": "struct", "fields": inner}
        case types.MultisetType(element_type=element):
            return _map_type(element, types.IntType(False))
        case types.ArrayType(element_type=element):
            return {"type": "array", "elementType": to_delta_type(element), "containsNull": element.is_nullable}
        case types.MapType(key_type=key, value_type=value):
            return _map_type(key, value)
        case types.DecimalType(precision=precision, scale=scale):
            return f"decimal({precision},{scale})"
        case types.CharType() | types.VarCharType():
            return "string"
        case types.BinaryType() | types.VarBinaryType():
            return "binary"
        case types.TimestampType(precision=9) | types.LocalZonedTimestampType(precision=9):
            raise UnsupportedError(f"Delta Lake keeps points in time with 6 digits, so a column cannot be {data_type}")
    for name, plain in _PLAIN.items():
        if type(plain) is type(data_type):
            return name
    raise UnsupportedError(f"Delta Lake has no type for {data_type}: declare the column as another type")


def _map_type(key: types.DataType, value: types.DataType) -> dict[str, Any]:
    kinds = {"keyType": to_delta_type(key), "valueType": to_delta_type(value)}
    return {"type": "map", **kinds, "valueContainsNull": value.is_nullable}


def _to_field(name: str, data_type: types.DataType, comment: str | None, key: int = 0) -> dict[str, Any]:
    try:
        kind = to_delta_type(data_type)
    except UnsupportedError as error:
        raise UnsupportedError(f"column '{name}': {error}") from error
    metadata = ({_COMMENT: comment} if comment else {}) | ({_KEY: str(key)} if key else {})
    return {"name": name, "type": kind, "nullable": data_type.is_nullable and not key, "metadata": metadata}


def to_delta_schema(schema: Schema) -> str:
    """Return the columns as Delta Lake's JSON."""
    key = schema.primary_key
    fields = []
    for column in schema.columns:
        assert column.data_type is not None
        position = key.index(column.name) + 1 if column.name in key else 0
        fields.append(_to_field(column.name, column.data_type, column.comment, position))
    return json.dumps({"type": "struct", "fields": fields})


# --- the catalog ------------------------------------------------------------------------------------------------------


class DeltaCatalog(LakeCatalog):
    """See the module docstring.

    Args:
        name: the name of the catalog.
        root: the directory, with the options of its store.
        default_database: created if it does not exist.
    """

    keeper = "Delta Lake"
    metadata_tables = connector.METADATA_TABLES

    def __init__(self, name: str, root: TablePlace, default_database: str) -> None:
        super().__init__(name, default_database)
        self._root = root
        # Delta-rs's own view of a local directory has no empty folders.
        files = root.files()
        self._files: Any = pafs.SubTreeFileSystem(root.path, pafs.LocalFileSystem()) if root.is_local else files
        if not self.database_exists(default_database):
            self.create_database(default_database, CatalogDatabase())

    def _name(self, text: str) -> str:
        if not text or "/" in text or text.startswith((".", "_")):
            raise ValidationError(
                f"'{text}' is no name in catalog {self.name}, where names are folders: leave out slashes, and dots and "
                "underscores at the beginning"
            )
        return text

    def _folder(self, path: ObjectPath) -> str:
        return f"{self._name(path.database_name)}/{self._name(path.object_name)}"

    def _table_place(self, path: ObjectPath) -> TablePlace:
        return replace(self._root, path=f"{self._root.path}/{self._folder(path)}")

    def _folders(self, folder: str) -> list[str]:
        try:
            entries = self._files.get_file_info(pafs.FileSelector(folder))
        except FileNotFoundError:
            return []
        names = [entry.base_name for entry in entries if entry.type is pafs.FileType.Directory]
        return sorted(name for name in names if not name.startswith((".", "_")))

    def _is_folder(self, folder: str) -> bool:
        info = self._files.get_file_info(folder)
        if info.type is pafs.FileType.Directory:
            return True
        # An object store has no directories, but objects below them.
        return not self._root.is_local and folder.rpartition("/")[2] in self._folders(folder.rpartition("/")[0])

    # --- databases ---------------------------------------------------------------------------------------------------

    def list_databases(self) -> list[str]:
        """See `Catalog`."""
        return [name for name in self._folders("") if not self._is_folder(f"{name}/{_LOG}")]

    def database_exists(self, database_name: str) -> bool:
        """See `Catalog`."""
        name = self._name(database_name)
        return self._is_folder(name) and not self._is_folder(f"{name}/{_LOG}")

    def get_database(self, database_name: str) -> CatalogDatabase:
        """See `Catalog`."""
        self._require_database(database_name)
        document = f"{database_name}/{_DOCUMENT}"
        if self._files.get_file_info(document).type is not pafs.FileType.File:
            return CatalogDatabase()
        with self._files.open_input_file(document) as file:
            return build_catalog_database(file.read().decode())

    def _write_document(self, name: str, database: CatalogDatabase) -> None:
        text = database_document(database)
        if self._root.is_local:
            os.makedirs(f"{self._root.path}/{name}", exist_ok=True)
            write_whole(Path(self._root.path) / name / _DOCUMENT, text)
            return
        with pa.PythonFile(self._files.handler.open_output_stream(f"{name}/{_DOCUMENT}"), "w") as file:
            file.write(text.encode())  # an object store shows a file when it is whole

    def create_database(self, name: str, database: CatalogDatabase, ignore_if_exists: bool = False) -> None:
        """See `Catalog`."""
        if self.database_exists(name):
            if ignore_if_exists:
                return
            raise ValidationError(f"Database {name} already exists in Catalog {self.name}.")
        if self._is_folder(name):
            raise ValidationError(f"'{name}' is a table directly in the directory of catalog {self.name}: move it")
        self._write_document(name, database)

    def alter_database(self, name: str, new_database: CatalogDatabase, ignore_if_not_exists: bool = False) -> None:
        """See `Catalog`."""
        if ignore_if_not_exists and not self.database_exists(name):
            return
        self._require_database(name)
        self._write_document(name, new_database)

    def drop_database(self, name: str, ignore_if_exists: bool = False, cascade: bool = False) -> None:
        """See `Catalog`. Files outside of tables stay, and with them the folder."""
        if ignore_if_exists and not self.database_exists(name):
            return
        inside = self.list_tables(name)
        if inside and not cascade:
            raise ValidationError(f"Database {name} in Catalog {self.name} is not empty: it has {name}.{inside[0]}")
        for table in inside:
            self.drop_table(ObjectPath(name, table), ignore_if_not_exists=True)
        document = f"{name}/{_DOCUMENT}"
        others = [
            entry.base_name
            for entry in self._files.get_file_info(pafs.FileSelector(name))
            if entry.base_name != _DOCUMENT
        ]
        if others:
            raise OperationError(
                f"database {name} of catalog {self.name} has {others[0]} in its folder, which is no table: remove it"
            )
        if self._files.get_file_info(document).type is pafs.FileType.File:
            self._files.delete_file(document)
        if self._root.is_local:
            os.rmdir(f"{self._root.path}/{name}")

    # --- tables ------------------------------------------------------------------------------------------------------

    def list_tables(self, database_name: str) -> list[str]:
        """See `Catalog`."""
        self._require_database(database_name)
        return [name for name in self._folders(database_name) if self._is_folder(f"{database_name}/{name}/{_LOG}")]

    def list_views(self, database_name: str) -> list[str]:
        """Return an empty list."""
        self._require_database(database_name)
        return []

    def table_exists(self, table_path: ObjectPath) -> bool:
        """See `Catalog`."""
        if self._is_table(table_path):
            return True
        described = self._find_described(table_path)
        return described is not None and self._is_table(described[0])

    def _is_table(self, path: ObjectPath) -> bool:
        return self._is_folder(f"{self._folder(path)}/{_LOG}") and self._table_place(path).exists()

    def open_table(self, path: ObjectPath) -> DeltaTable:
        """Return delta-rs's table."""
        try:
            return self._table_place(path).open()
        except MissingTableError as error:
            raise ValidationError(f"Table (or view) {path} does not exist in Catalog {self.name}.") from error

    def get_table(self, table_path: ObjectPath) -> CatalogBaseTable:
        """See `Catalog`."""
        if not self.table_exists(table_path):
            raise ValidationError(f"Table (or view) {table_path} does not exist in Catalog {self.name}.")
        described = self._find_described(table_path)
        if described is None:
            return self._described(table_path, self.open_table(table_path))
        path, kind = described
        rows = connector.load_metadata(self.open_table(path), kind)
        columns = tuple(UnresolvedColumn(field.name, logical_type(field.type)) for field in rows.schema)
        options = {**self._connector_options(path), connector.METADATA_TABLE: kind}
        return CatalogBaseTable(Schema(columns), comment=f"the {kind} of {path}", connector_options=options)

    def get_table_at(self, table_path: ObjectPath, time_ms: int) -> CatalogBaseTable:
        """See `Catalog`."""
        moment = datetime.datetime.fromtimestamp(time_ms / 1_000, datetime.UTC).isoformat()
        table = self.open_table(table_path)
        load_first_version(self._table_place(table_path), table, moment)
        return self._described(table_path, table, {connector.VERSION_AS_OF.key(): str(table.version())})

    def find_version(self, table_path: ObjectPath, version: str) -> Mapping[str, str]:
        """See `Catalog`."""
        if not version.isdecimal():
            raise ValidationError(
                f"table {table_path} has versions from 0 on, and no branches or tags: '{version}' is no version"
            )
        return {connector.VERSION_AS_OF.key(): version}

    def change_versions(self, table_path: ObjectPath, action: AlterAction) -> None:
        """Raise `UnsupportedError`."""
        raise UnsupportedError(
            f"{action.verb} of table {table_path}: Delta Lake has no branches and tags, but versions with numbers, "
            "which VERSION AS OF reads"
        )

    def with_hints(self, table_path: ObjectPath, table: CatalogBaseTable, hints: Mapping[str, str]) -> CatalogBaseTable:
        """See `Catalog`."""
        version, moment = (hints.get(option.key()) for option in (connector.VERSION_AS_OF, connector.TIMESTAMP_AS_OF))
        if moment is None and (version is None or not version.isdecimal()):
            return table
        loaded = self.open_table(table_path)
        with self._asking(table_path):
            if moment is not None:
                load_first_version(self._table_place(table_path), loaded, moment)
            else:
                loaded.load_as_version(int(version or 0))
        return self._described(table_path, loaded)

    def _described(
        self, path: ObjectPath, table: DeltaTable, more: Mapping[str, str] | None = None
    ) -> CatalogBaseTable:
        metadata, fields = table.metadata(), json.loads(table.schema().to_json())["fields"]
        try:
            columns = tuple(
                UnresolvedColumn(field["name"], _from_field(field), comment=field["metadata"].get(_COMMENT))
                for field in fields
            )
        except UnsupportedError as error:
            raise UnsupportedError(f"table {path} of catalog {self.name}: {error}") from error
        positions = {field["name"]: int(field["metadata"].get(_KEY) or 0) for field in fields}
        key = tuple(sorted((name for name in positions if positions[name]), key=positions.__getitem__))
        return CatalogBaseTable(
            Schema(columns, (), key, "PK_" + "_".join(key) if key else None),
            dict(sorted(metadata.configuration.items())),
            metadata.description or None,
            tuple(metadata.partition_columns),
            connector_options=self._connector_options(path) | dict(more or {}),
        )

    def _connector_options(self, path: ObjectPath) -> dict[str, str]:
        table_place = self._table_place(path)
        return {
            "connector": connector.DeltaConnector.name,
            connector.PATH.key(): table_place.path,
            **{f"{connector.STORAGE}{key}": value for key, value in table_place.options},
            connector.CREATE.key(): "false",
        }

    def create_table(self, table_path: ObjectPath, table: CatalogBaseTable, ignore_if_exists: bool = False) -> None:
        """See `Catalog`. Raises `UnsupportedError` for what Delta Lake does not keep."""
        from deltalake import DeltaTable, Schema
        from deltalake.exceptions import DeltaError

        self._require_database(table_path.database_name)
        table_place, options = self._table_place(table_path), self._check(table_path, table)
        if self._is_table(table_path):
            if ignore_if_exists:
                return
            raise ValidationError(f"Table (or view) {table_path} already exists in Catalog {self.name}.")
        schema = Schema.from_json(to_delta_schema(table.schema))
        table_place.files()
        try:
            with self._asking(table_path):
                created = DeltaTable.create(
                    table_place.path,
                    schema,
                    mode="error",
                    partition_by=list(table.partition_keys),
                    description=table.comment,
                    configuration=options,
                    storage_options=dict(table_place.options),
                    raise_if_key_not_exists=False,
                )
                list_invariants(created)
        except OperationError as error:
            if not (isinstance(error.__cause__, DeltaError) and "already exists" in str(error)):
                raise
            if not ignore_if_exists:
                raise ValidationError(f"Table (or view) {table_path} already exists in Catalog {self.name}.") from error

    def _check(self, path: ObjectPath, table: CatalogBaseTable) -> dict[str, str]:
        """Return the properties of a table. Raises if Delta Lake cannot keep the table."""
        if table.is_view:
            self._refuse("views", path, "a TEMPORARY VIEW, or one in a catalog of type 'file'")
        more = "a TEMPORARY TABLE with it, LIKE this one"
        if table.schema.watermarks:
            self._refuse("watermarks", path, more)
        if any(column.expression is not None or column.is_metadata for column in table.schema.columns):
            self._refuse("computed and metadata columns", path, more)
        if table.distribution is not None:
            self._refuse("DISTRIBUTED BY", path, "it without")
        options = dict(table.options)
        kind = options.pop("connector", connector.DeltaConnector.name)
        if kind != connector.DeltaConnector.name:
            raise ValidationError(
                f"table {path} cannot be made in catalog {self.name}, which has tables of Delta Lake alone, not of the "
                f"connector '{kind}': make it TEMPORARY, or in another catalog; after LIKE, write (EXCLUDING OPTIONS)"
            )
        if "connector" in table.options:
            reaching = {connector.PATH.key(), connector.CREATE.key()}
            options = {
                key: value
                for key, value in options.items()
                if key not in reaching and not key.startswith(connector.STORAGE)
            }
        for key in options:
            if key == connector.PATH.key() or key in {option.key() for option in connector.OPTIONAL}:
                raise ValidationError(
                    f"option '{key}' of table {path} is for a job and no property of a table: give it by a hint, "
                    f"/*+ OPTIONS('{key}' = '…') */"
                )
        return options

    @contextmanager
    def _asking(self, path: ObjectPath) -> Iterator[None]:
        """Give the errors of delta-rs the name of the table."""
        try:
            yield
        except PenstockError:
            raise
        except Exception as error:  # delta-rs has errors of many kinds
            text = " ".join(str(error).split())[:300]
            raise OperationError(f"table {path} of catalog {self.name}: {text}") from error

    def stage_table(self, table_path: ObjectPath, table: CatalogBaseTable, replaces: bool) -> CatalogBaseTable:
        """See `Catalog`. The commit of the job creates or replaces the table."""
        self._require_database(table_path.database_name)
        options = self._check(table_path, table)
        exists = self._is_table(table_path)
        if exists and not replaces:
            raise ValidationError(f"Table (or view) {table_path} already exists in Catalog {self.name}.")
        schema = to_delta_schema(table.schema)
        new = NewTable(schema, table.comment, replaces and exists, tuple(options.items()))
        staged = {**self._connector_options(table_path), connector.NEW_TABLE: new.text()}
        return replace(table, connector_options=staged)

    def drop_table(self, table_path: ObjectPath, ignore_if_not_exists: bool = False) -> None:
        """Drop a table and its files."""
        if not self._is_table(table_path):
            if ignore_if_not_exists:
                return
            raise ValidationError(f"Table (or view) {table_path} does not exist in Catalog {self.name}.")
        folder = self._folder(table_path)
        if self._root.is_local:
            gone = f"{self._root.path}/{table_path.database_name}/.{uuid.uuid4()}"
            os.rename(f"{self._root.path}/{folder}", gone)  # from now on the table is invisible
            shutil.rmtree(gone)
            return
        self._files.delete_dir_contents(f"{folder}/{_LOG}", missing_dir_ok=True)  # no longer a table
        self._files.delete_dir_contents(folder, missing_dir_ok=True)

    def rename_table(self, table_path: ObjectPath, new_table_name: str, ignore_if_not_exists: bool = False) -> None:
        """Rename the folder of a table. Raises `UnsupportedError` in an object store, which renames no folders."""
        if not self._is_table(table_path):
            if ignore_if_not_exists:
                return
            raise ValidationError(f"Table (or view) {table_path} does not exist in Catalog {self.name}.")
        renamed = ObjectPath(table_path.database_name, new_table_name)
        if not self._root.is_local:
            raise UnsupportedError(
                f"table {table_path} of catalog {self.name} is in an object store, which renames no folders: make the "
                f"other table with CREATE TABLE {new_table_name} AS SELECT * FROM {table_path.object_name}"
            )
        if self._is_table(renamed):
            raise ValidationError(f"Table (or view) {renamed} already exists in Catalog {self.name}.")
        os.rename(self._table_place(table_path).path, self._table_place(renamed).path)

    # --- changes of tables -------------------------------------------------------------------------------------------

    def alter_table(
        self, table_path: ObjectPath, new_table: CatalogBaseTable, ignore_if_not_exists: bool = False
    ) -> None:
        """Change properties. Raises `UnsupportedError` for other columns, which ALTER TABLE changes."""
        if ignore_if_not_exists and not self._is_table(table_path):
            return
        if new_table.schema != self.get_table(table_path).schema:
            raise UnsupportedError(f"the columns of table {table_path} in catalog {self.name} change by ALTER TABLE")
        self.change_table(table_path, new_table, ())

    def change_table(self, table_path: ObjectPath, new_table: CatalogBaseTable, actions: Sequence[AlterAction]) -> None:
        """See `Catalog`. Each kind of change is a version of the table; delta-rs retries it after other writers."""
        before, options = self.get_table(table_path), self._check(table_path, new_table)
        for action in actions:
            _check_action(table_path, before, action)
        removed = [key for key in before.options if key not in options]
        if removed:
            raise UnsupportedError(
                f"property '{removed[0]}' of table {table_path} is set, and delta-rs removes none: SET it to another "
                "value, or RESET it with Spark"
            )
        updates = {key: value for key, value in options.items() if before.options.get(key) != value}
        for step in (
            *_additions(actions),
            *(step for action in actions if action.verb == "MODIFY COLUMN" for step in _modifications(before, action)),
            *_key_changes(before.schema.primary_key, new_table),
            *([lambda alter: alter.set_table_properties(updates, raise_if_not_exists=False)] if updates else []),
        ):
            self._make_version(table_path, step)

    def _make_version(self, path: ObjectPath, step: Callable[[Any], None]) -> None:
        """Make one version of a table; on top of another writer's version, if that comes first."""
        from deltalake.exceptions import CommitFailedError

        for attempt in range(_ATTEMPTS):
            try:
                with self._asking(path):
                    step(self.open_table(path).alter)
                return
            except OperationError as error:
                if attempt == _ATTEMPTS - 1 or not isinstance(error.__cause__, CommitFailedError):
                    raise

    def list_partitions(self, table_path: ObjectPath) -> list[str] | None:
        """See `Catalog`."""
        table = self.open_table(table_path)
        keys = table.metadata().partition_columns
        if not keys:
            return None
        return sorted(
            "/".join(f"{key}={_NO_VALUE if values[key] is None else values[key]}" for key in keys)
            for values in table.partitions()
        )


def _check_action(path: ObjectPath, table: CatalogBaseTable, action: AlterAction) -> None:
    """Raise for a change that delta-rs cannot make, before any other is made."""
    match action.verb:
        case "DROP COLUMN" | "RENAME COLUMN":
            raise UnsupportedError(
                f"ALTER TABLE {path} {action.verb} needs mapped columns (delta.columnMapping.mode), which delta-rs "
                f"does not write: {_REBUILD}"
            )
        case "ADD COLUMN" | "MODIFY COLUMN":
            assert action.column is not None
            name, kind = action.column.path[-1], action.column.type
            if action.position is not None:
                raise UnsupportedError(
                    f"column '{name}' of {path}: delta-rs adds columns behind the others and moves none: leave out "
                    f"{action.position.partition(' ')[0]}"
                )
            if action.verb == "ADD COLUMN":
                if kind is not None and not kind.is_nullable:
                    raise ValidationError(
                        f"column '{name}' cannot be added as NOT NULL, because rows that are there have no value of "
                        "it: add it without NOT NULL"
                    )
                return
            existing = next(column.data_type for column in table.schema.columns if column.name == name)
            assert existing is not None
            if kind is not None and from_delta_type(to_delta_type(kind)) != existing.nullable():
                raise UnsupportedError(
                    f"column '{name}' of {path} is {existing}, and delta-rs changes no type: {_REBUILD}"
                )
            if kind is not None and not kind.is_nullable and existing.is_nullable:
                raise ValidationError(f"column '{name}' of {path} may have NULLs already: {_REBUILD}")


def _additions(actions: Sequence[AlterAction]) -> Iterator[Callable[[Any], None]]:
    from deltalake.schema import Field

    added = []
    for action in actions:
        if action.verb == "ADD COLUMN":
            column = action.column
            assert column is not None
            assert column.type is not None
            added.append(Field.from_json(json.dumps(_to_field(column.path[-1], column.type, column.comment))))
    if added:
        yield lambda alter: alter.add_columns(added)


def _modifications(before: CatalogBaseTable, action: AlterAction) -> Iterator[Callable[[Any], None]]:
    column = action.column
    assert column is not None
    name = column.path[-1]
    existing = next(each for each in before.schema.columns if each.name == name)
    assert existing.data_type is not None
    if column.comment is not None and column.comment != existing.comment:
        yield lambda alter: alter.set_column_metadata(name, {_COMMENT: column.comment})
    is_key = name in before.schema.primary_key
    if column.type is not None and column.type.is_nullable and not existing.data_type.is_nullable and not is_key:
        yield lambda alter: alter.drop_column_not_null(name)


def _key_changes(before: Sequence[str], table: CatalogBaseTable) -> Iterator[Callable[[Any], None]]:
    after = table.schema.primary_key
    if tuple(before) == tuple(after):
        return
    for column in table.schema.columns:
        if column.name in after and column.data_type is not None and column.data_type.is_nullable:
            raise ValidationError(f"column '{column.name}' may be NULL, so it cannot be in a key: {_REBUILD}")
    for name in dict.fromkeys((*before, *after)):
        position = str(after.index(name) + 1) if name in after else ""
        yield partial(_set_key_place, name=name, position=position)


def _set_key_place(alter: Any, name: str, position: str) -> None:
    alter.set_column_metadata(name, {_KEY: position})


# --- CREATE CATALOG ---------------------------------------------------------------------------------------------------


def delta_catalog(name: str, options: dict[str, str]) -> DeltaCatalog:
    """Return a catalog from the options of CREATE CATALOG.

    Raises:
        ValidationError: for unknown options, or without `path`.
        ConfigurationError: if delta-rs is not installed.
    """
    require_library()
    storage = {
        key.removeprefix(connector.STORAGE): options[key] for key in options if key.startswith(connector.STORAGE)
    }
    unknown = sorted(
        key for key in options if key not in ("type", "path", "default-database") and not key.startswith("storage.")
    )
    if unknown:
        raise ValidationError(
            f"Unsupported options found for catalog '{name}': {', '.join(unknown)}. A catalog of type '{TYPE}' takes "
            "path, default-database, and options of its object store with the prefix 'storage.'"
        )
    path = options.get("path", "")
    if not path:
        raise ValidationError(f"catalog '{name}' of type '{TYPE}' needs the option 'path': a directory, or a URL")
    remember(storage)
    root = TablePlace.of(path, storage)
    try:
        return DeltaCatalog(name, root, options.get("default-database", "default"))
    except PenstockError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        raise OperationError(f"catalog '{name}': {root.path} cannot be used: {text}") from error


__all__ = ["DeltaCatalog", "delta_catalog"]
