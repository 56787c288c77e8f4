"""CREATE, ALTER and DROP VIEW."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from penstock.table.catalog.objects import CatalogBaseTable, ObjectPath
from penstock.table.session.session import TableSession
from penstock.table.session.table_result import TableResult
from penstock.table.sql import statements, to_sql
from penstock.table.statements import results
from penstock.table.statements.names import renamed_path


def _create(session: TableSession, statement: statements.CreateView) -> TableResult:
    manager = session.manager
    schema = manager.view_schema(manager.analyser().query(statement.query), statement.columns)
    namespace = manager.current_catalog, manager.current_database
    view = CatalogBaseTable(schema, {}, statement.comment, query=statement.text, place=namespace)
    if statement.replaces and _is_view(session, statement.path, statement.is_temporary):
        manager.drop(statement.path, True, statement.is_temporary, True)
    manager.create(statement.path, view, statement.is_temporary, statement.if_not_exists)
    return results.done()


def _is_view(session: TableSession, path: tuple[str, ...], is_temporary: bool) -> bool:
    if is_temporary:
        table = session.manager.temporary(path)
        return table is not None and table.is_view
    entry = session.manager.find(path)
    return entry is not None and entry[1].is_view


def _alter(session: TableSession, statement: statements.AlterView) -> TableResult:
    entry = session.manager.find(statement.path)
    if entry is None or not entry[1].is_view or session.manager.temporary(statement.path) is not None:
        missing = ".".join(session.manager.qualified(statement.path))
        raise session.manager.missing(f"View {missing} doesn't exist or is a temporary view.", statement.path)
    full_path, view = entry
    catalog = session.manager.catalog(full_path[0])
    path = ObjectPath(full_path[1], full_path[2])
    if statement.renamed:
        catalog.rename_table(path, renamed_path(full_path, statement.renamed)[2])
        return results.done()
    assert statement.query is not None
    namespace = session.manager.current_catalog, session.manager.current_database
    schema = session.manager.view_schema(session.manager.analyser().query(statement.query), ())
    catalog.alter_table(path, replace(view, schema=schema, query=to_sql(statement.query), place=namespace))
    return results.done()


def drop(session: TableSession, statement: statements.Drop) -> TableResult:
    """Run DROP VIEW."""
    session.manager.drop(statement.path, True, statement.is_temporary, statement.if_exists)
    return results.done()


HANDLERS: Final[dict[type[statements.Statement], Callable[[TableSession, Any], TableResult]]] = {
    statements.CreateView: _create,
    statements.AlterView: _alter,
}
