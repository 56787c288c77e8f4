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


def time_kernel(found: DataType, to: DataType, session: Session) -> Kernel:
    """Return the kernel of a cast between dates, times and timestamps."""
    if isinstance(to, LocalZonedTimestampType) and not isinstance(found, LocalZonedTimestampType):
        clock = time_kernel(found, TimestampType(to.precision), session)
        return lambda column: to_moments(clock(column), session.zone)
    if isinstance(found, LocalZonedTimestampType) and not isinstance(to, LocalZonedTimestampType):
        shown = time_kernel(TimestampType(found.precision), to, session)
        return lambda column: shown(to_local(column, session.zone))
    wanted = arrow_type(to)
    if isinstance(found, DateType):
        return lambda column: _with_unit(column, wanted)
    if isinstance(found, TimeType):
        if isinstance(to, TimeType):
            return _cut_times(to.precision)
        return lambda column: pc.cast(view(pc.cast(view(column, pa.int32()), pa.int64()), pa.timestamp("ms")), wanted)
    if isinstance(to, DateType):
        return lambda column: pc.cast(column, wanted, safe=False)
    if isinstance(to, TimeType):
        return _time_of_day(to.precision)
    return cut_timestamp_kernel(found, to)


def cut_timestamp_kernel(found: DataType, to: DataType) -> Kernel:
    """Return the kernel of a cast to another precision. Milliseconds are truncated toward 1970, as in Flink."""
    digits, wanted = to.precision, arrow_type(to)  # type: ignore[attr-defined]
    held = DIGITS[wanted.unit]
    is_cut = digits < found.precision and digits < held  # type: ignore[attr-defined]

    def kernel(column: Datum) -> Datum:
        if column.type == wanted and not is_cut:
            return column
        if DIGITS[column.type.unit] > held:
            column = pc.floor_temporal(column, unit=_UNITS[wanted.unit])
        column = _with_unit(column, wanted)
        if not is_cut:
            return column
        step = pa.scalar(10 ** (held - digits), pa.int64())
        numbers = view(column, pa.int64())
        if digits > _MS_DIGITS:
            numbers = pc.subtract(numbers, _remainder(numbers, step))
        else:
            numbers = pc.multiply(pc.divide(numbers, step), step)
        return view(numbers, wanted)

    return kernel


def _with_unit(column: Datum, wanted: pa.DataType) -> Datum:
    """Convert dates or timestamps to another timestamp unit; raise `TableRuntimeError` if it cannot hold them."""
    try:
        return pc.cast(column, wanted)
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
