"""Casts between types, for CAST and TRY_CAST, with Flink's rules."""

from __future__ import annotations

from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import UnsupportedError
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.errors import TableRuntimeError
from penstock.table.data.logical_types import (
    LENGTH_MAX,
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    MapType,
    NullType,
    NumericType,
    RowType,
)
from penstock.table.data.values import Datum, Kernel, to_scalar, to_values
from penstock.table.data.zones import view
from penstock.table.functions.cast_from_text import from_text_kernel
from penstock.table.functions.cast_nested import nested_kernel
from penstock.table.functions.cast_numbers import number_kernel
from penstock.table.functions.cast_rules import supports_cast
from penstock.table.functions.cast_times import time_kernel
from penstock.table.functions.cast_to_text import text_kernel
from penstock.table.functions.definition import Session
from penstock.table.functions.kernels import value_kernel
from penstock.table.functions.type_rules import BYTES, INTERVALS, TEXTS, TIMES

__all__ = ["cast_kernel", "supports_cast"]

_NUMBERS: Final = (NumericType, BooleanType)
_NESTED: Final = (ArrayType, MapType, RowType)


def cast_kernel(source: DataType, to: DataType, session: Session, is_try: bool = False) -> Kernel:
    """Return the kernel of a cast. Values that cannot be cast raise `TableRuntimeError`; with `is_try`, become NULL."""
    is_try = is_try or session.legacy_cast
    if isinstance(source, NullType):
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


def _nothing(to: DataType) -> Kernel:
    target = arrow_type(to)

    def kernel(column: Datum) -> Datum:
        return pa.nulls(len(column), target) if isinstance(column, pa.Array) else pa.scalar(None, target)

    return kernel


def _interval_kernel(to: DataType) -> Kernel:
    """Return the kernel of an interval's cast: it is a number of months or milliseconds, whatever its unit."""
    target = arrow_type(to)
    return lambda column: view(column, target)


def _bytes_kernel(source: DataType, to: DataType, session: Session) -> Kernel:
    """Return the kernel of a cast to bytes, from text, a bitmap or bytes: truncated, or padded with zeros."""
    length: int = to.length  # type: ignore[attr-defined]
    is_fixed = isinstance(to, BinaryType)

    def kernel(column: Datum) -> Datum:
        column = pc.cast(column, pa.binary())
        if session.legacy_cast or length == LENGTH_MAX:
            return column
        column = pc.binary_slice(column, 0, length)
        return pad(column) if is_fixed else column

    pad = value_kernel(lambda value: value.ljust(length, b"\0"), [to], to)
    return kernel


def _trying(kernel: Kernel, source: DataType, to: DataType) -> Kernel:
    """Return a kernel that returns NULL for values that cannot be cast."""
    one_by_one = value_kernel(partial(_value_or_none, kernel, source, to), [source], to)

    def tried(column: Datum) -> Datum:
        try:
            return kernel(column)
        except TableRuntimeError:
            return one_by_one(column)

    return tried


def _value_or_none(kernel: Kernel, source: DataType, to: DataType, value: object) -> object:
    try:
        return to_values(kernel(to_scalar(value, source)), to)[0]
    except TableRuntimeError:
        return None
