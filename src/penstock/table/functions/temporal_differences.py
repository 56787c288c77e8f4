"""TIMESTAMPADD, TIMESTAMPDIFF and OVERLAPS: distances between temporal values."""

from __future__ import annotations

from typing import Final

import pyarrow.compute as pc

from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.logical_types import (
    DataType,
    DateType,
    LocalZonedTimestampType,
    NullType,
    TimestampType,
    TimeType,
    YearMonthIntervalType,
)
from penstock.table.data.moments import (
    MILLISECOND_NS,
    Numbers,
    add_months,
    column_of_numbers,
    days_and_nanos,
    months_between,
    numbers_of,
    toward_zero,
    unit_ns,
)
from penstock.table.data.temporal_text import DAY_NS, SECOND_NS
from penstock.table.data.values import Datum, Kernel
from penstock.table.functions import temporal_arithmetic
from penstock.table.functions.definition import Call, Operands, ScalarFunction, scalar
from penstock.table.functions.signatures import BIGINT, BOOLEAN_TYPE, INT, INTEGER, takes, where
from penstock.table.functions.temporal_parts import UNIT
from penstock.table.functions.type_rules import INTERVALS, TIMES, common_type

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
    "WEEK": 7 * DAY_NS,
    "DAY": DAY_NS,
    "HOUR": 3_600 * SECOND_NS,
    "MINUTE": 60 * SECOND_NS,
    "SECOND": SECOND_NS,
    "MILLISECOND": 1_000_000,
    "MICROSECOND": 1_000,
    "FRAC_SECOND": 1_000,
    "NANOSECOND": 1,
}
#: the least precision of a result that is moved by each unit
_DIGITS: Final = {"MILLISECOND": 3, "MICROSECOND": 6, "FRAC_SECOND": 6, "NANOSECOND": 9}


def _unit_of(call: Operands | Call) -> str:
    return str(call.value(0)).removeprefix("SQL_TSI_")


def _point(call: Operands, index: int) -> DataType | None:
    found, unit = call.types[index], _unit_of(call)
    if isinstance(found, NullType):
        return TimestampType(3)
    if not isinstance(found, TIMES) or (unit not in _MONTHS and unit not in _NANOSECONDS):
        return None
    return found


def _compared(call: Operands, index: int) -> DataType | None:
    """Accept TIMESTAMP_LTZ only together with TIMESTAMP_LTZ."""
    if len({isinstance(one, LocalZonedTimestampType) for one in call.types[1:] if not isinstance(one, NullType)}) > 1:
        return None
    return _point(call, index)


# --- TIMESTAMPADD ----------------------------------------------------------------------------------------------------


def _moved_type(call: Operands) -> DataType:
    unit, found = _unit_of(call), call.types[2]
    nullable = found.is_nullable or call.types[1].is_nullable
    if isinstance(found, DateType) and unit not in _MONTHS and unit not in ("WEEK", "DAY"):
        return TimestampType(_DIGITS.get(unit, 6), nullable)
    if isinstance(found, TimestampType | LocalZonedTimestampType):
        return type(found)(max(found.precision, _DIGITS.get(unit, 0)), nullable)
    return found.nullable() if nullable else found.not_null()


