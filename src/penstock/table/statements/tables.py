"""CREATE TABLE, CREATE TABLE AS, and DROP TABLE."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from penstock.table.catalog.from_ddl import build_catalog_table
from penstock.table.catalog.objects import CatalogBaseTable
from penstock.table.catalog.sink_plans import write_plan
from penstock.table.catalog.sink_types import accepts
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import NullType
from penstock.table.plan.logical import Node, Write
from penstock.table.session.session import TableSession
from penstock.table.session.table_result import TableResult
from penstock.table.sql import statements
from penstock.table.sql.printing import format_path
from penstock.table.statements import results


def _create(session: TableSession, statement: statements.CreateTable) -> TableResult:
    if statement.query is not None:
        return _create_from_query(session, statement)
    table = build_catalog_table(statement, _base(session, statement))
    session.manager.resolved(table)
    session.manager.create(statement.path, table, statement.is_temporary, statement.if_not_exists)
    return results.done()


def _base(session: TableSession, statement: statements.CreateTable) -> CatalogBaseTable | None:
    """Return the source table of LIKE, if there is one."""
    if statement.like is None:
        return None
    entry = session.manager.find(statement.like.path)
    if entry is None:
        identifier = format_path(session.manager.qualified(statement.like.path))
        reason = f"Source table '{identifier}' of the LIKE clause not found in the catalog"
        raise session.manager.missing(reason, statement.like.path)
    if entry[1].is_view:
        raise ValidationError(f"Source table '{'.'.join(entry[0])}' of the LIKE clause can not be a VIEW")
    return entry[1]


# --- from a query ----------------------------------------------------------------------------------------------------


def _create_from_query(session: TableSession, statement: statements.CreateTable) -> TableResult:
    existing = session.manager.find(statement.path)
    if existing is not None and statement.if_not_exists:
        return results.done()
    table, plan = create_as(session, statement)
    _ = session.executor  # fails early, before a table is created
    if statement.is_replace and existing is None:
        raise ValidationError(
            f"The table '{format_path(plan.path)}' to be replaced doesn't exist. You can try to use CREATE TABLE AS "
            "statement or CREATE OR REPLACE TABLE AS statement."
        )
    if existing is not None and (statement.replaces or statement.is_replace):
        session.manager.drop(statement.path, False, statement.is_temporary, False)
    session.manager.create(statement.path, table, statement.is_temporary)
    return session.write([plan])


def create_as(session: TableSession, statement: statements.CreateTable) -> tuple[CatalogBaseTable, Write]:
    """Return the table that CREATE TABLE AS creates, and the plan that fills it."""
    assert statement.query is not None
    plan = session.manager.analyser().query(statement.query)
    columns = _renamed(plan, statement.names) if statement.names else _merged(plan, statement.elements.columns)
    merged = replace(statement.elements, columns=tuple(columns))
    table = build_catalog_table(replace(statement, elements=merged, names=(), query=None))
    full_path = session.manager.qualified(statement.path)
    return table, write_plan(session.manager, full_path, table, plan, names=plan.schema.names)


def _of_query(plan: Node) -> dict[str, statements.Column]:
    columns: dict[str, statements.Column] = {}
    for column in plan.schema:
        if column.name in columns:
            raise ValidationError(f"Column '{column.name}' is in the query twice: give one another name with AS")
        if isinstance(column.type, NullType):
            raise ValidationError(f"Column '{column.name}' of the query is NULL of no type: give it one with CAST")
        columns[column.name] = statements.Column((column.name,), column.type)
    return columns


def _renamed(plan: Node, names: Sequence[str]) -> list[statements.Column]:
    """Return the columns of the query, in the order of the column list."""
    columns = _of_query(plan)
    if len(names) != len(columns):
        raise ValidationError(
            "The number of columns in the column list must match the number of columns in the source schema."
        )
    for name in names:
        if name not in columns:
            raise ValidationError(f"Column '{name}' not found in the source schema.")
    return [columns[name] for name in names]


def _merged(plan: Node, declared: Sequence[statements.Column]) -> list[statements.Column]:
    """Return the declared columns, then the query's other columns.

    A declaration overrides the type of a query column.
    """
    columns = _of_query(plan)
    for column in declared:
        name = column.path[-1]
        same = columns.pop(name, None)
        if same is None:
            continue
        if column.type is None or column.is_metadata:
            raise ValidationError(
                f"A column named '{name}' already exists in the source schema. Computed and metadata columns cannot "
                "overwrite regular columns."
            )
        assert same.type is not None
        if not accepts(same.type, column.type):
            raise ValidationError(
                f"Incompatible types for sink column '{name}'. The source column has type '{same.type}', while the "
                f"target column has type '{column.type}'."
            )
    return [*declared, *columns.values()]


def drop(session: TableSession, statement: statements.Drop) -> TableResult:
    """Run DROP TABLE."""
    session.manager.drop(statement.path, False, statement.is_temporary, statement.if_exists)
    return results.done()


HANDLERS: Final[dict[type[statements.Statement], Callable[[TableSession, Any], TableResult]]] = {
    statements.CreateTable: _create
}
