"""EXTRACT and its shorthand functions: a part of a temporal value or an interval."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from penstock.table.data import moments
from penstock.table.data.logical_types import (
    DataType,
    DayTimeIntervalType,
    NullType,
    TimestampType,
    TimeType,
    YearMonthIntervalType,
)
from penstock.table.data.moments import Numbers, days_and_nanos, local, number_kernel, toward_zero, unit_ns
from penstock.table.data.temporal_text import DAY_NS, SECOND_NS
from penstock.table.data.values import Datum, Kernel
from penstock.table.functions.definition import Call, Operand, Operands, ScalarFunction, scalar
from penstock.table.functions.signatures import BIGINT, takes, where
from penstock.table.functions.type_rules import TIMES


def _by_sign(years: Numbers, span: int) -> Numbers:
    """Return the century or millennium of years; each begins with a year 1."""
    return np.where(years > 0, (years + span - 1) // span, -((span - 1 - years) // span))


#: parts of a day number
_OF_DAY: Final[dict[str, Callable[[Numbers], Numbers]]] = {
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
_HOUR_NS: Final = 3_600 * SECOND_NS
#: parts of a time of day: nanoseconds in the unit and in the next larger one
_OF_TIME: Final = {
    "HOUR": (_HOUR_NS, DAY_NS),
    "MINUTE": (60 * SECOND_NS, _HOUR_NS),
    "SECOND": (SECOND_NS, 60 * SECOND_NS),
    "MILLISECOND": (1_000_000, SECOND_NS),
    "MICROSECOND": (1_000, SECOND_NS),
    "NANOSECOND": (1, SECOND_NS),
}
#: parts of an interval of months: months in the unit and in the next larger one
_OF_MONTHS: Final = {"MONTH": (1, 12), "YEAR": (12, 0), "DECADE": (120, 0), "CENTURY": (1200, 0)}
_MILLENNIUM_MONTHS: Final = 12_000


def _unit(call: Operands, index: int) -> DataType | None:
    is_word = isinstance(call.types[index], NullType) and isinstance(call.value(index), str)
    return call.types[index] if is_word else None


UNIT: Final[Operand] = where("<UNIT>", _unit)


def _has_part(data_type: DataType, unit: str) -> bool:
    if isinstance(data_type, YearMonthIntervalType):
        return unit in _OF_MONTHS or unit in ("QUARTER", "MILLENNIUM")
    if isinstance(data_type, DayTimeIntervalType):
        return unit in _OF_TIME or unit in ("DAY", "WEEK", "EPOCH")
    if isinstance(data_type, TimeType):
        return unit in _OF_TIME or unit == "EPOCH"
    return isinstance(data_type, TIMES) and (unit in _OF_DAY or unit in _OF_TIME or unit == "EPOCH")


def _extracted(call: Operands, index: int) -> DataType | None:
    data_type = call.types[index]
    if isinstance(data_type, NullType):
        return TimestampType(3)
    return data_type if _has_part(data_type, str(call.value(0))) else None


def _whole(call: Operands, index: int, unit: str) -> DataType | None:
    """Accept the operand of YEAR, MONTH and so on."""
    data_type = call.types[index]
    if isinstance(data_type, NullType):
        return TimestampType(3)
    return data_type if _has_part(data_type, unit) and (unit != "WEEK" or isinstance(data_type, TIMES)) else None


def _result(call: Operands) -> DataType:
    return BIGINT.nullable() if call.types[-1].is_nullable else BIGINT.not_null()


def _part(unit: str, data_type: DataType) -> Callable[[Numbers], Numbers]:
    """Return a function that extracts a part from a type's internal numbers."""
    if isinstance(data_type, YearMonthIntervalType):
        if unit == "QUARTER":
            return _quarter_of_months
        return partial(_of_months, *_OF_MONTHS.get(unit, (_MILLENNIUM_MONTHS, 0)))
    per_number = unit_ns(data_type)
    if unit == "EPOCH":
        return lambda numbers: (
            numbers * (per_number // SECOND_NS) if per_number > SECOND_NS else numbers // (SECOND_NS // per_number)
        )
    if isinstance(data_type, DayTimeIntervalType):
        size, greater = {"DAY": (DAY_NS, 0), "WEEK": (7 * DAY_NS, 0)}.get(unit, _OF_TIME.get(unit, (1, 0)))
        return partial(_of_milliseconds, size, greater)
    if unit in _OF_DAY:
        of_day = _OF_DAY[unit]
        return lambda numbers: of_day(days_and_nanos(numbers, per_number)[0])
    size, greater = _OF_TIME[unit]
    return lambda numbers: days_and_nanos(numbers, per_number)[1] % greater // size


def _of_months(size: int, greater: int, months: Numbers) -> Numbers:
    """Extract a part of months. Rounds towards 0, because intervals may be negative."""
    return toward_zero(np.fmod(months, greater) if greater else months, size)


def _quarter_of_months(months: Numbers) -> Numbers:
    """Return the quarter as Flink does: it treats an interval's months as those of a date, which start at 1."""
    return toward_zero(np.fmod(months, 12) - 1, 3) + 1


def _of_milliseconds(size: int, greater: int, milliseconds: Numbers) -> Numbers:
    rest: Numbers = np.fmod(milliseconds, greater // 1_000_000) if greater else milliseconds
    return rest * (1_000_000 // size) if size < 1_000_000 else toward_zero(rest, size // 1_000_000)


def _bind(unit: str, call: Call) -> Kernel:
    data_type = call.types[-1]
    kernel = number_kernel(_part(unit, data_type), call.result)
    zone = call.session.zone
    return lambda *columns: kernel(local(columns[-1], data_type, zone))


def _extract(call: Call) -> Kernel:
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

FUNCTIONS: tuple[ScalarFunction, ...] = (
    scalar(
        "EXTRACT",
        takes(UNIT, where("<DATETIME or INTERVAL>", _extracted)),
        _result,
        _extract,
        "Extracts a part of a point in time or an interval, such as YEAR, DOW (day of the week) or SECOND.",
        usage="EXTRACT(unit FROM point_in_time)",
        section="time",
        python_name="extract",
    ),
    *(
        scalar(
            name,
            takes(where("<DATETIME>", partial(_whole, unit=unit))),
            _result,
            partial(_bind, unit),
            summary,
            usage=f"{name}(point_in_time)",
            section="time",
        )
        for name, (unit, summary) in _SHORT.items()
    ),
)
