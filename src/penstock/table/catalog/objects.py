"""What catalogs hold: databases, tables and views, functions, and their paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.base.errors import WrongValueError
from penstock.table.catalog.schema import Schema
from penstock.table.sql.statements import Distribution


@dataclass(frozen=True, slots=True, order=True)
class ObjectPath:
    """A database and the name of a table, view or function in it."""

    database_name: str
    object_name: str

    @staticmethod
    def from_string(full_name: str) -> ObjectPath:
        """The path of `database.object`."""
        database, dot, name = full_name.partition(".")
        if not dot or not database or not name:
            raise WrongValueError(f"a path has the form database.object, not {full_name!r}")
        return ObjectPath(database, name)

    def get_database_name(self) -> str:
        """The database."""
        return self.database_name

    def get_object_name(self) -> str:
        """The name in it."""
        return self.object_name

    def get_full_name(self) -> str:
        """Both, with a dot."""
        return f"{self.database_name}.{self.object_name}"

    def compare_to(self, other: ObjectPath) -> int:
        """Below 0, 0 or above 0, as this path comes before the other, is the same, or comes after it."""
        return (self > other) - (self < other)

    __str__ = get_full_name


@dataclass(frozen=True, slots=True)
class CatalogDatabase:
    """A database: properties, and a comment."""

    properties: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None

    @staticmethod
    def create_instance(properties: Mapping[str, str], comment: str | None = None) -> CatalogDatabase:
        """A database with these properties."""
        return CatalogDatabase(dict(properties), comment)

    def get_properties(self) -> dict[str, str]:
        """The properties."""
        return dict(self.properties)

    def get_comment(self) -> str | None:
        """The comment, if there is one."""
        return self.comment

    def copy(self) -> CatalogDatabase:
        """The same again."""
        return replace(self, properties=dict(self.properties))

    def get_description(self) -> str | None:
        """The comment."""
        return self.comment

    def get_detailed_description(self) -> str | None:
        """The comment."""
        return self.comment


@dataclass(frozen=True, slots=True)
class CatalogBaseTable:
    """A table, or a view of a `query`."""

    schema: Schema
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    partition_keys: tuple[str, ...] = ()
    distribution: Distribution | None = None
    #: of a view
    query: str | None = None
    #: of a view: catalog and database in which names of its query are looked up
    place: tuple[str, str] | None = None

    @staticmethod
    def create_table(
        schema: Schema,
        partition_keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        comment: str | None = None,
    ) -> CatalogBaseTable:
        """A table. Its options, here `properties`, say which connector reads and writes it."""
        return CatalogBaseTable(schema, dict(properties or {}), comment, tuple(partition_keys))

    @staticmethod
    def create_view(
        original_query: str,
        expanded_query: str,
        schema: Schema,
        properties: Mapping[str, str] | None = None,
        comment: str | None = None,
    ) -> CatalogBaseTable:
        """A view of a query."""
        return CatalogBaseTable(schema, dict(properties or {}), comment, query=expanded_query or original_query)

    @property
    def is_view(self) -> bool:
        """Whether it is a view."""
        return self.query is not None

    def get_options(self) -> dict[str, str]:
        """The options."""
        return dict(self.options)

    def get_unresolved_schema(self) -> Schema:
        """The columns as they were declared."""
        return self.schema

    def get_comment(self) -> str | None:
        """The comment, if there is one."""
        return self.comment

    def copy(self) -> CatalogBaseTable:
        """The same again."""
        return replace(self, options=dict(self.options))

    def get_description(self) -> str | None:
        """The comment."""
        return self.comment

    def get_detailed_description(self) -> str | None:
        """The comment."""
        return self.comment


@dataclass(frozen=True, slots=True)
class CatalogFunction:
    """A function of the program: where its class or object is, as `package.module.name`."""

    target: str
    language: str = "PYTHON"
