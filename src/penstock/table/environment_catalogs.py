"""The catalogs, databases, tables, views and functions of a table environment."""

from __future__ import annotations

from typing import Any

from penstock.base.errors import UnsupportedError
from penstock.sql.catalogs.catalog import Catalog, CatalogDescriptor
from penstock.sql.parser import parse_path
from penstock.sql.session.session import TableSession
from penstock.sql.statements.catalogs import create_catalog
from penstock.sql.statements.objects import built_in_functions, drop_from_catalog, user_functions
from penstock.sql.statements.show import table_names
from penstock.sql.user_functions.declare import define
from penstock.table.table_descriptor import TableDescriptor


class CatalogMethods:
    """The methods of `TableEnvironment` that list, create and drop named objects. Paths are written as in SQL."""

    _session: TableSession

    # --- catalogs and databases --------------------------------------------------------------------------------------

    def create_catalog(self, catalog_name: str, catalog_descriptor: CatalogDescriptor) -> None:
        """Create a catalog of the kind in its option `type`; raise `ValidationError` for an unknown kind."""
        descriptor = CatalogDescriptor(catalog_name, catalog_descriptor.options, catalog_descriptor.comment)
        create_catalog(self._session, descriptor)

    def register_catalog(self, catalog_name: str, catalog: Catalog) -> None:
        """Register a catalog that the program has created."""
        self._session.manager.register_catalog(catalog_name, catalog)

    def get_catalog(self, catalog_name: str) -> Catalog | None:
        """Return a catalog, or None if it does not exist."""
        manager = self._session.manager
        return manager.catalog(catalog_name) if catalog_name in manager.list_catalogs() else None

    def list_catalogs(self) -> list[str]:
        """Return the names of all catalogs."""
        return self._session.manager.list_catalogs()

    def list_databases(self) -> list[str]:
        """Return the names of the databases in the current catalog."""
        return self._current_catalog().list_databases()

    def get_current_catalog(self) -> str:
        """Return the name of the current catalog."""
        return self._session.manager.current_catalog

    def get_current_database(self) -> str:
        """Return the name of the current database."""
        return self._session.manager.current_database

    def use_catalog(self, catalog_name: str) -> None:
        """Set the current catalog, and its default database as the current database."""
        self._session.manager.use_catalog(catalog_name)

    def use_database(self, database_name: str) -> None:
        """Set the current database within the current catalog."""
        self._session.manager.use_database(database_name)

    def _current_catalog(self) -> Catalog:
        return self._session.manager.catalog(self._session.manager.current_catalog)

    # --- tables and views --------------------------------------------------------------------------------------------

    def list_tables(self) -> list[str]:
        """Return the names of all tables and views in the current database, including temporary ones."""
        return table_names(self._session, self._current_catalog(), self.get_current_database())

    def list_views(self) -> list[str]:
        """Return the names of all views in the current database, including temporary ones."""
        return table_names(self._session, self._current_catalog(), self.get_current_database(), views=True)

    def list_temporary_tables(self) -> list[str]:
        """Return the names of the temporary tables and views in the current database."""
        return self._session.manager.list_temporary()

    def list_temporary_views(self) -> list[str]:
        """Return the names of the temporary views in the current database."""
        return self._session.manager.list_temporary(views=True)

    def create_table(self, path: str, descriptor: TableDescriptor, ignoreIfExists: bool | None = False) -> bool:
        """Create a table in a catalog. Returns whether it did not exist before.

        Args:
            path: the table's path, such as `orders` or `database.orders`.
            descriptor: its columns, connector and options.
            ignoreIfExists: whether to do nothing if the table exists.

        Raises:
            ValidationError: if it exists, unless `ignoreIfExists` is set.

        Examples:
            >>> from penstock.table import Schema, TableDescriptor
            >>> columns = Schema.new_builder().column("n", "BIGINT").build()
            >>> numbers = TableDescriptor.for_connector("datagen").schema(columns)
            >>> t_env.create_table("numbers", numbers.option("number-of-rows", "3").build())
            True
        """
        return self._create(path, descriptor, False, bool(ignoreIfExists))

    def create_temporary_table(
        self, path: str, descriptor: TableDescriptor, ignoreIfExists: bool | None = False
    ) -> None:
        """Create a temporary table, which hides others with its path and ends with the program.

        Raises:
            ValidationError: if a temporary table has this path, unless `ignoreIfExists` is set.
        """
        self._create(path, descriptor, True, bool(ignoreIfExists))

    def _create(self, path: str, descriptor: TableDescriptor, is_temporary: bool, if_not_exists: bool) -> bool:
        manager = self._session.manager
        names = parse_path(path)
        table = descriptor.to_catalog_table()
        manager.resolved(table)
        was_there = manager.find(names) is not None
        manager.create(names, table, is_temporary, if_not_exists)
        return not was_there

    def drop_table(self, table_path: str, ignore_if_not_exists: bool = True) -> bool:
        """Drop a table from its catalog. Returns whether it existed."""
        return self._session.manager.drop(parse_path(table_path), False, False, ignore_if_not_exists)

    def drop_view(self, view_path: str, ignore_if_not_exists: bool = True) -> bool:
        """Drop a view from its catalog. Returns whether it existed."""
        return self._session.manager.drop(parse_path(view_path), True, False, ignore_if_not_exists)

    def drop_temporary_table(self, table_path: str) -> bool:
        """Drop a temporary table. Returns whether it existed."""
        return self._session.manager.drop(parse_path(table_path), False, True, True)

    def drop_temporary_view(self, view_path: str) -> bool:
        """Drop a temporary view. Returns whether it existed."""
        return self._session.manager.drop(parse_path(view_path), True, True, True)

    # --- functions ---------------------------------------------------------------------------------------------------

    def list_functions(self) -> list[str]:
        """Return the names of all functions, including built-in ones."""
        return sorted({*self.list_user_defined_functions(), *built_in_functions()})

    def list_user_defined_functions(self) -> list[str]:
        """Return the names of the user-defined functions."""
        return user_functions(self._session, self.get_current_catalog(), self.get_current_database())

    def create_temporary_system_function(self, name: str, function: Any) -> None:
        """Register a function under a name that is visible in all databases and hides others.

        Raises:
            TypeError: if it was not created by `udf`, `udtf` or the like.
            ValidationError: if the name is taken.

        Examples:
            >>> from penstock.table.udf import udf
            >>> t_env.create_temporary_system_function("SHOUT", udf(lambda word: word + "!", result_type="STRING"))
            >>> list(t_env.execute_sql("SELECT SHOUT(drink) FROM orders").collect())
            [<Row('tea!')>, <Row('rum!')>]
        """
        define(function, name)
        self._session.functions.add_system(name, function)

    def create_temporary_function(self, path: str, function: Any) -> None:
        """Register a function in a database. A built-in function of the same name hides it, unless its path is given.

        Raises:
            TypeError: if it was not created by `udf`, `udtf` or the like.
            ValidationError: if the path is taken.
        """
        full_path = self._session.manager.qualified(parse_path(path))
        define(function, full_path[2])
        self._session.functions.add(full_path, function)

    def create_java_temporary_system_function(self, name: str, function_class_name: str) -> None:
        """Raise NotImplementedError: Java functions are not supported."""
        raise _no_java(name, function_class_name)

    def create_java_temporary_function(self, path: str, function_class_name: str) -> None:
        """Raise NotImplementedError: Java functions are not supported."""
        raise _no_java(path, function_class_name)

    def create_java_function(self, path: str, function_class_name: str, ignore_if_exists: bool | None = None) -> None:
        """Raise NotImplementedError: Java functions are not supported."""
        raise _no_java(path, function_class_name)

    def drop_temporary_system_function(self, name: str) -> bool:
        """Drop a temporary system function. Returns whether it existed."""
        return self._session.functions.drop_system(name, if_exists=True)

    def drop_temporary_function(self, path: str) -> bool:
        """Drop a temporary function from its database. Returns whether it existed."""
        return self._session.functions.drop(self._session.manager.qualified(parse_path(path)), if_exists=True)

    def drop_function(self, path: str) -> bool:
        """Drop a function from its catalog. Returns whether it existed."""
        return drop_from_catalog(self._session, self._session.manager.qualified(parse_path(path)), True)


def _no_java(name: str, class_name: str) -> UnsupportedError:
    return UnsupportedError(
        f"function {name}: Penstock runs no functions in Java, such as {class_name}; write it in Python with udf"
    )
