"""CREATE, ALTER and DROP of tables, views and functions, and CREATE TABLE AS.

A Python function is imported when a query calls it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from penstock.base.errors import PenstockError, UnsupportedError
from penstock.sql.catalogs.catalog import CatalogBaseTable, CatalogFunction, ObjectPath
from penstock.sql.catalogs.ddl import build_catalog_table
from penstock.sql.catalogs.sinks import accepts, write_plan
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import NullType
from penstock.sql.functions.aggregates import AGGREGATE_FUNCTIONS
from penstock.sql.functions.registry import SCALAR_FUNCTIONS
from penstock.sql.logical.nodes import Node, Write
from penstock.sql.materialized_tables.refresh import warn_of_readers
from penstock.sql.parser import statements, to_sql
from penstock.sql.parser.unparse import format_path
from penstock.sql.session.result import TableResult
from penstock.sql.session.session import TableSession
from penstock.sql.statements import insert as results
from penstock.sql.statements.insert import renamed_path


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
    if entry[1].is_materialized:
        entry = entry[0], replace(entry[1], options=entry[1].get_options())
    is_within = not statement.is_temporary and session.manager.qualified(statement.path)[0] == entry[0][0]
    # Outside of its catalog, a copy of the options reads the same table.
    return entry[1] if is_within else replace(entry[1], options=entry[1].options_for_connector())


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
    replaces = existing is not None and (statement.replaces or statement.is_replace)
    if existing is not None and not replaces and not statement.is_temporary:
        raise ValidationError(f"Table (or view) {'.'.join(plan.path[1:])} already exists in Catalog {plan.path[0]}.")
    if table.connector_options is not None and not session.config.is_streaming():
        return session.write([plan])  # the job creates the table together with its rows
    if replaces:
        session.manager.drop(statement.path, False, statement.is_temporary, False)
    session.manager.create(statement.path, table, statement.is_temporary)
    created = results.target(session, statement.path)[1]
    try:
        return session.write([replace(plan, options=tuple(created.options_for_connector().items()))])
    except PenstockError:
        if created.connector_options is not None and not replaces:
            session.manager.drop(statement.path, False, statement.is_temporary, True)  # no job fills it
        raise


def create_as(session: TableSession, statement: statements.CreateTable) -> tuple[CatalogBaseTable, Write]:
    """Return the table that CREATE TABLE AS creates, and the plan that fills it."""
    assert statement.query is not None
    plan = session.manager.analyser().query(statement.query)
    table = table_of_query(statement, plan)
    full_path = session.manager.qualified(statement.path)
    if not statement.is_temporary:
        catalog, replaces = session.manager.catalog(full_path[0]), statement.replaces or statement.is_replace
        table = catalog.stage_table(ObjectPath(*full_path[1:]), table, replaces) or table
    return table, write_plan(session.manager, full_path, table, plan, names=plan.schema.names)


def table_of_query(statement: statements.CreateTable, plan: Node) -> CatalogBaseTable:
    """Return the table with the columns of a query, and those that the statement declares."""
    columns = _renamed(plan, statement.names) if statement.names else _merged(plan, statement.elements.columns)
    merged = replace(statement.elements, columns=tuple(columns))
    return build_catalog_table(replace(statement, elements=merged, names=(), query=None))


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
    entry = session.manager.find(statement.path)
    if entry is not None and entry[1].is_materialized:
        raise ValidationError(
            f"Table with identifier '{'.'.join(entry[0])}' does not exist: it is a materialized table, so use DROP "
            "MATERIALIZED TABLE"
        )
    if entry is not None and not entry[1].is_view:
        warn_of_readers(session, entry[0])
    session.manager.drop(statement.path, False, statement.is_temporary, statement.if_exists)
    return results.done()


TABLES_HANDLERS: Final[dict[type[statements.Statement], Callable[[TableSession, Any], TableResult]]] = {
    statements.CreateTable: _create
}


def _create_view(session: TableSession, statement: statements.CreateView) -> TableResult:
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


def drop_view(session: TableSession, statement: statements.Drop) -> TableResult:
    """Run DROP VIEW."""
    session.manager.drop(statement.path, True, statement.is_temporary, statement.if_exists)
    return results.done()


VIEWS_HANDLERS: Final[dict[type[statements.Statement], Callable[[TableSession, Any], TableResult]]] = {
    statements.CreateView: _create_view,
    statements.AlterView: _alter,
}


def _create_function(session: TableSession, statement: statements.CreateFunction) -> TableResult:
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


def _alter_function(session: TableSession, statement: statements.AlterFunction) -> TableResult:
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


def drop_function(session: TableSession, statement: statements.Drop) -> TableResult:
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


FUNCTIONS_HANDLERS: Final[dict[type[statements.Statement], Callable[[TableSession, Any], TableResult]]] = {
    statements.CreateFunction: _create_function,
    statements.AlterFunction: _alter_function,
}


HANDLERS: Final[dict[type[statements.Statement], Callable[[TableSession, Any], TableResult]]] = {
    **TABLES_HANDLERS,
    **VIEWS_HANDLERS,
    **FUNCTIONS_HANDLERS,
}
