"""Dates, times, timestamps and intervals: calendar and time zones, text, and NumPy kernels for whole columns.

The calendar is Gregorian for all years, as in Java and in Flink. Text is parsed and formatted in integer arithmetic,
because Python's classes lack nanoseconds and the year 0. In columns, timestamps and intervals are NumPy integers, and
whole columns are converted between instants and local times. Time zones have their Java names.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache, reduce
from typing import Any, Final, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.codecs.arrow_columns import NANOSECONDS
from penstock.codecs.serialization import parse_digits
from penstock.sql.data.arrow import Datum, Kernel, arrow_type
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.data.types import DataType, LocalZonedTimestampType

DAY_NS: Final = 86_400_000_000_000
DAY_MS: Final = 86_400_000
SECOND_NS: Final = 1_000_000_000

_DATE: Final = re.compile(r"(-?\d{1,6})-(\d{1,2})-(\d{1,2})")
_TIME: Final = re.compile(r"(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9})\d*)?)?)?")
_DAYS_OF_MONTHS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def days_of_month(year: int, month: int) -> int:
    """Return the number of days in a month."""
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 29 if month == 2 and is_leap else _DAYS_OF_MONTHS[month - 1]


def days_from_civil(year: int, month: int, day: int) -> int:
    """Return days since 1970-01-01."""
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


def civil_from_days(days: int) -> tuple[int, int, int]:
    """Return the year, month and day of a number of days since 1970-01-01."""
    era, day_of_era = divmod(days + 719_468, 146_097)
    year = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + (3 if shifted < 10 else -9)
    return year + era * 400 + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1


def parse_date(text: str) -> int | None:
    """Parse `2020-01-31` to days since 1970; return None if it is not a valid date."""
    match = _DATE.fullmatch(text.strip())
    if match is None:
        return None
    year, month, day = map(int, match.groups())
    if not 1 <= month <= 12 or not 1 <= day <= days_of_month(year, month):
        return None
    return days_from_civil(year, month, day)


def parse_time(text: str) -> int | None:
    """Parse `12:34:56.789` to nanoseconds of the day; None if it is invalid. Minutes and seconds are optional."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return None
    hour, minute, second = (parse_digits(group or "0") for group in match.groups()[:3])
    if hour > 23 or minute > 59 or second > 59:
        return None
    return ((hour * 60 + minute) * 60 + second) * SECOND_NS + int((match.group(4) or "").ljust(9, "0"))


#: the most fractional digits of a second at which timestamps support every year
MICROSECOND_DIGITS: Final = 6
FAR_NANOSECONDS: Final = "points in time with more than 6 digits of a second are in the years 1678 to 2261"


def is_far(nanoseconds: int, digits: int) -> bool:
    """Return whether a type with `digits` fractional digits cannot hold a timestamp (in nanoseconds since 1970)."""
    return digits > MICROSECOND_DIGITS and not -(2**63) <= nanoseconds < 2**63


def parse_timestamp(text: str) -> int | None:
    """Parse `2020-01-31 12:34:56.789`, also with a T or only a date, to nanoseconds since 1970; None if invalid."""
    date, _, time = text.strip().replace("T", " ", 1).partition(" ")
    days = parse_date(date)
    if days is None:
        return None
    of_day = parse_time(time) if time.strip() else 0
    return None if of_day is None else days * DAY_NS + of_day


def fraction_digits(text: str) -> int:
    """Return the number of fractional digits of a second in a text, at most 9."""
    return min(9, len(text.rstrip().rpartition(".")[2])) if "." in text else 0


def format_date(days: int) -> str:
    """`2020-01-31`."""
    year, month, day = civil_from_days(days)
    return f"{_year(year)}-{month:02}-{day:02}"


def format_time(nanoseconds: int, digits: int) -> str:
    """Return `12:34:56.789` with `digits` fractional digits."""
    seconds, fraction = divmod(nanoseconds, SECOND_NS)
    minutes, second = divmod(seconds, 60)
    text = f"{minutes // 60:02}:{minutes % 60:02}:{second:02}"
    return f"{text}.{fraction:09}"[: len(text) + 1 + digits] if digits else text


