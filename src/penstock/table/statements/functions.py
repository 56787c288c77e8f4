"""CREATE, ALTER and DROP FUNCTION. A Python function is imported when a query calls it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from penstock.base.errors import UnsupportedError
from penstock.table.catalog.objects import CatalogFunction, ObjectPath
from penstock.table.data.errors import ValidationError
from penstock.table.functions.aggregates import AGGREGATE_FUNCTIONS
from penstock.table.functions.registry import SCALAR_FUNCTIONS
from penstock.table.session.session import TableSession
from penstock.table.session.table_result import TableResult
from penstock.table.sql import statements
from penstock.table.statements import results


def _create(session: TableSession, statement: statements.CreateFunction) -> TableResult:
    function = _function(statement)
    if statement.is_system:
        session.functions.add_system(statement.path[-1], function, statement.if_not_exists)
        return results.done()
    full_path = session.manager.qualified(statement.path)
    if statement.is_temporary:
        session.functions.add(full_path, function, statement.if_not_exists)
        return results.done()
    session.manager.catalog(full_path[0]).create_function(_path(full_path), function, statement.if_not_exists)
    return results.done()


def _alter(session: TableSession, statement: statements.AlterFunction) -> TableResult:
    if statement.is_temporary:
        raise ValidationError("Alter temporary catalog function is not supported: drop it, and create it again")
    full_path = session.manager.qualified(statement.path)
    session.manager.catalog(full_path[0]).alter_function(_path(full_path), _function(statement), statement.if_exists)
    return results.done()


def _function(statement: statements.CreateFunction) -> CatalogFunction:
    if statement.files:
        raise UnsupportedError("CREATE FUNCTION … USING JAR is for functions in JAVA, which Penstock cannot run")
    if statement.options:
        raise UnsupportedError("CREATE FUNCTION takes no options: a function in PYTHON reads none")
    return CatalogFunction(statement.target, statement.language or "JAVA")


def drop(session: TableSession, statement: statements.Drop) -> TableResult:
    """Run DROP FUNCTION."""
    if statement.is_system:
        session.functions.drop_system(statement.path[-1], statement.if_exists)
        return results.done()
    full_path = session.manager.qualified(statement.path)
    if statement.is_temporary:
        session.functions.drop(full_path, statement.if_exists)
    else:
        drop_from_catalog(session, full_path, statement.if_exists)
    return results.done()


def drop_from_catalog(session: TableSession, full_path: tuple[str, str, str], if_exists: bool) -> bool:
    """Drop a function from its catalog. Returns whether it existed."""
    if session.functions.has_temporary(full_path):
        raise ValidationError(f"Temporary catalog function {'.'.join(full_path)} exists. Drop it first.")
    catalog = session.manager.catalog(full_path[0])
    is_there = catalog.function_exists(_path(full_path))
    catalog.drop_function(_path(full_path), if_exists)
    return is_there


def _path(full_path: tuple[str, str, str]) -> ObjectPath:
    return ObjectPath(full_path[1], full_path[2].lower())


def built_in_functions() -> list[str]:
    """Return the names of Flink's built-in functions in lower case, without operators."""
    names = (name for name in (*SCALAR_FUNCTIONS, *AGGREGATE_FUNCTIONS) if re.fullmatch(r"[A-Z]\w*", name))
    return sorted({name.lower() for name in names})


def user_functions(session: TableSession, catalog: str, database: str) -> list[str]:
    """Return the names of the user-defined functions that a database sees."""
    registry = session.functions
    stored = session.manager.catalog(catalog).list_functions(database)
    return sorted({*registry.system_names(), *registry.temporary_names(catalog, database), *stored})


HANDLERS: Final[dict[type[statements.Statement], Callable[[TableSession, Any], TableResult]]] = {
    statements.CreateFunction: _create,
    statements.AlterFunction: _alter,
}
