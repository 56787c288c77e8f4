"""Casts of arrays, maps, multisets and rows, part by part."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from penstock.codecs.map_columns import get_map_keys, map_array
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.errors import TableRuntimeError
from penstock.table.data.logical_types import DataType, MapType, MultisetType, RowType
from penstock.table.data.values import Datum, Kernel

MakeCast = Callable[[DataType, DataType], Kernel]


def nested_kernel(source: DataType, to: DataType, make: MakeCast, is_try: bool) -> Kernel:
    """Return the kernel of a nested cast; `make` casts the parts. With `is_try`, failing values become NULL."""
    cast = _row(source, to, make) if isinstance(source, RowType) else _entries(source, to, make)
    target = arrow_type(to)

    def kernel(column: Datum) -> Datum:
        if isinstance(column, pa.Scalar):
            return kernel(pa.repeat(column, 1))[0]
        return _tried(cast, column, target) if is_try else cast(column)

    return kernel


def _tried(cast: Callable[[pa.Array], pa.Array], column: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast the rows that can be cast, with NULL for the others: if some cannot, try each half."""
    try:
        return cast(column)
    except (TableRuntimeError, pa.ArrowInvalid):
        if len(column) == 1:
            return pa.nulls(1, target)
    middle = len(column) // 2
    return pa.concat_arrays([_tried(cast, half, target) for half in (column.slice(0, middle), column.slice(middle))])


def _row(source: RowType, to: DataType, make: MakeCast) -> Callable[[pa.Array], pa.Array]:
    assert isinstance(to, RowType)
    casts = [make(field_type, other) for field_type, other in zip(source.field_types(), to.field_types(), strict=True)]
    target = arrow_type(to)

    def cast(column: pa.Array) -> pa.Array:
        parts = [_full(part(field), len(column)) for part, field in zip(casts, column.flatten(), strict=True)]
        if not parts:
            return column.cast(target)
        mask = pc.is_null(column) if column.null_count else None
        return pa.StructArray.from_arrays(parts, fields=list(target), mask=mask)

    return cast


def _entries(source: DataType, to: DataType, make: MakeCast) -> Callable[[pa.Array], pa.Array]:
    """Cast arrays, maps and multisets, which are lists of their components."""
    casts = [make(child, other) for child, other in zip(source.children(), to.children(), strict=True)]
    target = arrow_type(to)

    def cast(column: pa.Array) -> pa.Array:
        if column.null_count:
            column = column.take(pa.array(range(len(column)), pa.int64()))
        begins = column.offsets
        first, last = begins[0].as_py(), begins[-1].as_py()
        offsets = pc.subtract(begins, begins[0])
        if column.null_count:
            missing = pa.concat_arrays([pc.is_null(column), pa.array([False])])
            offsets = pc.if_else(missing, pa.scalar(None, pa.int32()), offsets)
        count = last - first
        if isinstance(source, MapType | MultisetType):
            keys = _full(casts[0](get_map_keys(column).slice(first, count)), count)
            items = column.items.slice(first, count)
            if isinstance(source, MapType):
                items = _full(casts[1](items), count)
            return map_array(offsets, keys, items, target)
        elements = _full(casts[0](column.values.slice(first, count)), count)
        return pa.ListArray.from_arrays(offsets, elements, type=target)

    return cast


def _full(column: Datum, rows: int) -> pa.Array:
    return pa.repeat(column, rows) if isinstance(column, pa.Scalar) else column
