"""The types that a sink column accepts, and type comparison without NOT NULL."""

from __future__ import annotations

from penstock.table.data.logical_types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    LocalZonedTimestampType,
    MapType,
    MultisetType,
    NumericType,
    RowField,
    RowType,
    StructuredType,
    TimestampType,
    TimeType,
)
from penstock.table.functions.type_rules import can_cast_implicitly


def accepts(source: DataType, to: DataType) -> bool:
    """Return whether values of one type can be written into a column of another without an explicit cast."""
    if isinstance(source, NumericType) and isinstance(to, DecimalType):
        return True
    if isinstance(source, TimestampType | LocalZonedTimestampType) and isinstance(to, DateType | TimeType):
        return isinstance(source, TimestampType)
    if type(source) is type(to) and isinstance(to, ArrayType | MapType | RowType):
        mine, wanted = list(source.children()), list(to.children())
        return len(mine) == len(wanted) and all(map(accepts, mine, wanted))
    return can_cast_implicitly(source, to)


def without_not_null(data_type: DataType) -> DataType:
    """Return the type made nullable at every level. Field names are kept."""
    match data_type:
        case MultisetType(element_type=element):
            return MultisetType(without_not_null(element))
        case ArrayType(element_type=element) if type(data_type) is ArrayType:
            return ArrayType(without_not_null(element))
        case MapType(key_type=key, value_type=item) if type(data_type) is MapType:
            return MapType(without_not_null(key), without_not_null(item))
        case RowType(fields=fields):
            inner = [RowField(field.name, without_not_null(field.data_type), field.description) for field in fields]
            named = isinstance(data_type, StructuredType)
            return StructuredType(data_type.class_name, inner) if named else RowType(inner)  # type: ignore[attr-defined]
        case _:
            return data_type.nullable()
