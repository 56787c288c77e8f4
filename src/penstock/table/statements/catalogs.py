"""CREATE, ALTER, DROP and USE of catalogs; dispatches these statements for all other kinds of objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from penstock.base.errors import UnsupportedError
from penstock.table.catalog.descriptor import CatalogDescriptor
from penstock.table.data.errors import ValidationError
from penstock.table.session.session import TableSession
from penstock.table.session.table_result import TableResult
from penstock.table.sql import statements
from penstock.table.statements import databases, functions, modules, results, tables, views


def create_catalog(session: TableSession, descriptor: CatalogDescriptor, if_not_exists: bool = False) -> None:
    """Create a catalog; its option `type` selects the factory."""
    name = descriptor.catalog_name
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
        return databases.create(session, statement)
    if statement.what != "CATALOG":
        raise _unsupported(statement.what)
    descriptor = CatalogDescriptor(statement.path[-1], dict(statement.options), statement.comment)
    create_catalog(session, descriptor, statement.if_not_exists)
    return results.done()


def _alter(session: TableSession, statement: statements.Alter) -> TableResult:
    if statement.what == "DATABASE":
        return databases.alter(session, statement)
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
    session.catalog_descriptors[name] = replace(descriptor, options=options)
    return results.done()


def _drop(session: TableSession, statement: statements.Drop) -> TableResult:
    match statement.what:
        case "TABLE":
            return tables.drop(session, statement)
        case "VIEW":
            return views.drop(session, statement)
        case "FUNCTION":
            return functions.drop(session, statement)
        case "DATABASE":
            return databases.drop(session, statement)
        case "CATALOG":
            return _drop_catalog(session, statement)
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
            modules.use_modules([path[0] for path in statement.paths])
            return results.done()
        case _:
            return databases.use(session, statement.paths[0])


def show_create(session: TableSession, path: tuple[str, ...]) -> str:
    """Run SHOW CREATE CATALOG."""
    descriptor = get_catalog_descriptor(session, path[-1])
    return results.create_text("CATALOG", (descriptor.catalog_name,), descriptor.comment, descriptor.options)


def _unsupported(kind: str) -> UnsupportedError:
    return UnsupportedError(f"Penstock has no {kind.lower()}s")


HANDLERS: Final[dict[type[statements.Statement], Callable[[TableSession, Any], TableResult]]] = {
    statements.Create: _create,
    statements.Alter: _alter,
    statements.Drop: _drop,
    statements.Use: _use,
}
