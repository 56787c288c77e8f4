"""Arithmetic of temporal values and intervals, their distances, and EXTRACT.

**`+`, `-`, `*` and `/`.** An interval of months moves a value to the same day of another month, or to that month's last
day. A DATE moves by whole days; a TIME wraps around after 24 hours.

**EXTRACT.** EXTRACT and its shorthand functions return a part of a temporal value or an interval.

**Distances.** TIMESTAMPADD, TIMESTAMPDIFF and OVERLAPS use distances between temporal values.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.sql.data import datetimes
from penstock.sql.data import datetimes as moments
from penstock.sql.data.arrow import Datum, Kernel, arrow_type
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.data.types import (
    DataType,
    DateType,
    DayTimeIntervalType,
    IntegralType,
    LocalZonedTimestampType,
    NullType,
    NumericType,
    TimestampType,
    TimeType,
    YearMonthIntervalType,
)
from penstock.sql.functions import definition
from penstock.sql.functions.type_rules import INTERVALS, TIMES, common_type


def _point(call: definition.Operands, index: int) -> DataType | None:
    data_type = call.types[index]
    return data_type if isinstance(data_type, TIMES) else None


def _interval(call: definition.Operands, index: int) -> DataType | None:
    data_type = call.types[index]
    return data_type if isinstance(data_type, INTERVALS) else None


def _same_interval(call: definition.Operands, index: int) -> DataType | None:
    """Accept an interval of the same kind as the other operand; either may be a NULL literal."""
    known = [data_type for data_type in call.types if isinstance(data_type, INTERVALS)]
    if not known or any(type(data_type) is not type(known[0]) for data_type in known):
        return None
    return known[0].nullable() if isinstance(call.types[index], NullType) else _interval(call, index)


def _number(call: definition.Operands, index: int) -> DataType | None:
    data_type = call.types[index]
    return data_type if isinstance(data_type, NumericType) else None


_POINT: Final = definition.Operand("<DATETIME>", _point)
_INTERVAL: Final = definition.where("<INTERVAL>", _interval)
_SAME: Final = definition.where("<INTERVAL>", _same_interval)
_NUMBER: Final = definition.where("<NUMERIC>", _number)

#: the temporal signatures of each operator
SIGNATURES: Final[dict[str, tuple[definition.Signature, ...]]] = {
    "+": (definition.takes(_POINT, _INTERVAL), definition.takes(_INTERVAL, _POINT), definition.takes(_SAME, _SAME)),
    "-": (definition.takes(_POINT, _INTERVAL), definition.takes(_SAME, _SAME)),
    "*": (definition.takes(_INTERVAL, _NUMBER), definition.takes(_NUMBER, _INTERVAL)),
    "/": (definition.takes(_INTERVAL, _NUMBER),),
    "MINUS_PREFIX": (definition.takes(_INTERVAL),),
    "PLUS_PREFIX": (definition.takes(_INTERVAL),),
}


def result_type(operator: str, call: definition.Operands) -> DataType:
    """Return the result type of an operator."""
    points = [data_type for data_type in call.types if isinstance(data_type, TIMES)]
    intervals = [data_type for data_type in call.types if isinstance(data_type, INTERVALS)]
    common = points[0] if points else common_type(intervals)
    assert common is not None  # checked by a signature
    return common.nullable() if call.any_nullable() else common.not_null()


def move_may_fail(call: definition.Operands) -> bool:
    """Return whether adding an interval may leave the years that the type supports."""
    return any(isinstance(data_type, TIMES) and datetimes.unit_ns(data_type) == 1 for data_type in call.types)


def product_may_fail(call: definition.Operands) -> bool:
    """Return whether multiplying an interval may overflow or produce NaN."""
    is_scaled = any(isinstance(data_type, INTERVALS) for data_type in call.types)
    return is_scaled and not any(isinstance(data_type, IntegralType) for data_type in call.types)


def bind(operator: str, call: definition.Call) -> Kernel:
    """Return the kernel of an operator."""
    types = call.types
    if operator == "MINUS_PREFIX":
        return datetimes.number_kernel(np.negative, call.result)
    if operator == "PLUS_PREFIX":
        return lambda column: column
    if operator in ("*", "/"):
        swapped = not isinstance(types[0], INTERVALS)
        kernel = _scaled(operator, call.result)
        return (lambda number, interval: kernel(interval, number)) if swapped else kernel
    sign = -1 if operator == "-" else 1
    if isinstance(types[1], TIMES):
        moved = datetimes.number_kernel(_moving(types[1], types[0], sign), call.result)
        return lambda interval, point: moved(point, interval)
    if isinstance(types[0], TIMES):
        return datetimes.number_kernel(_moving(types[0], types[1], sign), call.result)
    return datetimes.number_kernel(np.add if sign > 0 else np.subtract, call.result)


def _moving(point: DataType, interval: DataType, sign: int) -> partial[datetimes.Numbers]:
    """Return a function on arrays of numbers that adds an interval to temporal values."""
    if isinstance(interval, YearMonthIntervalType):
        return partial(_unmoved) if isinstance(point, TimeType) else partial(_by_months, datetimes.unit_ns(point), sign)
    if isinstance(point, DateType):
        return partial(_by_days, sign)
    if isinstance(point, TimeType):
        return partial(_around_the_clock, sign)
    return partial(
        _by_milliseconds, datetimes.unit_ns(point), sign * (datetimes.MILLISECOND_NS // datetimes.unit_ns(point))
    )


def _unmoved(points: datetimes.Numbers, months: datetimes.Numbers) -> datetimes.Numbers:
    """Return times of day unchanged: months do not move them."""
    return points + 0 * months


def _by_months(unit: int, sign: int, points: datetimes.Numbers, months: datetimes.Numbers) -> datetimes.Numbers:
    if unit == datetimes.DAY_NS:
        return datetimes.add_months(points, sign * months)
    days, _ = datetimes.days_and_nanos(points, unit)
    moved_by = datetimes.add_months(days, sign * months) - days
    _check_reach(unit, points, moved_by, datetimes.DAY_NS // unit)
    return points + moved_by * (datetimes.DAY_NS // unit)


def _by_days(sign: int, days: datetimes.Numbers, milliseconds: datetimes.Numbers) -> datetimes.Numbers:
    """Move dates by the whole days of intervals."""
    return days + sign * datetimes.toward_zero(milliseconds, datetimes.DAY_MS)


def _around_the_clock(sign: int, times: datetimes.Numbers, milliseconds: datetimes.Numbers) -> datetimes.Numbers:
    return (times + sign * milliseconds) % datetimes.DAY_MS


def _by_milliseconds(
    unit: int, factor: int, points: datetimes.Numbers, milliseconds: datetimes.Numbers
) -> datetimes.Numbers:
    _check_reach(unit, points, milliseconds, factor)
    return points + factor * milliseconds


def _check_reach(unit: int, points: datetimes.Numbers, moved_by: datetimes.Numbers, factor: int) -> None:
    """Raise `TableRuntimeError` if results in nanoseconds overflow 64 bits. `unit`: the nanoseconds of each number."""
    if unit > 1:
        return
    moved = points.astype(np.float64) + moved_by.astype(np.float64) * factor
    if moved.size and np.abs(moved).max() >= _REACH:
        raise TableRuntimeError(datetimes.FAR_NANOSECONDS)


#: nanoseconds between 1970 and the limits of 64 bits in 1677 and 2262, minus a float's rounding error
_REACH: Final = float(2**63 - 2**12)


def _scaled(operator: str, result: DataType) -> Kernel:
    """Return the kernel that multiplies or divides an interval by a number, truncated to milliseconds or months.

    Multiplication by an integer wraps around on overflow, as in Flink. Multiplication by another number, which Flink
    rejects, raises an error instead.
    """
    kind = arrow_type(result)
    stored = pa.int32() if kind.bit_width == 32 else pa.int64()

    def kernel(interval: Datum, number: Datum) -> Datum:
        plain = interval.cast(stored)
        if operator == "*" and pa.types.is_integer(number.type):
            scaled = pc.multiply(plain, number).cast(stored, safe=False)
        elif pa.types.is_integer(number.type):
            scaled = pc.divide(plain.cast(pa.int64()), number.cast(pa.int64()))
        else:
            scale = pc.multiply if operator == "*" else pc.divide
            scaled = pc.trunc(scale(plain.cast(pa.float64()), number.cast(pa.float64())))
        return scaled.cast(stored).cast(kind)

    return kernel


def _by_sign(years: datetimes.Numbers, span: int) -> datetimes.Numbers:
    """Return the century or millennium of years; each begins with a year 1."""
    return np.where(years > 0, (years + span - 1) // span, -((span - 1 - years) // span))


#: parts of a day number
PARTS_OF_DAY: Final[dict[str, Callable[[datetimes.Numbers], datetimes.Numbers]]] = {
    "YEAR": moments.to_years,
    "ISOYEAR": moments.iso_year,
    "QUARTER": lambda days: moments.to_months(days) % 12 // 3 + 1,
    "MONTH": lambda days: moments.to_months(days) % 12 + 1,
    "WEEK": moments.iso_week,
    "DAY": moments.day_of_month,
    "DOY": moments.day_of_year,
    "DOW": lambda days: (days + 4) % 7 + 1,
    "ISODOW": lambda days: moments.weekday(days) + 1,
    "DECADE": lambda days: moments.to_years(days) // 10,
    "CENTURY": lambda days: _by_sign(moments.to_years(days), 100),
    "MILLENNIUM": lambda days: _by_sign(moments.to_years(days), 1000),
}
_HOUR_NS: Final = 3_600 * datetimes.SECOND_NS
#: parts of a time of day: nanoseconds in the unit and in the next larger one
PARTS_OF_TIME: Final = {
    "HOUR": (_HOUR_NS, datetimes.DAY_NS),
    "MINUTE": (60 * datetimes.SECOND_NS, _HOUR_NS),
    "SECOND": (datetimes.SECOND_NS, 60 * datetimes.SECOND_NS),
    "MILLISECOND": (1_000_000, datetimes.SECOND_NS),
    "MICROSECOND": (1_000, datetimes.SECOND_NS),
    "NANOSECOND": (1, datetimes.SECOND_NS),
}
#: parts of an interval of months: months in the unit and in the next larger one
_OF_MONTHS: Final = {"MONTH": (1, 12), "YEAR": (12, 0), "DECADE": (120, 0), "CENTURY": (1200, 0)}
_MILLENNIUM_MONTHS: Final = 12_000


def _unit(call: definition.Operands, index: int) -> DataType | None:
    is_word = isinstance(call.types[index], NullType) and isinstance(call.value(index), str)
    return call.types[index] if is_word else None


UNIT: Final[definition.Operand] = definition.where("<UNIT>", _unit)


def _has_part(data_type: DataType, unit: str) -> bool:
    if isinstance(data_type, YearMonthIntervalType):
        return unit in _OF_MONTHS or unit in ("QUARTER", "MILLENNIUM")
    if isinstance(data_type, DayTimeIntervalType):
        return unit in PARTS_OF_TIME or unit in ("DAY", "WEEK", "EPOCH")
    if isinstance(data_type, TimeType):
        return unit in PARTS_OF_TIME or unit == "EPOCH"
    return isinstance(data_type, TIMES) and (unit in PARTS_OF_DAY or unit in PARTS_OF_TIME or unit == "EPOCH")


def _extracted(call: definition.Operands, index: int) -> DataType | None:
    data_type = call.types[index]
    if isinstance(data_type, NullType):
        return TimestampType(3)
    return data_type if _has_part(data_type, str(call.value(0))) else None


def _whole(call: definition.Operands, index: int, unit: str) -> DataType | None:
    """Accept the operand of YEAR, MONTH and so on."""
    data_type = call.types[index]
    if isinstance(data_type, NullType):
        return TimestampType(3)
    return data_type if _has_part(data_type, unit) and (unit != "WEEK" or isinstance(data_type, TIMES)) else None


def _result(call: definition.Operands) -> DataType:
    return definition.BIGINT.nullable() if call.types[-1].is_nullable else definition.BIGINT.not_null()


def _part(unit: str, data_type: DataType) -> Callable[[datetimes.Numbers], datetimes.Numbers]:
    """Return a function that extracts a part from a type's internal numbers."""
    if isinstance(data_type, YearMonthIntervalType):
        if unit == "QUARTER":
            return _quarter_of_months
        return partial(_of_months, *_OF_MONTHS.get(unit, (_MILLENNIUM_MONTHS, 0)))
    per_number = datetimes.unit_ns(data_type)
    if unit == "EPOCH":
        return lambda numbers: (
            numbers * (per_number // datetimes.SECOND_NS)
            if per_number > datetimes.SECOND_NS
            else numbers // (datetimes.SECOND_NS // per_number)
        )
    if isinstance(data_type, DayTimeIntervalType):
        size, greater = {"DAY": (datetimes.DAY_NS, 0), "WEEK": (7 * datetimes.DAY_NS, 0)}.get(
            unit, PARTS_OF_TIME.get(unit, (1, 0))
        )
        return partial(_of_milliseconds, size, greater)
    if unit in PARTS_OF_DAY:
        of_day = PARTS_OF_DAY[unit]
        return lambda numbers: of_day(datetimes.days_and_nanos(numbers, per_number)[0])
    size, greater = PARTS_OF_TIME[unit]
    return lambda numbers: datetimes.days_and_nanos(numbers, per_number)[1] % greater // size


def _of_months(size: int, greater: int, months: datetimes.Numbers) -> datetimes.Numbers:
    """Extract a part of months. Rounds towards 0, because intervals may be negative."""
    return datetimes.toward_zero(np.fmod(months, greater) if greater else months, size)


def _quarter_of_months(months: datetimes.Numbers) -> datetimes.Numbers:
    """Return the quarter as Flink does: it treats an interval's months as those of a date, which start at 1."""
    return datetimes.toward_zero(np.fmod(months, 12) - 1, 3) + 1


def _of_milliseconds(size: int, greater: int, milliseconds: datetimes.Numbers) -> datetimes.Numbers:
    rest: datetimes.Numbers = np.fmod(milliseconds, greater // 1_000_000) if greater else milliseconds
    return rest * (1_000_000 // size) if size < 1_000_000 else datetimes.toward_zero(rest, size // 1_000_000)


def _bind(unit: str, call: definition.Call) -> Kernel:
    data_type = call.types[-1]
    kernel = datetimes.number_kernel(_part(unit, data_type), call.result)
    zone = call.session.zone
    return lambda *columns: kernel(datetimes.local(columns[-1], data_type, zone))


def _extract(call: definition.Call) -> Kernel:
    kernel = _bind(str(call.value(0)), call)

    def run(unit: Datum, point: Datum) -> Datum:
        return kernel(point)

    return run


_SHORT: Final = {
    "YEAR": ("YEAR", "Returns the year."),
    "QUARTER": ("QUARTER", "Returns the quarter of the year, from 1 to 4."),
    "MONTH": ("MONTH", "Returns the month of the year, from 1 to 12."),
    "WEEK": ("WEEK", "Returns the ISO 8601 week of the year, from 1 to 53."),
    "DAYOFYEAR": ("DOY", "Returns the day of the year, from 1 to 366."),
    "DAYOFMONTH": ("DAY", "Returns the day of the month, from 1 to 31."),
    "DAYOFWEEK": ("DOW", "Returns the day of the week, from 1 (Sunday) to 7."),
    "HOUR": ("HOUR", "Returns the hour of the day, from 0 to 23."),
    "MINUTE": ("MINUTE", "Returns the minute of the hour, from 0 to 59."),
    "SECOND": ("SECOND", "Returns the second of the minute, from 0 to 59."),
}

#: the unit of each function that is named after one
SHORT_PARTS: Final = {name: unit for name, (unit, _) in _SHORT.items()}

TEMPORAL_PARTS_FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    definition.scalar(
        "EXTRACT",
        definition.takes(UNIT, definition.where("<DATETIME or INTERVAL>", _extracted)),
        _result,
        _extract,
        "Extracts a part of a point in time or an interval, such as YEAR, DOW (day of the week) or SECOND.",
        usage="EXTRACT(unit FROM point_in_time)",
        section="time",
        python_name="extract",
    ),
    *(
        definition.scalar(
            name,
            definition.takes(definition.where("<DATETIME>", partial(_whole, unit=unit))),
            _result,
            partial(_bind, unit),
            summary,
            usage=f"{name}(point_in_time)",
            section="time",
        )
        for name, (unit, summary) in _SHORT.items()
    ),
)


_MONTHS: Final = {
    "MONTH": 1,
    "QUARTER": 3,
    "YEAR": 12,
    "ISOYEAR": 12,
    "DECADE": 120,
    "CENTURY": 1_200,
    "MILLENNIUM": 12_000,
}
_NANOSECONDS: Final = {
    "WEEK": 7 * datetimes.DAY_NS,
    "DAY": datetimes.DAY_NS,
    "HOUR": 3_600 * datetimes.SECOND_NS,
    "MINUTE": 60 * datetimes.SECOND_NS,
    "SECOND": datetimes.SECOND_NS,
    "MILLISECOND": 1_000_000,
    "MICROSECOND": 1_000,
    "FRAC_SECOND": 1_000,
    "NANOSECOND": 1,
}
#: the least precision of a result that is moved by each unit
_DIGITS: Final = {"MILLISECOND": 3, "MICROSECOND": 6, "FRAC_SECOND": 6, "NANOSECOND": 9}


def _read_unit(call: definition.Operands | definition.Call) -> str:
    return str(call.value(0)).removeprefix("SQL_TSI_")


def _point_operand(call: definition.Operands, index: int) -> DataType | None:
    data_type, unit = call.types[index], _read_unit(call)
    if isinstance(data_type, NullType):
        return TimestampType(3)
    if not isinstance(data_type, TIMES) or (unit not in _MONTHS and unit not in _NANOSECONDS):
        return None
    return data_type


def _compared(call: definition.Operands, index: int) -> DataType | None:
    """Accept TIMESTAMP_LTZ only together with TIMESTAMP_LTZ."""
    if (
        len(
            {
                isinstance(data_type, LocalZonedTimestampType)
                for data_type in call.types[1:]
                if not isinstance(data_type, NullType)
            }
        )
        > 1
    ):
        return None
    return _point_operand(call, index)


# --- TIMESTAMPADD ----------------------------------------------------------------------------------------------------


def _moved_type(call: definition.Operands) -> DataType:
    unit, data_type = _read_unit(call), call.types[2]
    nullable = data_type.is_nullable or call.types[1].is_nullable
    if isinstance(data_type, DateType) and unit not in _MONTHS and unit not in ("WEEK", "DAY"):
        return TimestampType(_DIGITS.get(unit, 6), nullable)
    if isinstance(data_type, TimestampType | LocalZonedTimestampType):
        return type(data_type)(max(data_type.precision, _DIGITS.get(unit, 0)), nullable)
    return data_type.nullable() if nullable else data_type.not_null()


def _bind_add(call: definition.Call) -> Kernel:
    unit = _read_unit(call)
    before, after = datetimes.unit_ns(call.types[2]), datetimes.unit_ns(call.result)
    kind = arrow_type(call.result)
    is_time = isinstance(call.types[2], TimeType)

    def moved(counts: datetimes.Numbers, points: datetimes.Numbers) -> datetimes.Numbers:
        points = datetimes.scaled(points, before // after)
        if unit in _MONTHS:
            if is_time:  # months do not move a time of day
                return points + 0 * counts
            days, _ = datetimes.days_and_nanos(points, after)
            counts, factor = datetimes.add_months(days, counts * _MONTHS[unit]) - days, datetimes.DAY_NS // after
        elif _NANOSECONDS[unit] >= after:
            factor = _NANOSECONDS[unit] // after
        else:
            counts, factor = counts // (after // _NANOSECONDS[unit]), 1
        if is_time:
            return (points + counts * factor) % (datetimes.DAY_NS // after)
        _check_reach(after, points, counts, factor)
        return points + counts * factor

    return lambda word, count, point: datetimes.column_of_numbers(
        moved(datetimes.to_numbers(count), datetimes.to_numbers(point)), kind, (count, point)
    )


# --- TIMESTAMPDIFF ---------------------------------------------------------------------------------------------------


def _difference_type(call: definition.Operands) -> DataType:
    data_type = definition.BIGINT if _read_unit(call) == "NANOSECOND" else definition.INT
    return data_type.nullable() if call.types[1].is_nullable or call.types[2].is_nullable else data_type.not_null()


def _bind_difference(call: definition.Call) -> Kernel:
    unit = _read_unit(call)
    earlier_unit, later_unit = datetimes.unit_ns(call.types[1]), datetimes.unit_ns(call.types[2])
    kind = arrow_type(call.result)

    def difference(earlier: datetimes.Numbers, later: datetimes.Numbers) -> datetimes.Numbers:
        if unit in _MONTHS:
            months = datetimes.months_between(later, later_unit, earlier, earlier_unit)
            return datetimes.toward_zero(months, _MONTHS[unit])
        size = _NANOSECONDS[unit]
        if earlier_unit != later_unit:  # the finer one may not reach to the years of the other
            days, nanos = datetimes.distance(later, later_unit, earlier, earlier_unit)
            if size >= datetimes.DAY_NS:
                return datetimes.toward_zero(days, size // datetimes.DAY_NS)
            return days * (datetimes.DAY_NS // size) + datetimes.toward_zero(nanos, size)
        apart = later - earlier
        if size < later_unit:
            return apart * (later_unit // size)
        return datetimes.toward_zero(apart, size // later_unit)

    return lambda word, earlier, later: datetimes.column_of_numbers(
        difference(datetimes.to_numbers(earlier), datetimes.to_numbers(later)), kind, (earlier, later)
    )


# --- MINUS_DATE ------------------------------------------------------------------------------------------------------


def _subtracted(call: definition.Operands, index: int) -> DataType | None:
    """Accept two temporal values of the same type; a NULL literal takes the other's type."""
    known = [data_type for data_type in call.types[:2] if isinstance(data_type, TIMES)]
    if not known or any(type(data_type) is not type(known[0]) for data_type in known):
        return None
    operand_type = call.types[index]
    return (
        known[0].nullable()
        if isinstance(operand_type, NullType)
        else operand_type
        if isinstance(operand_type, TIMES)
        else None
    )


def _interval_type(call: definition.Operands) -> DataType:
    data_type = call.types[2]
    return data_type.nullable() if call.types[0].is_nullable or call.types[1].is_nullable else data_type.not_null()


def _bind_minus(call: definition.Call) -> Kernel:
    later_unit, earlier_unit = datetimes.unit_ns(call.types[0]), datetimes.unit_ns(call.types[1])
    kind = arrow_type(call.result)
    is_of_months = isinstance(call.result, YearMonthIntervalType)

    def difference(later: datetimes.Numbers, earlier: datetimes.Numbers) -> datetimes.Numbers:
        if is_of_months:
            return datetimes.months_between(later, later_unit, earlier, earlier_unit)
        if earlier_unit != later_unit:
            days, nanos = datetimes.distance(later, later_unit, earlier, earlier_unit)
            return days * datetimes.DAY_MS + datetimes.toward_zero(nanos, datetimes.MILLISECOND_NS)
        apart = later - earlier
        if later_unit >= datetimes.MILLISECOND_NS:
            return apart * (later_unit // datetimes.MILLISECOND_NS)
        return datetimes.toward_zero(apart, datetimes.MILLISECOND_NS // later_unit)

    return lambda later, earlier, interval: datetimes.column_of_numbers(
        difference(datetimes.to_numbers(later), datetimes.to_numbers(earlier)), kind, (later, earlier)
    )


# --- OVERLAPS --------------------------------------------------------------------------------------------------------


def _period(call: definition.Operands, index: int) -> DataType | None:
    """Accept a temporal value or, as the second of a pair, the length of the period."""
    operand_type = call.types[index]
    points = [data_type for data_type in call.types if isinstance(data_type, TIMES)]
    common = common_type(points) if points else None
    if common is None:
        return None
    if index % 2 and isinstance(operand_type, INTERVALS):
        is_wrong = isinstance(common, TimeType) and isinstance(operand_type, YearMonthIntervalType)
        return None if is_wrong else operand_type
    if not isinstance(operand_type, TIMES) and not isinstance(operand_type, NullType):
        return None
    return common.nullable() if operand_type.is_nullable else common.not_null()


def _bind_overlaps(call: definition.Call) -> Kernel:
    first, second = _end(call, 0), _end(call, 2)

    def kernel(start: Datum, end: Datum, other_start: Datum, other_end: Datum) -> Datum:
        begin, one_end = _in_order(start, first(start, end))
        other, last = _in_order(other_start, second(other_start, other_end))
        return pc.and_kleene(pc.greater_equal(one_end, other), pc.greater_equal(last, begin))

    return kernel


def _end(call: definition.Call, index: int) -> Kernel:
    """Return a kernel for the end of a period."""
    point, end = call.types[index : index + 2]
    if not isinstance(end, INTERVALS):
        return lambda start, stop: stop
    return bind("+", definition.Call(definition.Operands((point, end), session=call.session), point))


def _in_order(point: Datum, other: Datum) -> tuple[Datum, Datum]:
    is_ordered = pc.fill_null(pc.less_equal(point, other), False)
    return pc.if_else(is_ordered, point, other), pc.if_else(is_ordered, other, point)


def _overlap_type(call: definition.Operands) -> DataType:
    return definition.BOOLEAN_TYPE.nullable() if call.any_nullable() else definition.BOOLEAN_TYPE.not_null()


TEMPORAL_DIFFERENCES_FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    definition.scalar(
        "MINUS_DATE",
        definition.takes(
            definition.where("<DATETIME>", _subtracted),
            definition.where("<DATETIME>", _subtracted),
            definition.where("<INTERVAL>", _interval),
        ),
        _interval_type,
        _bind_minus,
        "Returns the interval between two points in time: in full months for units of a month or more, otherwise in "
        "milliseconds.",
        usage="(point_in_time1 - point_in_time2) unit",
        section="time",
    ),
    definition.scalar(
        "TIMESTAMPADD",
        definition.takes(UNIT, definition.INTEGER, definition.where("<DATETIME>", _point_operand)),
        _moved_type,
        _bind_add,
        "Adds a number of units to a point in time.",
        usage="TIMESTAMPADD(unit, number, point_in_time)",
        section="time",
    ),
    definition.scalar(
        "TIMESTAMPDIFF",
        definition.takes(UNIT, definition.where("<DATETIME>", _compared), definition.where("<DATETIME>", _compared)),
        _difference_type,
        _bind_difference,
        "Returns the number of full units from the first point in time to the second, negative if the second is "
        "earlier.",
        usage="TIMESTAMPDIFF(unit, point_in_time1, point_in_time2)",
        section="time",
        python_name="timestampDiff",
    ),
    definition.scalar(
        "OVERLAPS",
        definition.takes(*[definition.where("<DATETIME or INTERVAL>", _period)] * 4),
        _overlap_type,
        _bind_overlaps,
        "Returns TRUE if two periods overlap; each is given by two points in time, or by a start and an interval.",
        usage="(point_in_time1, end1) OVERLAPS (point_in_time2, end2)",
        section="time",
        python_name="temporalOverlaps",
    ),
)


FUNCTIONS: tuple[definition.ScalarFunction, ...] = (*TEMPORAL_PARTS_FUNCTIONS, *TEMPORAL_DIFFERENCES_FUNCTIONS)
