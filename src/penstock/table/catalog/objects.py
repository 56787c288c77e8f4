"""Objects in catalogs: databases, tables, views, functions, and their paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.base.errors import WrongValueError
from penstock.table.catalog.schema import Schema
from penstock.table.sql.statements import Distribution


@dataclass(frozen=True, slots=True, order=True)
class ObjectPath:
    """The path of a table, view or function: the database and the name."""

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
    """A database: its properties and comment."""

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
    """A table, or a view of a `query`."""

    schema: Schema
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    partition_keys: tuple[str, ...] = ()
    distribution: Distribution | None = None
    #: the query of a view
    query: str | None = None
    #: for a view: the catalog and database for resolving names in its query
    place: tuple[str, str] | None = None

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

    def get_options(self) -> dict[str, str]:
        """Return the options."""
        return dict(self.options)

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
    """A user-defined function: the location of its class or object, as `package.module.name`."""

    target: str
    language: str = "PYTHON"
