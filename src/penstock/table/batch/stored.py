"""How Spark stores columns between the steps of a plan: its type for each logical type, and the conversions.

Spark's timestamps have microseconds. Finer ones are stored as whole numbers of nanoseconds, so no digit is lost. A TIME
is a number of milliseconds, an interval a number of months or of milliseconds, and types that are bytes in Arrow stay
bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import UnsupportedError
from penstock.codecs.exact_cast import exact_cast
from penstock.codecs.map_columns import get_map_keys, has_nullable_keys, map_array
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.errors import TableRuntimeError
from penstock.table.data.logical_types import (
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

#: digits of the fraction of a second in Spark's timestamps
MICROSECOND_DIGITS: Final = 6
_PLAIN: Final[dict[type[DataType], str]] = {
    NullType: "BOOLEAN",
    BooleanType: "BOOLEAN",
    TinyIntType: "TINYINT",
    SmallIntType: "SMALLINT",
    IntType: "INT",
    BigIntType: "BIGINT",
    FloatType: "FLOAT",
    DoubleType: "DOUBLE",
    CharType: "STRING",
    VarCharType: "STRING",
    BinaryType: "BINARY",
    VarBinaryType: "BINARY",
    DateType: "DATE",
    TimeType: "INT",
    YearMonthIntervalType: "INT",
    DayTimeIntervalType: "BIGINT",
    RawType: "BINARY",
    VariantType: "BINARY",
    BitmapType: "BINARY",
}
_ARROW: Final[dict[str, pa.DataType]] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
}
_OWN: Final = (TimeType, DayTimeIntervalType, YearMonthIntervalType, RawType, VariantType, BitmapType)
Convert = Callable[[pa.Array], pa.Array]


def spark_type(data_type: DataType) -> str:
    """Return the type in Spark SQL. Raises `UnsupportedError` for types that a column cannot have."""
    plain = _PLAIN.get(type(data_type))
    if plain is not None:
        return plain
    if isinstance(data_type, DecimalType):
        return f"DECIMAL({data_type.precision},{data_type.scale})"
    if isinstance(data_type, TimestampType | LocalZonedTimestampType):
        if data_type.precision > MICROSECOND_DIGITS:
            return "BIGINT"
        return "TIMESTAMP_NTZ" if isinstance(data_type, TimestampType) else "TIMESTAMP"
    if isinstance(data_type, MultisetType):
        return f"MAP<{spark_type(data_type.element_type)},INT>"
    if isinstance(data_type, ArrayType):
        return f"ARRAY<{spark_type(data_type.element_type)}>"
    if isinstance(data_type, MapType):
        return f"MAP<{spark_type(data_type.key_type)},{spark_type(data_type.value_type)}>"
    if isinstance(data_type, RowType):
        # Fields are named by index, because Spark does not distinguish names that differ only in case.
        fields = [f"f{index}:{spark_type(kind)}" for index, kind in enumerate(data_type.field_types())]
        return f"STRUCT<{','.join(fields)}>"
    raise UnsupportedError(f"a column cannot have the type {data_type} in batch")


def is_of_spark(data_type: DataType) -> bool:
    """Return whether Spark itself has the type, so that a column means the same to Spark programs."""
    if isinstance(data_type, TimestampType | LocalZonedTimestampType):
        return data_type.precision <= MICROSECOND_DIGITS
    return not isinstance(data_type, _OWN) and all(map(is_of_spark, data_type.children()))


def stored_type(data_type: DataType) -> pa.DataType:
    """Return the Arrow type that Spark uses to exchange a column."""
    if isinstance(data_type, MultisetType):
        return pa.map_(stored_type(data_type.element_type), pa.int32())
    if isinstance(data_type, ArrayType):
        return pa.list_(stored_type(data_type.element_type))
    if isinstance(data_type, MapType):
        return pa.map_(stored_type(data_type.key_type), stored_type(data_type.value_type))
    if isinstance(data_type, RowType):
        kinds = enumerate(map(stored_type, data_type.field_types()))
        return pa.struct([pa.field(f"f{index}", kind) for index, kind in kinds])
    if isinstance(data_type, DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    return _ARROW[spark_type(data_type)]


def to_stored(column: pa.Array, data_type: DataType) -> pa.Array:
    """Convert a column to Spark's form."""
    return _converted(column, data_type, stored_type, _to_stored)


def from_stored(column: pa.Array, data_type: DataType) -> pa.Array:
    """Convert a column of Spark to the form that functions use."""
    return _converted(column, data_type, arrow_type, _from_stored)


def _to_stored(column: pa.Array, data_type: DataType) -> pa.Array:
    target_type = stored_type(data_type)
    if isinstance(data_type, NullType):
        return pa.nulls(len(column), target_type)
    if isinstance(data_type, TimestampType | LocalZonedTimestampType) and pa.types.is_int64(target_type):
        return column.view(target_type)
    if isinstance(data_type, TimeType | DayTimeIntervalType):
        return column.view(target_type)
    return exact_cast(column, target_type)


def _from_stored(column: pa.Array, data_type: DataType) -> pa.Array:
    target_type = arrow_type(data_type)
    if isinstance(data_type, NullType):
        return pa.nulls(len(column), target_type)
    if pa.types.is_int64(column.type) and not pa.types.is_int64(target_type):
        return column.view(target_type)
    if isinstance(data_type, TimeType):
        return column.view(target_type)
    # The zone in Spark's type only affects display; the numbers are in UTC.
    return exact_cast(column, target_type)


def _converted(
    column: pa.Array,
    data_type: DataType,
    kind_of: Callable[[DataType], pa.DataType],
    convert: Callable[[pa.Array, DataType], pa.Array],
) -> pa.Array:
    """Convert the parts of a column, each on its own."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(data_type, RowType):
        kinds = data_type.field_types()
        parts = [_converted(column.field(index), kind, kind_of, convert) for index, kind in enumerate(kinds)]
        target_type = kind_of(data_type)
        if not parts:
            return pa.array([None if value is None else {} for value in column.to_pylist()], target_type)
        return pa.StructArray.from_arrays(parts, fields=list(target_type), mask=column.is_null())
    if isinstance(data_type, MapType | MultisetType):
        key, item = (
            (data_type.element_type, IntType())
            if isinstance(data_type, MultisetType)
            else (data_type.key_type, data_type.value_type)
        )
        keys = _converted(get_map_keys(column), key, kind_of, convert)
        items = _converted(column.items, item, kind_of, convert)
        target_type = kind_of(data_type)
        if keys.null_count and not has_nullable_keys(target_type):
            raise TableRuntimeError(
                "a key of a map is NULL: Spark, which runs queries in batch mode, has no maps with such keys"
            )
        return map_array(_offsets(column), keys, items, target_type)
    if isinstance(data_type, ArrayType):
        elements = _converted(column.values, data_type.element_type, kind_of, convert)
        return pa.ListArray.from_arrays(_offsets(column), elements, type=kind_of(data_type))
    return convert(column, data_type)


def _offsets(column: pa.Array) -> pa.Array:
    """Return the offset of each entry, NULL for a NULL entry."""
    if not column.null_count:
        return column.offsets
    valid = pa.concat_arrays([column.is_valid(), pa.array([True])])
    return pc.if_else(valid, column.offsets, None)