def _bind_add(call: Call) -> Kernel:
    unit = _unit_of(call)
    before, after = unit_ns(call.types[2]), unit_ns(call.result)
    kind = arrow_type(call.result)
    is_time = isinstance(call.types[2], TimeType)

    def moved(counts: Numbers, points: Numbers) -> Numbers:
        points = points * (before // after)
        if unit in _MONTHS:
            if is_time:  # months do not move a time of day
                return points + 0 * counts
            days, _ = days_and_nanos(points, after)
            return points + (add_months(days, counts * _MONTHS[unit]) - days) * (DAY_NS // after)
        size = _NANOSECONDS[unit]
        found = points + (counts * (size // after) if size >= after else counts // (after // size))
        return found % (DAY_NS // after) if is_time else found

    return lambda word, count, point: column_of_numbers(
        moved(numbers_of(count), numbers_of(point)), kind, (count, point)
    )


# --- TIMESTAMPDIFF ---------------------------------------------------------------------------------------------------


def _difference_type(call: Operands) -> DataType:
    found = BIGINT if _unit_of(call) == "NANOSECOND" else INT
    return found.nullable() if call.types[1].is_nullable or call.types[2].is_nullable else found.not_null()


def _bind_difference(call: Call) -> Kernel:
    unit = _unit_of(call)
    units = unit_ns(call.types[1]), unit_ns(call.types[2])
    finest = min(units)
    kind = arrow_type(call.result)

    def difference(earlier: Numbers, later: Numbers) -> Numbers:
        earlier, later = earlier * (units[0] // finest), later * (units[1] // finest)
        if unit in _MONTHS:
            months = months_between(later, earlier, finest)
            return toward_zero(months, _MONTHS[unit])
        apart = later - earlier
        size = _NANOSECONDS[unit]
        if size < finest:
            return apart * (finest // size)
        return toward_zero(apart, size // finest)

    return lambda word, earlier, later: column_of_numbers(
        difference(numbers_of(earlier), numbers_of(later)), kind, (earlier, later)
    )


# --- MINUS_DATE ------------------------------------------------------------------------------------------------------


def _subtracted(call: Operands, index: int) -> DataType | None:
    """Accept two temporal values of the same type; a NULL literal takes the other's type."""
    known = [one for one in call.types[:2] if isinstance(one, TIMES)]
    if not known or any(type(one) is not type(known[0]) for one in known):
        return None
    found = call.types[index]
    return known[0].nullable() if isinstance(found, NullType) else found if isinstance(found, TIMES) else None


def _interval_of(call: Operands, index: int) -> DataType | None:
    found = call.types[index]
    return found if isinstance(found, INTERVALS) else None


def _interval_type(call: Operands) -> DataType:
    found = call.types[2]
    return found.nullable() if call.types[0].is_nullable or call.types[1].is_nullable else found.not_null()


def _bind_minus(call: Call) -> Kernel:
    units = unit_ns(call.types[0]), unit_ns(call.types[1])
    finest = min(units)
    kind = arrow_type(call.result)
    is_of_months = isinstance(call.result, YearMonthIntervalType)

    def difference(later: Numbers, earlier: Numbers) -> Numbers:
        later, earlier = later * (units[0] // finest), earlier * (units[1] // finest)
        if is_of_months:
            return months_between(later, earlier, finest)
        apart = later - earlier
        if finest >= MILLISECOND_NS:
            return apart * (finest // MILLISECOND_NS)
        return toward_zero(apart, MILLISECOND_NS // finest)

    return lambda later, earlier, interval: column_of_numbers(
        difference(numbers_of(later), numbers_of(earlier)), kind, (later, earlier)
    )


# --- OVERLAPS --------------------------------------------------------------------------------------------------------


def _period(call: Operands, index: int) -> DataType | None:
    """Accept a temporal value or, as the second of a pair, the length of the period."""
    found = call.types[index]
    points = [one for one in call.types if isinstance(one, TIMES)]
    common = common_type(points) if points else None
    if common is None:
        return None
    if index % 2 and isinstance(found, INTERVALS):
        is_wrong = isinstance(common, TimeType) and isinstance(found, YearMonthIntervalType)
        return None if is_wrong else found
    if not isinstance(found, TIMES) and not isinstance(found, NullType):
        return None
    return common.nullable() if found.is_nullable else common.not_null()


def _bind_overlaps(call: Call) -> Kernel:
    first, second = _end(call, 0), _end(call, 2)

    def kernel(start: Datum, end: Datum, other_start: Datum, other_end: Datum) -> Datum:
        one, one_end = _in_order(start, first(start, end))
        other, last = _in_order(other_start, second(other_start, other_end))
        return pc.and_kleene(pc.greater_equal(one_end, other), pc.greater_equal(last, one))

    return kernel


def _end(call: Call, index: int) -> Kernel:
    """Return a kernel for the end of a period."""
    point, end = call.types[index : index + 2]
    if not isinstance(end, INTERVALS):
        return lambda start, found: found
    return temporal_arithmetic.bind("+", Call(Operands((point, end), session=call.session), point))


def _in_order(one: Datum, other: Datum) -> tuple[Datum, Datum]:
    is_ordered = pc.fill_null(pc.less_equal(one, other), False)
    return pc.if_else(is_ordered, one, other), pc.if_else(is_ordered, other, one)


def _overlap_type(call: Operands) -> DataType:
    return BOOLEAN_TYPE.nullable() if call.any_nullable() else BOOLEAN_TYPE.not_null()


FUNCTIONS: tuple[ScalarFunction, ...] = (
    scalar(
        "MINUS_DATE",
        takes(where("<DATETIME>", _subtracted), where("<DATETIME>", _subtracted), where("<INTERVAL>", _interval_of)),
        _interval_type,
        _bind_minus,
        "How far two points in time are apart: in full months for units from months on, else in milliseconds.",
        usage="(point_in_time1 - point_in_time2) unit",
        section="time",
    ),
    scalar(
        "TIMESTAMPADD",
        takes(UNIT, INTEGER, where("<DATETIME>", _point)),
        _moved_type,
        _bind_add,
        "A point in time moved by a number of units.",
        usage="TIMESTAMPADD(unit, number, point_in_time)",
        section="time",
    ),
    scalar(
        "TIMESTAMPDIFF",
        takes(UNIT, where("<DATETIME>", _compared), where("<DATETIME>", _compared)),
        _difference_type,
        _bind_difference,
        "How many full units lie between the first point in time and the second, negative where that is earlier.",
        usage="TIMESTAMPDIFF(unit, point_in_time1, point_in_time2)",
        section="time",
        python_name="timestampDiff",
    ),
    scalar(
        "OVERLAPS",
        takes(*[where("<DATETIME or INTERVAL>", _period)] * 4),
        _overlap_type,
        _bind_overlaps,
        "Whether two periods have a point in time in common; each is two points in time, or one and an interval.",
        usage="(point_in_time1, end1) OVERLAPS (point_in_time2, end2)",
        section="time",
        python_name="temporalOverlaps",
    ),
)
