"""Converts tables to streams: determines the records of a plan's rows."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.base.composite_types import TupleTypeInfo
from penstock.base.errors import WrongTypeError
from penstock.base.typeinfo import RowTypeInfo, TypeInformation, Types
from penstock.base.types import RowKind
from penstock.table.analyser.calls import Calls
from penstock.table.analyser.select import project
from penstock.table.catalog.columns import Column, ColumnKind
from penstock.table.catalog.resolution import resolve
from penstock.table.catalog.schema import Schema, UnresolvedColumn
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import (
    DataType,
    LocalZonedTimestampType,
    RawType,
    RowField,
    RowType,
    TimestampType,
)
from penstock.table.functions.type_rules import can_cast_implicitly
from penstock.table.plan.changes import ALL, INSERTS, Changes
from penstock.table.plan.logical import Node
from penstock.table.plan.row_schema import PlanColumn, RowSchema, TimeAttribute
from penstock.table.records.changelog_mode import ChangelogMode
from penstock.table.records.shapes import Form, RecordShape
from penstock.table.records.type_information import row_type_info, to_data_type
from penstock.table.seams.from_stream import ROWTIME, SINGLE, is_physical
from penstock.table.streaming.records.record_target import RecordTarget
from penstock.table.typed.nodes import Typed


def rows_target(plan: Node) -> RecordTarget:
    """Return the target for rows with the columns of an append-only plan."""
    names, types = plan.schema.names, plan.schema.types
    return RecordTarget(
        plan,
        plan.schema,
        RecordShape(tuple(types), tuple(range(len(types))), tuple(names)),
        row_type_info(names, types),
        rowtime=find_rowtime(plan.schema),
    )


def find_rowtime(schema: RowSchema) -> int | None:
    """Return the index of the event time, if any. Raises `ValidationError` if there are several."""
    indices = [index for index, column in enumerate(schema) if column.time is TimeAttribute.ROWTIME]
    if len(indices) > 1:
        names = ", ".join(schema.names[index] for index in indices)
        raise ValidationError(
            f"Found more than one rowtime field: [{names}] in the query when it is made a stream. Please select the "
            "rowtime field that should be used as event-time timestamp for the DataStream by casting all other fields "
            "to TIMESTAMP."
        )
    return indices[0] if indices else None


def _kept_time(index: int | None, columns: Sequence[Column]) -> int | None:
    """Return the index if the column there is also a timestamp in the stream."""
    if index is None or index >= len(columns):
        return None
    return index if isinstance(columns[index].data_type, TimestampType | LocalZonedTimestampType) else None


# --- changelogs ------------------------------------------------------------------------------------------------------


def changelog_target(plan: Node, schema: Schema | None, mode: ChangelogMode | None, calls: Calls) -> RecordTarget:
    """Return the target for rows with row kinds, in the columns of a schema.

    Raises:
        ValidationError: for columns that do not match the plan's, or updates without a primary key.
    """
    changelog_mode = mode or ChangelogMode.all()
    changes = INSERTS
    changes |= Changes.UPDATE if changelog_mode.contains(RowKind.UPDATE_AFTER) else INSERTS
    changes |= Changes.DELETE if changelog_mode.contains(RowKind.DELETE) else INSERTS
    wants_before = changelog_mode.contains(RowKind.UPDATE_BEFORE) or changes == INSERTS
    resolved = resolve(_sink_schema(plan.schema, schema), calls)
    columns = [column for column in resolved.columns if column.is_persisted()]
    rowtime = _kept_time(find_rowtime(plan.schema), columns)
    plan = _cast(plan, columns, calls)
    times = [index for index, column in enumerate(columns) if column.kind is ColumnKind.METADATA]
    fields = [index for index in range(len(columns)) if index not in times]
    names = [columns[index].name for index in fields]
    keys = () if resolved.primary_key is None else resolved.primary_key.columns
    key = tuple(index for index, column in enumerate(columns) if column.name in keys)
    if not wants_before and not key:
        raise ValidationError(
            "A changelog without the rows before updates needs a primary key: declare one in the target schema with "
            "primary_key(…), or use ChangelogMode.all()"
        )
    types = [column.data_type for column in columns]
    return RecordTarget(
        plan,
        RowSchema(tuple(PlanColumn(column.name, column.data_type) for column in columns)),
        RecordShape(tuple(types), tuple(fields), tuple(names)),
        row_type_info(names, [types[index] for index in fields]),
        changes,
        wants_before,
        times[0] if times else rowtime,
        key,
    )


def _sink_schema(columns: RowSchema, schema: Schema | None) -> Schema:
    """Return the schema, completed with the table's columns if it declares no fields.

    The metadata column then takes a last column with a timestamp, so that the schema of `from_changelog_stream` also
    works in this direction.
    """
    table_columns = tuple(UnresolvedColumn(column.name, column.type) for column in columns)
    if schema is None:
        return Schema(table_columns)
    for column in schema.columns:
        if column.is_metadata and (column.metadata_key or column.name) != ROWTIME:
            raise ValidationError(
                f"Invalid metadata key '{column.metadata_key or column.name}' in column '{column.name}' of a stream: a "
                f"stream has the following metadata: {ROWTIME}"
            )
    written = [column for column in schema.columns if column.is_metadata and not column.is_virtual]
    if len(written) > 1:
        raise ValidationError(
            f"A record has one timestamp, and {', '.join(column.name for column in written)} write it"
        )
    declared = tuple(column for column in schema.columns if column.expression is None)
    if any(map(is_physical, declared)):
        return Schema(declared, (), schema.primary_key, schema.primary_key_name)
    is_time = table_columns and isinstance(columns[-1].type, TimestampType | LocalZonedTimestampType)
    physical = table_columns[:-1] if written and is_time else table_columns
    return Schema((*physical, *declared), (), schema.primary_key, schema.primary_key_name)


def _cast(plan: Node, columns: Sequence[Column], calls: Calls) -> Node:
    """Cast the columns of a plan, by index, to those of a schema."""
    if len(columns) != len(plan.schema):
        raise _mismatch("Different number of columns.", plan.schema.row_type(), columns)
    expressions: list[Typed] = []
    for field, column in zip(plan.schema.fields(), columns, strict=True):
        target = column.data_type
        if not can_cast_implicitly(field.type, target):
            cause = f"Incompatible types for sink column '{column.name}'."
            raise _mismatch(cause, plan.schema.row_type(), columns)
        is_same = field.type.nullable() == target.nullable()
        expressions.append(
            field if is_same else calls.implicit(field, target if field.type.is_nullable else target.not_null())
        )
    names = [column.name for column in columns]
    return (
        plan
        if expressions == plan.schema.fields() and names == plan.schema.names
        else project(plan, expressions, names)
    )


def _mismatch(cause: str, query: RowType, columns: Sequence[Column]) -> ValidationError:
    sink = ", ".join(f"{column.name}: {column.data_type}" for column in columns)
    query_fields = ", ".join(f"{field.name}: {field.data_type}" for field in query.fields)
    return ValidationError(
        f"Column types of query result and sink for the stream do not match.\nCause: {cause}\n\n"
        f"Query schema: [{query_fields}]\nSink schema:  [{sink}]"
    )


# --- the older conversions -------------------------------------------------------------------------------------------


def append_target(plan: Node, type_info: TypeInformation, calls: Calls) -> RecordTarget:
    """Return the target for records of a type from an append-only plan."""
    return _typed(plan, type_info, calls, False)


def retract_target(plan: Node, type_info: TypeInformation, calls: Calls) -> RecordTarget:
    """Return the target for pairs of a flag and a record of a type: true for an addition, false for a retraction."""
    return _typed(plan, type_info, calls, True)


def _typed(plan: Node, type_info: TypeInformation, calls: Calls, has_flag: bool) -> RecordTarget:
    if not isinstance(type_info, TypeInformation):
        raise WrongTypeError(f"the type of records is one of penstock.common.Types, not {type_info!r}")
    form, row = _form(type_info)
    if len(row.fields) != len(plan.schema):
        raise ValidationError(
            f"Requested result type is an atomic or composite type of {len(row.fields)} fields, but the query has "
            f"{len(plan.schema)}: [{', '.join(plan.schema.names)}]"
        )
    columns = [Column.physical(field.name, _as_found(field.data_type, actual)) for field, actual in _pairs(row, plan)]
    rowtime = _kept_time(find_rowtime(plan.schema), columns)
    plan = _cast(plan, columns, calls)
    types = tuple(column.data_type for column in columns)
    names = tuple(row.field_names()) if form is Form.ROW else None
    shape = RecordShape(types, tuple(range(len(types))), names, form, has_flag)
    schema = RowSchema(tuple(PlanColumn(column.name, column.data_type) for column in columns))
    info = Types.TUPLE([Types.BOOLEAN(), type_info]) if has_flag else type_info
    accepts = ALL if has_flag else INSERTS
    return RecordTarget(plan, schema, shape, info, accepts, True, rowtime)


def _pairs(row: RowType, plan: Node) -> list[tuple[RowField, DataType]]:
    return list(zip(row.fields, plan.schema.types, strict=True))


def _as_found(wanted: DataType, actual: DataType) -> DataType:
    """Return the wanted type. RAW, for values that only Python knows, accepts any type."""
    return actual if isinstance(wanted, RawType) else wanted


def _form(type_info: TypeInformation) -> tuple[Form, RowType]:
    if isinstance(type_info, RowTypeInfo | TupleTypeInfo):
        row = to_data_type(type_info)
        assert isinstance(row, RowType)
        return Form.ROW if isinstance(type_info, RowTypeInfo) else Form.TUPLE, row
    return Form.SINGLE, RowType([RowField(SINGLE, to_data_type(type_info))])
