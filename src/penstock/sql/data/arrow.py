"""Internal values, alone and in Arrow columns: Arrow types, Python objects, and NumPy arrays.

**Columns.** Each logical type has an Arrow type. Arrow has no interval of months, so it is stored as a number. Text and
bytes lose their declared length, and times of day are milliseconds at any precision, as in Flink. The keys of Arrow
maps are never NULL, so the keys of maps and multisets are structs of one field (`penstock.codecs.arrow_columns`); other
programs exchange plain maps. Types that Arrow lacks are stored as bytes: bitmaps in the portable Roaring format,
variants as their bytes, and Python objects as pickles.

**Single values.** Outside of columns, values are Python objects. Text is `str`, bytes are `bytes`, numbers are `int`,
`float` and `Decimal`. Dates and times are integers, because Python's classes lack nanoseconds and some of Flink's
years: days (DATE), milliseconds of the day (TIME), nanoseconds since 1970 (TIMESTAMP and TIMESTAMP_LTZ), months or
milliseconds (intervals). An array is a list, a map or a multiset a list of pairs, a row a tuple. NULL is None.

**NumPy arrays.** Columns become NumPy arrays and back without copying numbers; NULLs are kept separately.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import UnsupportedError
from penstock.codecs.arrow_columns import DIGITS, NANOSECONDS, get_map_key_type, get_map_keys, map_array, map_type
from penstock.codecs.variant import Variant, is_of_spark
from penstock.sql.data.types import (
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
    IntegralType,
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
    if is_of_spark(data_type):
        return VariantType()
    if pa.types.is_struct(data_type):
        return RowType([RowField(field.name, logical_type(field.type)) for field in data_type])
    raise UnsupportedError(f"Penstock has no type for a column of Arrow's {data_type}")


#: for fewer values, converting through NumPy is slower
_FEW = 32
#: a column in a computation: one value per row, or a single value for all rows
Datum: TypeAlias = "pa.Array | pa.Scalar"


def to_values(column: Datum, data_type: DataType) -> list[Any]:
    """Return the values of a column of this type."""
    if isinstance(column, pa.Scalar):
        column = to_full_array(column, 1)
    if isinstance(data_type, TimestampType | LocalZonedTimestampType):
        factor = NANOSECONDS[column.type.unit]
        numbers = _numbers(column.view(pa.int64()))
        return numbers if factor == 1 else [None if number is None else number * factor for number in numbers]
    if isinstance(data_type, DateType | TimeType):
        return _numbers(column.view(pa.int32()))
    if isinstance(data_type, DayTimeIntervalType):
        return _numbers(column.view(pa.int64()))
    if isinstance(data_type, VariantType):
        return [None if value is None else Variant.unpack(value) for value in column.to_pylist()]
    if isinstance(data_type, RawType):
        return [None if value is None else pickle.loads(value) for value in column.to_pylist()]
    if isinstance(data_type, RowType):
        fields = [
            to_values(column.field(index), field_type) for index, field_type in enumerate(data_type.field_types())
        ]
        rows: Iterable[Any] = zip(*fields, strict=True) if fields else [()] * len(column)
        return _with_nulls(column, rows)
    if isinstance(data_type, MapType | MultisetType):
        keys, items = _entry_types(data_type)
        pairs = list(zip(to_values(get_map_keys(column), keys), to_values(column.items, items), strict=True))
        return _with_nulls(column, _parts(pairs, column))
    if isinstance(data_type, ArrayType):
        return _with_nulls(column, _parts(to_values(column.values, data_type.element_type), column))
    if isinstance(data_type, IntegralType | FloatType | DoubleType):
        return _numbers(column)
    return list(column.to_pylist())


def _numbers(column: pa.Array) -> list[Any]:
    """Return the numbers of a column; NumPy converts them faster than Arrow does."""
    if len(column) < _FEW:
        return list(column.to_pylist())
    if not column.null_count:
        return list(column.to_numpy(zero_copy_only=False).tolist())
    return _with_nulls(column, column.fill_null(0).to_numpy(zero_copy_only=False).tolist())


def columns_of_changes(
    changes: Sequence[tuple[int, Sequence[Any]]], names: Sequence[str], types: Sequence[DataType]
) -> tuple[pa.RecordBatch, bytes]:
    """Convert rows given as (kind, values), at least one, to columns and the bytes of their kinds."""
    columns = zip(*[values for _, values in changes], strict=True)
    arrays = [to_column(column, kind) for column, kind in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, list(names)), bytes(kind for kind, _ in changes)


def to_column(values: Sequence[Any], data_type: DataType) -> pa.Array:
    """Return a column of these values."""
    kind = arrow_type(data_type)
    if isinstance(data_type, TimestampType | LocalZonedTimestampType):
        factor = NANOSECONDS[kind.unit]
        numbers = values if factor == 1 else [None if value is None else value // factor for value in values]
        return pa.array(numbers, pa.int64()).view(kind)
    if isinstance(data_type, DateType | TimeType):
        return pa.array(values, pa.int32()).view(kind)
    if isinstance(data_type, DayTimeIntervalType):
        return pa.array(values, pa.int64()).view(kind)
    if isinstance(data_type, VariantType):
        return pa.array([None if value is None else value.pack() for value in values], kind)
    if isinstance(data_type, RawType):
        return pa.array([None if value is None else pickle.dumps(value) for value in values], kind)
    if isinstance(data_type, RowType):
        nothing = (None,) * len(data_type.fields)
        rows = [nothing if row is None else row for row in values]
        columns = [
            to_column([row[index] for row in rows], field_type)
            for index, field_type in enumerate(data_type.field_types())
        ]
        return (
            pa.StructArray.from_arrays(columns, fields=list(kind), mask=_missing(values))
            if columns
            else _empty_rows(values)
        )
    if isinstance(data_type, MapType | MultisetType):
        keys, items = _entry_types(data_type)
        pairs = list(itertools.chain.from_iterable(value for value in values if value is not None))
        of_pairs = to_column([key for key, _ in pairs], keys), to_column([item for _, item in pairs], items)
        return map_array(_offsets(values), *of_pairs, kind)
    if isinstance(data_type, ArrayType):
        elements = list(itertools.chain.from_iterable(value for value in values if value is not None))
        return pa.ListArray.from_arrays(_offsets(values), to_column(elements, data_type.element_type), type=kind)
    return pa.array(values, kind)


def to_scalar(value: Any, data_type: DataType) -> pa.Scalar:
    """Return a scalar with one value for every row."""
    return to_column([value], data_type)[0]


def to_full_array(datum: Datum, rows: int) -> pa.Array:
    """Return a column with one value per row."""
    if isinstance(datum, pa.Array):
        return datum
    return pa.repeat(datum, rows) if rows else pa.nulls(0, datum.type)  # Arrow cannot repeat a list zero times


def _entry_types(data_type: DataType) -> tuple[DataType, DataType]:
    if isinstance(data_type, MultisetType):
        return data_type.element_type, IntType(False)
    assert isinstance(data_type, MapType)
    return data_type.key_type, data_type.value_type


def _parts(entries: Sequence[Any], column: pa.Array) -> list[Any]:
    offsets = column.offsets.to_pylist()
    return [list(entries[begin:end]) for begin, end in itertools.pairwise(offsets)]


def _with_nulls(column: pa.Array, values: Iterable[Any]) -> list[Any]:
    if not column.null_count:
        return list(values)
    return [value if valid else None for value, valid in zip(values, column.is_valid().to_pylist(), strict=True)]


def _missing(values: Sequence[Any]) -> pa.Array | None:
    return pa.array([value is None for value in values], pa.bool_()) if None in values else None


def _empty_rows(values: Sequence[Any]) -> pa.Array:
    return pa.array([None if value is None else {} for value in values], pa.struct([]))


def _offsets(values: Sequence[Any]) -> pa.Array:
    """Return the offset of each value, NULL for None."""
    offsets: list[int | None] = []
    total = 0
    for value in values:
        offsets.append(None if value is None else total)
        total += 0 if value is None else len(value)
    return pa.array([*offsets, total], pa.int32())


#: a function of columns; a column with the same value in every row may be passed as a scalar
Kernel: TypeAlias = Callable[..., Datum]


def flat_values(column: pa.Array) -> Any:
    """Return the values of a column of numbers or timestamps as integers or floating-point numbers.

    The values at NULLs are arbitrary.
    """
    stored = _stored(column.type)
    _, data = column.buffers()
    if data is None:
        return np.empty(0, stored)
    return np.frombuffer(data, stored, len(column), column.offset * stored.itemsize)


def milliseconds(times: pa.Array) -> Any:
    """Return timestamps as a NumPy array of milliseconds since 1970."""
    if times.type.unit != "ms":
        times = times.cast(pa.timestamp("ms", times.type.tz), safe=False)
    return times.view(pa.int64()).to_numpy(zero_copy_only=False) if times.null_count else flat_values(times)


def flat_value(value: pa.Scalar) -> Any:
    """Return a single value likewise; 0 for NULL."""
    if not value.is_valid:
        return 0
    return value.value if pa.types.is_temporal(value.type) else value.as_py()


def is_flat(kind: pa.DataType) -> bool:
    """Return whether the values of a type are numbers in NumPy: integers, floating-point numbers, dates and times."""
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return is_number or (pa.types.is_temporal(kind) and not pa.types.is_interval(kind))


def validity(column: pa.Array | pa.Scalar, rows: int) -> Any:
    """Return a bit per row, 0 for NULL, lowest bit of a byte first; None if no row is NULL."""
    if isinstance(column, pa.Scalar):
        return None if column.is_valid else np.zeros(-(-rows // 8), np.uint8)
    if not column.null_count:
        return None
    first, skipped = divmod(column.offset, 8)
    if skipped:
        return np.packbits(as_mask(column.is_valid()), bitorder="little")
    return np.frombuffer(column.buffers()[0], np.uint8, -(-rows // 8), first)


def from_flat(values: Any, kind: pa.DataType, valid: Any) -> pa.Array:
    """Return a column of NumPy values. `valid`: see `validity`. If the types differ, values are truncated to bits."""
    data = pa.py_buffer(np.ascontiguousarray(values, _stored(kind)))
    return pa.Array.from_buffers(kind, len(values), [None if valid is None else pa.py_buffer(valid), data])


def apply_validity(column: pa.Array, values: Any, kind: pa.DataType) -> pa.Array:
    """Return values as a column of a type, NULL where `column` is. If types differ, values are truncated to bits."""
    return from_flat(values, kind, validity(column, len(column)))


def truths(answers: pa.Array) -> pa.Array:
    """Return a boolean column with false for NULL."""
    return pc.fill_null(answers, False) if answers.null_count else answers


def as_mask(answers: pa.Array) -> Any:
    """Return a boolean column without NULLs as a NumPy mask."""
    first, skipped = divmod(answers.offset, 8)
    _, data = answers.buffers()
    if data is None:
        return np.empty(0, bool)
    packed = np.frombuffer(data, np.uint8, offset=first)
    return np.unpackbits(packed, count=skipped + len(answers), bitorder="little")[skipped:].view(bool)


def as_answers(mask: Any) -> pa.Array:
    """Return a NumPy mask as a boolean column."""
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, pa.py_buffer(np.packbits(mask, bitorder="little"))], 0)


def drop_masked_nulls(column: pa.Array, mask: pa.Array) -> pa.Array:
    """Return the column without its NULLs if a mask excludes them all, and unchanged otherwise.

    The values of the former NULLs are arbitrary. Arrow filters a column without NULLs several times faster.
    """
    if not column.null_count or column.offset or mask.offset or pa.types.is_nested(column.type):
        return column
    buffers = column.buffers()
    size = -(-len(mask) // 8)
    chosen, valid = (np.frombuffer(buffer, np.uint8, size) for buffer in (mask.buffers()[1], buffers[0]))
    missing = chosen & ~valid
    if len(mask) % 8:
        missing[-1] &= (1 << len(mask) % 8) - 1
    return column if missing.any() else pa.Array.from_buffers(column.type, len(column), [None, *buffers[1:]], 0)


@cache
def _stored(kind: pa.DataType) -> np.dtype[Any]:
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return np.dtype(kind.to_pandas_dtype() if is_number else {32: np.int32, 64: np.int64}[kind.bit_width])
