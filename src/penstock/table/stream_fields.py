"""Field expressions of a stream: `col("a"), col("b").alias("c"), col("t").rowtime`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.table.catalog.schema import Schema
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import TimestampType
from penstock.table.seams.from_stream import ROWTIME, RecordType
from penstock.table.selection import operand_of
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


def schema_of(fields: Sequence[object], records: RecordType) -> tuple[Schema, RecordType]:
    """Return the schema that field expressions declare, and the record type with its fields renamed accordingly.

    The expressions refer to fields by name, in any order, each with an optional alias. If none of them names a field,
    they are new names for the fields by position. `rowtime` creates an event-time attribute from record timestamps, and
    `proctime` a processing-time attribute.

    Raises:
        ValidationError: for any other expression, or more names than fields.
    """
    found = [_named(field) for field in fields]
    physical = [one for one in found if one.time is None]
    by_name = any(one.field in records.names for one in physical)
    renamed = _by_name(physical, records) if by_name else _by_place(found, records)
    builder = Schema.new_builder()
    for one in found:
        if one.time == "rowtime":
            builder.column_by_metadata(one.name, ROWTIME_TYPE, ROWTIME).watermark(one.name, "SOURCE_WATERMARK()")
        elif one.time is not None:
            builder.column_by_expression(one.name, "PROCTIME()")
        else:
            builder.column(one.name, renamed.of(one.name))
    return builder.build(), renamed


def _by_name(physical: Sequence[_Named], records: RecordType) -> RecordType:
    new = {}
    for one in physical:
        records.of(one.field)
        new[one.field] = one.name
    return RecordType(
        tuple(new.get(name, name) for name in records.names), records.types, records.is_record, records.is_known
    )


def _by_place(found: Sequence[_Named], records: RecordType) -> RecordType:
    """Rename fields by position.

    An event-time attribute may replace a field; other time attributes follow all fields.
    """
    names = list(records.names)
    for place, one in enumerate(found):
        if place < len(names):
            if one.time == "proctime":
                raise ValidationError(
                    "The proctime attribute can only be appended to the fields of a stream, at the end"
                )
            names[place] = f"${names[place]}" if one.time is not None else one.name
        elif one.time is None:
            raise ValidationError(
                f"The stream has {len(names)} fields, [{', '.join(records.names)}], and none is left for {one.name!r}"
            )
    return RecordType(tuple(names), records.types, records.is_record, records.is_known)


def _named(field: object) -> _Named:
    operand = operand_of(field)
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
