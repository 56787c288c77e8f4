"""Converts catalog objects to JSON and back. Types and expressions are stored as SQL text."""

from __future__ import annotations

import json
from typing import Any, Final

from penstock.base.errors import PenstockError
from penstock.table.catalog.inline_view import InlineView
from penstock.table.catalog.objects import CatalogBaseTable, CatalogDatabase, CatalogFunction
from penstock.table.catalog.schema import (
    Schema,
    UnresolvedColumn,
    UnresolvedWatermark,
    parse_data_type,
    parse_expression,
)
from penstock.table.data.errors import ValidationError
from penstock.table.sql import to_sql
from penstock.table.sql.statements import Distribution

#: increased when a release changes the document format
VERSION: Final = 1


def database_document(database: CatalogDatabase) -> str:
    """Return a database as JSON."""
    return _text({"properties": dict(database.properties), "comment": database.comment})


def build_catalog_database(text: str) -> CatalogDatabase:
    """Return the database in a document."""
    content = _content(text)
    return CatalogDatabase(content["properties"], content["comment"])


def function_document(function: CatalogFunction) -> str:
    """Return a user-defined function as JSON."""
    return _text({"target": function.target, "language": function.language})


def build_catalog_function(text: str) -> CatalogFunction:
    """Return the function in a document."""
    content = _content(text)
    return CatalogFunction(content["target"], content["language"])


def table_document(table: CatalogBaseTable) -> str:
    """Return a table or view as JSON. Raises `ValidationError` if it has no SQL text, such as a Table API view."""
    if isinstance(table, InlineView):
        raise ValidationError(
            "a view that the Table API made has no text, so no file can hold it: make it temporary, or with CREATE VIEW"
        )
    content: dict[str, Any] = {
        "kind": "VIEW" if table.is_view else "TABLE",
        "columns": [_column(column) for column in table.schema.columns],
        "watermarks": [
            {"column": watermark.column, "as": to_sql(watermark.expression)} for watermark in table.schema.watermarks
        ],
        "primary_key": list(table.schema.primary_key),
        "primary_key_name": table.schema.primary_key_name,
        "options": dict(table.options),
        "comment": table.comment,
        "partitioned_by": list(table.partition_keys),
    }
    if table.distribution is not None:
        distribution = table.distribution
        content["distribution"] = {
            "kind": distribution.kind,
            "columns": list(distribution.columns),
            "buckets": distribution.buckets,
        }
    if table.is_view:
        content |= {"query": table.query, "place": None if table.place is None else list(table.place)}
    text = _text(content)
    _check(table, text)
    return text


def _check(table: CatalogBaseTable, text: str) -> None:
    """Raise `ValidationError` if the document does not read back with the same columns."""
    try:
        parsed = build_catalog_table(text)
        is_same = _text_of_columns(parsed) == _text_of_columns(table)
    except PenstockError as error:
        raise ValidationError(f"a file cannot hold this table: {error}") from error
    if not is_same:
        raise ValidationError("a file cannot hold this table: a type or expression of it has no text in SQL")


def _text_of_columns(table: CatalogBaseTable) -> list[dict[str, Any]]:
    return [_column(column) for column in table.schema.columns]


def build_catalog_table(text: str) -> CatalogBaseTable:
    """Return the table or view in a document."""
    content = _content(text)
    columns = tuple(_to_column(column) for column in content["columns"])
    marks = tuple(
        UnresolvedWatermark(watermark["column"], parse_expression(watermark["as"]))
        for watermark in content["watermarks"]
    )
    spread = content.get("distribution")
    namespace = content.get("place")
    return CatalogBaseTable(
        Schema(columns, marks, tuple(content["primary_key"]), content["primary_key_name"]),
        content["options"],
        content["comment"],
        tuple(content["partitioned_by"]),
        None if spread is None else Distribution(spread["kind"], tuple(spread["columns"]), spread["buckets"]),
        content.get("query"),
        None if namespace is None else (namespace[0], namespace[1]),
    )


def _column(column: UnresolvedColumn) -> dict[str, Any]:
    content: dict[str, Any] = {"name": column.name}
    if column.data_type is not None:
        content["type"] = str(column.data_type)
    if column.expression is not None:
        content["as"] = to_sql(column.expression)
    if column.is_metadata:
        content |= {"metadata": column.metadata_key, "virtual": column.is_virtual}
    return content if column.comment is None else {**content, "comment": column.comment}


def _to_column(content: dict[str, Any]) -> UnresolvedColumn:
    return UnresolvedColumn(
        content["name"],
        parse_data_type(content["type"]) if "type" in content else None,
        parse_expression(content["as"]) if "as" in content else None,
        "metadata" in content,
        content.get("metadata"),
        content.get("virtual", False),
        content.get("comment"),
    )


def _text(content: dict[str, Any]) -> str:
    return json.dumps({"version": VERSION, **content}, indent=2, ensure_ascii=False) + "\n"


def _content(text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ValidationError(f"it is no JSON: {error}") from error
    if not isinstance(content, dict) or content.get("version") != VERSION:
        raise ValidationError(f"it is no document of version {VERSION}, which this release reads")
    return content
