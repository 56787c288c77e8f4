"""Resolves declared schemas: types of computed columns, time attributes, keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.table.analyser.calls import Calls
from penstock.table.analyser.scalars import ScalarAnalyser
from penstock.table.analyser.scopes import build_scope
from penstock.table.analyser.select import find_time_attribute
from penstock.table.catalog.columns import Column, ColumnKind, ResolvedSchema, UniqueConstraint, WatermarkSpec
from penstock.table.catalog.schema import Schema, UnresolvedWatermark
from penstock.table.data.errors import UnknownNameError, ValidationError
from penstock.table.data.logical_types import LocalZonedTimestampType, TimestampType
from penstock.table.plan.logical import Values
from penstock.table.plan.row_schema import PlanColumn, RowSchema, TimeAttribute
from penstock.table.typed.nodes import Field


def resolve(schema: Schema, calls: Calls) -> ResolvedSchema:
    """Return the resolved schema. Raises `ValidationError` if the schema is inconsistent."""
    columns = [
        Column(
            declared.name,
            declared.data_type,
            ColumnKind.METADATA if declared.is_metadata else ColumnKind.PHYSICAL,
            metadata_key=declared.metadata_key,
            is_virtual=declared.is_virtual,
            comment=declared.comment,
        )
        for declared in schema.columns
        if declared.data_type is not None
    ]
    _check_names([declared.name for declared in schema.columns])
    analyser = ScalarAnalyser(build_scope(_rows(columns), calls), calls)
    stored = {column.name: column for column in columns}
    resolved = []
    for unresolved in schema.columns:
        if unresolved.expression is None:
            resolved.append(stored[unresolved.name])
            continue
        try:
            typed = analyser.typed(unresolved.expression)
        except ValidationError as error:
            raise ValidationError(f"Invalid expression for computed column '{unresolved.name}': {error}") from error
        column = replace(Column.computed(unresolved.name, typed, unresolved.expression), comment=unresolved.comment)
        resolved.append(replace(column, time=find_time_attribute(typed)))
    marks = [_watermark(watermark, resolved, calls) for watermark in schema.watermarks]
    if len(marks) > 1:
        raise ValidationError("Multiple watermark definitions are not supported yet.")
    for mark in marks:
        index = [column.name for column in resolved].index(mark.rowtime_attribute)
        resolved[index] = replace(resolved[index], time=TimeAttribute.ROWTIME)
    key = _primary_key(schema, resolved)
    if key is not None:
        resolved = [
            replace(resolved_column, data_type=resolved_column.data_type.not_null())
            if resolved_column.name in key.columns
            else resolved_column
            for resolved_column in resolved
        ]
    return ResolvedSchema(tuple(resolved), tuple(marks), key)


def row_schema(columns: Sequence[Column]) -> RowSchema:
    """Return the columns as the row schema of a plan."""
    return RowSchema(tuple(PlanColumn(column.name, column.data_type, column.time) for column in columns))


def list_metadata_columns(columns: Sequence[Column]) -> tuple[tuple[int, str], ...]:
    """Return the positions of METADATA columns, each with its key in the connector."""
    return tuple(
        (index, column.metadata_key or column.name)
        for index, column in enumerate(columns)
        if column.kind is ColumnKind.METADATA
    )


def _rows(columns: Sequence[Column]) -> Values:
    return Values(schema=row_schema(columns), rows=())


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValidationError(f"Schema must not contain duplicate column names. Found duplicates: [{name}]")


def _watermark(mark: UnresolvedWatermark, columns: Sequence[Column], calls: Calls) -> WatermarkSpec:
    rowtime = next((column for column in columns if column.name == mark.column), None)
    if rowtime is None:
        names = ", ".join(column.name for column in columns)
        raise UnknownNameError(
            f"Invalid column name '{mark.column}' for rowtime attribute in watermark declaration. "
            f"Available names are: [{names}]",
            name=mark.column,
        )
    if not isinstance(rowtime.data_type, TimestampType | LocalZonedTimestampType) or rowtime.data_type.precision > 3:
        raise ValidationError(
            f"Invalid data type of time field for watermark definition. The field must be of type TIMESTAMP(p) or "
            f"TIMESTAMP_LTZ(p), the supported precision 'p' is from 0 to 3, but the time field type is "
            f"{rowtime.data_type}"
        )
    typed = ScalarAnalyser(build_scope(_rows(columns), calls), calls).typed(mark.expression)
    if not isinstance(typed, Field) and not isinstance(typed.type, TimestampType | LocalZonedTimestampType):
        raise ValidationError(f"Invalid data type of expression for watermark definition: {typed.type}")
    return WatermarkSpec(mark.column, typed, mark.expression)


def _primary_key(schema: Schema, columns: Sequence[Column]) -> UniqueConstraint | None:
    if not schema.primary_key:
        return None
    for name in schema.primary_key:
        matches = [column for column in columns if column.name == name]
        if not matches:
            reason = f"Invalid primary key '{schema.primary_key_name}'. Column '{name}' does not exist."
            raise UnknownNameError(reason, name=name)
        if not matches[0].is_physical():
            raise ValidationError(
                f"Invalid primary key '{schema.primary_key_name}'. Column '{name}' is not a physical column."
            )
    return UniqueConstraint(schema.primary_key_name or "PK_" + "_".join(schema.primary_key), schema.primary_key)
