"""Functions of time: the current time, time attributes, TO_TIMESTAMP_LTZ, assignment to windows, FLOOR and CEIL.

**Current time.** The functions use the session's clock and its zone.

**Time attributes.** These functions return processing time and watermarks.

**TO_TIMESTAMP_LTZ.** Converts numbers since 1970, or strings, to instants.

**Windows.** Assigns rows to the windows of TUMBLE, HOP and CUMULATE. All times are in ms.

**FLOOR and CEIL.** Round numbers, and temporal values to a unit. CEIL to WEEK or a larger unit looks at the day alone.
To QUARTER, DECADE, CENTURY and MILLENNIUM, and of a DATE to DAY, it returns the next unit even for a value at the start
of one, as Flink does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, tzinfo
from decimal import Decimal
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import UnsupportedError
from penstock.codecs.arrow_columns import DIGITS
from penstock.sql.data import datetimes
from penstock.sql.data.arrow import Datum, Kernel, arrow_type, to_scalar
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.data.types import (
    DataType,
    DateType,
    DecimalType,
    IntegralType,
    IntType,
    LocalZonedTimestampType,
    NullType,
    TimestampType,
    TimeType,
)
from penstock.sql.datetime_format.formatting import modern_parser
from penstock.sql.datetime_format.patterns import UnusablePatternError, fraction_digits
from penstock.sql.functions import definition
from penstock.sql.functions.datetime import UNIT
from penstock.sql.functions.datetime_text import clocks_of_text, read_modern
from penstock.sql.functions.type_rules import TIMES, is_text

_UTC_MS: Final = pa.timestamp("ms", "UTC")


def _local_ms(moment: int, zone: tzinfo) -> int:
    """Return milliseconds since 1970, as local time in the zone."""
    local = datetimes.to_local(pa.scalar(moment, pa.int64()).cast(_UTC_MS), zone)
    return int(local.cast(pa.int64()).as_py())


def _date(moment: int, zone: tzinfo) -> int:
    return _local_ms(moment, zone) // datetimes.DAY_MS


def _time(moment: int, zone: tzinfo) -> int:
    return _local_ms(moment, zone) % datetimes.DAY_MS // 1000 * 1000


def _moment(moment: int, zone: tzinfo) -> int:
    return moment


def _bind(compute: Callable[[int, tzinfo], int], call: definition.Call) -> Kernel:
    session, kind = call.session, arrow_type(call.result)
    stored = pa.int32() if kind.bit_width == 32 else pa.int64()

    def kernel() -> Datum:
        value = compute(session.now() // datetimes.MILLISECOND_NS, session.zone)
        return pa.array([value], stored).view(kind)[0]

    return kernel


_DATE, _TIME = DateType(), TimeType(0)
_LOCAL, _MOMENT = TimestampType(3), LocalZonedTimestampType(3)

CLOCK_FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    *(
        definition.scalar(
            name,
            definition.takes(),
            definition.returns_not_null(result),
            partial(_bind, compute),
            summary,
            usage=usage,
            section="time",
            python_name=python_name,
            is_dynamic=name != "CURRENT_ROW_TIMESTAMP",
            is_deterministic=name != "CURRENT_ROW_TIMESTAMP",
        )
        for name, result, compute, usage, python_name, summary in (
            (
                "CURRENT_DATE",
                _DATE,
                _date,
                "CURRENT_DATE",
                "currentDate",
                "Returns the current date in the session time zone.",
            ),
            (
                "CURRENT_TIME",
                _TIME,
                _time,
                "CURRENT_TIME",
                "currentTime",
                "Returns the current time in the session time zone.",
            ),
            ("LOCALTIME", _TIME, _time, "LOCALTIME", "localTime", "Returns the current time in the session time zone."),
            (
                "CURRENT_TIMESTAMP",
                _MOMENT,
                _moment,
                "CURRENT_TIMESTAMP",
                "currentTimestamp",
                "Returns the current timestamp.",
            ),
            ("NOW", _MOMENT, _moment, "NOW()", "", "Returns the current timestamp."),
            (
                "LOCALTIMESTAMP",
                _LOCAL,
                _local_ms,
                "LOCALTIMESTAMP",
                "localTimestamp",
                "Returns the current date and time in the session time zone.",
            ),
            (
                "CURRENT_ROW_TIMESTAMP",
                _MOMENT,
                _moment,
                "CURRENT_ROW_TIMESTAMP()",
                "",
                "Returns the timestamp at which the row is processed.",
            ),
        )
    ),
)


def _now(call: definition.Call) -> Kernel:
    clock = call.session.now

    def kernel(rows: int) -> Datum:
        return to_scalar(clock(), call.result)

    return kernel


def _watermark_type(call: definition.Operands) -> DataType:
    is_local = isinstance(call.types[0], LocalZonedTimestampType)
    return LocalZonedTimestampType(3) if is_local else TimestampType(3)


def _planned(call: definition.Call) -> Kernel:
    raise UnsupportedError("this function has a meaning for the planner alone, and not where it stands here")


def _watermark(call: definition.Call) -> Kernel:
    watermark = call.session.watermark

    def kernel(column: Datum) -> Datum:
        milliseconds = watermark()
        return to_scalar(None if milliseconds is None else milliseconds * _MILLISECOND_NS, call.result)

    return kernel


_MILLISECOND_NS: Final = 1_000_000


TIME_ATTRIBUTES_FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    definition.scalar(
        "PROCTIME",
        definition.takes(),
        lambda call: LocalZonedTimestampType(3, False),
        _now,
        "Returns the processing time as a time attribute.",
        section="time",
        usage="PROCTIME()",
        is_dynamic=True,
        takes_rows=True,
    ),
    definition.scalar(
        "CURRENT_WATERMARK",
        definition.takes(definition.POINT_IN_TIME),
        _watermark_type,
        _watermark,
        "Returns the operator's current watermark, or NULL before the first one.",
        section="time",
        usage="CURRENT_WATERMARK(rowtime)",
        python_name="currentWatermark",
        is_dynamic=True,
    ),
    definition.scalar(
        "SOURCE_WATERMARK",
        definition.takes(),
        lambda call: TimestampType(3),
        _planned,
        "Stands for the watermarks that the source emits; only allowed in WATERMARK FOR.",
        section="time",
        usage="SOURCE_WATERMARK()",
        python_name="sourceWatermark",
        is_dynamic=True,
    ),
)


_LEAST_DIGITS: Final = 3
_MOST_DIGITS: Final = 9
#: nanoseconds at 0000-01-01 00:00:00 and at the end of 9999
_FIRST: Final = -62_167_219_200 * 10**9
_LAST: Final = 253_402_300_800 * 10**9 - 1
_INT64: Final = 2**63
_TEXTS: Final = definition.takes(definition.TEXT, definition.TEXT, definition.TEXT, optional=2)
_NUMBERS: Final = definition.takes(definition.NUMERIC, definition.family("INTEGER", IntType, IntType()), optional=1)


def _result(call: definition.Operands) -> DataType:
    zone = call.value(2) if len(call) > 2 else definition.UNKNOWN
    if isinstance(zone, str) and datetimes.zone_by_id(zone) is None:
        raise ValidationError(f"Invalid timezone for parsing TIMESTAMP_LTZ: {zone!r} is none")
    pattern = call.value(1) if len(call) > 1 and is_text(call.types[0]) else definition.UNKNOWN
    if isinstance(pattern, str):
        try:
            modern_parser(pattern)
        except UnusablePatternError as error:
            raise ValidationError(f"Invalid pattern for parsing TIMESTAMP_LTZ: {error}") from error
    return LocalZonedTimestampType(_digits(call))


def _digits(call: definition.Operands) -> int:
    """Return the precision of fractional seconds: from the constant operand, but at least 3."""
    value = call.value(1)
    if len(call) < 2 or value is definition.UNKNOWN or value is None:
        return _LEAST_DIGITS
    if isinstance(value, int):
        if not 0 <= value <= _MOST_DIGITS:
            raise ValidationError(f"Precision for TO_TIMESTAMP_LTZ must be between 0 and 9 but was {value}.")
        return max(value, _LEAST_DIGITS)
    return min(max(fraction_digits(str(value)), _LEAST_DIGITS), _MOST_DIGITS)


def _bind_epoch(call: definition.Call) -> Kernel:
    if is_text(call.types[0]):
        return _of_text(call) if len(call.types) < 3 else _of_text_in_zone(call)
    digits = call.value(1) if len(call.types) > 1 else _LEAST_DIGITS
    assert isinstance(call.result, LocalZonedTimestampType)
    if isinstance(call.types[0], IntegralType) and isinstance(digits, int):
        return _of_whole_numbers(digits, call.result)
    limit = _INT64 if call.result.precision > 6 else _LAST + 1
    types = [*call.types, IntType()][:2]

    def moment(number: float | Decimal, digits: int) -> int | None:
        nanoseconds = _nanoseconds(number, digits)
        return nanoseconds if nanoseconds is not None and abs(nanoseconds) < limit else None

    kernel = definition.value_kernel(moment, types, call.result)
    given = pa.scalar(_LEAST_DIGITS, pa.int32())
    return lambda number, precision=given: kernel(number, precision)


def _of_whole_numbers(digits: int, result: DataType) -> Kernel:
    kind = arrow_type(result)
    factor = 10 ** (DIGITS[kind.unit] - digits)
    first, last = _FIRST // 10 ** (_MOST_DIGITS - digits), _LAST // 10 ** (_MOST_DIGITS - digits)
    low, high = max(first, -(_INT64 // factor)), min(last, (_INT64 - 1) // factor)

    def kernel(number: Datum, precision: Datum | None = None) -> Datum:
        wide = number.cast(pa.int64())
        is_held = pc.and_(pc.greater_equal(wide, low), pc.less_equal(wide, high))
        in_range = pc.if_else(is_held, wide, pa.scalar(None, pa.int64()))
        return datetimes.view(pc.multiply(in_range, factor) if factor > 1 else in_range, kind)

    return kernel


def _nanoseconds(number: float | Decimal, digits: int) -> int | None:
    """Return the nanoseconds since 1970, or None outside the years that a timestamp supports."""
    if not 0 <= digits <= _MOST_DIGITS:
        raise TableRuntimeError(f"the precision of TO_TIMESTAMP_LTZ must be between 0 and 9, and was {digits}")
    size = 10 ** (_MOST_DIGITS - digits)
    if isinstance(number, float):
        if not abs(number) < 1e30:
            return None
        integer = int(number // 1)
        nanoseconds = integer * size + int((number - integer) * size)
    else:
        nanoseconds = int(number) * size
    return nanoseconds if _FIRST <= nanoseconds <= _LAST else None


def _of_text(call: definition.Call) -> Kernel:
    """Return the kernel for strings without a time zone, which are in UTC."""
    assert isinstance(call.result, LocalZonedTimestampType)
    read = clocks_of_text(TimestampType(call.result.precision), len(call.types))

    def kernel(*operands: Datum) -> Datum:
        moments = datetimes.to_moments(read(*operands), UTC)
        if len(operands) == 1:
            _check_read(operands[0], moments)
        return moments

    return kernel


def _check_read(texts: Datum, moments: Datum) -> None:
    """Raise `TableRuntimeError` for strings that do not parse. Flink does so only without a pattern."""
    wrong = pc.and_(pc.is_valid(texts), pc.is_null(moments))
    if isinstance(wrong, pa.Scalar):
        if wrong.as_py():
            raise TableRuntimeError(f"Text {texts.as_py()!r} could not be parsed as a TIMESTAMP_LTZ")
    elif pc.any(wrong).as_py():
        text = texts if isinstance(texts, pa.Scalar) else texts.filter(wrong)[0]
        raise TableRuntimeError(f"Text {text.as_py()!r} could not be parsed as a TIMESTAMP_LTZ")


def _of_text_in_zone(call: definition.Call) -> Kernel:
    def moment(text: str, pattern: str, name: str) -> int | None:
        clock, zone = read_modern(text, pattern), datetimes.zone_by_id(name)
        return None if clock is None or zone is None else datetimes.moment_ns(clock, zone)

    return definition.value_kernel(moment, [definition.STRING] * 3, call.result)


EPOCH_TIMES_FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    definition.scalar(
        "TO_TIMESTAMP_LTZ",
        (_NUMBERS, _TEXTS),
        _result,
        _bind_epoch,
        "Converts a number of milliseconds since 1970, or of the unit given by a precision from 0 to 9, to a "
        "timestamp; or parses a string with a pattern in a time zone, by default UTC.",
        usage="TO_TIMESTAMP_LTZ(number[, precision]) or TO_TIMESTAMP_LTZ(text[, pattern[, zone]])",
        section="time",
        python_name="toTimestampLtz",
        can_fail=True,
    ),
)


#: for each row and window: the row number (None if each row has one window), the start and the end of the window
Assigned = tuple[Any, Any, Any]


def _tumble(times: Any, sizes: Sequence[int], offset: int) -> Assigned:
    (size,) = sizes
    starts = times - (times - offset) % size
    return None, starts, starts + size


def _hop(times: Any, sizes: Sequence[int], offset: int) -> Assigned:
    slide, size = sizes
    last = times - (times - offset) % slide
    rows, starts = [], []
    for back in range(0, size, slide):
        start = last - back
        among = np.flatnonzero(start + size > times)
        rows.append(among)
        starts.append(start[among])
    return _in_order(rows, starts, size)


def _in_order(rows: list[Any], starts: list[Any], size: int) -> Assigned:
    """Sort windows by row, and then by start."""
    all_rows, all_starts = np.concatenate(rows), np.concatenate(starts)
    order = np.lexsort((all_starts, all_rows))
    return all_rows[order], all_starts[order], all_starts[order] + size


def _cumulate(times: Any, sizes: Sequence[int], offset: int) -> Assigned:
    step, size = sizes
    start = times - (times - offset) % size
    first = start + ((times - start) // step + 1) * step
    counts = (start + size - first) // step + 1
    rows = np.repeat(np.arange(len(times)), counts)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    return rows, start[rows], first[rows] + within * step


#: assigns windows by function: from times, the function's sizes, and the offset
ASSIGN: Final[dict[str, Callable[[Any, Sequence[int], int], Assigned]]] = {
    "TUMBLE": _tumble,
    "HOP": _hop,
    "CUMULATE": _cumulate,
}


_NANOSECONDS: Final = {
    "DAY": datetimes.DAY_NS,
    "HOUR": 3_600 * datetimes.SECOND_NS,
    "MINUTE": 60 * datetimes.SECOND_NS,
    "SECOND": datetimes.SECOND_NS,
    "MILLISECOND": 1_000_000,
    "MICROSECOND": 1_000,
    "NANOSECOND": 1,
}
#: the length of each unit in years, and its first year modulo that length
_SPANS: Final = {"DECADE": (10, 0), "CENTURY": (100, 1), "MILLENNIUM": (1000, 1)}
_DAYS: Final = ("WEEK", "MONTH", "QUARTER", "YEAR", *_SPANS)


def _rounded(call: definition.Operands, index: int) -> DataType | None:
    """Accept temporal values that can be rounded to the unit."""
    data_type, unit = call.types[index], str(call.value(index + 1))
    if isinstance(data_type, NullType):
        return TimestampType(3)
    if isinstance(data_type, TimeType):
        return data_type if unit in _NANOSECONDS and unit != "DAY" else None
    return data_type if isinstance(data_type, TIMES) and (unit in _NANOSECONDS or unit in _DAYS) else None


def _rounded_type(call: definition.Operands) -> DataType:
    data_type = call.types[0]
    return (
        DecimalType(data_type.precision, 0, data_type.is_nullable) if isinstance(data_type, DecimalType) else data_type
    )


def _days(unit: str, up: bool, days: datetimes.Numbers) -> datetimes.Numbers:
    """Round days to the first day of a unit."""
    if unit == "WEEK":
        since_sunday = (datetimes.weekday(days) + 1) % 7
        return days - since_sunday + (7 * (since_sunday > 0) if up else 0)
    months = datetimes.to_months(days)
    if unit == "MONTH":
        return datetimes.days_of_months(months + (up & (days > datetimes.days_of_months(months))))
    if unit == "YEAR":
        years = datetimes.to_years(days)
        return datetimes.days_of_years(years + (up & (days > datetimes.days_of_years(years))))
    if unit == "QUARTER":
        begins_year = days == datetimes.days_of_years(datetimes.to_years(days))
        return datetimes.days_of_months(months // 3 * 3 + 3 * (up & ~begins_year))
    span, first = _SPANS[unit]
    return datetimes.days_of_years((datetimes.to_years(days) - first) // span * span + first + span * up)


def _point(unit: str, up: bool, per_number: int, numbers: datetimes.Numbers) -> datetimes.Numbers:
    """Round temporal values. `per_number`: the nanoseconds that each number stands for."""
    if unit in _DAYS:
        per_day = datetimes.DAY_NS // per_number
        return datetimes.scaled(_days(unit, up, numbers // per_day), per_day)
    if per_number == datetimes.DAY_NS:
        return numbers + int(up and unit == "DAY")
    size = _NANOSECONDS[unit] // per_number
    if size <= 1:
        return numbers
    return datetimes.scaled(-(-numbers // size) if up else numbers // size, size)


def _bind_point(up: bool, call: definition.Call) -> Kernel:
    data_type, zone = call.types[0], call.session.zone
    kind = arrow_type(call.result)
    compute: Callable[[datetimes.Numbers], datetimes.Numbers] = partial(
        _point, str(call.value(1)), up, datetimes.unit_ns(data_type)
    )
    if isinstance(data_type, TimeType):
        day = datetimes.DAY_NS // datetimes.unit_ns(data_type)
        around = compute
        compute = lambda numbers: around(numbers) % day  # noqa: E731
    if not isinstance(data_type, LocalZonedTimestampType):
        return lambda column, unit: datetimes.column_of_numbers(compute(datetimes.to_numbers(column)), kind, (column,))

    def in_zone(column: Datum, unit: Datum) -> Datum:
        """Round local time, with the zone's offset to UTC at the original instant."""
        numbers, as_shown = datetimes.to_numbers(column), datetimes.to_numbers(datetimes.local(column, data_type, zone))
        return datetimes.column_of_numbers(numbers + (compute(as_shown) - as_shown), kind, (column,))

    return in_zone


