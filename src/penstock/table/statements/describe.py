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
from penstock.table.sql import sql_of, statements
from penstock.table.sql.printing import path_of
from penstock.table.statements import catalogs, databases, results


def table_of(session: TableSession, path: tuple[str, ...]) -> tuple[tuple[str, str, str], CatalogBaseTable]:
    """Return a table or view with its path. Raises `ValidationError` if it does not exist."""
    found = session.manager.find(path)
    if found is None:
        raise session.manager.missing(
            f"Tables or views with the identifier '{'.'.join(session.manager.qualified(path))}' doesn't exist.", path
        )
    return found


def columns(session: TableSession, table: CatalogBaseTable, keeps: Callable[[str], bool] = bool) -> TableResult:
    """List the columns of a table, one row for each. `keeps`: selects columns by name."""
    schema = session.manager.resolved(table)
    shown = [column for column in schema.columns if keeps(column.name)]
    has_comments = any(column.comment is not None for column in shown)
    headers = [(name, results.STRING) for name in ("name", "type", "null", "key", "extras", "watermark")]
    kinds = [(name, BooleanType() if name == "null" else kind) for name, kind in headers]
    if has_comments:
        kinds.append(("comment", results.STRING))
    rows = [(*_row(column, schema), column.comment)[: len(kinds)] for column in shown]
    return results.table(kinds, rows)


def _row(column: Column, schema: ResolvedSchema) -> tuple[Any, ...]:
    kind = PlanColumn(column.name, column.data_type.nullable(), column.time)
    key = schema.primary_key
    is_key = key is not None and column.name in key.columns
    marks = [sql_of(one.written) for one in schema.watermark_specs if one.rowtime_attribute == column.name]
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
            return columns(session, table_of(session, statement.path)[1])
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
    found = catalogs.descriptor_of(session, statement.path[-1])
    pairs: list[tuple[str, str | None]] = [
        ("name", found.catalog_name),
        ("type", found.options.get("type", "")),
        ("comment", found.comment),
    ]
    if statement.is_extended:
        pairs += [(f"option:{key}", value) for key, value in sorted(found.options.items()) if key != "type"]
    return _pairs(pairs)


def _database(session: TableSession, statement: statements.Describe) -> TableResult:
    catalog, name = databases.place(session, statement.path)
    found = session.manager.catalog(catalog).get_database(name)
    pairs: list[tuple[str, str | None]] = [("name", name), ("comment", found.comment)]
    if statement.is_extended:
        pairs += [(f"option:{key}", value) for key, value in sorted(found.properties.items())]
    return _pairs(pairs)


def _function(session: TableSession, statement: statements.Describe) -> TableResult:
    whole = session.manager.qualified(statement.path)
    catalog = session.manager.catalog(whole[0])
    path = ObjectPath(whole[1], whole[2].lower())
    registered = session.functions.find(whole)
    if registered is None and not catalog.function_exists(path):
        if len(statement.path) == 1 and is_built_in(statement.path[0].upper()):
            return _built_in(statement.path[0], statement.is_extended)
        raise ValidationError(f"Function with the identifier '{path_of(statement.path)}' doesn't exist.")
    is_system = registered is not None and not session.functions.has_temporary(whole)
    function = registered if registered is not None else catalog.get_function(path)
    return _pairs(
        [
            ("is system function", str(is_system).lower()),
            ("is temporary", str(registered is not None).lower()),
            ("class name", getattr(function, "target", None) or repr(function)),
            ("function language", getattr(function, "language", "PYTHON")),
        ]
    )


def _built_in(name: str, is_extended: bool) -> TableResult:
    """Describe a built-in function as Flink does: name, kind and signatures."""
    pairs: list[tuple[str, str | None]] = [("is system function", "true"), ("is temporary", "false")]
    if is_extended:
        aggregate, scalar = AGGREGATE_FUNCTIONS.get(name.upper()), SCALAR_FUNCTIONS.get(name.upper())
        found = aggregate or scalar
        pairs += [
            ("kind", "AGGREGATE" if aggregate is not None else "SCALAR" if scalar is not None else "TABLE"),
            ("requirements", "[]"),
            ("is deterministic", str(scalar is None or scalar.is_deterministic).lower()),
            ("supports constant folding", str(scalar is not None and scalar.is_folded).lower()),
        ]
        if found is not None:
            shown = [f"{name.lower()}{signature}" for signature in found.signatures]
            pairs.append(("signature", "\n".join(shown)))
    return _pairs(pairs)


HANDLERS: Final[dict[type[statements.Statement], Callable[[TableSession, Any], TableResult]]] = {
    statements.Describe: _describe
}
