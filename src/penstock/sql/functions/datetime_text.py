"""Temporal values from strings (TO_DATE, TO_TIMESTAMP, UNIX_TIMESTAMP) and as strings (DATE_FORMAT, FROM_UNIXTIME).

Arrow parses strings in the usual form, a column at once. Others are parsed one by one, each distinct string once.
DATE_FORMAT, FROM_UNIXTIME and CONVERT_TZ format temporal values with a pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.codecs.serialization import parse_digits
from penstock.sql.data import datetimes
from penstock.sql.data.arrow import Datum, Kernel, apply_validity, arrow_type, flat_values, to_full_array
from penstock.sql.data.types import DataType, DateType, LocalZonedTimestampType, NullType, TimestampType, TimeType
from penstock.sql.datetime_format import formatting
from penstock.sql.datetime_format.patterns import Dialect, UnusablePatternError
from penstock.sql.functions import definition
from penstock.sql.functions.type_rules import is_text

_DEFAULT: Final = "yyyy-MM-dd HH:mm:ss"
_DAY: Final = r"[1-9]\d{3}-\d{2}-\d{2}"
_TIME: Final = r"\d{2}:\d{2}:\d{2}"
#: for each pattern, the strings that Arrow parses with the same result
_SHAPES: Final = {
    "": rf"^{_DAY}( {_TIME}(\.\d{{1,6}})?)?$",
    "yyyy-MM-dd": rf"^{_DAY}$",
    _DEFAULT: rf"^{_DAY} {_TIME}$",
    f"{_DEFAULT}.SSS": rf"^{_DAY} {_TIME}\.\d{{3}}$",
    f"{_DEFAULT}.SSSSSS": rf"^{_DAY} {_TIME}\.\d{{6}}$",
}
#: the result of UNIX_TIMESTAMP for a string that does not parse
_UNREADABLE: Final = -(2**63)
_MILLISECONDS: Final = LocalZonedTimestampType(3)


def read_at_once(column: Datum, pattern: str, kind: pa.DataType) -> pa.Array | None:
    """Parse a column to Arrow timestamps without a zone. Returns None if any string is not in the usual form."""
    shape = _SHAPES.get(pattern)
    if shape is None or not isinstance(column, pa.Array):
        return None
    if not pc.all(pc.match_substring_regex(column, shape), min_count=0).as_py():
        return None
    try:
        if kind.unit != "ms":
            return column.cast(kind)
        precise = column.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:  # a nonexistent day or time
        return None
    timestamps = datetimes.column_of_numbers(datetimes.to_numbers(precise) // 1000, kind, (column,))
    assert isinstance(timestamps, pa.Array)
    return timestamps


# --- SimpleDateFormat ------------------------------------------------------------------------------------------------


def moments_of_text(zone: tzinfo) -> Kernel:
    """Return a kernel that parses strings in a zone by a SimpleDateFormat pattern, to TIMESTAMP_LTZ(3) or NULL."""

    def read(text: str, pattern: str) -> int | None:
        return formatting.simple_parser(pattern)(text, zone)

    slow = definition.value_kernel(read, [definition.STRING, definition.STRING], _MILLISECONDS)

    def kernel(text: Datum, pattern: Datum) -> Datum:
        if isinstance(pattern, pa.Scalar) and pattern.is_valid and "." not in pattern.as_py():
            clock = read_at_once(text, pattern.as_py(), pa.timestamp("ms"))
            if clock is not None:
                return _calendar_moments(clock, zone)
        return slow(text, pattern)

    return kernel


def _calendar_moments(clock: pa.Array, zone: tzinfo) -> Datum:
    """Convert local times to instants. An ambiguous time is the second of its two instants."""
    first = datetimes.to_moments(clock, zone)
    if datetimes.fixed_offset(zone) is not None:
        return first
    local_numbers, numbers = datetimes.to_numbers(clock), datetimes.to_numbers(first)
    kind = first.type
    later = numbers + datetimes.DAY_MS
    second = local_numbers - (datetimes.to_numbers(datetimes.to_local(pa.array(later).view(kind), zone)) - later)
    is_second = (second > numbers) & (
        datetimes.to_numbers(datetimes.to_local(pa.array(second).view(kind), zone)) == local_numbers
    )
    return pc.if_else(pa.array(is_second), datetimes.column_of_numbers(second, kind, (clock,)), first)


def _unix_timestamp(call: definition.Call) -> Kernel:
    session = call.session
    if not call.types:
        return lambda: pa.scalar(session.now() // datetimes.SECOND_NS, pa.int64())
    read = moments_of_text(session.zone)
    default = pa.scalar(_DEFAULT)

    def kernel(text: Datum, pattern: Datum = default) -> Datum:
        milliseconds = read(text, pattern).cast(pa.int64())
        seconds = pc.fill_null(pc.divide(milliseconds, 1000), _UNREADABLE)
        is_known = pc.and_(pc.is_valid(text), pc.is_valid(pattern))
        return pc.if_else(is_known, seconds, pa.scalar(None, pa.int64()))

    return kernel


def _unix_type(call: definition.Operands) -> DataType:
    return definition.BIGINT.nullable() if call.any_nullable() else definition.BIGINT.not_null()


# --- TO_DATE ---------------------------------------------------------------------------------------------------------

_DAY_LENGTH: Final = len("yyyy-MM-dd")
_DAY_OR_MORE: Final = r"^.{10}( |$)"
_DIGITS: Final = re.compile(r"\d+", re.ASCII)


def _date(text: str) -> int | None:
    """Parse year, month and day between hyphens. Month and day may be missing; text after a space is ignored."""
    if text.find(" ") > 0:
        text = text[: text.index(" ")]
    parts = [part.strip() for part in text.split("-", 2)]
    if not all(_DIGITS.fullmatch(part) for part in parts):
        return None
    year, month, day = [*map(parse_digits, parts), 1, 1][:3]
    if year > 9999 or not 1 <= month <= 12 or not 1 <= day <= datetimes.days_of_month(year, month):
        return None
    return datetimes.days_from_civil(year, month, day)


def _parse_date(text: str, pattern: str) -> int | None:
    moment = formatting.simple_parser(pattern)(text, UTC)
    return None if moment is None else moment // datetimes.DAY_NS


def _to_date(call: definition.Call) -> Kernel:
    if len(call.types) == 2:
        return definition.per_value(_parse_date)(call)
    slow = definition.per_value(_date)(call)

    def kernel(text: Datum) -> Datum:
        timestamps = read_at_once(pc.utf8_slice_codeunits(text, 0, _DAY_LENGTH), "yyyy-MM-dd", pa.timestamp("us"))
        if timestamps is None or not pc.all(pc.match_substring_regex(text, _DAY_OR_MORE), min_count=0).as_py():
            return slow(text)
        return timestamps.cast(pa.date32())

    return kernel


# --- DateTimeFormatter -----------------------------------------------------------------------------------------------


def read_modern(text: str, pattern: str) -> int | None:
    """Parse a local time with a DateTimeFormatter pattern, or else in SQL's form, to nanoseconds since 1970.

    Also returns None for an unusable pattern, as in Flink.
    """
    try:
        nanoseconds = formatting.modern_parser(pattern)(text)
    except UnusablePatternError:
        return None
    return formatting.parse_sql(text) if nanoseconds is None else nanoseconds


def clocks_of_text(result: DataType, count: int) -> Kernel:
    """Return a kernel that parses local times to a TIMESTAMP type. With `count` 2, the second operand is a pattern."""
    kind = arrow_type(result)
    read: Callable[..., int | None] = formatting.parse_default if count == 1 else read_modern
    slow = definition.value_kernel(read, [definition.STRING] * count, result)

    def kernel(text: Datum, *patterns: Datum) -> Datum:
        constant = not patterns or (isinstance(patterns[0], pa.Scalar) and patterns[0].is_valid)
        timestamps = read_at_once(text, patterns[0].as_py() if patterns else "", kind) if constant else None
        return slow(text, *patterns) if timestamps is None else timestamps

    return kernel


def _to_timestamp(call: definition.Call) -> Kernel:
    return clocks_of_text(call.result, len(call.types))


TEMPORAL_TEXTS_FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    definition.scalar(
        "TO_DATE",
        definition.takes(definition.TEXT, definition.TEXT, optional=1),
        definition.returns_nullable(DateType()),
        _to_date,
        "Parses a date; the pattern defaults to `yyyy-MM-dd`.",
        usage="TO_DATE(text[, pattern])",
        section="time",
        python_name="toDate",
        can_fail=True,
    ),
    definition.scalar(
        "TO_TIMESTAMP",
        definition.takes(definition.TEXT, definition.TEXT, optional=1),
        definition.returns_nullable(TimestampType(3)),
        _to_timestamp,
        "Parses a timestamp; the pattern defaults to `yyyy-MM-dd HH:mm:ss`.",
        usage="TO_TIMESTAMP(text[, pattern])",
        section="time",
        python_name="toTimestamp",
        can_fail=True,
    ),
    definition.scalar(
        "UNIX_TIMESTAMP",
        definition.takes(definition.TEXT, definition.TEXT, optional=2),
        _unix_type,
        _unix_timestamp,
        "Returns the current time in seconds since 1970, or that of a string in the session time zone; the pattern "
        "defaults to `yyyy-MM-dd HH:mm:ss`.",
        usage="UNIX_TIMESTAMP([text[, pattern]])",
        section="time",
        python_name="unixTimestamp",
        can_fail=True,
        is_deterministic=False,
    ),
)


_TEXT: Final = pa.string()
#: extracts the fields to format from a column
Show = Callable[[pa.Array], formatting.Shown]


def _formatted(show: Show, dialect: Dialect) -> Kernel:
    """Return the kernel for a column of temporal values and a column of patterns."""

    def kernel(column: Datum, patterns: Datum) -> Datum:
        if isinstance(column, pa.Scalar) and isinstance(patterns, pa.Scalar):
            return kernel(to_full_array(column, 1), patterns)[0]
        rows = len(column if isinstance(column, pa.Array) else patterns)
        if isinstance(patterns, pa.Scalar):
            return _by_pattern(column, patterns.as_py(), show, dialect)
        column = to_full_array(column, rows)
        encoded = patterns.dictionary_encode()
        pieces = [pa.array([None], _TEXT)]
        order = np.zeros(rows, np.int64)
        codes = encoded.indices.fill_null(-1).to_numpy()
        for code, pattern in enumerate(encoded.dictionary.to_pylist()):
            chosen = np.flatnonzero(codes == code)
            order[chosen] = sum(map(len, pieces)) + np.arange(len(chosen))
            pieces.append(_by_pattern(column.take(pa.array(chosen)), pattern, show, dialect))
        return pa.concat_arrays(pieces).take(pa.array(order))

    return kernel


def _by_pattern(column: pa.Array, pattern: str | None, show: Show, dialect: Dialect) -> pa.Array:
    if pattern is None:
        return pa.nulls(len(column), _TEXT)
    texts = formatting.formatter(pattern, dialect)(show(column))
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, _TEXT)) if column.null_count else texts


def _show_point(data_type: DataType, zone: tzinfo) -> Show:
    """Show local time; for TIMESTAMP_LTZ, in the session's time zone."""
    unit = datetimes.unit_ns(data_type)

    def show(column: pa.Array) -> formatting.Shown:
        local = datetimes.to_local(column, zone) if isinstance(data_type, LocalZonedTimestampType) else column
        numbers = datetimes.to_numbers(local)
        if isinstance(data_type, TimeType):
            return formatting.Shown(np.zeros_like(numbers), numbers * unit)
        return formatting.Shown(*datetimes.days_and_nanos(numbers, unit))

    return show


