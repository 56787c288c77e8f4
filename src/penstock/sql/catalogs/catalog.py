"""`Catalog`, which finds tables, views, functions and models by name; the objects in catalogs; and `CatalogDescriptor`.

The base class keeps its objects (databases, tables, views, functions, models, and their paths) in memory. A
`CatalogDescriptor` defines a catalog in a program, as an alternative to CREATE CATALOG.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar, Final, NoReturn

from penstock.base.configuration import Configuration
from penstock.base.errors import UnsupportedError, WrongValueError
from penstock.sql.catalogs.columns import Schema
from penstock.sql.data.errors import ValidationError
from penstock.sql.parser.statements import AlterAction, Distribution

#: The beginning of the options that define a materialized table. The catalog keeps them; the connector never gets them.
DEFINITION: Final = "penstock.materialized."


@dataclass(frozen=True, slots=True, order=True)
class ObjectPath:
    """The path of a table, view or function: the database and the name.

    Examples:
        >>> from penstock.table.catalog import ObjectPath
        >>> path = ObjectPath.from_string("shop.orders")
        >>> path.get_database_name(), path.get_object_name()
        ('shop', 'orders')
    """

    database_name: str
    object_name: str

    @staticmethod
    def from_string(full_name: str) -> ObjectPath:
        """Parse a path of the form `database.object`."""
        database, dot, name = full_name.partition(".")
        if not dot or not database or not name:
            raise WrongValueError(f"a path has the form database.object, not {full_name!r}")
        return ObjectPath(database, name)

    def get_database_name(self) -> str:
        """Return the name of the database."""
        return self.database_name

    def get_object_name(self) -> str:
        """Return the name of the object."""
        return self.object_name

    def get_full_name(self) -> str:
        """Return the database and object name, joined by a dot."""
        return f"{self.database_name}.{self.object_name}"

    def compare_to(self, other: ObjectPath) -> int:
        """Return a value below, equal to or above 0 if this path sorts before, equal to or after the other."""
        return (self > other) - (self < other)

    __str__ = get_full_name


@dataclass(frozen=True, slots=True)
class CatalogDatabase:
    """A database: its properties and comment.

    Examples:
        >>> from penstock.table.catalog import Catalog, CatalogDatabase
        >>> catalog = Catalog("memory", "default")
        >>> catalog.create_database("shop", CatalogDatabase.create_instance({}, "All shops"), False)
        >>> catalog.get_database("shop").get_comment()
        'All shops'
    """

    properties: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None

    @staticmethod
    def create_instance(properties: Mapping[str, str], comment: str | None = None) -> CatalogDatabase:
        """Create a database with these properties."""
        return CatalogDatabase(dict(properties), comment)

    def get_properties(self) -> dict[str, str]:
        """Return the properties."""
        return dict(self.properties)

    def get_comment(self) -> str | None:
        """Return the comment, if any."""
        return self.comment

    def copy(self) -> CatalogDatabase:
        """Return a copy."""
        return replace(self, properties=dict(self.properties))

    def get_description(self) -> str | None:
        """Return the comment."""
        return self.comment

    def get_detailed_description(self) -> str | None:
        """Return the comment."""
        return self.comment


@dataclass(frozen=True, slots=True)
class CatalogBaseTable:
    """A table, or a view of a `query`.

    Examples:
        >>> from penstock.table import Schema
        >>> from penstock.table.catalog import CatalogBaseTable
        >>> columns = Schema.new_builder().column("n", "BIGINT").build()
        >>> table = CatalogBaseTable.create_table(columns, properties={"connector": "datagen"})
        >>> table.get_options()
        {'connector': 'datagen'}
    """

    schema: Schema
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    partition_keys: tuple[str, ...] = ()
    distribution: Distribution | None = None
    #: the query of a view
    query: str | None = None
    #: for a view: the catalog and database for resolving names in its query
    place: tuple[str, str] | None = None
    #: what the connector gets instead of `options`, if the catalog knows how to reach the table; never shown
    connector_options: Mapping[str, str] | None = None

    @staticmethod
    def create_table(
        schema: Schema,
        partition_keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        comment: str | None = None,
    ) -> CatalogBaseTable:
        """Create a table. Its options, here `properties`, select the connector that reads and writes it."""
        return CatalogBaseTable(schema, dict(properties or {}), comment, tuple(partition_keys))

    @staticmethod
    def create_view(
        original_query: str,
        expanded_query: str,
        schema: Schema,
        properties: Mapping[str, str] | None = None,
        comment: str | None = None,
    ) -> CatalogBaseTable:
        """Create a view of a query."""
        return CatalogBaseTable(schema, dict(properties or {}), comment, query=expanded_query or original_query)

    @property
    def is_view(self) -> bool:
        """Whether this is a view."""
        return self.query is not None

    @property
    def is_materialized(self) -> bool:
        """Whether this is a materialized table."""
        return any(key.startswith(DEFINITION) for key in self.options)

    def get_options(self) -> dict[str, str]:
        """Return the options, without those that define a materialized table."""
        return {key: value for key, value in self.options.items() if not key.startswith(DEFINITION)}

    def options_for_connector(self) -> dict[str, str]:
        """Return the options that the connector gets."""
        return self.get_options() if self.connector_options is None else dict(self.connector_options)

    def get_unresolved_schema(self) -> Schema:
        """Return the columns as declared."""
        return self.schema

    def get_comment(self) -> str | None:
        """Return the comment, if any."""
        return self.comment

    def copy(self) -> CatalogBaseTable:
        """Return a copy."""
        return replace(self, options=dict(self.options))

    def get_description(self) -> str | None:
        """Return the comment."""
        return self.comment

    def get_detailed_description(self) -> str | None:
        """Return the comment."""
        return self.comment


@dataclass(frozen=True, slots=True)
class CatalogFunction:
    """A user-defined function: the location of its class or object, as `package.module.name`.

    Examples:
        >>> from penstock.table.catalog import CatalogFunction
        >>> CatalogFunction("shop.functions.shout").target
        'shop.functions.shout'
    """

    target: str
    language: str = "PYTHON"


@dataclass(frozen=True, slots=True)
class CatalogModel:
    """A model: the columns that it takes, the columns of its predictions, and options that select its provider.

    Examples:
        >>> from penstock.table import Schema
        >>> from penstock.table.catalog import CatalogModel
        >>> text = Schema.new_builder().column("text", "STRING").build()
        >>> label = Schema.new_builder().column("label", "STRING").build()
        >>> CatalogModel.create_model(text, label, {"provider": "python", "class": "shop.Labels"}).get_options()
        {'provider': 'python', 'class': 'shop.Labels'}
    """

    input_schema: Schema
    output_schema: Schema
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    #: the object that answers, for a model of a program; a model of a catalog names it in its options
    source: Any = None

    @staticmethod
    def create_model(
        input_schema: Schema,
        output_schema: Schema,
        options: Mapping[str, str] = MappingProxyType({}),
        comment: str = "",
    ) -> CatalogModel:
        """Create a model. Its option `provider` selects what answers."""
        return CatalogModel(input_schema, output_schema, dict(options), comment or None)

    def get_options(self) -> dict[str, str]:
        """Return the options."""
        return dict(self.options)

    def get_input_schema(self) -> Schema:
        """Return the columns that the model takes."""
        return self.input_schema

    def get_output_schema(self) -> Schema:
        """Return the columns of a prediction."""
        return self.output_schema

    def get_comment(self) -> str | None:
        """Return the comment, if any."""
        return self.comment

    def copy(self) -> CatalogModel:
        """Return a copy."""
        return replace(self, options=dict(self.options))


class Catalog:
    """A catalog in memory. Other catalogs override its methods.

    Missing or already existing objects raise `ValidationError`, unless the call allows them.

    Examples:
        >>> from penstock.table import EnvironmentSettings, TableEnvironment
        >>> from penstock.table.catalog import Catalog
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> t_env.register_catalog("memory", Catalog("memory", "shop"))
        >>> t_env.use_catalog("memory")
        >>> t_env.get_current_database(), t_env.get_catalog("memory").list_tables("shop")
        ('shop', [])
    """

    def __init__(self, name: str = "default_catalog", default_database: str = "default_database") -> None:
        self.name = name
        self._default_database = default_database
        self._databases: MutableMapping[str, CatalogDatabase] = {default_database: CatalogDatabase()}
        self._tables: MutableMapping[ObjectPath, CatalogBaseTable] = {}
        self._functions: MutableMapping[ObjectPath, CatalogFunction] = {}
        self._models: MutableMapping[ObjectPath, CatalogModel] = {}

    def get_default_database(self) -> str:
        """Return the database that is used when none is named."""
        return self._default_database

    def close(self) -> None:
        """Release what the catalog holds, such as connections; called when it is dropped."""

    # --- databases ---------------------------------------------------------------------------------------------------

    def list_databases(self) -> list[str]:
        """Return the names of all databases."""
        return sorted(self._databases)

    def get_database(self, database_name: str) -> CatalogDatabase:
        """Return a database by its name."""
        if database_name not in self._databases:
            raise ValidationError(f"Database {database_name} does not exist in Catalog {self.name}.")
        return self._databases[database_name]

    def database_exists(self, database_name: str) -> bool:
        """Return whether a database exists."""
        return database_name in self._databases

    def create_database(self, name: str, database: CatalogDatabase, ignore_if_exists: bool = False) -> None:
        """Add a database."""
        if name not in self._databases:
            self._databases[name] = database
        elif not ignore_if_exists:
            raise ValidationError(f"Database {name} already exists in Catalog {self.name}.")

    def drop_database(self, name: str, ignore_if_exists: bool = False, cascade: bool = False) -> None:
        """Remove a database. With `cascade`, remove its contents as well; otherwise it must be empty."""
        if name not in self._databases:
            if not ignore_if_exists:
                raise ValidationError(f"Database {name} does not exist in Catalog {self.name}.")
            return
        inside = sorted(path for path in (*self._tables, *self._functions, *self._models) if path.database_name == name)
        if inside and not cascade:
            raise ValidationError(f"Database {name} in Catalog {self.name} is not empty: it has {inside[0]}")
        for path in inside:
            self._tables.pop(path, None)
            self._functions.pop(path, None)
            self._models.pop(path, None)
        del self._databases[name]

    def alter_database(self, name: str, new_database: CatalogDatabase, ignore_if_not_exists: bool = False) -> None:
        """Replace the properties of a database."""
        if name in self._databases:
            self._databases[name] = new_database
        elif not ignore_if_not_exists:
            raise ValidationError(f"Database {name} does not exist in Catalog {self.name}.")

    # --- tables and views --------------------------------------------------------------------------------------------

    def list_tables(self, database_name: str) -> list[str]:
        """Return the names of all tables and views of a database."""
        self.get_database(database_name)
        return _names(self._tables, database_name)

    def list_views(self, database_name: str) -> list[str]:
        """Return the names of all views of a database."""
        self.get_database(database_name)
        return _names((path for path, table in self._tables.items() if table.is_view), database_name)

    def get_table(self, table_path: ObjectPath) -> CatalogBaseTable:
        """Return a table or view."""
        if table_path not in self._tables:
            raise ValidationError(f"Table (or view) {table_path} does not exist in Catalog {self.name}.")
        return self._tables[table_path]

    def table_exists(self, table_path: ObjectPath) -> bool:
        """Return whether a table or view exists."""
        return table_path in self._tables

    def create_table(self, table_path: ObjectPath, table: CatalogBaseTable, ignore_if_exists: bool = False) -> None:
        """Add a table or view."""
        self.get_database(table_path.database_name)
        if table_path not in self._tables:
            self._tables[table_path] = table
        elif not ignore_if_exists:
            raise ValidationError(f"Table (or view) {table_path} already exists in Catalog {self.name}.")

    def drop_table(self, table_path: ObjectPath, ignore_if_not_exists: bool = False) -> None:
        """Remove a table or view."""
        if self._tables.pop(table_path, None) is None and not ignore_if_not_exists:
            raise ValidationError(f"Table (or view) {table_path} does not exist in Catalog {self.name}.")

    def alter_table(
        self, table_path: ObjectPath, new_table: CatalogBaseTable, ignore_if_not_exists: bool = False
    ) -> None:
        """Replace a table or view."""
        if table_path in self._tables:
            self._tables[table_path] = new_table
        elif not ignore_if_not_exists:
            raise ValidationError(f"Table (or view) {table_path} does not exist in Catalog {self.name}.")

    def change_table(self, table_path: ObjectPath, new_table: CatalogBaseTable, actions: Sequence[AlterAction]) -> None:
        """Replace a table by the result of these actions. Catalogs that must tell what changed override this."""
        self.alter_table(table_path, new_table)

    def stage_table(self, table_path: ObjectPath, table: CatalogBaseTable, replaces: bool) -> CatalogBaseTable | None:
        """Return a table that the job which fills it creates, together with its first rows; None if it cannot.

        Nothing changes in the catalog. `replaces`: an existing table of this name is replaced.
        """
        return None

    def get_table_at(self, table_path: ObjectPath, time_ms: int) -> CatalogBaseTable:
        """Return a table as it was at a time (ms since 1970)."""
        raise UnsupportedError(
            f"catalog {self.name} keeps no earlier versions of {table_path}, so FOR SYSTEM_TIME AS OF a constant has "
            "none to read: use a table of a catalog of type 'iceberg' or 'delta'"
        )

    def find_version(self, table_path: ObjectPath, version: str) -> Mapping[str, str]:
        """Return the hints that select a version of a table, given by its number or a name."""
        raise UnsupportedError(
            f"catalog {self.name} keeps no earlier versions of {table_path}, so VERSION AS OF has none to read: use a "
            "table of a catalog of type 'iceberg' or 'delta'"
        )

    def change_versions(self, table_path: ObjectPath, action: AlterAction) -> None:
        """Create, replace or drop a branch or a tag of a table."""
        raise UnsupportedError(
            f"catalog {self.name} keeps no branches and tags of {table_path}: a catalog of type 'iceberg' does"
        )

    def with_hints(self, table_path: ObjectPath, table: CatalogBaseTable, hints: Mapping[str, str]) -> CatalogBaseTable:
        """Return a table as these options of a query select it; an earlier version may have other columns."""
        return table

    def list_partitions(self, table_path: ObjectPath) -> list[str] | None:
        """Return the partitions of a table as `key=value/key=value`; None if the catalog does not know of any."""
        return None

    def rename_table(self, table_path: ObjectPath, new_table_name: str, ignore_if_not_exists: bool = False) -> None:
        """Rename a table or view within its database."""
        renamed = ObjectPath(table_path.database_name, new_table_name)
        if table_path not in self._tables:
            if not ignore_if_not_exists:
                raise ValidationError(f"Table (or view) {table_path} does not exist in Catalog {self.name}.")
            return
        if renamed in self._tables:
            raise ValidationError(f"Table (or view) {renamed} already exists in Catalog {self.name}.")
        self._tables[renamed] = self._tables.pop(table_path)

    # --- functions ---------------------------------------------------------------------------------------------------

    def list_functions(self, database_name: str) -> list[str]:
        """Return the names of all functions of a database."""
        self.get_database(database_name)
        return _names(self._functions, database_name)

    def get_function(self, function_path: ObjectPath) -> CatalogFunction:
        """Return a function."""
        if function_path not in self._functions:
            raise ValidationError(f"Function {function_path} does not exist in Catalog {self.name}.")
        return self._functions[function_path]

    def function_exists(self, function_path: ObjectPath) -> bool:
        """Return whether a function exists."""
        return function_path in self._functions

    def create_function(
        self, function_path: ObjectPath, function: CatalogFunction, ignore_if_exists: bool = False
    ) -> None:
        """Add a function."""
        self.get_database(function_path.database_name)
        if function_path not in self._functions:
            self._functions[function_path] = function
        elif not ignore_if_exists:
            raise ValidationError(f"Function {function_path} already exists in Catalog {self.name}.")

    def alter_function(
        self, function_path: ObjectPath, new_function: CatalogFunction, ignore_if_not_exists: bool = False
    ) -> None:
        """Replace a function."""
        if function_path in self._functions:
            self._functions[function_path] = new_function
        elif not ignore_if_not_exists:
            raise ValidationError(f"Function {function_path} does not exist in Catalog {self.name}.")

    def drop_function(self, function_path: ObjectPath, ignore_if_not_exists: bool = False) -> None:
        """Remove a function."""
        if self._functions.pop(function_path, None) is None and not ignore_if_not_exists:
            raise ValidationError(f"Function {function_path} does not exist in Catalog {self.name}.")

    # --- models ------------------------------------------------------------------------------------------------------

    def list_models(self, database_name: str) -> list[str]:
        """Return the names of all models of a database."""
        self.get_database(database_name)
        return _names(self._models, database_name)

    def get_model(self, model_path: ObjectPath) -> CatalogModel:
        """Return a model."""
        if model_path not in self._models:
            raise ValidationError(f"Model {model_path} does not exist in Catalog {self.name}.")
        return self._models[model_path]

    def model_exists(self, model_path: ObjectPath) -> bool:
        """Return whether a model exists."""
        return model_path in self._models

    def create_model(self, model_path: ObjectPath, model: CatalogModel, ignore_if_exists: bool = False) -> None:
        """Add a model."""
        self.get_database(model_path.database_name)
        if model_path not in self._models:
            self._models[model_path] = model
        elif not ignore_if_exists:
            raise ValidationError(f"Model {model_path} already exists in Catalog {self.name}.")

    def alter_model(self, model_path: ObjectPath, new_model: CatalogModel, ignore_if_not_exists: bool = False) -> None:
        """Replace a model."""
        if model_path in self._models:
            self._models[model_path] = new_model
        elif not ignore_if_not_exists:
            raise ValidationError(f"Model {model_path} does not exist in Catalog {self.name}.")

    def rename_model(self, model_path: ObjectPath, new_model_name: str, ignore_if_not_exists: bool = False) -> None:
        """Rename a model within its database."""
        renamed = ObjectPath(model_path.database_name, new_model_name)
        if model_path not in self._models:
            if not ignore_if_not_exists:
                raise ValidationError(f"Model {model_path} does not exist in Catalog {self.name}.")
            return
        if renamed in self._models:
            raise ValidationError(f"Model {renamed} already exists in Catalog {self.name}.")
        self._models[renamed] = self._models.pop(model_path)

    def drop_model(self, model_path: ObjectPath, ignore_if_not_exists: bool = False) -> None:
        """Remove a model."""
        if self._models.pop(model_path, None) is None and not ignore_if_not_exists:
            raise ValidationError(f"Model {model_path} does not exist in Catalog {self.name}.")


def _names(paths: Iterable[ObjectPath], database: str) -> list[str]:
    return sorted(path.object_name for path in paths if path.database_name == database)


#: creates a catalog of one type from its name and options
CatalogFactory = Callable[[str, dict[str, str]], Catalog]


class LakeCatalog(Catalog):
    """A catalog of a table format in a lake: it keeps databases and tables, and describes a table by further ones.

    Attributes:
        keeper: the name of the format, for errors.
        metadata_tables: the names of the tables about a table `t`, such as `snapshots` for `t$snapshots`.
    """

    keeper: ClassVar[str]
    metadata_tables: ClassVar[Collection[str]]

    def _require_database(self, name: str) -> None:
        if not self.database_exists(name):
            raise ValidationError(f"Database {name} does not exist in Catalog {self.name}.")

    def _refuse(self, what: str, path: ObjectPath, instead: str) -> NoReturn:
        raise UnsupportedError(
            f"{path} cannot be made in catalog {self.name}, because {self.keeper} keeps no {what}: make {instead}"
        )

    def _find_described(self, path: ObjectPath) -> tuple[ObjectPath, str] | None:
        """Return the table and the kind of `table$kind`, which is about the table; None for other names."""
        name, dollar, kind = path.object_name.rpartition("$")
        if not dollar or not name or kind not in self.metadata_tables:
            return None
        return replace(path, object_name=name), kind

    def create_function(
        self, function_path: ObjectPath, function: CatalogFunction, ignore_if_exists: bool = False
    ) -> None:
        """Raise `UnsupportedError`: a lake keeps no functions."""
        self._refuse("functions", function_path, "a TEMPORARY FUNCTION, or one in a catalog of type 'file'")

    def list_functions(self, database_name: str) -> list[str]:
        """Return an empty list."""
        self._require_database(database_name)
        return []


@dataclass(frozen=True, slots=True)
class CatalogDescriptor:
    """The name, options and comment of a catalog. The option `type` selects the kind of catalog."""

    catalog_name: str
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None

    @staticmethod
    def of(catalog_name: str, configuration: Configuration, comment: str | None = None) -> CatalogDescriptor:
        """Return a catalog with these options."""
        return CatalogDescriptor(catalog_name, configuration.to_dict(), comment)

    def get_catalog_name(self) -> str:
        """Return the name."""
        return self.catalog_name

    def get_configuration(self) -> Configuration:
        """Return the options."""
        return Configuration.from_dict(self.options)

    def get_comment(self) -> str | None:
        """Return the comment, if there is one."""
        return self.comment

    def set_comment(self, comment: str) -> CatalogDescriptor:
        """Return a copy with a comment."""
        return CatalogDescriptor(self.catalog_name, self.options, comment)
