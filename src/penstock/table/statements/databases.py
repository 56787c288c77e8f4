"""CREATE, ALTER, DROP and USE DATABASE."""

from __future__ import annotations

from dataclasses import replace

from penstock.table.catalog.objects import CatalogDatabase
from penstock.table.data.errors import ValidationError
from penstock.table.session.session import TableSession
from penstock.table.session.table_result import TableResult
from penstock.table.sql import statements
from penstock.table.statements import results


def place(session: TableSession, path: tuple[str, ...]) -> tuple[str, str]:
    """Return the catalog and database of a path; missing parts default to the current ones."""
    manager = session.manager
    match path:
        case ():
            return manager.current_catalog, manager.current_database
        case (database,):
            return manager.current_catalog, database
        case (catalog, database):
            return catalog, database
        case _:
            raise ValidationError(f"a database has at most a catalog before it: {'.'.join(path)}")


def create(session: TableSession, statement: statements.Create) -> TableResult:
    """Run CREATE DATABASE."""
    catalog, name = place(session, statement.path)
    database = CatalogDatabase(dict(statement.options), statement.comment)
    session.manager.catalog(catalog).create_database(name, database, statement.if_not_exists)
    return results.done()


def alter(session: TableSession, statement: statements.Alter) -> TableResult:
    """Run ALTER DATABASE."""
    catalog, name = place(session, statement.path)
    database = session.manager.catalog(catalog).get_database(name)
    if statement.verb != "SET":
        raise ValidationError(f"ALTER DATABASE {statement.verb} is not supported: only SET is")
    properties = {**database.properties, **dict(statement.options)}
    session.manager.catalog(catalog).alter_database(name, replace(database, properties=properties))
    return results.done()


def drop(session: TableSession, statement: statements.Drop) -> TableResult:
    """Run DROP DATABASE."""
    manager = session.manager
    catalog, name = place(session, statement.path)
    if (catalog, name) == (manager.current_catalog, manager.current_database):
        raise ValidationError("Cannot drop a database which is currently in use.")
    manager.catalog(catalog).drop_database(name, statement.if_exists, statement.behaviour == "CASCADE")
    return results.done()


def use(session: TableSession, path: tuple[str, ...]) -> TableResult:
    """Run USE of a database, optionally in another catalog."""
    manager = session.manager
    catalog, name = place(session, path)
    manager.catalog(catalog).get_database(name)
    manager.use_catalog(catalog)
    manager.use_database(name)
    return results.done()


def show_create(session: TableSession, path: tuple[str, ...]) -> str:
    """Run SHOW CREATE DATABASE."""
    catalog, name = place(session, path)
    database = session.manager.catalog(catalog).get_database(name)
    return results.create_text("DATABASE", (catalog, name), database.comment, database.properties)