def _show_moment(unit: str, zone: tzinfo) -> Show:
    """Show instants in a time zone, with its offset and name."""
    size = {"s": datetimes.SECOND_NS, "ms": 1_000_000}[unit]

    def show(column: pa.Array) -> formatting.Shown:
        moments = datetimes.view(column, pa.int64()).view(pa.timestamp(unit, "UTC"))
        numbers, clock = datetimes.to_numbers(moments), datetimes.to_numbers(datetimes.to_local(moments, zone))
        offsets: datetimes.Numbers = (clock - numbers) * size // datetimes.SECOND_NS

        def name(row: int) -> str:
            seconds = int(numbers[row]) * size // datetimes.SECOND_NS
            at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
            return at.astimezone(zone).tzname() or "UTC"

        return formatting.Shown(*datetimes.days_and_nanos(clock, size), offsets, name)

    return show


def _point(call: definition.Operands, index: int) -> DataType | None:
    data_type = call.types[index]
    if isinstance(data_type, NullType):
        return TimestampType(3)
    return data_type if isinstance(data_type, TimestampType | LocalZonedTimestampType) else None


def _date_format(call: definition.Call) -> Kernel:
    data_type = call.types[0]
    if not is_text(data_type):
        return _formatted(_show_point(data_type, call.session.zone), Dialect.MODERN)
    kernel = _formatted(_show_moment("ms", UTC), Dialect.SIMPLE)
    read = moments_of_text(UTC)

    def run(text: Datum, pattern: Datum) -> Datum:
        moments = read(text, pa.scalar(_DEFAULT))
        return kernel(moments, pattern)

    return run


