"""Timestamps and intervals as NumPy integers, and calendar functions for whole arrays of them.

The calendar is Gregorian for all years.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import tzinfo
from functools import reduce
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.codecs.arrow_types import NANOSECONDS
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.logical_types import DataType, LocalZonedTimestampType
from penstock.table.data.temporal_text import DAY_NS
from penstock.table.data.values import Datum, Kernel
from penstock.table.data.zones import to_local

Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

MILLISECOND_NS: Final = 1_000_000


def to_numbers(column: Datum) -> Numbers:
    """Return the numbers in a column, with 0 for NULL; an array of one number for a scalar."""
    if isinstance(column, pa.Scalar):
        column = pa.repeat(column, 1)
    integers = column
    if not pa.types.is_integer(column.type):
        integers = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    if integers.null_count:
        integers = integers.fill_null(0)
    return np.asarray(integers.to_numpy(zero_copy_only=False), np.int64)


def column_of_numbers(numbers: Numbers, kind: pa.DataType, like: tuple[Datum, ...]) -> Datum:
    """Return numbers as an Arrow column, NULL where an operand is NULL; a scalar if all operands are scalars."""
    stored = pa.int32() if kind.bit_width == 32 else pa.int64()
    plain = pa.array(np.asarray(numbers).astype(np.int32) if stored == pa.int32() else numbers, stored)
    result = plain if kind == stored else plain.view(kind)
    full = [operand for operand in like if isinstance(operand, pa.Array)]
    if any(not operand.is_valid for operand in like if isinstance(operand, pa.Scalar)):
        result = pa.nulls(len(full[0]) if full else 1, kind)
    elif any(operand.null_count for operand in full):
        valid = reduce(pc.and_, [operand.is_valid() for operand in full])
        result = pc.if_else(valid, result, pa.scalar(None, kind))
    return result if full else result[0]


def number_kernel(compute: Callable[..., Numbers], result: DataType) -> Kernel:
    """Return a kernel that processes the integers of all rows at once."""
    kind = arrow_type(result)

    def kernel(*columns: Datum) -> Datum:
        numbers = compute(*[to_numbers(column) for column in columns])
        return column_of_numbers(numbers, kind, columns)

    return kernel


def unit_ns(data_type: DataType) -> int:
    """Return the nanoseconds per unit of a type: of a day, a millisecond, or the unit of a timestamp."""
    kind = arrow_type(data_type)
    if pa.types.is_date(kind):
        return DAY_NS
    return NANOSECONDS[kind.unit] if pa.types.is_timestamp(kind) else MILLISECOND_NS


def local(column: Datum, data_type: DataType, zone: tzinfo) -> Datum:
    """Return a timestamp as local time in the session's zone."""
    return to_local(column, zone) if isinstance(data_type, LocalZonedTimestampType) else column


def days_and_nanos(numbers: Numbers, unit: int) -> tuple[Numbers, Numbers]:
    """Return days since 1970, and nanoseconds of the day. `unit`: nanoseconds per unit of the numbers."""
    per_day = DAY_NS // unit
    days = numbers // per_day
    return days, (numbers - days * per_day) * unit


def toward_zero(numbers: Numbers, size: int) -> Numbers:
    """Divide, truncating toward zero as Java does."""
    quotients: Numbers = np.sign(numbers) * (np.abs(numbers) // size)
    return quotients


# --- the calendar ----------------------------------------------------------------------------------------------------


def to_months(days: Numbers) -> Numbers:
    """Return months since January 1970."""
    return days.view("datetime64[D]").astype("datetime64[M]").view(np.int64)


def days_of_months(months: Numbers) -> Numbers:
    """Return the first day of each month, given as months since January 1970."""
    return np.ascontiguousarray(months).view("datetime64[M]").astype("datetime64[D]").view(np.int64)


def to_years(days: Numbers) -> Numbers:
    """Return the year of each day."""
    return to_months(days) // 12 + 1970


def days_of_years(years: Numbers) -> Numbers:
    """Return the first day of each year."""
    return days_of_months((years - 1970) * 12)


def day_of_month(days: Numbers) -> Numbers:
    """Return the day of the month, from 1."""
    return days - days_of_months(to_months(days)) + 1


def day_of_year(days: Numbers) -> Numbers:
    """Return the day of the year, from 1."""
    return days - days_of_years(to_years(days)) + 1


def weekday(days: Numbers) -> Numbers:
    """Return the weekday; 0 is Monday."""
    return (days + 3) % 7


def iso_year(days: Numbers) -> Numbers:
    """Return the year that a day's ISO week belongs to: the year of its Thursday."""
    return to_years(days - weekday(days) + 3)


def iso_week(days: Numbers) -> Numbers:
    """Return the ISO week of that year, from 1."""
    thursday = days - weekday(days) + 3
    weeks: Numbers = (thursday - days_of_years(to_years(thursday))) // 7 + 1
    return weeks


def add_months(days: Numbers, months: Numbers) -> Numbers:
    """Return the same day some months later, or the last day of that month if the month is too short."""
    old = to_months(days)
    new = old + months
    first = days_of_months(new)
    shifted: Numbers = first + np.minimum(days - days_of_months(old), days_of_months(new + 1) - first - 1)
    return shifted


def months_between(later: Numbers, earlier: Numbers, unit: int) -> Numbers:
    """Return the full months between two timestamps, rounded toward 0. `unit`: nanoseconds per unit of the numbers."""
    swapped = later < earlier
    high, low = np.where(swapped, earlier, later), np.where(swapped, later, earlier)
    high_days, high_time = days_and_nanos(high, unit)
    low_days, low_time = days_and_nanos(low, unit)
    months = to_months(high_days) - to_months(low_days)
    reached = add_months(low_days, months)
    is_short = (reached > high_days) | ((reached == high_days) & (high_time < low_time))
    months = months - is_short
    differences: Numbers = np.where(swapped, -months, months)
    return differences
