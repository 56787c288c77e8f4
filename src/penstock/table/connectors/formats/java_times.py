"""Timestamps in files of programs that use Java's legacy date classes, in the time zone of the program.

Such a program has a local time, and stores the instant at which the clock in its zone shows this time. The classes have
their own rules: before 1900 the offset of a zone from UTC is always today's, without daylight saving time, and before
15 October 1582 dates are in the Julian calendar.
"""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.codecs.arrow_types import NANOSECONDS
from penstock.codecs.julian_calendar import to_gregorian, to_julian
from penstock.table.data.zones import to_local, to_moments

_DAY_NS: Final = 86_400 * 10**9
#: 1 January 1900, in days since 1970
_RULES_BEGIN_DAY: Final = -25_567


def clock_times(column: pa.Array, zone: tzinfo) -> pa.Array:
    """Return the local times that a program in a zone has stored as instants in UTC.

    Args:
        column: timestamps. Columns of other types are returned unchanged.
        zone: the time zone of the program.

    Returns:
        Timestamps without a zone, in the same unit.
    """
    if not pa.types.is_timestamp(column.type):
        return column
    unit = column.type.unit
    day = _DAY_NS // NANOSECONDS[unit]
    clock = to_local(column.view(pa.timestamp(unit, "UTC")), zone)
    moments = _numbers(column)
    is_old = moments < _RULES_BEGIN_DAY * day
    if not is_old.any():
        return clock
    clock_numbers = moments + _first_offset(zone) // NANOSECONDS[unit]
    days = clock_numbers // day
    clock_numbers = to_gregorian(days) * day + (clock_numbers - days * day)
    return _with_numbers(clock, np.where(is_old, clock_numbers, _numbers(clock)))


def stored_moments(column: pa.Array, zone: tzinfo) -> pa.Array:
    """Return the instants stored by a program in a zone for local times: the inverse of `clock_times`.

    Keeps the type.
    """
    if not pa.types.is_timestamp(column.type):
        return column
    unit = column.type.unit
    day = _DAY_NS // NANOSECONDS[unit]
    clock = column.view(pa.timestamp(unit))
    converted = to_moments(clock, zone).view(column.type)
    clock_numbers = _numbers(column)
    offset = _first_offset(zone) // NANOSECONDS[unit]
    is_old = clock_numbers < _RULES_BEGIN_DAY * day + offset
    if not is_old.any():
        return converted
    days = clock_numbers // day
    moments = to_julian(days) * day + (clock_numbers - days * day) - offset
    return _with_numbers(converted, np.where(is_old, moments, _numbers(converted)))


def _first_offset(zone: tzinfo) -> int:
    """Return a zone's offset from UTC before 1900, in nanoseconds, according to Java's legacy classes."""
    now = datetime(2024, 1, 1, tzinfo=zone)
    offset = (now.utcoffset() or timedelta()) - (now.dst() or timedelta())
    return int(offset.total_seconds()) * 10**9


def _numbers(column: pa.Array) -> Any:
    numbers = column.view(pa.int64())
    return (numbers.fill_null(0) if column.null_count else numbers).to_numpy()


def _with_numbers(column: pa.Array, numbers: Any) -> pa.Array:
    missing = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    return pa.array(numbers, pa.int64(), mask=missing).view(column.type)
