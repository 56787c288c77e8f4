"""CREATE, ALTER, DROP and USE of catalogs and databases, and LOAD, UNLOAD and USE MODULES.

The functions for catalogs also dispatch these statements for all other kinds of objects. The module `core` has all of
Flink's functions, and is always used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from penstock.base.errors import UnsupportedError
from penstock.base.secrets import remember, shown
from penstock.sql.catalogs.catalog import CatalogDatabase, CatalogDescriptor
from penstock.sql.data.errors import ValidationError
from penstock.sql.parser import statements
from penstock.sql.session.result import TableResult
from penstock.sql.session.session import IN_MEMORY, TableSession
from penstock.sql.statements import insert as results
from penstock.sql.statements import materialized_tables as materialized
from penstock.sql.statements import models
from penstock.sql.statements import objects as functions
from penstock.sql.statements import objects as tables
from penstock.sql.statements import objects as views


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


def show_create_database(session: TableSession, path: tuple[str, ...]) -> str:
    """Run SHOW CREATE DATABASE."""
    catalog, name = place(session, path)
    database = session.manager.catalog(catalog).get_database(name)
    return results.create_text("DATABASE", (catalog, name), database.comment, database.properties)


def _load(session: TableSession, statement: statements.LoadModule) -> TableResult:
    if statement.unloads:
        session.modules.unload(statement.name.lower())
        return results.done()
    if statement.options:
        raise ValidationError(
            f"module '{statement.name}' has no options: {', '.join(key for key, _ in statement.options)}"
        )
    session.modules.load(statement.name.lower())
    return results.done()


MODULES_HANDLERS: Final[dict[type[statements.Statement], Callable[[TableSession, Any], TableResult]]] = {
    statements.LoadModule: _load
}


def create_catalog(session: TableSession, descriptor: CatalogDescriptor, if_not_exists: bool = False) -> None:
    """Create a catalog; its option `type` selects the factory."""
    name = descriptor.catalog_name
    remember(descriptor.options)
    if name in session.manager.list_catalogs():
        if if_not_exists:
            return
        raise ValidationError(f"Catalog {name} already exists.")
    kind = descriptor.options.get("type")
    known = ", ".join(sorted(session.catalog_factories))
    if kind is None:
        raise ValidationError(f"Unable to create catalog '{name}': it needs the option 'type', one of {known}")
    if kind not in session.catalog_factories:
        raise ValidationError(f"Unable to create catalog '{name}': there is no type '{kind}', but {known}")
    session.manager.register_catalog(name, session.catalog_factories[kind](name, dict(descriptor.options)))
    session.catalog_descriptors[name] = descriptor


def get_catalog_descriptor(session: TableSession, name: str) -> CatalogDescriptor:
    """Return the options and comment of a catalog. Raises `ValidationError` if it does not exist."""
    session.manager.catalog(name)
    return session.catalog_descriptors.get(name, CatalogDescriptor(name))


def _create(session: TableSession, statement: statements.Create) -> TableResult:
    if statement.what == "DATABASE":
        return create(session, statement)
    if statement.what == "MODEL":
        return models.create(session, statement)
    if statement.what != "CATALOG":
        raise _unsupported(statement.what)
    descriptor = CatalogDescriptor(statement.path[-1], dict(statement.options), statement.comment)
    create_catalog(session, descriptor, statement.if_not_exists)
    return results.done()


def _alter(session: TableSession, statement: statements.Alter) -> TableResult:
    if statement.what == "DATABASE":
        return alter(session, statement)
    if statement.what == "MODEL":
        return models.alter(session, statement)
    if statement.what != "CATALOG":
        raise _unsupported(statement.what)
    name = statement.path[-1]
    descriptor = get_catalog_descriptor(session, name)
    options = dict(descriptor.options)
    match statement.verb:
        case "SET":
            options.update(statement.options)
        case "RESET":
            if not statement.keys:
                raise ValidationError("ALTER CATALOG RESET does not support empty key")
            if "type" in statement.keys:
                raise ValidationError("ALTER CATALOG RESET does not support changing 'type'")
            options = {key: value for key, value in options.items() if key not in statement.keys}
        case "COMMENT":
            descriptor = replace(descriptor, comment=statement.text)
        case _:
            raise UnsupportedError(f"ALTER CATALOG {statement.verb} is not supported")
    kind = options.get("type", IN_MEMORY)
    if options != descriptor.options and kind in session.catalog_factories and kind != IN_MEMORY:
        remember(options)
        session.manager.replace_catalog(name, session.catalog_factories[kind](name, dict(options)))
    session.catalog_descriptors[name] = replace(descriptor, options=options)
    return results.done()


def _drop(session: TableSession, statement: statements.Drop) -> TableResult:
    match statement.what:
        case "TABLE":
            return tables.drop(session, statement)
        case "MATERIALIZED TABLE":
            return materialized.drop(session, statement)
        case "VIEW":
            return views.drop_view(session, statement)
        case "FUNCTION":
            return functions.drop_function(session, statement)
        case "DATABASE":
            return drop(session, statement)
        case "CATALOG":
            return _drop_catalog(session, statement)
        case "MODEL":
            return models.drop(session, statement)
        case _:
            raise _unsupported(statement.what)


def _drop_catalog(session: TableSession, statement: statements.Drop) -> TableResult:
    name = statement.path[-1]
    if name in session.manager.list_catalogs() or not statement.if_exists:
        session.manager.unregister_catalog(name)
        session.catalog_descriptors.pop(name, None)
    return results.done()


def _use(session: TableSession, statement: statements.Use) -> TableResult:
    match statement.what:
        case "CATALOG":
            session.manager.use_catalog(statement.paths[0][0])
            return results.done()
        case "MODULES":
            session.modules.use([path[0].lower() for path in statement.paths])
            return results.done()
        case _:
            return use(session, statement.paths[0])


def show_create(session: TableSession, path: tuple[str, ...]) -> str:
    """Run SHOW CREATE CATALOG."""
    descriptor = get_catalog_descriptor(session, path[-1])
    return results.create_text("CATALOG", (descriptor.catalog_name,), descriptor.comment, shown(descriptor.options))


def _unsupported(kind: str) -> UnsupportedError:
    return UnsupportedError(f"Penstock has no {kind.lower()}s")


CATALOGS_HANDLERS: Final[dict[type[statements.Statement], Callable[[TableSession, Any], TableResult]]] = {
    statements.Create: _create,
    statements.Alter: _alter,
    statements.Drop: _drop,
    statements.Use: _use,
}


HANDLERS: Final[dict[type[statements.Statement], Callable[[TableSession, Any], TableResult]]] = {
    **MODULES_HANDLERS,
    **CATALOGS_HANDLERS,
}
