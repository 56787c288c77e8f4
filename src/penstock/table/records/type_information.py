"""Converts record types to column types and back, like Flink's `TypeInfoDataTypeConverter`."""

from __future__ import annotations

from typing import Any, Final

from penstock.base.basic_types import (
    BasicType,
    BasicTypeInfo,
    DateTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TypeInformation,
)
from penstock.base.composite_types import (
    BasicArrayTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
)
from penstock.table.data import logical_types as types
from penstock.table.data.logical_types import DataType, RowField, RowType

_BASIC: Final[dict[BasicType, DataType]] = {
    BasicType.STRING: types.VarCharType(types.LENGTH_MAX),
    BasicType.BOOLEAN: types.BooleanType(False),
    BasicType.BYTE: types.TinyIntType(False),
    BasicType.SHORT: types.SmallIntType(False),
    BasicType.INT: types.IntType(False),
    BasicType.LONG: types.BigIntType(False),
    BasicType.FLOAT: types.FloatType(False),
    BasicType.DOUBLE: types.DoubleType(False),
    BasicType.BIG_DEC: types.DecimalType(38, 18),
    BasicType.INSTANT: types.LocalZonedTimestampType(9),
}
_OF_TYPE: Final[dict[type[DataType], BasicType]] = {type(kind): basic for basic, kind in _BASIC.items()}


class ExternalTypeInfo(TypeInformation):
    """The type of table values without an equivalent in `Types`.

    Attributes:
        data_type: the column's type.
    """

    __slots__ = ("data_type",)

    def __init__(self, data_type: DataType) -> None:
        self.data_type = data_type

    def accepts(self, value: Any) -> bool:
        """Return whether a value is allowed: None if the type is nullable. The table has checked all other values."""
        return value is not None or self.data_type.is_nullable

    def _key(self) -> tuple[Any, ...]:
        return (self.data_type,)

    def __repr__(self) -> str:
        return f"ExternalTypeInfo({self.data_type})"

    def __str__(self) -> str:
        return str(self.data_type)


def to_data_type(info: TypeInformation) -> DataType:
    """Return the column type of a record type; RAW for types that only Python knows.

    As in Flink, numbers and booleans are never NULL by themselves and in tuples, but fields of rows may be.
    """
    match info:
        case ExternalTypeInfo(data_type=data_type):
            return data_type
        case BasicTypeInfo(basic_type=basic) if basic in _BASIC:
            return _BASIC[basic]
        case DateTypeInfo():
            return types.DateType()
        case TimeTypeInfo():
            return types.TimeType(0)
        case TimestampTypeInfo():
            return types.TimestampType(9)
        case RowTypeInfo():
            pairs = zip(info.get_field_names(), info.get_field_types(), strict=True)
            return RowType([RowField(name, to_data_type(field_type).nullable()) for name, field_type in pairs], False)
        case TupleTypeInfo():
            fields = [
                RowField(f"f{index}", to_data_type(field_type))
                for index, field_type in enumerate(info.get_field_types())
            ]
            return RowType(fields, False)
        case PrimitiveArrayTypeInfo(element_type=BasicTypeInfo(basic_type=BasicType.BYTE)):
            return types.VarBinaryType(types.LENGTH_MAX, False)
        case PrimitiveArrayTypeInfo(element_type=element) | ListTypeInfo(element_type=element):
            return types.ArrayType(to_data_type(element), False)
        case BasicArrayTypeInfo(element_type=element) | ObjectArrayTypeInfo(element_type=element):
            return types.ArrayType(to_data_type(element).nullable(), False)
        case MapTypeInfo(key_type_info=key, value_type_info=item):
            return types.MapType(to_data_type(key), to_data_type(item).nullable(), False)
        case _:
            return types.RawType("object", "", True)


def to_type_info(data_type: DataType) -> TypeInformation:
    """Return the record type of a column type. `to_data_type` inverts it."""
    nearest = _nearest(data_type)
    is_same = to_data_type(nearest).nullable() == data_type.nullable()
    return nearest if is_same else ExternalTypeInfo(data_type)


def _nearest(data_type: DataType) -> TypeInformation:
    """Return the closest of `Types`."""
    if isinstance(data_type, types.DateType):
        return DateTypeInfo()
    if type(data_type) is RowType:
        return row_type_info(data_type.field_names(), data_type.field_types())
    basic = _OF_TYPE.get(type(data_type))
    # A TIMESTAMP_LTZ value leaves a table as a datetime, but `Types.INSTANT` is another class.
    if basic is None or basic is BasicType.INSTANT:
        return ExternalTypeInfo(data_type)
    return BasicTypeInfo(basic)


def row_type_info(names: list[str], data_types: list[DataType]) -> RowTypeInfo:
    """Return the type of rows with these columns."""
    return RowTypeInfo([to_type_info(data_type) for data_type in data_types], names)
