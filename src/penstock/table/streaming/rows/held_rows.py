"""Rows as state holds them: tuples of values that can be keys of a dictionary, so that a row is found by its values."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import pyarrow as pa

from penstock.state.key_bytes import NAN
from penstock.table.data.logical_types import ArrayType, DataType, DoubleType, FloatType, MapType, MultisetType, RowType
from penstock.table.data.values import column_of, values_of
from penstock.table.functions.comparison import hashable

_NESTED = (ArrayType, MapType, MultisetType, RowType)


def rows_of(columns: Sequence[pa.Array], types: Sequence[DataType], rows: int) -> list[tuple[Any, ...]]:
    """The rows of these columns. All NaN are one value."""
    lists = [_values(column, kind) for column, kind in zip(columns, types, strict=True)]
    return list(zip(*lists, strict=True)) if lists else [()] * rows


def columns_of(rows: Sequence[tuple[Any, ...]], types: Sequence[DataType]) -> list[pa.Array]:
    """The columns of these rows."""
    return [column_of(list(map(itemgetter(place), rows)), kind) for place, kind in enumerate(types)]


def _values(column: pa.Array, kind: DataType) -> list[Any]:
    values = values_of(column, kind)
    if isinstance(kind, _NESTED):
        return [hashable(value) for value in values]
    if isinstance(kind, FloatType | DoubleType):
        return [value if value == value else NAN for value in values]
    return values
