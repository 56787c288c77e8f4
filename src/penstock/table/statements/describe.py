"""DESCRIBE, and SHOW COLUMNS, which has the same output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.base.errors import UnsupportedError
from penstock.table.catalog.columns import Column, ResolvedSchema
from penstock.table.catalog.objects import CatalogBaseTable, ObjectPath
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import BooleanType
from penstock.table.functions.aggregates import AGGREGATE_FUNCTIONS
from penstock.table.functions.built_in import is_built_in
from penstock.table.functions.registry import SCALAR_FUNCTIONS
from penstock.table.plan.row_schema import PlanColumn
from penstock.table.session.session import TableSession
from penstock.table.session.table_result import TableResult
from penstock.table.sql import statements, to_sql
from penstock.table.sql.printing import format_path
from penstock.table.statements import catalogs, databases, results


def require_table(session: TableSession, path: tuple[str, ...]) -> tuple[tuple[str, str, str], CatalogBaseTable]:
    """Return a table or view with its path. Raises `ValidationError` if it does not exist."""
    entry = session.manager.find(path)
    if entry is None:
        raise session.manager.missing(
            f"Tables or views with the identifier '{'.'.join(session.manager.qualified(path))}' doesn't exist.", path
        )
    return entry


def columns(session: TableSession, table: CatalogBaseTable, keeps: Callable[[str], bool] = bool) -> TableResult:
    """List the columns of a table, one row for each. `keeps`: selects columns by name."""
    schema = session.manager.resolved(table)
    selected = [column for column in schema.columns if keeps(column.name)]
    has_comments = any(column.comment is not None for column in selected)
    headers = [(name, results.STRING) for name in ("name", "type", "null", "key", "extras", "watermark")]
    kinds = [(name, BooleanType() if name == "null" else kind) for name, kind in headers]
    if has_comments:
        kinds.append(("comment", results.STRING))
    rows = [(*_row(column, schema), column.comment)[: len(kinds)] for column in selected]
    return results.table(kinds, rows)


def _row(column: Column, schema: ResolvedSchema) -> tuple[Any, ...]:
    kind = PlanColumn(column.name, column.data_type.nullable(), column.time)
    key = schema.primary_key
    is_key = key is not None and column.name in key.columns
    marks = [to_sql(spec.written) for spec in schema.watermark_specs if spec.rowtime_attribute == column.name]
    return (
        column.name,
        str(kind),
        column.data_type.is_nullable,
        f"PRI({', '.join(key.columns)})" if is_key and key is not None else None,
        column.explain_extras(),
        marks[0] if marks else None,
    )


def _describe(session: TableSession, statement: statements.Describe) -> TableResult:
    match statement.what:
        case "TABLE":
            return columns(session, require_table(session, statement.path)[1])
        case "CATALOG":
            return _catalog(session, statement)
        case "DATABASE":
            return _database(session, statement)
        case "FUNCTION":
            return _function(session, statement)
        case _:
            raise UnsupportedError(f"Penstock has no {statement.what.lower()}s")


def _pairs(pairs: list[tuple[str, str | None]]) -> TableResult:
    return results.table([("info name", results.STRING), ("info value", results.STRING)], pairs)


def _catalog(session: TableSession, statement: statements.Describe) -> TableResult:
    descriptor = catalogs.get_catalog_descriptor(session, statement.path[-1])
    pairs: list[tuple[str, str | None]] = [
        ("name", descriptor.catalog_name),
        ("type", descriptor.options.get("type", "")),
        ("comment", descriptor.comment),
    ]
    if statement.is_extended:
        pairs += [(f"option:{key}", value) for key, value in sorted(descriptor.options.items()) if key != "type"]
    return _pairs(pairs)


def _database(session: TableSession, statement: statements.Describe) -> TableResult:
    catalog, name = databases.place(session, statement.path)
    database = session.manager.catalog(catalog).get_database(name)
    pairs: list[tuple[str, str | None]] = [("name", name), ("comment", database.comment)]
    if statement.is_extended:
        pairs += [(f"option:{key}", value) for key, value in sorted(database.properties.items())]
    return _pairs(pairs)


def _function(session: TableSession, statement: statements.Describe) -> TableResult:
    full_path = session.manager.qualified(statement.path)
    catalog = session.manager.catalog(full_path[0])
    path = ObjectPath(full_path[1], full_path[2].lower())
    registered = session.functions.find(full_path)
    if registered is None and not catalog.function_exists(path):
        if len(statement.path) == 1 and is_built_in(statement.path[0].upper()):
            return _describe_system_function(statement.path[0], statement.is_extended)
        raise ValidationError(f"Function with the identifier '{format_path(statement.path)}' doesn't exist.")
    is_system = registered is not None and not session.functions.has_temporary(full_path)
    function = registered if registered is not None else catalog.get_function(path)
    return _pairs(
        [
            ("is system function", str(is_system).lower()),
            ("is temporary", str(registered is not None).lower()),
            ("class name", getattr(function, "target", None) or repr(function)),
            ("function language", getattr(function, "language", "PYTHON")),
        ]
    )


def _describe_system_function(name: str, is_extended: bool) -> TableResult:
    """Describe a built-in function as Flink does: name, kind and signatures."""
    pairs: list[tuple[str, str | None]] = [("is system function", "true"), ("is temporary", "false")]
    if is_extended:
        aggregate, scalar = AGGREGATE_FUNCTIONS.get(name.upper()), SCALAR_FUNCTIONS.get(name.upper())
        function = aggregate or scalar
        pairs += [
            ("kind", "AGGREGATE" if aggregate is not None else "SCALAR" if scalar is not None else "TABLE"),
            ("requirements", "[]"),
            ("is deterministic", str(scalar is None or scalar.is_deterministic).lower()),
            ("supports constant folding", str(scalar is not None and scalar.is_folded).lower()),
        ]
        if function is not None:
            signatures = [f"{name.lower()}{signature}" for signature in function.signatures]
            pairs.append(("signature", "\n".join(signatures)))
    return _pairs(pairs)


HANDLERS: Final[dict[type[statements.Statement], Callable[[TableSession, Any], TableResult]]] = {
    statements.Describe: _describe
}
