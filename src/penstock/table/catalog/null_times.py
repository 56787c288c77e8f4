"""The options for rows with a NULL event time: they fail the job, are dropped, or are routed into another table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Protocol

from penstock.base.config_options import ConfigOption
from penstock.base.value_types import STRING, choice
from penstock.table.catalog.objects import CatalogBaseTable
from penstock.table.catalog.sink_plans import Path, Sinks, write_plan
from penstock.table.connectors.table_options import TableOptions
from penstock.table.data.errors import ValidationError
from penstock.table.plan.logical import Node, RejectedRows, Scan, WatermarkAssigner, Write
from penstock.table.plan.row_schema import RowSchema
from penstock.table.sql import SqlParserError, parse_path

NULL_TIME: Final = ConfigOption("scan.watermark.null-time", choice("FAIL", "DROP", "ROUTE"), "FAIL")
NULL_TIME_TABLE: Final = ConfigOption("scan.watermark.null-time.table", STRING, "")


class Tables(Sinks, Protocol):
    """Resolves the table that rows are routed into."""

    def find(self, path: tuple[str, ...]) -> tuple[Path, CatalogBaseTable] | None:
        """Return a table or view with its full path; temporary ones take precedence."""


def with_null_times(plan: Node, scan: Scan, key: Sequence[str], tables: Tables) -> Node:
    """Apply these options of a table to its plan.

    Args:
        plan: the plan of the table.
        scan: its scan.
        key: the names of its primary key columns.
        tables: resolves the other table.

    Raises:
        ValidationError: if an option is invalid, the table has no watermark, or its rows do not fit the other table.
    """
    options = TableOptions(".".join(scan.path), dict(scan.options))
    action = options.read(NULL_TIME)
    if NULL_TIME.key() not in options and NULL_TIME_TABLE.key() in options:
        # With another action the option is unused: a hint may override the action set in WITH.
        raise ValidationError(
            f"option '{NULL_TIME_TABLE.key()}' of table {options.title} needs '{NULL_TIME.key()}' = 'route'"
        )
    if action == "FAIL":
        return plan
    if not isinstance(plan, WatermarkAssigner):
        raise ValidationError(
            f"option '{NULL_TIME.key()}' = '{action.lower()}' of table {options.title} needs an event time, and the "
            "table has no watermark: declare WATERMARK FOR a column, or leave the option out"
        )
    route = _route(plan, scan, key, options, tables) if action == "ROUTE" else None
    return replace(plan, drops_null=True, route=route)


def _route(plan: WatermarkAssigner, scan: Scan, key: Sequence[str], options: TableOptions, tables: Tables) -> Write:
    """Return the plan that writes rejected rows into the other table."""
    path, table = _side_table(scan, options, tables)
    columns = list(plan.schema.without_time())
    columns[plan.column] = replace(columns[plan.column], type=columns[plan.column].type.nullable())
    rows = RejectedRows(
        schema=RowSchema(tuple(columns)),
        table=scan,
        time=plan.column,
        key=tuple(index for index, column in enumerate(columns) if column.name in key),
    )
    where = f"option '{NULL_TIME_TABLE.key()}' of table {options.title}"
    try:
        write = write_plan(tables, path, table, rows)
    except ValidationError as error:
        names = ", ".join(rows.schema.names)
        raise ValidationError(
            f"{where}: rows of {options.title} do not fit table {'.'.join(path)}, which must have a column for each of "
            f"its columns, computed ones included: {names}. {error}"
        ) from error
    time = write.schema[plan.column]
    if not time.type.is_nullable:
        raise ValidationError(
            f"{where}: column '{time.name}' of table {'.'.join(path)} is NOT NULL, but receives NULL event times: "
            "declare it without NOT NULL, and outside of the primary key"
        )
    return write


def _side_table(scan: Scan, options: TableOptions, tables: Tables) -> tuple[Path, CatalogBaseTable]:
    """Return the table that the option names, by default in the database of the table that has the option."""
    where = f"option '{NULL_TIME_TABLE.key()}' of table {options.title}"
    text = options.read(NULL_TIME_TABLE)
    if not text:
        raise ValidationError(
            f"option '{NULL_TIME.key()}' = 'route' of table {options.title} needs '{NULL_TIME_TABLE.key()}', the table "
            "that receives rows with a NULL event time"
        )
    try:
        names = parse_path(text)
    except SqlParserError as error:
        raise ValidationError(f"{where} is not a valid table name: {error}") from error
    entry = tables.find((*scan.path[: max(0, len(scan.path) - len(names))], *names))
    if entry is None:
        raise ValidationError(
            f"{where} names table '{text}', which does not exist: create it with the columns of {options.title}, or "
            f"set '{NULL_TIME.key()}' to 'drop'"
        )
    path, table = entry
    if table.is_view:
        raise ValidationError(f"{where} names view {'.'.join(path)}: rows can only be written into a table")
    if path == scan.path:
        raise ValidationError(f"{where} names the table itself, which would read its rows again: name another table")
    return path, table
