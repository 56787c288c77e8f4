"""CREATE, ALTER and DROP VIEW."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from penstock.table.catalog.objects import CatalogBaseTable, ObjectPath
from penstock.table.session.session import TableSession
from penstock.table.session.table_result import TableResult
from penstock.table.sql import sql_of, statements
from penstock.table.statements import results
from penstock.table.statements.names import renamed_path


def _create(session: TableSession, statement: statements.CreateView) -> TableResult:
    manager = session.manager
    schema = manager.view_schema(manager.analyser().query(statement.query), statement.columns)
    place = manager.current_catalog, manager.current_database
    view = CatalogBaseTable(schema, {}, statement.comment, query=statement.text, place=place)
    if statement.replaces and _is_view(session, statement.path, statement.is_temporary):
        manager.drop(statement.path, True, statement.is_temporary, True)
    manager.create(statement.path, view, statement.is_temporary, statement.if_not_exists)
    return results.done()


def _is_view(session: TableSession, path: tuple[str, ...], is_temporary: bool) -> bool:
    if is_temporary:
        found = session.manager.temporary(path)
        return found is not None and found.is_view
    there = session.manager.find(path)
    return there is not None and there[1].is_view


def _alter(session: TableSession, statement: statements.AlterView) -> TableResult:
    found = session.manager.find(statement.path)
    if found is None or not found[1].is_view or session.manager.temporary(statement.path) is not None:
        missing = ".".join(session.manager.qualified(statement.path))
        raise session.manager.missing(f"View {missing} doesn't exist or is a temporary view.", statement.path)
    whole, view = found
    catalog = session.manager.catalog(whole[0])
    path = ObjectPath(whole[1], whole[2])
    if statement.renamed:
        catalog.rename_table(path, renamed_path(whole, statement.renamed)[2])
        return results.done()
    assert statement.query is not None
    place = session.manager.current_catalog, session.manager.current_database
    schema = session.manager.view_schema(session.manager.analyser().query(statement.query), ())
    catalog.alter_table(path, replace(view, schema=schema, query=sql_of(statement.query), place=place))
    return results.done()


def drop(session: TableSession, statement: statements.Drop) -> TableResult:
    """Run DROP VIEW."""
    session.manager.drop(statement.path, True, statement.is_temporary, statement.if_exists)
    return results.done()


HANDLERS: Final[dict[type[statements.Statement], Callable[[TableSession, Any], TableResult]]] = {
    statements.CreateView: _create,
    statements.AlterView: _alter,
}
