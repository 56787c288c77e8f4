"""Single values, as Python objects outside of columns.

Text is `str`, bytes are `bytes`, numbers are `int`, `float` and `Decimal`. Dates and times are integers, because
Python's classes lack nanoseconds and some of Flink's years: days (DATE), milliseconds of the day (TIME), nanoseconds
since 1970 (TIMESTAMP and TIMESTAMP_LTZ), months or milliseconds (intervals). An array is a list, a map or a multiset a
list of pairs, a row a tuple. NULL is None.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from penstock.codecs.arrow_types import NANOSECONDS
from penstock.codecs.map_columns import get_map_keys, map_array
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.logical_types import (
    ArrayType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DoubleType,
    FloatType,
    IntegralType,
    IntType,
    LocalZonedTimestampType,
    MapType,
    MultisetType,
    RawType,
    RowType,
    TimestampType,
    TimeType,
    VariantType,
)

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
    if isinstance(data_type, RawType | VariantType):
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
    if isinstance(data_type, RawType | VariantType):
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
