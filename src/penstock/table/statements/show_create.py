"""SHOW CREATE TABLE and VIEW: the statement that creates an existing object."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.table.catalog.columns import Column, ColumnKind
from penstock.table.catalog.inline_view import InlineView
from penstock.table.catalog.objects import CatalogBaseTable
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import (
    LENGTH_MAX,
    ArrayType,
    DataType,
    MapType,
    MultisetType,
    RowType,
    StructuredType,
    VarBinaryType,
    VarCharType,
    literal,
    quoted,
)
from penstock.table.session.session import TableSession
from penstock.table.sql import to_sql
from penstock.table.sql.printing import format_path
from penstock.table.statements.describe import require_table
from penstock.table.statements.results import with_text


def create_table(session: TableSession, path: tuple[str, ...]) -> str:
    """Return the CREATE TABLE statement of a table."""
    target, table = _found(session, path, "TABLE")
    if table.is_view:
        raise ValidationError(
            f"SHOW CREATE TABLE is only supported for tables, but {'.'.join(target)} is a view. Please use SHOW CREATE "
            "VIEW instead."
        )
    lines = [
        f"CREATE {_temporary(session, path)}TABLE {format_path(target)} (",
        ",\n".join(_elements(session, table)),
        ")",
    ]
    if table.comment:
        lines.append(f"COMMENT {literal(table.comment)}")
    if table.distribution is not None:
        kind, keys = table.distribution.kind or "", ", ".join(map(quoted, table.distribution.columns))
        buckets = f"INTO {table.distribution.buckets} BUCKETS" if table.distribution.buckets is not None else ""
        by = f"BY {kind}({keys})" if keys else ""
        lines.append(" ".join(part for part in ("DISTRIBUTED", by, buckets) if part))
    if table.partition_keys:
        lines.append(f"PARTITIONED BY ({', '.join(map(quoted, table.partition_keys))})")
    if table.options:
        lines.append(with_text(dict(sorted(table.options.items()))))
    return "\n".join(lines) + "\n"


def create_view(session: TableSession, path: tuple[str, ...]) -> str:
    """Return the CREATE VIEW statement of a view."""
    target, view = _found(session, path, "VIEW")
    if not view.is_view:
        raise ValidationError(
            f"SHOW CREATE VIEW is only supported for views, but {'.'.join(target)} is a table. Please use SHOW CREATE "
            "TABLE instead."
        )
    if isinstance(view, InlineView):
        raise ValidationError("SHOW CREATE VIEW is not supported for views registered by Table API, which have no text")
    names = ",\n".join(f"  {quoted(column.name)}" for column in view.schema.columns)
    comment = f"COMMENT {literal(view.comment)}\n" if view.comment else ""
    return f"CREATE {_temporary(session, path)}VIEW {format_path(target)} (\n{names}\n)\n{comment}AS {view.query}\n"


def _found(session: TableSession, path: tuple[str, ...], kind: str) -> tuple[tuple[str, str, str], CatalogBaseTable]:
    if session.manager.find(path) is None:
        identifier = ".".join(session.manager.qualified(path))
        raise session.manager.missing(
            f"Could not execute SHOW CREATE {kind}. {kind.capitalize()} with identifier '{identifier}' does not exist.",
            path,
        )
    return require_table(session, path)


def _temporary(session: TableSession, path: tuple[str, ...]) -> str:
    return "TEMPORARY " if session.manager.temporary(path) is not None else ""


def _elements(session: TableSession, table: CatalogBaseTable) -> Iterator[str]:
    schema = session.manager.resolved(table)
    for column in schema.columns:
        comment = f" COMMENT {literal(column.comment)}" if column.comment else ""
        yield f"  {quoted(column.name)} {_definition(column)}{comment}"
    for mark in schema.watermark_specs:
        yield f"  WATERMARK FOR {quoted(mark.rowtime_attribute)} AS {to_sql(mark.written)}"
    if schema.primary_key is not None:
        yield f"  {schema.primary_key}"


def _definition(column: Column) -> str:
    if column.kind is ColumnKind.COMPUTED:
        return str(column.explain_extras())
    extras = column.explain_extras()
    return serial_text(column.data_type) + ("" if extras is None else f" {extras}")


def serial_text(data_type: DataType) -> str:
    """Format a type as catalogs do: STRING and BYTES with their lengths."""
    match data_type:
        case VarCharType(length=length) | VarBinaryType(length=length) if length == LENGTH_MAX:
            text = f"{data_type.root}({LENGTH_MAX})"
        case RowType(fields=fields) if not isinstance(data_type, StructuredType):
            inner = (
                f"{quoted(field.name)} {serial_text(field.data_type)}"
                + ("" if field.description is None else f" {literal(field.description)}")
                for field in fields
            )
            text = f"ROW<{', '.join(inner)}>"
        case ArrayType() | MapType() | MultisetType():
            text = f"{data_type.root}<{', '.join(map(serial_text, data_type.children()))}>"
        case _:
            return str(data_type)
    return text if data_type.is_nullable else f"{text} NOT NULL"
