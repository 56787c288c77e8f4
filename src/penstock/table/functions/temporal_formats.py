"""DATE_FORMAT, FROM_UNIXTIME and CONVERT_TZ: format temporal values with a pattern."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.table.data.flat import apply_validity, flat_values
from penstock.table.data.logical_types import DataType, LocalZonedTimestampType, NullType, TimestampType, TimeType
from penstock.table.data.moments import Numbers, days_and_nanos, to_numbers, unit_ns
from penstock.table.data.temporal_text import SECOND_NS, format_timestamp
from penstock.table.data.values import Datum, Kernel, to_full_array
from penstock.table.data.zone_names import zone_or_gmt
from penstock.table.data.zones import local_ns, to_local, view
from penstock.table.functions.definition import Call, Operands, ScalarFunction, scalar
from penstock.table.functions.kernels import per_value
from penstock.table.functions.signatures import (
    AS_BIGINT,
    INTEGER,
    STRING,
    TEXT,
    either,
    returns_nullable,
    takes,
    where,
)
from penstock.table.functions.temporal_texts import moments_of_text
from penstock.table.functions.type_rules import is_text
from penstock.table.time_patterns.formatting import Shown, formatter
from penstock.table.time_patterns.parsing import simple_parser
from penstock.table.time_patterns.tokens import Dialect

_DEFAULT: Final = "yyyy-MM-dd HH:mm:ss"
_TEXT: Final = pa.string()
#: extracts the fields to format from a column
Show = Callable[[pa.Array], Shown]


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
    texts = formatter(pattern, dialect)(show(column))
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, _TEXT)) if column.null_count else texts


def _show_point(data_type: DataType, zone: tzinfo) -> Show:
    """Show local time; for TIMESTAMP_LTZ, in the session's time zone."""
    unit = unit_ns(data_type)

    def show(column: pa.Array) -> Shown:
        local = to_local(column, zone) if isinstance(data_type, LocalZonedTimestampType) else column
        numbers = to_numbers(local)
        if isinstance(data_type, TimeType):
            return Shown(np.zeros_like(numbers), numbers * unit)
        return Shown(*days_and_nanos(numbers, unit))

    return show


def _show_moment(unit: str, zone: tzinfo) -> Show:
    """Show instants in a time zone, with its offset and name."""
    size = {"s": SECOND_NS, "ms": 1_000_000}[unit]

    def show(column: pa.Array) -> Shown:
        moments = view(column, pa.int64()).view(pa.timestamp(unit, "UTC"))
        numbers, clock = to_numbers(moments), to_numbers(to_local(moments, zone))
        offsets: Numbers = (clock - numbers) * size // SECOND_NS

        def name(row: int) -> str:
            seconds = int(numbers[row]) * size // SECOND_NS
            at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
            return at.astimezone(zone).tzname() or "UTC"

        return Shown(*days_and_nanos(clock, size), offsets, name)

    return show


def _point(call: Operands, index: int) -> DataType | None:
    data_type = call.types[index]
    if isinstance(data_type, NullType):
        return TimestampType(3)
    return data_type if isinstance(data_type, TimestampType | LocalZonedTimestampType) else None


def _date_format(call: Call) -> Kernel:
    data_type = call.types[0]
    if not is_text(data_type):
        return _formatted(_show_point(data_type, call.session.zone), Dialect.MODERN)
    kernel = _formatted(_show_moment("ms", UTC), Dialect.SIMPLE)
    read = moments_of_text(UTC)

    def run(text: Datum, pattern: Datum) -> Datum:
        moments = read(text, pa.scalar(_DEFAULT))
        return kernel(moments, pattern)

    return run


def _from_unixtime(call: Call) -> Kernel:
    show = _show_moment("s", call.session.zone)

    def show_wrapped(column: pa.Array) -> Shown:
        """Wrap on overflow of milliseconds, as Flink does."""
        wrapped = flat_values(column) * 1000 // 1000
        return show(apply_validity(column, wrapped, pa.int64()))

    kernel = _formatted(show_wrapped, Dialect.SIMPLE)
    default = pa.scalar(_DEFAULT)
    return lambda seconds, pattern=default: kernel(seconds, pattern)


def _convert_tz(call: Call) -> Kernel:
    before, after = call.value(1), call.value(2)
    if not isinstance(before, str) or not isinstance(after, str):
        return per_value(_converted)(call)
    read, show = moments_of_text(zone_or_gmt(before)), _show_moment("ms", zone_or_gmt(after))
    kernel = _formatted(show, Dialect.SIMPLE)
    default = pa.scalar(_DEFAULT)

    def run(text: Datum, before: Datum, after: Datum) -> Datum:
        return kernel(read(text, default), default)

    return run


def _converted(text: str, before: str, after: str) -> str | None:
    moment = simple_parser(_DEFAULT)(text, zone_or_gmt(before))
    return None if moment is None else format_timestamp(local_ns(moment, zone_or_gmt(after)), 0)


def _seconds(call: Operands, index: int) -> DataType | None:
    return None if INTEGER.check(call, index) is None else AS_BIGINT.check(call, index)


FUNCTIONS: tuple[ScalarFunction, ...] = (
    scalar(
        "DATE_FORMAT",
        takes(either(TEXT, where("<DATETIME>", _point)), TEXT),
        returns_nullable(STRING),
        _date_format,
        "Formats a point in time, or a string in the format `yyyy-MM-dd HH:mm:ss`, with a Java date pattern.",
        usage="DATE_FORMAT(point_in_time, pattern)",
        section="time",
        python_name="dateFormat",
        can_fail=True,
    ),
    scalar(
        "FROM_UNIXTIME",
        takes(where("<INTEGER_NUMERIC>", _seconds), TEXT, optional=1),
        returns_nullable(STRING),
        _from_unixtime,
        "Formats seconds since 1970 as a string in the session time zone; the pattern defaults to `yyyy-MM-dd "
        "HH:mm:ss`.",
        usage="FROM_UNIXTIME(seconds[, pattern])",
        section="time",
        python_name="fromUnixtime",
        can_fail=True,
    ),
    scalar(
        "CONVERT_TZ",
        takes(TEXT, TEXT, TEXT),
        returns_nullable(STRING),
        _convert_tz,
        "Converts a timestamp string in the format `yyyy-MM-dd HH:mm:ss` from one time zone to another.",
        usage="CONVERT_TZ(text, from_zone, to_zone)",
        section="time",
        python_name="convertTz",
    ),
)
