"""Functions of the Table API that give points in time, or take them."""

from __future__ import annotations

from penstock.table.expression import Expression, TimePointUnit
from penstock.table.methods.operand import call_of, node_of
from penstock.table.sql import syntax


def made(name: str, *operands: object | None) -> Expression:
    """A call of a function of SQL; operands that are None are not there."""
    return Expression(call_of(name, *(one for one in operands if one is not None)))


def current_date() -> Expression:
    """Today, in the session's time zone."""
    return made("CURRENT_DATE")


def current_time() -> Expression:
    """The time of day, in the session's time zone."""
    return made("CURRENT_TIME")


def current_timestamp() -> Expression:
    """The present moment."""
    return made("CURRENT_TIMESTAMP")


def local_time() -> Expression:
    """The time of day, in the session's time zone."""
    return made("LOCALTIME")


def local_timestamp() -> Expression:
    """The day and the time of day, in the session's time zone."""
    return made("LOCALTIMESTAMP")


def current_watermark(rowtimeAttribute: object) -> Expression:
    """How far the event time of a time attribute has come; NULL before there is a watermark."""
    return made("CURRENT_WATERMARK", rowtimeAttribute)


def source_watermark() -> Expression:
    """The watermark that a source sends itself; only for the watermark of a schema."""
    return made("SOURCE_WATERMARK")


def temporal_overlaps(
    left_time_point: object, left_temporal: object, right_time_point: object, right_temporal: object
) -> Expression:
    """Whether two periods have a moment in common: each begins at a point in time and has an end or a length."""
    left = syntax.RowValue((node_of(left_time_point), node_of(left_temporal)))
    right = syntax.RowValue((node_of(right_time_point), node_of(right_temporal)))
    return Expression(syntax.Call("OVERLAPS", (left, right)))


def timestamp_diff(time_point_unit: TimePointUnit, time_point1: object, time_point2: object) -> Expression:
    """How many whole units of time the second point in time is after the first one."""
    unit = Expression(syntax.Unit(time_point_unit.value))
    return made("TIMESTAMPDIFF", unit, time_point1, time_point2)


def date_format(timestamp: object, format: object) -> Expression:
    """A point in time as text, in a format as Java's `SimpleDateFormat` has them."""
    return made("DATE_FORMAT", timestamp, format)


def convert_tz(date_str: object, tz_from: object, tz_to: object) -> Expression:
    """A text such as `2020-01-31 12:34:56` of one time zone, as it reads in another one."""
    return made("CONVERT_TZ", date_str, tz_from, tz_to)


def from_unixtime(unixtime: object, format: object | None = None) -> Expression:
    """Seconds since 1970 as text, in the form `yyyy-MM-dd HH:mm:ss` unless another one is given."""
    return made("FROM_UNIXTIME", unixtime, format)


def unix_timestamp(date_str: object | None = None, format: object | None = None) -> Expression:
    """Seconds from 1970 to the point in time of a text, or to now."""
    return made("UNIX_TIMESTAMP", date_str, format)


def to_date(date_str: object, format: object | None = None) -> Expression:
    """The day that a text stands for, in the form `yyyy-MM-dd` unless another one is given."""
    return made("TO_DATE", date_str, format)


def to_timestamp(timestamp_str: object, format: object | None = None) -> Expression:
    """The point in time that a text stands for, in the form `yyyy-MM-dd HH:mm:ss` unless another one is given."""
    return made("TO_TIMESTAMP", timestamp_str, format)


def to_timestamp_ltz(*args: object) -> Expression:
    """The moment of a number and its precision (0: seconds since 1970, 3: ms), or of a text and its format."""
    return made("TO_TIMESTAMP_LTZ", *args)
