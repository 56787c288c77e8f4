"""SHOW: lists objects by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from penstock.base.errors import UnsupportedError
from penstock.table.catalog.catalog import Catalog
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import BooleanType
from penstock.table.session.session import TableSession
from penstock.table.session.table_result import TableResult
from penstock.table.sql import statements
from penstock.table.statements import catalogs, databases, describe, functions, modules, results, show_create


def like(pattern: str, ignores_case: bool = False) -> Callable[[str], bool]:
    """Return a matcher for a LIKE pattern: `%` matches any text, `_` any character; a backslash escapes either."""
    regex, escaped = "", False
    for char in pattern:
        if escaped or char not in "%_\\":
            regex += re.escape(char)
            escaped = False
        elif char == "\\":
            escaped = True
        else:
            regex += ".*" if char == "%" else "."
    compiled = re.compile(regex, re.DOTALL | (re.IGNORECASE if ignores_case else 0))
    return lambda name: compiled.fullmatch(name) is not None


def _keeps(statement: statements.Show) -> Callable[[str], bool]:
    if statement.pattern is None:
        return lambda name: True
    is_like = like(statement.pattern, statement.pattern_kind == "ILIKE")
    return lambda name: is_like(name) is not statement.is_negated


def _place(session: TableSession, statement: statements.Show) -> tuple[Catalog, str]:
    catalog, database = databases.place(session, statement.path)
    resolved = session.manager.catalog(catalog)
    resolved.get_database(database)
    return resolved, database


def table_names(session: TableSession, catalog: Catalog, database: str, views: bool | None = None) -> list[str]:
    """Return the names of a database's tables and views; with `views`, of views only (True) or tables only (False)."""
    stored = catalog.list_views(database) if views else catalog.list_tables(database)
    if views is False:
        stored = sorted(set(stored) - set(catalog.list_views(database)))
    current = session.manager.current_catalog, session.manager.current_database
    temporary = session.manager.list_temporary(views) if (catalog.name, database) == current else []
    return sorted({*stored, *temporary})


def _tables(session: TableSession, statement: statements.Show) -> Iterable[str]:
    return table_names(session, *_place(session, statement))


def _views(session: TableSession, statement: statements.Show) -> Iterable[str]:
    return table_names(session, *_place(session, statement), views=True)


def _databases(session: TableSession, statement: statements.Show) -> Iterable[str]:
    name = statement.path[0] if statement.path else session.manager.current_catalog
    return session.manager.catalog(name).list_databases()


def _functions(session: TableSession, statement: statements.Show) -> Iterable[str]:
    catalog, database = _place(session, statement)
    names = functions.user_functions(session, catalog.name, database)
    return names if statement.what == "USER FUNCTIONS" else sorted({*names, *functions.built_in_functions()})


#: the column name of the result, and a function that lists its values
_LISTS: Final[dict[str, tuple[str, Callable[[TableSession, statements.Show], Iterable[str]]]]] = {
    "TABLES": ("table name", _tables),
    "VIEWS": ("view name", _views),
    "DATABASES": ("database name", _databases),
    "CATALOGS": ("catalog name", lambda session, statement: session.manager.list_catalogs()),
    "FUNCTIONS": ("function name", _functions),
    "USER FUNCTIONS": ("function name", _functions),
    "MODULES": ("module name", lambda session, statement: [modules.CORE]),
    "JARS": ("jars", lambda session, statement: ()),
    "PROCEDURES": ("procedure name", lambda session, statement: ()),
    "MODELS": ("model name", lambda session, statement: ()),
    "MATERIALIZED TABLES": ("table name", lambda session, statement: ()),
    "CONNECTIONS": ("connection name", lambda session, statement: ()),
    "CURRENT CATALOG": ("current catalog name", lambda session, statement: [session.manager.current_catalog]),
    "CURRENT DATABASE": ("current database name", lambda session, statement: [session.manager.current_database]),
}
#: SHOW CREATE
_CREATES: Final[dict[str, Callable[[TableSession, tuple[str, ...]], str]]] = {
    "CREATE TABLE": show_create.create_table,
    "CREATE VIEW": show_create.create_view,
    "CREATE CATALOG": catalogs.show_create,
    "CREATE DATABASE": databases.show_create,
}


def _show(session: TableSession, statement: statements.Show) -> TableResult:
    listed = _LISTS.get(statement.what)
    if listed is not None:
        column, names = listed
        return results.listing(column, filter(_keeps(statement), names(session, statement)))
    create = _CREATES.get(statement.what)
    if create is not None:
        return results.listing("result", [create(session, statement.path)])
    match statement.what:
        case "COLUMNS":
            table = describe.require_table(session, statement.path)[1]
            return describe.columns(session, table, _keeps(statement))
        case "FULL MODULES":
            return results.table([("module name", results.STRING), ("used", BooleanType())], [(modules.CORE, True)])
        case "PARTITIONS":
            return _partitions(session, statement)
        case _:
            raise UnsupportedError(f"SHOW {statement.what} is not supported")


def _partitions(session: TableSession, statement: statements.Show) -> TableResult:
    """Return no partitions, because catalogs in memory store none; raise if the table is not partitioned."""
    full_path, table = describe.require_table(session, statement.path)
    if not table.partition_keys:
        raise ValidationError(f"Table {'.'.join(full_path)} is not partitioned.")
    for name, _ in statement.partition:
        if name not in table.partition_keys:
            raise ValidationError(f"'{name}' is no partition column of table '{'.'.join(full_path)}'")
    return results.listing("partition name", [])


HANDLERS: Final[dict[type[statements.Statement], Callable[[TableSession, Any], TableResult]]] = {statements.Show: _show}
