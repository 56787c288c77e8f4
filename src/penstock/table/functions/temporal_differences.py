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
    to_numbers,
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


def _read_unit(call: Operands | Call) -> str:
    return str(call.value(0)).removeprefix("SQL_TSI_")


def _point(call: Operands, index: int) -> DataType | None:
    data_type, unit = call.types[index], _read_unit(call)
    if isinstance(data_type, NullType):
        return TimestampType(3)
    if not isinstance(data_type, TIMES) or (unit not in _MONTHS and unit not in _NANOSECONDS):
        return None
    return data_type


def _compared(call: Operands, index: int) -> DataType | None:
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
    return _point(call, index)


# --- TIMESTAMPADD ----------------------------------------------------------------------------------------------------


def _moved_type(call: Operands) -> DataType:
    unit, data_type = _read_unit(call), call.types[2]
    nullable = data_type.is_nullable or call.types[1].is_nullable
    if isinstance(data_type, DateType) and unit not in _MONTHS and unit not in ("WEEK", "DAY"):
        return TimestampType(_DIGITS.get(unit, 6), nullable)
    if isinstance(data_type, TimestampType | LocalZonedTimestampType):
        return type(data_type)(max(data_type.precision, _DIGITS.get(unit, 0)), nullable)
    return data_type.nullable() if nullable else data_type.not_null()


def _bind_add(call: Call) -> Kernel:
    unit = _read_unit(call)
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
        shifted = points + (counts * (size // after) if size >= after else counts // (after // size))
        return shifted % (DAY_NS // after) if is_time else shifted

    return lambda word, count, point: column_of_numbers(
        moved(to_numbers(count), to_numbers(point)), kind, (count, point)
    )


# --- TIMESTAMPDIFF ---------------------------------------------------------------------------------------------------


def _difference_type(call: Operands) -> DataType:
    data_type = BIGINT if _read_unit(call) == "NANOSECOND" else INT
    return data_type.nullable() if call.types[1].is_nullable or call.types[2].is_nullable else data_type.not_null()


def _bind_difference(call: Call) -> Kernel:
    unit = _read_unit(call)
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
        difference(to_numbers(earlier), to_numbers(later)), kind, (earlier, later)
    )


# --- MINUS_DATE ------------------------------------------------------------------------------------------------------


def _subtracted(call: Operands, index: int) -> DataType | None:
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


def _find_interval_type(call: Operands, index: int) -> DataType | None:
    data_type = call.types[index]
    return data_type if isinstance(data_type, INTERVALS) else None


def _interval_type(call: Operands) -> DataType:
    data_type = call.types[2]
    return data_type.nullable() if call.types[0].is_nullable or call.types[1].is_nullable else data_type.not_null()


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
        difference(to_numbers(later), to_numbers(earlier)), kind, (later, earlier)
    )


# --- OVERLAPS --------------------------------------------------------------------------------------------------------


def _period(call: Operands, index: int) -> DataType | None:
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


def _bind_overlaps(call: Call) -> Kernel:
    first, second = _end(call, 0), _end(call, 2)

    def kernel(start: Datum, end: Datum, other_start: Datum, other_end: Datum) -> Datum:
        begin, one_end = _in_order(start, first(start, end))
        other, last = _in_order(other_start, second(other_start, other_end))
        return pc.and_kleene(pc.greater_equal(one_end, other), pc.greater_equal(last, begin))

    return kernel


def _end(call: Call, index: int) -> Kernel:
    """Return a kernel for the end of a period."""
    point, end = call.types[index : index + 2]
    if not isinstance(end, INTERVALS):
        return lambda start, stop: stop
    return temporal_arithmetic.bind("+", Call(Operands((point, end), session=call.session), point))


def _in_order(point: Datum, other: Datum) -> tuple[Datum, Datum]:
    is_ordered = pc.fill_null(pc.less_equal(point, other), False)
    return pc.if_else(is_ordered, point, other), pc.if_else(is_ordered, other, point)


def _overlap_type(call: Operands) -> DataType:
    return BOOLEAN_TYPE.nullable() if call.any_nullable() else BOOLEAN_TYPE.not_null()


FUNCTIONS: tuple[ScalarFunction, ...] = (
    scalar(
        "MINUS_DATE",
        takes(
            where("<DATETIME>", _subtracted), where("<DATETIME>", _subtracted), where("<INTERVAL>", _find_interval_type)
        ),
        _interval_type,
        _bind_minus,
        "Returns the interval between two points in time: in full months for units of a month or more, otherwise in "
        "milliseconds.",
        usage="(point_in_time1 - point_in_time2) unit",
        section="time",
    ),
    scalar(
        "TIMESTAMPADD",
        takes(UNIT, INTEGER, where("<DATETIME>", _point)),
        _moved_type,
        _bind_add,
        "Adds a number of units to a point in time.",
        usage="TIMESTAMPADD(unit, number, point_in_time)",
        section="time",
    ),
    scalar(
        "TIMESTAMPDIFF",
        takes(UNIT, where("<DATETIME>", _compared), where("<DATETIME>", _compared)),
        _difference_type,
        _bind_difference,
        "Returns the number of full units from the first point in time to the second, negative if the second is "
        "earlier.",
        usage="TIMESTAMPDIFF(unit, point_in_time1, point_in_time2)",
        section="time",
        python_name="timestampDiff",
    ),
    scalar(
        "OVERLAPS",
        takes(*[where("<DATETIME or INTERVAL>", _period)] * 4),
        _overlap_type,
        _bind_overlaps,
        "Returns TRUE if two periods overlap; each is given by two points in time, or by a start and an interval.",
        usage="(point_in_time1, end1) OVERLAPS (point_in_time2, end2)",
        section="time",
        python_name="temporalOverlaps",
    ),
)
