"""The Arrow type of each logical type.

Arrow has no interval of months, so it is stored as a number. Text and bytes lose their declared length, and times of
day are milliseconds at any precision, as in Flink. The keys of Arrow maps are never NULL, so the keys of maps and
multisets are structs of one field (`penstock.codecs.map_columns`); other programs exchange plain maps. Types that Arrow
lacks are stored as bytes: bitmaps in the portable Roaring format, variants and Python objects as pickles.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from penstock.base.errors import UnsupportedError
from penstock.codecs.arrow_types import DIGITS
from penstock.codecs.map_columns import get_map_key_type, map_type
from penstock.table.data.logical_types import (
    LENGTH_MAX,
    ArrayType,
    BigIntType,
    BinaryType,
    BitmapType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntType,
    LocalZonedTimestampType,
    MapType,
    MultisetType,
    NullType,
    RawType,
    RowField,
    RowType,
    SmallIntType,
    TimestampType,
    TimeType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
    VariantType,
    YearMonthIntervalType,
)

_PLAIN: Final[dict[type[DataType], pa.DataType]] = {
    NullType: pa.null(),
    BooleanType: pa.bool_(),
    TinyIntType: pa.int8(),
    SmallIntType: pa.int16(),
    IntType: pa.int32(),
    BigIntType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    CharType: pa.string(),
    VarCharType: pa.string(),
    BinaryType: pa.binary(),
    VarBinaryType: pa.binary(),
    DateType: pa.date32(),
    TimeType: pa.time32("ms"),
    YearMonthIntervalType: pa.int32(),
    DayTimeIntervalType: pa.duration("ms"),
    RawType: pa.binary(),
    VariantType: pa.binary(),
    BitmapType: pa.binary(),
}
_LOGICAL: Final[dict[pa.DataType, DataType]] = {
    pa.null(): NullType(),
    pa.bool_(): BooleanType(),
    pa.int8(): TinyIntType(),
    pa.int16(): SmallIntType(),
    pa.int32(): IntType(),
    pa.int64(): BigIntType(),
    pa.uint8(): SmallIntType(),
    pa.uint16(): IntType(),
    pa.uint32(): BigIntType(),
    pa.uint64(): DecimalType(20, 0),
    pa.float16(): FloatType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.string(): VarCharType(LENGTH_MAX),
    pa.large_string(): VarCharType(LENGTH_MAX),
    pa.binary(): VarBinaryType(LENGTH_MAX),
    pa.large_binary(): VarBinaryType(LENGTH_MAX),
    pa.date32(): DateType(),
    pa.date64(): DateType(),
}


def time_unit(precision: int) -> str:
    """Return the unit of Arrow timestamps with this many fractional digits: never whole seconds."""
    return "ms" if precision <= 3 else "us" if precision <= 6 else "ns"


def arrow_type(data_type: DataType) -> pa.DataType:
    """Return the Arrow type of a column of this type; raise `UnsupportedError` if columns cannot have it."""
    kind = type(data_type)
    plain = _PLAIN.get(kind)
    if plain is not None:
        return plain
    if isinstance(data_type, DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    if isinstance(data_type, LocalZonedTimestampType):
        return pa.timestamp(time_unit(data_type.precision), "UTC")
    if isinstance(data_type, TimestampType):
        return pa.timestamp(time_unit(data_type.precision))
    if isinstance(data_type, MultisetType):
        return map_type(arrow_type(data_type.element_type), pa.int32())
    if isinstance(data_type, ArrayType):
        return pa.list_(arrow_type(data_type.element_type))
    if isinstance(data_type, MapType):
        return map_type(arrow_type(data_type.key_type), arrow_type(data_type.value_type))
    if isinstance(data_type, RowType):
        return pa.struct([pa.field(field.name, arrow_type(field.data_type)) for field in data_type.fields])
    raise UnsupportedError(f"a column cannot have the type {data_type}")


def arrow_schema(row: RowType) -> pa.Schema:
    """Return the Arrow schema of rows of this type."""
    return pa.schema([pa.field(field.name, arrow_type(field.data_type)) for field in row.fields])


def logical_type(data_type: pa.DataType) -> DataType:
    """Return the logical type for the Arrow type of an external column; raise `UnsupportedError` for other types."""
    plain = _LOGICAL.get(data_type)
    if plain is not None:
        return plain
    if pa.types.is_decimal(data_type):
        return DecimalType(data_type.precision, data_type.scale)
    if pa.types.is_timestamp(data_type):
        kind = TimestampType if data_type.tz is None else LocalZonedTimestampType
        return kind(DIGITS[data_type.unit])
    if pa.types.is_time(data_type):
        return TimeType(DIGITS[data_type.unit])
    if pa.types.is_duration(data_type):
        return DayTimeIntervalType()
    if pa.types.is_dictionary(data_type):
        return logical_type(data_type.value_type)
    if pa.types.is_fixed_size_binary(data_type):
        return BinaryType(data_type.byte_width)
    if pa.types.is_map(data_type):
        return MapType(logical_type(get_map_key_type(data_type)), logical_type(data_type.item_type))
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type) or pa.types.is_fixed_size_list(data_type):
        return ArrayType(logical_type(data_type.value_type))
    if pa.types.is_struct(data_type):
        return RowType([RowField(field.name, logical_type(field.type)) for field in data_type])
    raise UnsupportedError(f"Penstock has no type for a column of Arrow's {data_type}")