def _from_unixtime(call: definition.Call) -> Kernel:
    show = _show_moment("s", call.session.zone)

    def show_wrapped(column: pa.Array) -> formatting.Shown:
        """Wrap on overflow of milliseconds, as Flink does."""
        wrapped = flat_values(column) * 1000 // 1000
        return show(apply_validity(column, wrapped, pa.int64()))

    kernel = _formatted(show_wrapped, Dialect.SIMPLE)
    default = pa.scalar(_DEFAULT)
    return lambda seconds, pattern=default: kernel(seconds, pattern)


def _convert_tz(call: definition.Call) -> Kernel:
    before, after = call.value(1), call.value(2)
    if not isinstance(before, str) or not isinstance(after, str):
        return definition.per_value(_converted)(call)
    read, show = moments_of_text(datetimes.zone_or_gmt(before)), _show_moment("ms", datetimes.zone_or_gmt(after))
    kernel = _formatted(show, Dialect.SIMPLE)
    default = pa.scalar(_DEFAULT)

    def run(text: Datum, before: Datum, after: Datum) -> Datum:
        return kernel(read(text, default), default)

    return run


def _converted(text: str, before: str, after: str) -> str | None:
    moment = formatting.simple_parser(_DEFAULT)(text, datetimes.zone_or_gmt(before))
    return (
        None
        if moment is None
        else datetimes.format_timestamp(datetimes.local_ns(moment, datetimes.zone_or_gmt(after)), 0)
    )


