"""Conversion of streams to tables, of tables to streams, and of Spark data frames to a record type.

`plan_stream_table` determines the columns of a table from the records and the declared schema. `append_target` and its
like determine the records of a plan's rows. `frame_type` converts the columns of a data frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.base.errors import WrongTypeError
from penstock.base.typeinfo import PickledBytesTypeInfo, RowTypeInfo, TupleTypeInfo, TypeInformation, Types
from penstock.base.types import RowKind
from penstock.plan.transformation import Upstream
from penstock.sql.analyzer.calls import Calls
from penstock.sql.analyzer.select import project
from penstock.sql.catalogs.columns import Column, ColumnKind, ResolvedSchema, Schema, UnresolvedColumn, resolve
from penstock.sql.catalogs.manager import with_computed
from penstock.sql.data.arrow import logical_type
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DataType, LocalZonedTimestampType, RawType, RowField, RowType, TimestampType
from penstock.sql.functions.type_rules import can_cast_implicitly
from penstock.sql.logical.nodes import ALL, INSERTS, Changes, Node, PlanColumn, RowSchema, StreamRows, TimeAttribute
from penstock.sql.logical.records import ChangelogMode, Form, RecordLayout, RecordShape, row_type_info, to_data_type
from penstock.sql.stream.bridge import RecordStream, RecordTarget
from penstock.sql.typed import Typed

#: the name of the single column of a stream whose records do not have fields
SINGLE = "f0"
#: the only metadata column of records: their timestamp
ROWTIME = "rowtime"


@dataclass(frozen=True)
class RecordType:
    """The fields of a stream's records. `is_known`: whether the stream itself declares them."""

    names: tuple[str, ...]
    types: tuple[DataType, ...]
    is_record: bool
    is_known: bool = True

    def of(self, name: str) -> DataType:
        """Return the type of a field. Raises `ValidationError` if it does not exist."""
        if name not in self.names:
            raise ValidationError(
                f"Unable to find a field named '{name}' in the physical data type derived from the given type "
                "information for schema declaration. Make sure that the type information is not a generic raw type. "
                f"Currently available fields are: [{', '.join(self.names)}]"
            )
        return self.types[self.names.index(name)]


def record_type(type_info: TypeInformation | None, schema: Schema | None = None) -> RecordType:
    """Return the fields of records of a type.

    The schema describes the records of a stream without a declared type: rows, tuples or dicts of its columns, or
    values of the type of a single column f0.
    """
    if type_info is None or isinstance(type_info, PickledBytesTypeInfo):
        declared = [] if schema is None else [column for column in schema.columns if is_physical(column)]
        names = tuple(column.name for column in declared)
        types = tuple(column.data_type for column in declared if column.data_type is not None)
        if names and names != (SINGLE,):
            return RecordType(names, types, True, False)
        return RecordType((SINGLE,), types or (RawType(),), False, False)
    data_type = to_data_type(type_info)
    if isinstance(data_type, RowType):
        return RecordType(tuple(data_type.field_names()), tuple(data_type.field_types()), True)
    return RecordType((SINGLE,), (data_type,), False)


def is_physical(column: UnresolvedColumn) -> bool:
    """Return whether a column is a field of a record."""
    return column.data_type is not None and not column.is_metadata


def plan_stream_table(
    upstreams: tuple[Upstream, ...],
    records: RecordType,
    schema: Schema | None,
    calls: Calls,
    mode: ChangelogMode | None = None,
    rowtime: DataType | None = None,
) -> tuple[Node, ResolvedSchema]:
    """Return the plan that reads a stream as a table, and the table's schema.

    Args:
        upstreams: the stream.
        records: the fields of its records.
        schema: the declared schema.
        calls: builds casts.
        mode: the row kinds that may occur.
        rowtime: the type of timestamps; TIMESTAMP_LTZ(3) by default.

    Raises:
        ValidationError: for a column that the stream does not have.
    """
    resolved = resolve(_merged(records, schema), calls)
    fields = [column for column in resolved.columns if column.kind is ColumnKind.PHYSICAL]
    has_rowtime = _check_metadata(resolved.columns)
    moment = (rowtime or LocalZonedTimestampType(3)).not_null() if has_rowtime else None
    layout = RecordLayout(
        tuple(column.name for column in fields),
        tuple(column.data_type for column in fields),
        tuple(records.names.index(column.name) for column in fields),
        len(records.names),
        records.is_record,
        moment,
    )
    columns = [PlanColumn(column.name, column.data_type) for column in fields]
    columns += [PlanColumn(f"${ROWTIME}", moment)] if moment is not None else []
    plan = _rows(RecordStream(upstreams, layout, _kinds(mode)), columns, resolved, mode or ChangelogMode.insert_only())
    return _chosen(with_computed(_stored(plan, resolved, calls), resolved), schema), _declare(resolved, schema)


