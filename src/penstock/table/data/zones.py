"""Converts whole columns between instants and local times."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from penstock.codecs.arrow_types import NANOSECONDS
from penstock.table.data.temporal_text import SECOND_NS, civil_from_days
from penstock.table.data.values import Datum

_EPOCH: Final = datetime(1970, 1, 1)
#: the calendar, and with it most zone rules, repeats after this many days
_DAYS_OF_400_YEARS: Final = 146_097
#: 2037-01-01 in seconds: Arrow has no zone rules from then on
_ARROWS_RULES_END: Final = 2_114_380_800


def to_local(moments: Datum, zone: tzinfo) -> Datum:
    """Return the local times in a zone: timestamps without a zone, in the same unit."""
    unit = moments.type.unit
    plain = pa.timestamp(unit)
    fixed = fixed_offset(zone)
    if fixed is not None:
        return _shifted(moments, unit, fixed)
    assert isinstance(zone, ZoneInfo)
    local = pc.local_timestamp(moments.cast(pa.timestamp(unit, zone.key))).cast(plain)
    return _mended(local, moments, _is_late(moments), lambda number: local_ns(number, zone))


def to_moments(clock: Datum, zone: tzinfo) -> Datum:
    """Return the instants of local times in a zone: UTC timestamps, in the same unit.

    Of two instants it is the earlier one. A local time that the clock skips is converted with the offset before the
    gap.
    """
    unit = clock.type.unit
    target_type = pa.timestamp(unit, "UTC")
    fixed = fixed_offset(zone)
    if fixed is not None:
        return view(_shifted(clock, unit, -fixed), target_type)
    assert isinstance(zone, ZoneInfo)
    before, after = (
        pc.assume_timezone(clock, zone.key, ambiguous="earliest", nonexistent=side).cast(target_type)
        for side in ("earliest", "latest")
    )
    is_left_out = pc.fill_null(pc.not_equal(before, after), False)
    return _mended(before, clock, pc.or_(is_left_out, _is_late(clock)), lambda number: moment_ns(number, zone))


def local_ns(moment: int, zone: tzinfo) -> int:
    """Convert one instant, in nanoseconds since 1970, as `to_local` does."""
    return moment + _offset_of_moment(moment // SECOND_NS, zone) * SECOND_NS


def moment_ns(clock: int, zone: tzinfo) -> int:
    """Convert one local time, in nanoseconds since 1970, as `to_moments` does."""
    return clock - _offset_of_clock(clock // SECOND_NS, zone) * SECOND_NS


def fixed_offset(zone: tzinfo) -> int | None:
    """Return a zone's constant offset from UTC in seconds, or None if its offset may change."""
    if zone is UTC or getattr(zone, "key", "") in ("UTC", "Etc/UTC", "GMT", "Etc/GMT", "Z"):
        return 0
    if isinstance(zone, timezone):
        return int(zone.utcoffset(None).total_seconds())
    return None


@lru_cache(maxsize=65_536)
def _offset_of_moment(seconds: int, zone: tzinfo) -> int:
    moved = _EPOCH + timedelta(seconds=_near(seconds))
    offset = moved.replace(tzinfo=UTC).astimezone(zone).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())


@lru_cache(maxsize=65_536)
def _offset_of_clock(seconds: int, zone: tzinfo) -> int:
    moved = (_EPOCH + timedelta(seconds=_near(seconds))).replace(tzinfo=zone)
    offset = moved.utcoffset()
    return 0 if offset is None else int(offset.total_seconds())


def _near(seconds: int) -> int:
    """Move a time into the years that Python supports, to a time with the same zone rules."""
    days = seconds // 86_400
    year = civil_from_days(days)[0]
    if 2 <= year <= 9998:
        return seconds
    if year < 2:
        return seconds + (-(year - 2) // 400 + 1) * _DAYS_OF_400_YEARS * 86_400
    return seconds - ((year - 9998) // 400 + 1) * _DAYS_OF_400_YEARS * 86_400


def _shifted(column: Datum, unit: str, seconds: int) -> Datum:
    numbers = view(column, pa.int64())
    if seconds:
        numbers = pc.add(numbers, pa.scalar(seconds * SECOND_NS // NANOSECONDS[unit], pa.int64()))
    return view(numbers, pa.timestamp(unit))


def _is_late(column: Datum) -> Datum:
    """Return where times are too late for Arrow's zone rules."""
    late = pa.scalar(_ARROWS_RULES_END * SECOND_NS // NANOSECONDS[column.type.unit], pa.int64())
    return pc.fill_null(pc.greater_equal(view(column, pa.int64()), late), False)


def _mended(converted: Datum, column: Datum, wrong: Datum, convert: Callable[[int], int]) -> Datum:
    """Return a result with its wrong values converted again, one by one."""
    if isinstance(column, pa.Scalar):
        return _by_value(pa.repeat(column, 1), converted.type, convert)[0] if wrong.as_py() else converted
    if not pc.any(wrong).as_py():
        return converted
    return pc.replace_with_mask(converted, wrong, _by_value(column.filter(wrong), converted.type, convert))


def _by_value(column: pa.Array, target_type: pa.DataType, convert: Callable[[int], int]) -> pa.Array:
    factor = NANOSECONDS[column.type.unit]
    numbers = column.view(pa.int64()).to_pylist()
    converted = [None if number is None else convert(number * factor) // factor for number in numbers]
    return pa.array(converted, pa.int64()).view(target_type)


def view(column: Datum, kind: pa.DataType) -> Datum:
    """Reinterpret numbers as another type of the same width."""
    if isinstance(column, pa.Scalar):
        return pa.repeat(column, 1).view(kind)[0]
    return column.view(kind)