def format_timestamp(nanoseconds: int, digits: int) -> str:
    """Return `2020-01-31 12:34:56.789` with `digits` fractional digits."""
    days, of_day = divmod(nanoseconds, DAY_NS)
    return f"{format_date(days)} {format_time(of_day, digits)}"


def _year(year: int) -> str:
    return f"{year:04}" if year >= 0 else f"-{-year:04}"


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


_NUMBER_MAX: Final = (1 << 63) - 1


def scaled(numbers: Numbers, factor: int) -> Numbers:
    """Return numbers times a factor. Raises `TableRuntimeError` for nanoseconds of years that 64 bits do not hold."""
    if factor > 1 and numbers.size and np.abs(numbers).max() > _NUMBER_MAX // factor:
        raise TableRuntimeError(FAR_NANOSECONDS)
    return numbers * factor


def distance(later: Numbers, later_unit: int, earlier: Numbers, earlier_unit: int) -> tuple[Numbers, Numbers]:
    """Return whole days between points in time, toward zero, and the nanoseconds that are left, with the same sign."""
    (day, time), (first_day, first_time) = days_and_nanos(later, later_unit), days_and_nanos(earlier, earlier_unit)
    days, nanos = day - first_day, time - first_time
    towards = ((days > 0) & (nanos < 0)).astype(np.int64) - ((days < 0) & (nanos > 0))
    return days - towards, nanos + towards * DAY_NS


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


def months_between(later: Numbers, later_unit: int, earlier: Numbers, earlier_unit: int) -> Numbers:
    """Return the full months between two timestamps, rounded toward 0. The units: nanoseconds per number."""
    (day, time), (first_day, first_time) = days_and_nanos(later, later_unit), days_and_nanos(earlier, earlier_unit)
    swapped = (day < first_day) | ((day == first_day) & (time < first_time))
    high_days, high_time = np.where(swapped, first_day, day), np.where(swapped, first_time, time)
    low_days, low_time = np.where(swapped, day, first_day), np.where(swapped, time, first_time)
    months = to_months(high_days) - to_months(low_days)
    reached = add_months(low_days, months)
    is_short = (reached > high_days) | ((reached == high_days) & (high_time < low_time))
    months = months - is_short
    differences: Numbers = np.where(swapped, -months, months)
    return differences


#: the short names in Java's legacy class of time zones
_SHORT_NAMES: Final = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "EST": "GMT-05:00",
    "HST": "GMT-10:00",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "MST": "GMT-07:00",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}
_OFFSET: Final = re.compile(r"(GMT|UTC|UT)?([+-])(\d{1,2})(?::?(\d\d))?(?::?(\d\d))?")


@lru_cache(maxsize=256)
def zone_by_id(name: str) -> tzinfo | None:
    """Return the zone of an id such as `Europe/Berlin`, `UTC`, `GMT+8` or `+08:00`; None if it is unknown."""
    if name in ("Z", "UTC", "GMT", "UT"):
        return UTC
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        sign = -1 if offset.group(2) == "-" else 1
        hours, minutes, seconds = (int(part or 0) for part in offset.groups()[2:])
        if hours > 18 or minutes > 59 or seconds > 59:
            return None
        return timezone(sign * timedelta(hours=hours, minutes=minutes, seconds=seconds))
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


@lru_cache(maxsize=256)
def zone_or_gmt(name: str) -> tzinfo:
    """Find a zone like Java's legacy class of time zones: accept short names, and treat unknown names as GMT."""
    if name[:1] in ("+", "-"):
        return UTC
    return zone_by_id(_SHORT_NAMES.get(name, name)) or UTC


def zone_name(zone: tzinfo) -> str:
    """Return Arrow's name of a zone from `zone_by_id`: `Europe/Berlin`, `UTC` or `+08:00`."""
    if isinstance(zone, ZoneInfo):
        return zone.key
    offset = zone.utcoffset(None) or timedelta()
    minutes = offset // timedelta(minutes=1)
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}" if offset else "UTC"
