"""Converts catalog objects to JSON and back. Types and expressions are stored as SQL text."""

from __future__ import annotations

import json
from typing import Any, Final

from penstock.base.errors import PenstockError
from penstock.table.catalog.inline_view import InlineView
from penstock.table.catalog.objects import CatalogBaseTable, CatalogDatabase, CatalogFunction
from penstock.table.catalog.schema import Schema, UnresolvedColumn, UnresolvedWatermark, expression_of, type_of
from penstock.table.data.errors import ValidationError
from penstock.table.sql import sql_of
from penstock.table.sql.statements import Distribution

#: increased when a release changes the document format
VERSION: Final = 1


def database_document(database: CatalogDatabase) -> str:
    """Return a database as JSON."""
    return _text({"properties": dict(database.properties), "comment": database.comment})


def database_of(text: str) -> CatalogDatabase:
    """Return the database in a document."""
    found = _content(text)
    return CatalogDatabase(found["properties"], found["comment"])


def function_document(function: CatalogFunction) -> str:
    """Return a user-defined function as JSON."""
    return _text({"target": function.target, "language": function.language})


def function_of(text: str) -> CatalogFunction:
    """Return the function in a document."""
    found = _content(text)
    return CatalogFunction(found["target"], found["language"])


def table_document(table: CatalogBaseTable) -> str:
    """Return a table or view as JSON. Raises `ValidationError` if it has no SQL text, such as a Table API view."""
    if isinstance(table, InlineView):
        raise ValidationError(
            "a view that the Table API made has no text, so no file can hold it: make it temporary, or with CREATE VIEW"
        )
    content: dict[str, Any] = {
        "kind": "VIEW" if table.is_view else "TABLE",
        "columns": [_column(one) for one in table.schema.columns],
        "watermarks": [{"column": one.column, "as": sql_of(one.expression)} for one in table.schema.watermarks],
        "primary_key": list(table.schema.primary_key),
        "primary_key_name": table.schema.primary_key_name,
        "options": dict(table.options),
        "comment": table.comment,
        "partitioned_by": list(table.partition_keys),
    }
    if table.distribution is not None:
        one = table.distribution
        content["distribution"] = {"kind": one.kind, "columns": list(one.columns), "buckets": one.buckets}
    if table.is_view:
        content |= {"query": table.query, "place": None if table.place is None else list(table.place)}
    text = _text(content)
    _check(table, text)
    return text


def _check(table: CatalogBaseTable, text: str) -> None:
    """Raise `ValidationError` if the document does not read back with the same columns."""
    try:
        found = table_of(text)
        is_same = _text_of_columns(found) == _text_of_columns(table)
    except PenstockError as error:
        raise ValidationError(f"a file cannot hold this table: {error}") from error
    if not is_same:
        raise ValidationError("a file cannot hold this table: a type or expression of it has no text in SQL")


def _text_of_columns(table: CatalogBaseTable) -> list[dict[str, Any]]:
    return [_column(one) for one in table.schema.columns]


def table_of(text: str) -> CatalogBaseTable:
    """Return the table or view in a document."""
    found = _content(text)
    columns = tuple(_column_of(one) for one in found["columns"])
    marks = tuple(UnresolvedWatermark(one["column"], expression_of(one["as"])) for one in found["watermarks"])
    spread = found.get("distribution")
    place = found.get("place")
    return CatalogBaseTable(
        Schema(columns, marks, tuple(found["primary_key"]), found["primary_key_name"]),
        found["options"],
        found["comment"],
        tuple(found["partitioned_by"]),
        None if spread is None else Distribution(spread["kind"], tuple(spread["columns"]), spread["buckets"]),
        found.get("query"),
        None if place is None else (place[0], place[1]),
    )


def _column(column: UnresolvedColumn) -> dict[str, Any]:
    found: dict[str, Any] = {"name": column.name}
    if column.data_type is not None:
        found["type"] = str(column.data_type)
    if column.expression is not None:
        found["as"] = sql_of(column.expression)
    if column.is_metadata:
        found |= {"metadata": column.metadata_key, "virtual": column.is_virtual}
    return found if column.comment is None else {**found, "comment": column.comment}


def _column_of(found: dict[str, Any]) -> UnresolvedColumn:
    return UnresolvedColumn(
        found["name"],
        type_of(found["type"]) if "type" in found else None,
        expression_of(found["as"]) if "as" in found else None,
        "metadata" in found,
        found.get("metadata"),
        found.get("virtual", False),
        found.get("comment"),
    )


def _text(content: dict[str, Any]) -> str:
    return json.dumps({"version": VERSION, **content}, indent=2, ensure_ascii=False) + "\n"


def _content(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValidationError(f"it is no JSON: {error}") from error
    if not isinstance(found, dict) or found.get("version") != VERSION:
        raise ValidationError(f"it is no document of version {VERSION}, which this release reads")
    return found