def _seconds(call: definition.Operands, index: int) -> DataType | None:
    return None if definition.INTEGER.check(call, index) is None else definition.AS_BIGINT.check(call, index)


TEMPORAL_FORMATS_FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    definition.scalar(
        "DATE_FORMAT",
        definition.takes(definition.either(definition.TEXT, definition.where("<DATETIME>", _point)), definition.TEXT),
        definition.returns_nullable(definition.STRING),
        _date_format,
        "Formats a point in time, or a string in the format `yyyy-MM-dd HH:mm:ss`, with a Java date pattern.",
        usage="DATE_FORMAT(point_in_time, pattern)",
        section="time",
        python_name="dateFormat",
        can_fail=True,
    ),
    definition.scalar(
        "FROM_UNIXTIME",
        definition.takes(definition.where("<INTEGER_NUMERIC>", _seconds), definition.TEXT, optional=1),
        definition.returns_nullable(definition.STRING),
        _from_unixtime,
        "Formats seconds since 1970 as a string in the session time zone; the pattern defaults to `yyyy-MM-dd "
        "HH:mm:ss`.",
        usage="FROM_UNIXTIME(seconds[, pattern])",
        section="time",
        python_name="fromUnixtime",
        can_fail=True,
    ),
    definition.scalar(
        "CONVERT_TZ",
        definition.takes(definition.TEXT, definition.TEXT, definition.TEXT),
        definition.returns_nullable(definition.STRING),
        _convert_tz,
        "Converts a timestamp string in the format `yyyy-MM-dd HH:mm:ss` from one time zone to another.",
        usage="CONVERT_TZ(text, from_zone, to_zone)",
        section="time",
        python_name="convertTz",
    ),
)


FUNCTIONS: tuple[definition.ScalarFunction, ...] = (*TEMPORAL_TEXTS_FUNCTIONS, *TEMPORAL_FORMATS_FUNCTIONS)
