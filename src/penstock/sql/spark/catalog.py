"""`SparkCatalog`: Spark's databases, tables and views. The connector `spark` reads them in batch mode.

Nothing is cached: each call queries the session. Tables are created in Spark; here they can be renamed, dropped,
commented and given more columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from penstock.base.errors import UnsupportedError
from penstock.drivers.spark.frame_source import arrow_schema
from penstock.drivers.spark.session import hand_back, obtain_spark
from penstock.sql.catalogs.catalog import Catalog, CatalogBaseTable, CatalogDatabase, CatalogFunction, ObjectPath
from penstock.sql.catalogs.schema import Schema, UnresolvedColumn
from penstock.sql.data.arrow import logical_type
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import quoted
from penstock.sql.spark.stored import spark_type, text_literal

#: the value of the option `type`
TYPE: Final = "spark"
_OPTIONS: Final = ("type", "catalog", "default-database")


class _Relation(NamedTuple):
    """A table or view. `is_temporary`: whether it is a view of the session, which has no database."""

    name: str
    is_temporary: bool


class SparkCatalog(Catalog):
    """See the module docstring.

    Args:
        name: the catalog's name.
        session: returns the Spark session.
        spark_name: the name of the catalog in Spark.
        default_database: None for the session's current one.
    """

    def __init__(
        self,
        name: str,
        session: Callable[[], Any],
        spark_name: str = "spark_catalog",
        default_database: str | None = None,
    ) -> None:
        super().__init__(name, default_database or "default")
        self._session = session
        self._spark_name = spark_name

    def _rows(self, statement: str) -> list[Any]:
        rows: list[Any] = self._session().sql(statement).collect()
        return rows

    def _where(self, *names: str) -> str:
        return ".".join(map(quoted, (self._spark_name, *names)))

    # --- databases ---------------------------------------------------------------------------------------------------

    def list_databases(self) -> list[str]:
        """See `Catalog`."""
        return sorted(row[0] for row in self._rows(f"SHOW DATABASES IN {self._where()}"))

    def database_exists(self, database_name: str) -> bool:
        """See `Catalog`."""
        return database_name in self.list_databases()

    def get_database(self, database_name: str) -> CatalogDatabase:
        """See `Catalog`."""
        self._check_database(database_name)
        rows = self._rows(f"DESCRIBE DATABASE EXTENDED {self._where(database_name)}")
        details = {row[0]: row[1] for row in rows}
        return CatalogDatabase({}, details.get("Comment") or None)

    def create_database(self, name: str, database: CatalogDatabase, ignore_if_exists: bool = False) -> None:
        """See `Catalog`."""
        if self.database_exists(name):
            if ignore_if_exists:
                return
            raise ValidationError(f"Database {name} already exists in Catalog {self.name}.")
        comment = f" COMMENT {text_literal(database.comment)}" if database.comment else ""
        self._rows(
            f"CREATE DATABASE {self._where(name)}{comment}{_properties(' WITH DBPROPERTIES', database.properties)}"
        )

    def drop_database(self, name: str, ignore_if_exists: bool = False, cascade: bool = False) -> None:
        """See `Catalog`."""
        if not self.database_exists(name):
            if ignore_if_exists:
                return
            raise ValidationError(f"Database {name} does not exist in Catalog {self.name}.")
        tables = [relation.name for relation in self._relations(name) if not relation.is_temporary]
        if tables and not cascade:
            raise ValidationError(f"Database {name} in Catalog {self.name} is not empty: it has {name}.{tables[0]}")
        self._rows(f"DROP DATABASE {self._where(name)}{' CASCADE' if cascade else ''}")

    def alter_database(self, name: str, new_database: CatalogDatabase, ignore_if_not_exists: bool = False) -> None:
        """See `Catalog`."""
        if not self.database_exists(name) and ignore_if_not_exists:
            return
        self._check_database(name)
        self._rows(f"ALTER DATABASE {self._where(name)} SET DBPROPERTIES{_properties('', new_database.properties)}")

    def _check_database(self, name: str) -> None:
        if not self.database_exists(name):
            raise ValidationError(f"Database {name} does not exist in Catalog {self.name}.")

    # --- tables and views --------------------------------------------------------------------------------------------

    def _relations(self, database: str) -> list[_Relation]:
        rows = self._rows(f"SHOW TABLES IN {self._where(database)}")
        return [_Relation(row.tableName, bool(row.isTemporary)) for row in rows]

    def _find(self, path: ObjectPath) -> _Relation | None:
        if not self.database_exists(path.database_name):
            return None
        matches = [relation for relation in self._relations(path.database_name) if relation.name == path.object_name]
        return min(matches, key=lambda relation: relation.is_temporary, default=None)

    def _found(self, path: ObjectPath) -> _Relation:
        relation = self._find(path)
        if relation is None:
            raise ValidationError(f"Table (or view) {path} does not exist in Catalog {self.name}.")
        return relation

    def list_tables(self, database_name: str) -> list[str]:
        """See `Catalog`. Temporary views of the Spark session appear in all databases."""
        self._check_database(database_name)
        return sorted({relation.name for relation in self._relations(database_name)})

    def list_views(self, database_name: str) -> list[str]:
        """See `Catalog`."""
        self._check_database(database_name)
        return sorted({row.viewName for row in self._rows(f"SHOW VIEWS IN {self._where(database_name)}")})

    def table_exists(self, table_path: ObjectPath) -> bool:
        """See `Catalog`."""
        return self._find(table_path) is not None

    def get_table(self, table_path: ObjectPath) -> CatalogBaseTable:
        """Return a table or view as a table of the connector `spark`.

        Raises:
            UnsupportedError: if a column's type has no equivalent here.
        """
        relation = self._found(table_path)
        name = quoted(relation.name) if relation.is_temporary else self._where(table_path.database_name, relation.name)
        frame = self._session().table(name)
        comments = [field.metadata.get("comment") for field in frame.schema.fields]
        kinds = zip(arrow_schema(frame.schema), comments, strict=True)
        columns = tuple(
            UnresolvedColumn(field.name, logical_type(field.type), comment=comment) for field, comment in kinds
        )
        return CatalogBaseTable(Schema(columns), {"connector": "spark", "table": name})

    def create_table(self, table_path: ObjectPath, table: CatalogBaseTable, ignore_if_exists: bool = False) -> None:
        """Raise `UnsupportedError`, unless the table exists and `ignore_if_exists` is set: Spark creates tables."""
        if ignore_if_exists and self.table_exists(table_path):
            return
        raise UnsupportedError(
            f"table {table_path} cannot be made in catalog {self.name}, which is Spark's: make it in Spark, or here as "
            "a TEMPORARY one, or in a catalog of type 'file'"
        )

    def drop_table(self, table_path: ObjectPath, ignore_if_not_exists: bool = False) -> None:
        """See `Catalog`."""
        if self._find(table_path) is None and ignore_if_not_exists:
            return
        kind, name = self._kind_and_name(table_path)
        self._rows(f"DROP {kind} {name}")

    def rename_table(self, table_path: ObjectPath, new_table_name: str, ignore_if_not_exists: bool = False) -> None:
        """See `Catalog`."""
        if self._find(table_path) is None and ignore_if_not_exists:
            return
        kind, name = self._kind_and_name(table_path)
        if self.table_exists(ObjectPath(table_path.database_name, new_table_name)):
            raise ValidationError(
                f"Table (or view) {table_path.database_name}.{new_table_name} already exists in Catalog {self.name}."
            )
        target = f"{quoted(table_path.database_name)}.{quoted(new_table_name)}"
        self._rows(f"ALTER {kind} {name} RENAME TO {target}")

    def alter_table(
        self, table_path: ObjectPath, new_table: CatalogBaseTable, ignore_if_not_exists: bool = False
    ) -> None:
        """Append columns to a table, or change its comment. Raises `UnsupportedError` for any other change."""
        if self._find(table_path) is None and ignore_if_not_exists:
            return
        before = self.get_table(table_path)
        kind, name = self._kind_and_name(table_path)
        width = len(before.schema.columns)
        columns = new_table.schema.columns
        more = columns[width:]
        is_same = columns[:width] == before.schema.columns and dict(new_table.options) == dict(before.options)
        if kind != "TABLE" or not is_same or any(column.data_type is None or column.is_metadata for column in more):
            raise UnsupportedError(
                f"table {table_path} of catalog {self.name} is Spark's: here it can get more columns behind its "
                "others, and a comment. Alter it in Spark"
            )
        if more:
            texts = ", ".join(map(_added, more))
            self._rows(f"ALTER TABLE {name} ADD COLUMNS ({texts})")
        if new_table.comment:
            self._rows(f"COMMENT ON TABLE {name} IS {text_literal(new_table.comment)}")

    def _kind_and_name(self, path: ObjectPath) -> tuple[str, str]:
        """Return TABLE or VIEW, and the name in Spark."""
        relation = self._found(path)
        if relation.is_temporary:
            return "VIEW", quoted(relation.name)
        name = self._where(path.database_name, relation.name)
        return ("VIEW" if relation.name in self.list_views(path.database_name) else "TABLE"), name

    # --- functions ---------------------------------------------------------------------------------------------------

    def create_function(
        self, function_path: ObjectPath, function: CatalogFunction, ignore_if_exists: bool = False
    ) -> None:
        """Raise `UnsupportedError`: Spark stores no Python functions."""
        raise UnsupportedError(
            f"function {function_path} cannot be made in catalog {self.name}, which is Spark's: make it TEMPORARY, or "
            "in a catalog of type 'file'"
        )

    def list_functions(self, database_name: str) -> list[str]:
        """Return an empty list: Spark's functions cannot run here."""
        self._check_database(database_name)
        return []