def _bind_rounding(up: bool, call: definition.Call) -> Kernel:
    if len(call.types) > 1:
        return _bind_point(up, call)
    if isinstance(call.types[0], IntegralType):
        return lambda column: column
    rounded = pc.ceil if up else pc.floor
    kind = arrow_type(call.result)
    if not pa.types.is_decimal(kind):
        return lambda column: rounded(column)
    return lambda column: rounded(column).cast(kind)


_SIGNATURES: Final = (
    definition.takes(definition.where("<DATETIME>", _rounded), UNIT),
    definition.takes(definition.NUMERIC),
)


def _infer_result_type(call: definition.Operands) -> DataType:
    return _rounded_type(call) if len(call) == 1 else call.types[0]


ROUNDING_TIME_FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    definition.scalar(
        "FLOOR",
        _SIGNATURES,
        _infer_result_type,
        partial(_bind_rounding, False),
        "Rounds a number down to an integer, or a point in time down to a unit.",
        usage="FLOOR(number) or FLOOR(point_in_time TO unit)",
        section="time",
    ),
    definition.scalar(
        "CEIL",
        _SIGNATURES,
        _infer_result_type,
        partial(_bind_rounding, True),
        "Rounds a number up to an integer, or a point in time up to a unit.",
        usage="CEIL(number) or CEIL(point_in_time TO unit)",
        section="time",
        aliases=("CEILING",),
    ),
)


FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    *CLOCK_FUNCTIONS,
    *TIME_ATTRIBUTES_FUNCTIONS,
    *EPOCH_TIMES_FUNCTIONS,
    *ROUNDING_TIME_FUNCTIONS,
)
