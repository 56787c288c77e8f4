"""Catalog tables from CREATE TABLE statements, and the options for rows with a NULL event time.

Such rows fail the job, are dropped, or are routed into another table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Protocol

from penstock.base.config_options import STRING, ConfigOption, choice
from penstock.base.errors import UnsupportedError
from penstock.sql.catalogs.catalog import CatalogBaseTable
from penstock.sql.catalogs.columns import Schema, UnresolvedColumn, UnresolvedWatermark
from penstock.sql.catalogs.sinks import Path, Sinks, write_plan
from penstock.sql.data.errors import UnknownNameError, ValidationError
from penstock.sql.logical.nodes import Node, RejectedRows, RowSchema, Scan, WatermarkAssigner, Write
from penstock.sql.parser import SqlParserError, parse_path, statements
from penstock.sql.tables.connector import TableOptions


def build_schema(elements: statements.Elements) -> Schema:
    """Return the schema of the column list. Raises `ValidationError` for schemas that Flink rejects."""
    columns = tuple(_column(column) for column in elements.columns)
    marks = []
    for mark in elements.watermarks:
        if len(mark.column) > 1:
            raise UnsupportedError("a watermark on a field of a row is not supported: make it a computed column")
        marks.append(UnresolvedWatermark(mark.column[0], mark.expression))
    keys = [
        (constraint.columns, constraint.name, constraint.is_enforced)
        for constraint in elements.constraints
        if not constraint.is_unique
    ]
    if len(keys) < len(elements.constraints):
        raise ValidationError("UNIQUE constraint is not supported yet")
    keys += [
        ((column.path[-1],), column.constraint, column.is_enforced) for column in elements.columns if column.is_primary
    ]
    if len(keys) > 1:
        raise ValidationError("Duplicate primary key definition")
    if not keys:
        return Schema(columns, tuple(marks))
    names, title, is_enforced = keys[0]
    if is_enforced is not False:
        raise ValidationError(
            "Flink doesn't support ENFORCED mode for PRIMARY KEY constraint. ENFORCED/NOT ENFORCED controls if the "
            "constraint checks are performed on the incoming/outgoing data. Flink does not own the data therefore the "
            "only supported mode is the NOT ENFORCED mode"
        )
    return Schema(columns, tuple(marks), tuple(names), title or "PK_" + "_".join(names))


def _column(column: statements.Column) -> UnresolvedColumn:
    return UnresolvedColumn(
        column.path[-1],
        column.type,
        column.expression,
        column.is_metadata,
        column.metadata,
        column.is_virtual,
        column.comment,
    )


def build_catalog_table(statement: statements.CreateTable, base: CatalogBaseTable | None = None) -> CatalogBaseTable:
    """Return the table that a statement creates. `base`: the table named in its LIKE clause."""
    schema = build_schema(statement.elements)
    options = dict(statement.options)
    partition = statement.partition_keys
    comment, distribution = statement.comment, statement.distribution
    if base is not None and statement.like is not None:
        schema, options, partition, distribution = _merged(statement, base, schema, options)
        comment = comment if comment is not None else base.comment
    names = [column.name for column in schema.columns]
    for key in partition:
        if key not in names:
            reason = f"Partition column '{key}' not defined in the table schema. Available columns: {names}"
            raise UnknownNameError(reason, name=key)
    physical = [column.name for column in schema.columns if column.data_type is not None and not column.is_metadata]
    for key in () if distribution is None else distribution.columns:
        if key not in physical:
            raise UnknownNameError(
                f"Invalid bucket key '{key}'. A bucket key for a distribution must reference a physical column in the "
                f"schema. Available columns: {physical}",
                name=key,
            )
    return CatalogBaseTable(schema, options, comment, partition, distribution)


#: the parts of a table that LIKE copies, each with its default merging strategy
_LIKE_PARTS = {
    "CONSTRAINTS": "INCLUDING",
    "DISTRIBUTION": "INCLUDING",
    "GENERATED": "INCLUDING",
    "METADATA": "INCLUDING",
    "OPTIONS": "OVERWRITING",
    "PARTITIONS": "INCLUDING",
    "WATERMARKS": "INCLUDING",
}


def _merged(
    statement: statements.CreateTable, base: CatalogBaseTable, schema: Schema, options: dict[str, str]
) -> tuple[Schema, dict[str, str], tuple[str, ...], statements.Distribution | None]:
    assert statement.like is not None
    rules = dict(_LIKE_PARTS)
    overrides = {part: rule for rule, part in statement.like.options}
    if "ALL" in overrides:
        overwritten = ("GENERATED", "METADATA", "OPTIONS", "WATERMARKS")
        for part in rules:
            fits = overrides["ALL"] != "OVERWRITING" or part in overwritten
            rules[part] = overrides["ALL"] if fits else rules[part]
    rules.update({part: rule for part, rule in overrides.items() if part != "ALL"})
    merged = Schema(
        _merged_columns(base.schema.columns, schema.columns, rules),
        _merged_marks(base.schema.watermarks, schema.watermarks, rules["WATERMARKS"]),
        *_merged_key(base.schema, schema, rules["CONSTRAINTS"]),
    )
    partition = statement.partition_keys
    if rules["PARTITIONS"] == "INCLUDING" and base.partition_keys:
        if partition:
            raise ValidationError(
                "The base table already has partitions defined. You might want to specify EXCLUDING PARTITIONS."
            )
        partition = base.partition_keys
    distribution = statement.distribution
    if rules["DISTRIBUTION"] == "INCLUDING" and base.distribution is not None:
        if distribution is not None:
            raise ValidationError(
                "The base table already has a distribution defined. You might want to specify EXCLUDING DISTRIBUTION."
            )
        distribution = base.distribution
    return merged, _merged_options(base.options, options, rules["OPTIONS"]), partition, distribution


def _merged_options(base: object, own: dict[str, str], rule: str) -> dict[str, str]:
    theirs = dict(base) if rule != "EXCLUDING" else {}  # type: ignore[call-overload]
    if rule == "INCLUDING":
        for key in own:
            if key in theirs:
                raise ValidationError(
                    f"There already exists an option ['{key}' -> '{theirs[key]}'] in the base table. "
                    "You might want to specify EXCLUDING OPTIONS or OVERWRITING OPTIONS."
                )
    return {**theirs, **own}


def _merged_columns(
    base: Sequence[UnresolvedColumn], own: Sequence[UnresolvedColumn], rules: dict[str, str]
) -> tuple[UnresolvedColumn, ...]:
    merged: dict[str, UnresolvedColumn] = {}
    for column in base:
        if rules.get(_find_like_feature(column), "INCLUDING") != "EXCLUDING":
            merged[column.name] = column
    for column in own:
        part = _find_like_feature(column)
        existing = merged.get(column.name)
        if existing is not None and not (_find_like_feature(existing) == part and rules.get(part) == "OVERWRITING"):
            raise ValidationError(f"A column named '{column.name}' already exists in the base table.")
        merged[column.name] = column
    return tuple(merged.values())


def _find_like_feature(column: UnresolvedColumn) -> str:
    return "METADATA" if column.is_metadata else "GENERATED" if column.expression is not None else ""


def _merged_marks(
    base: tuple[UnresolvedWatermark, ...], own: tuple[UnresolvedWatermark, ...], rule: str
) -> tuple[UnresolvedWatermark, ...]:
    if rule == "EXCLUDING":
        return own
    names = [mark.column for mark in own]
    for mark in base:
        if mark.column in names and rule == "INCLUDING":
            raise ValidationError(
                f"There already exists a watermark spec for column '{mark.column}' in the base table."
            )
    return (*(mark for mark in base if mark.column not in names), *own)


def _merged_key(base: Schema, own: Schema, rule: str) -> tuple[tuple[str, ...], str | None]:
    if rule == "EXCLUDING" or not base.primary_key:
        return own.primary_key, own.primary_key_name
    if own.primary_key:
        raise ValidationError(
            "The base table already has a primary key. You might want to specify EXCLUDING CONSTRAINTS."
        )
    return base.primary_key, base.primary_key_name


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