def _added(column: UnresolvedColumn) -> str:
    assert column.data_type is not None
    comment = f" COMMENT {text_literal(column.comment)}" if column.comment else ""
    return f"{quoted(column.name)} {spark_type(column.data_type)}{comment}"


def _properties(word: str, properties: Any) -> str:
    pairs: Iterable[tuple[str, str]] = sorted(properties.items())
    text = ", ".join(f"{text_literal(key)} = {text_literal(value)}" for key, value in pairs)
    return f"{word} ({text})" if text else ""


def spark_catalog(settings: Callable[[], Mapping[str, str]], name: str, options: dict[str, str]) -> SparkCatalog:
    """Create a catalog from the options of CREATE CATALOG, over the program's Spark session or a new one.

    `settings`: the program's settings; those under `spark.` are passed to a new session.

    Raises `ValidationError` for unsupported options.
    """
    unknown = sorted(options.keys() - set(_OPTIONS))
    if unknown:
        raise ValidationError(
            f"Unsupported options found for catalog '{name}': {', '.join(unknown)}. A catalog of type '{TYPE}' takes "
            "catalog and default-database."
        )

    def session() -> Any:
        handle = obtain_spark(settings(), 1)
        hand_back(handle, 1)
        return handle.session

    return SparkCatalog(name, session, options.get("catalog", "spark_catalog"), options.get("default-database"))
