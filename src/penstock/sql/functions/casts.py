"""Casts between types, for CAST and TRY_CAST, with Flink's rules.

`nested_kernel` casts arrays, maps, multisets and rows part by part.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import UnsupportedError
from penstock.codecs.arrow_columns import get_map_keys, map_array
from penstock.sql.data import types
from penstock.sql.data.arrow import Datum, Kernel, arrow_type, to_scalar, to_values
from penstock.sql.data.datetimes import view
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.functions.definition import Session, value_kernel
from penstock.sql.functions.text_casts import from_text_kernel, text_kernel
from penstock.sql.functions.type_rules import BYTES, INTERVALS, TEXTS, TIMES
from penstock.sql.functions.value_casts import number_kernel, supports_cast, time_kernel

MakeCast = Callable[[types.DataType, types.DataType], Kernel]


def nested_kernel(source: types.DataType, to: types.DataType, make: MakeCast, is_try: bool) -> Kernel:
    """Return the kernel of a nested cast; `make` casts the parts. With `is_try`, failing values become NULL."""
    cast = _row(source, to, make) if isinstance(source, types.RowType) else _entries(source, to, make)
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


def _row(source: types.RowType, to: types.DataType, make: MakeCast) -> Callable[[pa.Array], pa.Array]:
    assert isinstance(to, types.RowType)
    casts = [make(field_type, other) for field_type, other in zip(source.field_types(), to.field_types(), strict=True)]
    target = arrow_type(to)

    def cast(column: pa.Array) -> pa.Array:
        parts = [_full(part(field), len(column)) for part, field in zip(casts, column.flatten(), strict=True)]
        if not parts:
            return column.cast(target)
        mask = pc.is_null(column) if column.null_count else None
        return pa.StructArray.from_arrays(parts, fields=list(target), mask=mask)

    return cast


def _entries(source: types.DataType, to: types.DataType, make: MakeCast) -> Callable[[pa.Array], pa.Array]:
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
        if isinstance(source, types.MapType | types.MultisetType):
            keys = _full(casts[0](get_map_keys(column).slice(first, count)), count)
            items = column.items.slice(first, count)
            if isinstance(source, types.MapType):
                items = _full(casts[1](items), count)
            return map_array(offsets, keys, items, target)
        elements = _full(casts[0](column.values.slice(first, count)), count)
        return pa.ListArray.from_arrays(offsets, elements, type=target)

    return cast


def _full(column: Datum, rows: int) -> pa.Array:
    return pa.repeat(column, rows) if isinstance(column, pa.Scalar) else column


__all__ = ["cast_kernel", "supports_cast"]

_NUMBERS: Final = (types.NumericType, types.BooleanType)
_NESTED: Final = (types.ArrayType, types.MapType, types.RowType)


def cast_kernel(source: types.DataType, to: types.DataType, session: Session, is_try: bool = False) -> Kernel:
    """Return the kernel of a cast. Values that cannot be cast raise `TableRuntimeError`; with `is_try`, become NULL."""
    is_try = is_try or session.legacy_cast
    if isinstance(source, types.NullType):
        return _nothing(to)
    if source.nullable() == to.nullable():
        return lambda column: column
    if isinstance(to, TEXTS):
        return text_kernel(source, to, session)
    if not supports_cast(source, to):
        raise UnsupportedError(f"there is no cast from {source} to {to}")
    if isinstance(to, BYTES):
        return _bytes_kernel(source, to, session)
    if isinstance(source, TEXTS):
        return from_text_kernel(source, to, session, is_try)
    if isinstance(source, _NESTED):
        return nested_kernel(source, to, partial(cast_kernel, session=session), is_try)
    if isinstance(source, INTERVALS) or isinstance(to, INTERVALS):
        return _interval_kernel(to)
    if isinstance(source, _NUMBERS) and isinstance(to, _NUMBERS):
        return _trying(number_kernel(source, to), source, to) if is_try else number_kernel(source, to)
    if isinstance(source, TIMES) and isinstance(to, TIMES):
        return _trying(time_kernel(source, to, session), source, to) if is_try else time_kernel(source, to, session)
    raise UnsupportedError(f"there is no cast from {source} to {to}")


def _nothing(to: types.DataType) -> Kernel:
    target = arrow_type(to)

    def kernel(column: Datum) -> Datum:
        return pa.nulls(len(column), target) if isinstance(column, pa.Array) else pa.scalar(None, target)

    return kernel


def _interval_kernel(to: types.DataType) -> Kernel:
    """Return the kernel of an interval's cast: it is a number of months or milliseconds, whatever its unit."""
    target = arrow_type(to)
    return lambda column: view(column, target)


def _bytes_kernel(source: types.DataType, to: types.DataType, session: Session) -> Kernel:
    """Return the kernel of a cast to bytes, from text, a bitmap or bytes: truncated, or padded with zeros."""
    length: int = to.length  # type: ignore[attr-defined]
    is_fixed = isinstance(to, types.BinaryType)

    def kernel(column: Datum) -> Datum:
        column = pc.cast(column, pa.binary())
        if session.legacy_cast or length == types.LENGTH_MAX:
            return column
        column = pc.binary_slice(column, 0, length)
        return pad(column) if is_fixed else column

    pad = value_kernel(lambda value: value.ljust(length, b"\0"), [to], to)
    return kernel


def _trying(kernel: Kernel, source: types.DataType, to: types.DataType) -> Kernel:
    """Return a kernel that returns NULL for values that cannot be cast."""
    one_by_one = value_kernel(partial(_value_or_none, kernel, source, to), [source], to)

    def tried(column: Datum) -> Datum:
        try:
            return kernel(column)
        except TableRuntimeError:
            return one_by_one(column)

    return tried


def _value_or_none(kernel: Kernel, source: types.DataType, to: types.DataType, value: object) -> object:
    try:
        return to_values(kernel(to_scalar(value, source)), to)[0]
    except TableRuntimeError:
        return None
