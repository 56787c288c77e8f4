"""TO_DATE, TO_TIMESTAMP and UNIX_TIMESTAMP: parse strings to temporal values.

Arrow parses strings in the usual form, a column at once. Others are parsed one by one, each distinct string once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, tzinfo
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.logical_types import DataType, DateType, LocalZonedTimestampType, TimestampType
from penstock.table.data.moments import column_of_numbers, to_numbers
from penstock.table.data.temporal_text import (
    DAY_MS,
    DAY_NS,
    SECOND_NS,
    days_from_civil,
    days_of_month,
)
from penstock.table.data.values import Datum, Kernel
from penstock.table.data.zones import fixed_offset, to_local, to_moments
from penstock.table.functions.definition import Call, Operands, ScalarFunction, scalar
from penstock.table.functions.kernels import per_value, value_kernel
from penstock.table.functions.signatures import BIGINT, STRING, TEXT, returns_nullable, takes
from penstock.table.time_patterns.parsing import modern_parser, parse_default, parse_sql, simple_parser
from penstock.table.time_patterns.tokens import UnusablePatternError

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
    timestamps = column_of_numbers(to_numbers(precise) // 1000, kind, (column,))
    assert isinstance(timestamps, pa.Array)
    return timestamps


# --- SimpleDateFormat ------------------------------------------------------------------------------------------------


def moments_of_text(zone: tzinfo) -> Kernel:
    """Return a kernel that parses strings in a zone by a SimpleDateFormat pattern, to TIMESTAMP_LTZ(3) or NULL."""

    def read(text: str, pattern: str) -> int | None:
        return simple_parser(pattern)(text, zone)

    slow = value_kernel(read, [STRING, STRING], _MILLISECONDS)

    def kernel(text: Datum, pattern: Datum) -> Datum:
        if isinstance(pattern, pa.Scalar) and pattern.is_valid and "." not in pattern.as_py():
            clock = read_at_once(text, pattern.as_py(), pa.timestamp("ms"))
            if clock is not None:
                return _calendar_moments(clock, zone)
        return slow(text, pattern)

    return kernel


def _calendar_moments(clock: pa.Array, zone: tzinfo) -> Datum:
    """Convert local times to instants. An ambiguous time is the second of its two instants."""
    first = to_moments(clock, zone)
    if fixed_offset(zone) is not None:
        return first
    local_numbers, numbers = to_numbers(clock), to_numbers(first)
    kind = first.type
    later = numbers + DAY_MS
    second = local_numbers - (to_numbers(to_local(pa.array(later).view(kind), zone)) - later)
    is_second = (second > numbers) & (to_numbers(to_local(pa.array(second).view(kind), zone)) == local_numbers)
    return pc.if_else(pa.array(is_second), column_of_numbers(second, kind, (clock,)), first)


def _unix_timestamp(call: Call) -> Kernel:
    session = call.session
    if not call.types:
        return lambda: pa.scalar(session.now() // SECOND_NS, pa.int64())
    read = moments_of_text(session.zone)
    default = pa.scalar(_DEFAULT)

    def kernel(text: Datum, pattern: Datum = default) -> Datum:
        milliseconds = read(text, pattern).cast(pa.int64())
        seconds = pc.fill_null(pc.divide(milliseconds, 1000), _UNREADABLE)
        is_known = pc.and_(pc.is_valid(text), pc.is_valid(pattern))
        return pc.if_else(is_known, seconds, pa.scalar(None, pa.int64()))

    return kernel


def _unix_type(call: Operands) -> DataType:
    return BIGINT.nullable() if call.any_nullable() else BIGINT.not_null()


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
    year, month, day = [*map(int, parts), 1, 1][:3]
    if year > 9999 or not 1 <= month <= 12 or not 1 <= day <= days_of_month(year, month):
        return None
    return days_from_civil(year, month, day)


def _parse_date(text: str, pattern: str) -> int | None:
    moment = simple_parser(pattern)(text, UTC)
    return None if moment is None else moment // DAY_NS


def _to_date(call: Call) -> Kernel:
    if len(call.types) == 2:
        return per_value(_parse_date)(call)
    slow = per_value(_date)(call)

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
        nanoseconds = modern_parser(pattern)(text)
    except UnusablePatternError:
        return None
    return parse_sql(text) if nanoseconds is None else nanoseconds


def clocks_of_text(result: DataType, count: int) -> Kernel:
    """Return a kernel that parses local times to a TIMESTAMP type. With `count` 2, the second operand is a pattern."""
    kind = arrow_type(result)
    read: Callable[..., int | None] = parse_default if count == 1 else read_modern
    slow = value_kernel(read, [STRING] * count, result)

    def kernel(text: Datum, *patterns: Datum) -> Datum:
        constant = not patterns or (isinstance(patterns[0], pa.Scalar) and patterns[0].is_valid)
        timestamps = read_at_once(text, patterns[0].as_py() if patterns else "", kind) if constant else None
        return slow(text, *patterns) if timestamps is None else timestamps

    return kernel


def _to_timestamp(call: Call) -> Kernel:
    return clocks_of_text(call.result, len(call.types))


FUNCTIONS: tuple[ScalarFunction, ...] = (
    scalar(
        "TO_DATE",
        takes(TEXT, TEXT, optional=1),
        returns_nullable(DateType()),
        _to_date,
        "Parses a date; the pattern defaults to `yyyy-MM-dd`.",
        usage="TO_DATE(text[, pattern])",
        section="time",
        python_name="toDate",
        can_fail=True,
    ),
    scalar(
        "TO_TIMESTAMP",
        takes(TEXT, TEXT, optional=1),
        returns_nullable(TimestampType(3)),
        _to_timestamp,
        "Parses a timestamp; the pattern defaults to `yyyy-MM-dd HH:mm:ss`.",
        usage="TO_TIMESTAMP(text[, pattern])",
        section="time",
        python_name="toTimestamp",
        can_fail=True,
    ),
    scalar(
        "UNIX_TIMESTAMP",
        takes(TEXT, TEXT, optional=2),
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
