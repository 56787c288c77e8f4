"""Sort keys of rows, as values that Python compares.

NULL is the least or the greatest value, depending on the key. NaN is the greatest number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.base.errors import UnsupportedError
from penstock.codecs.arrow_types import NANOSECONDS
from penstock.table.data.logical_types import (
    ArrayType,
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    LocalZonedTimestampType,
    MultisetType,
    RowType,
    TimestampType,
    TimeType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
)
from penstock.table.data.values import to_values
from penstock.table.plan.logical import SortKey

_WHOLE: Final = (
    BooleanType,
    IntegralType,
    DateType,
    TimeType,
    TimestampType,
    LocalZonedTimestampType,
    YearMonthIntervalType,
    DayTimeIntervalType,
)
_TEXT: Final = (CharType, VarCharType, BinaryType, VarBinaryType)
_NOTHING_FIRST: Final = (0,)
_NOTHING_LAST: Final = (2,)


class Descending:
    """A value that comes before lesser ones."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: Descending) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Descending) and bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash(self.value)


def sort_keys(order: Sequence[SortKey], types: Sequence[DataType], rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Return the sort key of each row. The rows have values in the form that `to_values` returns."""
    if not order:
        return [()] * len(rows)
    return _put_together([_comparable([row[key.index] for row in rows], types[key.index], key) for key in order])


def sort_keys_of_columns(order: Sequence[SortKey], types: Sequence[DataType], columns: pa.RecordBatch) -> list[Any]:
    """Return the sort key of each row, reading only the columns of the order."""
    if not order:
        return [()] * columns.num_rows
    values = {key.index: to_values(columns.column(key.index), types[key.index]) for key in order}
    return _put_together([_comparable(values[key.index], types[key.index], key) for key in order])


def first_sort_values(order: Sequence[SortKey], types: Sequence[DataType], columns: pa.RecordBatch) -> Any:
    """Return the first sort value of each row as floats in a NumPy array, which have the same order as the sort keys.

    Different values may be equal as floats. Returns None if the values are not numbers.
    """
    if not order or not isinstance(types[order[0].index], _WHOLE) or isinstance(types[order[0].index], BooleanType):
        return None
    column, key = columns.column(order[0].index), order[0]
    factor = NANOSECONDS[column.type.unit] if pa.types.is_timestamp(column.type) else 1
    if not pa.types.is_integer(column.type):
        column = column.view(pa.int64() if column.type.bit_width == 64 else pa.int32())
    filled = column.fill_null(0) if column.null_count else column
    numbers = filled.to_numpy(zero_copy_only=False).astype(np.float64) * (-factor if key.is_descending else factor)
    if column.null_count:
        numbers[column.is_null().to_numpy(zero_copy_only=False)] = -math.inf if key.nulls_first else math.inf
    return numbers


def _put_together(parts: list[list[Any]]) -> list[Any]:
    return parts[0] if len(parts) == 1 else list(zip(*parts, strict=True))


def _comparable(values: list[Any], data_type: DataType, key: SortKey) -> list[Any]:
    if isinstance(data_type, (*_WHOLE, DecimalType)):
        nothing = -math.inf if key.nulls_first else math.inf
        if not key.is_descending:
            return [nothing if value is None else value for value in values]
        if isinstance(data_type, DecimalType):
            return [nothing if value is None else value.copy_negate() for value in values]
        return [nothing if value is None else -value for value in values]
    missing = _NOTHING_FIRST if key.nulls_first else _NOTHING_LAST
    comparable = to_comparable(data_type)
    comparables = values if comparable is None else [None if value is None else comparable(value) for value in values]
    if key.is_descending:
        return [missing if value is None else (1, Descending(value)) for value in comparables]
    return [missing if value is None else (1, value) for value in comparables]


def to_comparable(data_type: DataType) -> Callable[[Any], Any] | None:
    """Return a function that makes values of a type comparable, or None if they already are.

    Raises `UnsupportedError` if the type cannot be compared.
    """
    if isinstance(data_type, (*_WHOLE, *_TEXT, DecimalType)):
        return None
    if isinstance(data_type, DoubleType | FloatType):
        return _number
    if isinstance(data_type, RowType):
        fields = [_field(field_type) for field_type in data_type.field_types()]
        return lambda row: tuple([field(value) for field, value in zip(fields, row, strict=True)])
    if isinstance(data_type, ArrayType) and not isinstance(data_type, MultisetType):
        element = _field(data_type.element_type)
        return lambda array: tuple(map(element, array))
    raise UnsupportedError(f"rows cannot be sorted by a column of type {data_type}")


def _number(value: float) -> tuple[int, float]:
    return (1, 0.0) if math.isnan(value) else (0, value)


def _field(data_type: DataType) -> Callable[[Any], Any]:
    comparable = to_comparable(data_type)

    def field(value: Any) -> tuple[Any, ...]:
        if value is None:
            return _NOTHING_FIRST
        return (1, value if comparable is None else comparable(value))

    return field
