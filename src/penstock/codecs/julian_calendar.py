"""Converts dates to and from Java's legacy classes, which use the Julian calendar before 15 October 1582.

Java programs that use those classes (Spark for ORC, Flink for timestamps in Parquet) store such a date as the number of
days elapsed since then. All other programs use the Gregorian calendar for every year. Both identify a date by year,
month and day, so these functions map one day number to the other with the same date.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

#: 15 October 1582 in days since 1970: the first day of the Gregorian calendar
FIRST_GREGORIAN_DAY: Final = -141_427
#: the Julian day number of 1 January 1970, counted from 4713 BC
_EPOCH_DAY: Final = 2_440_588


def to_gregorian(days: Numbers) -> Numbers:
    """Convert days since 1970 in Java's legacy calendar to Gregorian days with the same dates."""
    is_old = days < FIRST_GREGORIAN_DAY
    if not is_old.any():
        return days
    converted = days.copy()
    shifted = days[is_old] + (_EPOCH_DAY + 32_082)
    years = (4 * shifted + 3) // 1461
    of_year = shifted - 1461 * years // 4
    months = (5 * of_year + 2) // 153
    day_of_month = of_year - (153 * months + 2) // 5
    since_1970 = (years - 4800 + months // 10 - 1970) * 12 + (months + 2) % 12
    # A date that exists only in the Julian calendar, such as 29 February 1500, becomes the next day, as in Java.
    converted[is_old] = since_1970.view("datetime64[M]").astype("datetime64[D]").view(np.int64) + day_of_month
    return converted


def to_julian(days: Numbers) -> Numbers:
    """Convert Gregorian days since 1970 to days in Java's legacy calendar with the same dates."""
    is_old = days < FIRST_GREGORIAN_DAY
    if not is_old.any():
        return days
    converted = days.copy()
    dates = days[is_old].view("datetime64[D]")
    months = dates.astype("datetime64[M]")
    day_of_month = (dates - months.astype("datetime64[D]")).astype(np.int64)
    since_1970 = months.view(np.int64)
    months_of_year = since_1970 % 12
    late = (14 - (months_of_year + 1)) // 12
    years = since_1970 // 12 + 1970 + 4800 - late
    counted = months_of_year + 1 + 12 * late - 3
    converted[is_old] = (153 * counted + 2) // 5 + 365 * years + years // 4 - 32_083 + day_of_month + 1 - _EPOCH_DAY
    return converted


def gregorian_dates(column: pa.Array) -> pa.Array:
    """Convert a date column from Java's legacy calendar to the Gregorian one; other types stay unchanged."""
    if not pa.types.is_date32(column.type) or not len(column):
        return column
    days = column.view(pa.int32()).fill_null(0).to_numpy().astype(np.int64)
    if days.min() >= FIRST_GREGORIAN_DAY:
        return column
    missing = column.is_null().to_numpy(zero_copy_only=False)
    return pa.array(to_gregorian(days).astype(np.int32), pa.int32(), mask=missing).view(pa.date32())
