"""Converts streams to tables: determines the columns from the records and the declared schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.base.typeinfo import PickledBytesTypeInfo, TypeInformation
from penstock.base.types import RowKind
from penstock.plan.transformation import Upstream
from penstock.table.analyser.calls import Calls
from penstock.table.analyser.select import project
from penstock.table.catalog.columns import Column, ColumnKind, ResolvedSchema
from penstock.table.catalog.manager import with_computed
from penstock.table.catalog.resolution import resolve
from penstock.table.catalog.schema import Schema, UnresolvedColumn
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import DataType, LocalZonedTimestampType, RawType, RowType
from penstock.table.plan.changes import INSERTS, Changes
from penstock.table.plan.logical import Node, StreamRows
from penstock.table.plan.row_schema import PlanColumn, RowSchema
from penstock.table.records.changelog_mode import ChangelogMode
from penstock.table.records.layout import RecordLayout
from penstock.table.records.type_information import to_data_type
from penstock.table.streaming.records.record_stream import RecordStream
from penstock.table.typed.nodes import Typed

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
) -> Node:
    """Return the plan that reads a stream as a table.

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
    return _chosen(with_computed(_stored(plan, resolved, calls), resolved), schema)


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
