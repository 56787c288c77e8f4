"""Casts among dates, times of day and timestamps. Excess fractional digits of a second are truncated."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.codecs.arrow_types import DIGITS
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.errors import TableRuntimeError
from penstock.table.data.logical_types import DataType, DateType, LocalZonedTimestampType, TimestampType, TimeType
from penstock.table.data.temporal_text import DAY_MS, FAR_NANOSECONDS
from penstock.table.data.values import Datum, Kernel
from penstock.table.data.zones import to_local, to_moments, view
from penstock.table.functions.definition import Session

_MS_DIGITS: Final = 3


def time_kernel(source: DataType, to: DataType, session: Session) -> Kernel:
    """Return the kernel of a cast between dates, times and timestamps."""
    if isinstance(to, LocalZonedTimestampType) and not isinstance(source, LocalZonedTimestampType):
        clock = time_kernel(source, TimestampType(to.precision), session)
        return lambda column: to_moments(clock(column), session.zone)
    if isinstance(source, LocalZonedTimestampType) and not isinstance(to, LocalZonedTimestampType):
        local_kernel = time_kernel(TimestampType(source.precision), to, session)
        return lambda column: local_kernel(to_local(column, session.zone))
    target = arrow_type(to)
    if isinstance(source, DateType):
        return lambda column: _with_unit(column, target)
    if isinstance(source, TimeType):
        if isinstance(to, TimeType):
            return _cut_times(to.precision)
        return lambda column: pc.cast(view(pc.cast(view(column, pa.int32()), pa.int64()), pa.timestamp("ms")), target)
    if isinstance(to, DateType):
        return lambda column: pc.cast(column, target, safe=False)
    if isinstance(to, TimeType):
        return _time_of_day(to.precision)
    return cut_timestamp_kernel(source, to)


def cut_timestamp_kernel(source: DataType, to: DataType) -> Kernel:
    """Return the kernel of a cast to another precision. Milliseconds are truncated toward 1970, as in Flink."""
    digits, target = to.precision, arrow_type(to)  # type: ignore[attr-defined]
    unit_digits = DIGITS[target.unit]
    is_cut = digits < source.precision and digits < unit_digits  # type: ignore[attr-defined]

    def kernel(column: Datum) -> Datum:
        if column.type == target and not is_cut:
            return column
        if DIGITS[column.type.unit] > unit_digits:
            column = pc.floor_temporal(column, unit=_UNITS[target.unit])
        column = _with_unit(column, target)
        if not is_cut:
            return column
        step = pa.scalar(10 ** (unit_digits - digits), pa.int64())
        numbers = view(column, pa.int64())
        if digits > _MS_DIGITS:
            numbers = pc.subtract(numbers, _remainder(numbers, step))
        else:
            numbers = pc.multiply(pc.divide(numbers, step), step)
        return view(numbers, target)

    return kernel


def _with_unit(column: Datum, target: pa.DataType) -> Datum:
    """Convert dates or timestamps to another timestamp unit; raise `TableRuntimeError` if it cannot hold them."""
    try:
        return pc.cast(column, target)
    except pa.ArrowInvalid:
        raise TableRuntimeError(FAR_NANOSECONDS) from None


_UNITS: Final = {"ms": "millisecond", "us": "microsecond"}


def cut_time(milliseconds: int, digits: int) -> int:
    """Truncate a time of day to `digits` fractional digits of a second."""
    step: int = 10 ** max(_MS_DIGITS - digits, 0)
    return milliseconds // step * step


def _cut_times(digits: int) -> Kernel:
    if digits >= _MS_DIGITS:
        return lambda column: column
    step = pa.scalar(10 ** (_MS_DIGITS - digits), pa.int32())

    def kernel(column: Datum) -> Datum:
        numbers = view(column, pa.int32())
        return view(pc.multiply(pc.divide(numbers, step), step), pa.time32("ms"))

    return kernel


def _time_of_day(digits: int) -> Kernel:
    cut = _cut_times(digits)

    def kernel(column: Datum) -> Datum:
        if column.type.unit != "ms":
            column = pc.cast(pc.floor_temporal(column, unit="millisecond"), pa.timestamp("ms"))
        rest = _remainder(view(column, pa.int64()), pa.scalar(DAY_MS, pa.int64()))
        return cut(view(pc.cast(rest, pa.int32()), pa.time32("ms")))

    return kernel


def _remainder(numbers: Datum, step: pa.Scalar) -> Datum:
    """Return the remainder of a division by `step`, never below 0."""
    rest = pc.subtract(numbers, pc.multiply(pc.divide(numbers, step), step))
    return pc.if_else(pc.less(rest, 0), pc.add(rest, step), rest)
