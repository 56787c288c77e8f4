"""Field expressions of a stream: `col("a"), col("b").alias("c"), col("t").rowtime`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.table.catalog.schema import Schema
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import TimestampType
from penstock.table.seams.from_stream import ROWTIME, RecordType
from penstock.table.selection import to_operand
from penstock.table.sql import syntax

_TIMES: Final = {"$ROWTIME": "rowtime", "$PROCTIME": "proctime"}
#: the type of a time attribute that `rowtime` creates from record timestamps
ROWTIME_TYPE: Final = TimestampType(3)


@dataclass(frozen=True)
class _Named:
    """A field expression: the referenced field, the name of its column, and the kind of its time attribute, if any."""

    field: str
    name: str
    time: str | None


def derive_schema(fields: Sequence[object], records: RecordType) -> tuple[Schema, RecordType]:
    """Return the schema that field expressions declare, and the record type with its fields renamed accordingly.

    The expressions refer to fields by name, in any order, each with an optional alias. If none of them names a field,
    they are new names for the fields by position. `rowtime` creates an event-time attribute from record timestamps, and
    `proctime` a processing-time attribute.

    Raises:
        ValidationError: for any other expression, or more names than fields.
    """
    columns = [_named(field) for field in fields]
    physical = [named for named in columns if named.time is None]
    by_name = any(named.field in records.names for named in physical)
    renamed = _by_name(physical, records) if by_name else _by_place(columns, records)
    builder = Schema.new_builder()
    for column in columns:
        if column.time == "rowtime":
            builder.column_by_metadata(column.name, ROWTIME_TYPE, ROWTIME).watermark(column.name, "SOURCE_WATERMARK()")
        elif column.time is not None:
            builder.column_by_expression(column.name, "PROCTIME()")
        else:
            builder.column(column.name, renamed.of(column.name))
    return builder.build(), renamed


def _by_name(physical: Sequence[_Named], records: RecordType) -> RecordType:
    new = {}
    for column in physical:
        records.of(column.field)
        new[column.field] = column.name
    return RecordType(
        tuple(new.get(name, name) for name in records.names), records.types, records.is_record, records.is_known
    )


def _by_place(columns: Sequence[_Named], records: RecordType) -> RecordType:
    """Rename fields by position.

    An event-time attribute may replace a field; other time attributes follow all fields.
    """
    names = list(records.names)
    for index, named in enumerate(columns):
        if index < len(names):
            if named.time == "proctime":
                raise ValidationError(
                    "The proctime attribute can only be appended to the fields of a stream, at the end"
                )
            names[index] = f"${names[index]}" if named.time is not None else named.name
        elif named.time is None:
            raise ValidationError(
                f"The stream has {len(names)} fields, [{', '.join(records.names)}], and none is left for {named.name!r}"
            )
    return RecordType(tuple(names), records.types, records.is_record, records.is_known)


def _named(field: object) -> _Named:
    operand = to_operand(field)
    node, time = operand._node, None
    if isinstance(node, syntax.Call) and node.name in _TIMES:
        time = _TIMES[node.name]
        (node,) = node.operands
    if not isinstance(node, syntax.Reference):
        raise ValidationError(
            f"the fields of a stream are columns with or without alias, rowtime and proctime, not {operand}"
        )
    name = operand._names[0] if operand._names else node.path[0]
    return _Named(node.path[0], name, time)