def _merged(records: RecordType, schema: Schema | None) -> Schema:
    """Return all record fields, then the schema's other columns, which may be computed from fields that it omits.

    Fields that the schema declares have their declared types.
    """
    if schema is None:
        return Schema(tuple(map(UnresolvedColumn, records.names, records.types)))
    declared = {column.name: column for column in filter(is_physical, schema.columns)}
    for name in declared:
        records.of(name)
    fields = [
        declared.get(name) or UnresolvedColumn(name, kind)
        for name, kind in zip(records.names, records.types, strict=True)
    ]
    non_physical = [column for column in schema.columns if not is_physical(column)]
    return replace(schema, columns=(*fields, *non_physical))


def _chosen(plan: Node, schema: Schema | None) -> Node:
    """Select the columns of the schema, in its order, if it declares any fields."""
    if schema is None or not any(map(is_physical, schema.columns)):
        return plan
    names = [column.name for column in schema.columns]
    if names == plan.schema.names:
        return plan
    return project(plan, [plan.schema.field(plan.schema.names.index(name)) for name in names], names)


def _declare(resolved: ResolvedSchema, schema: Schema | None) -> ResolvedSchema:
    """Return the columns of the schema, in its order, if it declares any fields."""
    if schema is None or not any(map(is_physical, schema.columns)):
        return resolved
    by_name = {column.name: column for column in resolved.columns}
    return replace(resolved, columns=tuple(by_name[column.name] for column in schema.columns))


def _check_metadata(columns: Sequence[Column]) -> bool:
    metadata_columns = [column for column in columns if column.kind is ColumnKind.METADATA]
    for column in metadata_columns:
        key = column.metadata_key or column.name
        if key != ROWTIME:
            raise ValidationError(
                f"Invalid metadata key '{key}' in column '{column.name}' of a stream: a stream has the following "
                f"metadata: {ROWTIME}"
            )
    return bool(metadata_columns)


def _kinds(mode: ChangelogMode | None) -> bytes:
    kinds = {RowKind.INSERT} if mode is None else mode.kinds
    return bytes(kind.value for kind in RowKind if kind in kinds)


def _rows(
    stream: RecordStream, columns: Sequence[PlanColumn], resolved: ResolvedSchema, mode: ChangelogMode
) -> StreamRows:
    names = [column.name for column in columns]
    key = () if resolved.primary_key is None else tuple(names.index(name) for name in resolved.primary_key.columns)
    changes = INSERTS
    changes |= Changes.UPDATE if mode.contains(RowKind.UPDATE_AFTER) else INSERTS
    changes |= Changes.DELETE if mode.contains(RowKind.DELETE) else INSERTS
    has_before = mode.contains(RowKind.UPDATE_BEFORE)
    is_upsert = not has_before and Changes.UPDATE in changes
    if is_upsert and not key:
        raise ValidationError(
            "A stream of changes without the rows before updates needs a primary key: declare one in the schema with "
            "primary_key(…)"
        )
    title = ", ".join(upstream.transformation.display_name for upstream in stream.upstreams)
    return StreamRows(
        schema=RowSchema(tuple(columns)),
        stream=stream,
        title=title,
        changes=changes,
        has_before=has_before,
        key=key,
        is_upsert=is_upsert,
    )


def _stored(plan: StreamRows, resolved: ResolvedSchema, calls: Calls) -> Node:
    """Return fields and metadata in the order of the schema."""
    stored = [column for column in resolved.columns if column.kind is not ColumnKind.COMPUTED]
    if not any(column.kind is ColumnKind.METADATA for column in stored):
        return plan
    fields = {column.name: plan.schema.field(index) for index, column in enumerate(plan.schema)}
    expressions: list[Typed] = [
        calls.implicit(fields[f"${ROWTIME}"], column.data_type)
        if column.kind is ColumnKind.METADATA
        else fields[column.name]
        for column in stored
    ]
    return project(plan, expressions, [column.name for column in stored])


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


def frame_type(frame: Any) -> RowTypeInfo:
    """Return the type of a data frame's rows. Raises `UnsupportedError` for a column that tables do not support."""
    from penstock.drivers.spark.frames import arrow_schema  # imports PySpark

    schema = arrow_schema(frame.schema)
    return row_type_info(schema.names, [logical_type(column_type) for column_type in schema.types])
