"""Catalogs, which find tables, views and functions by name. The base class is in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping

from penstock.table.catalog.objects import CatalogBaseTable, CatalogDatabase, CatalogFunction, ObjectPath
from penstock.table.data.errors import ValidationError


class Catalog:
    """A catalog in memory. Other catalogs override its methods.

    Missing or already existing objects raise `ValidationError`, unless the call allows them.
    """

    def __init__(self, name: str = "default_catalog", default_database: str = "default_database") -> None:
        self.name = name
        self._default_database = default_database
        self._databases: MutableMapping[str, CatalogDatabase] = {default_database: CatalogDatabase()}
        self._tables: MutableMapping[ObjectPath, CatalogBaseTable] = {}
        self._functions: MutableMapping[ObjectPath, CatalogFunction] = {}

    def get_default_database(self) -> str:
        """Return the database that is used when none is named."""
        return self._default_database

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
        inside = sorted(path for path in (*self._tables, *self._functions) if path.database_name == name)
        if inside and not cascade:
            raise ValidationError(f"Database {name} in Catalog {self.name} is not empty: it has {inside[0]}")
        for path in inside:
            self._tables.pop(path, None)
            self._functions.pop(path, None)
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


def _names(paths: Iterable[ObjectPath], database: str) -> list[str]:
    return sorted(path.object_name for path in paths if path.database_name == database)


#: creates a catalog of one type from its name and options
CatalogFactory = Callable[[str, dict[str, str]], Catalog]
