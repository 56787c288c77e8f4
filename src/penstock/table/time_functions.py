"""Date and time functions of the Table API."""

from __future__ import annotations

from penstock.sql.expressions.builder import build_call, to_node
from penstock.sql.parser import syntax
from penstock.table.expression import Expression, TimePointUnit


def made(name: str, *operands: object | None) -> Expression:
    """Build a call of a SQL function, omitting operands that are not given (None)."""
    return Expression(build_call(name, *(operand for operand in operands if operand is not None)))


def current_date() -> Expression:
    """Return the current date in the session's time zone."""
    return made("CURRENT_DATE")


def current_time() -> Expression:
    """Return the current time of day in the session's time zone."""
    return made("CURRENT_TIME")


def current_timestamp() -> Expression:
    """Return the current instant."""
    return made("CURRENT_TIMESTAMP")


def local_time() -> Expression:
    """Return the current time of day in the session's time zone."""
    return made("LOCALTIME")


def local_timestamp() -> Expression:
    """Return the current date and time of day in the session's time zone."""
    return made("LOCALTIMESTAMP")


def current_watermark(rowtimeAttribute: object) -> Expression:
    """Return the current watermark of a time attribute; NULL before the first one."""
    return made("CURRENT_WATERMARK", rowtimeAttribute)


def source_watermark() -> Expression:
    """Return the watermark that the source itself emits; valid only as the watermark of a schema."""
    return made("SOURCE_WATERMARK")


def temporal_overlaps(
    left_time_point: object, left_temporal: object, right_time_point: object, right_temporal: object
) -> Expression:
    """Return whether two periods overlap; each has a start, and an end or a length."""
    left = syntax.RowValue((to_node(left_time_point), to_node(left_temporal)))
    right = syntax.RowValue((to_node(right_time_point), to_node(right_temporal)))
    return Expression(syntax.Call("OVERLAPS", (left, right)))


def timestamp_diff(time_point_unit: TimePointUnit, time_point1: object, time_point2: object) -> Expression:
    """Return the number of whole units of time from the first point in time to the second."""
    unit = Expression(syntax.Unit(time_point_unit.value))
    return made("TIMESTAMPDIFF", unit, time_point1, time_point2)


def date_format(timestamp: object, format: object) -> Expression:
    """Format a point in time by a pattern of Java's `SimpleDateFormat`."""
    return made("DATE_FORMAT", timestamp, format)


def convert_tz(date_str: object, tz_from: object, tz_to: object) -> Expression:
    """Convert text such as `2020-01-31 12:34:56` from one time zone to another."""
    return made("CONVERT_TZ", date_str, tz_from, tz_to)


def from_unixtime(unixtime: object, format: object | None = None) -> Expression:
    """Format seconds since 1970 as text, by default as `yyyy-MM-dd HH:mm:ss`."""
    return made("FROM_UNIXTIME", unixtime, format)


def unix_timestamp(date_str: object | None = None, format: object | None = None) -> Expression:
    """Return the seconds from 1970 to the point in time that the text describes, or to now."""
    return made("UNIX_TIMESTAMP", date_str, format)


def to_date(date_str: object, format: object | None = None) -> Expression:
    """Parse text as a date, by default in the format `yyyy-MM-dd`."""
    return made("TO_DATE", date_str, format)


def to_timestamp(timestamp_str: object, format: object | None = None) -> Expression:
    """Parse text as a timestamp, by default in the format `yyyy-MM-dd HH:mm:ss`."""
    return made("TO_TIMESTAMP", timestamp_str, format)


def to_timestamp_ltz(*args: object) -> Expression:
    """Convert a number with its precision (0: seconds since 1970, 3: ms), or text with its format, to an instant."""
    return made("TO_TIMESTAMP_LTZ", *args)
