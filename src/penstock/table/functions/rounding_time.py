"""FLOOR and CEIL of numbers, and of temporal values to a unit.

CEIL to WEEK or a larger unit looks at the day alone. To QUARTER, DECADE, CENTURY and MILLENNIUM, and of a DATE to DAY,
it returns the next unit even for a value at the start of one, as Flink does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.logical_types import (
    DataType,
    DecimalType,
    IntegralType,
    LocalZonedTimestampType,
    NullType,
    TimestampType,
    TimeType,
)
from penstock.table.data.moments import (
    Numbers,
    column_of_numbers,
    days_of_months,
    days_of_years,
    local,
    to_months,
    to_numbers,
    to_years,
    unit_ns,
    weekday,
)
from penstock.table.data.temporal_text import DAY_NS, SECOND_NS
from penstock.table.data.values import Datum, Kernel
from penstock.table.functions.definition import Call, Operands, ScalarFunction, scalar
from penstock.table.functions.signatures import NUMERIC, takes, where
from penstock.table.functions.temporal_parts import UNIT
from penstock.table.functions.type_rules import TIMES

_NANOSECONDS: Final = {
    "DAY": DAY_NS,
    "HOUR": 3_600 * SECOND_NS,
    "MINUTE": 60 * SECOND_NS,
    "SECOND": SECOND_NS,
    "MILLISECOND": 1_000_000,
    "MICROSECOND": 1_000,
    "NANOSECOND": 1,
}
#: the length of each unit in years, and its first year modulo that length
_SPANS: Final = {"DECADE": (10, 0), "CENTURY": (100, 1), "MILLENNIUM": (1000, 1)}
_DAYS: Final = ("WEEK", "MONTH", "QUARTER", "YEAR", *_SPANS)


def _rounded(call: Operands, index: int) -> DataType | None:
    """Accept temporal values that can be rounded to the unit."""
    data_type, unit = call.types[index], call.value(index + 1)
    if isinstance(data_type, NullType):
        return TimestampType(3)
    if isinstance(data_type, TimeType):
        return data_type if unit in _NANOSECONDS and unit != "DAY" else None
    return data_type if isinstance(data_type, TIMES) and (unit in _NANOSECONDS or unit in _DAYS) else None


def _result(call: Operands) -> DataType:
    data_type = call.types[0]
    return (
        DecimalType(data_type.precision, 0, data_type.is_nullable) if isinstance(data_type, DecimalType) else data_type
    )


def _days(unit: str, up: bool, days: Numbers) -> Numbers:
    """Round days to the first day of a unit."""
    if unit == "WEEK":
        since_sunday = (weekday(days) + 1) % 7
        return days - since_sunday + (7 * (since_sunday > 0) if up else 0)
    months = to_months(days)
    if unit == "MONTH":
        return days_of_months(months + (up & (days > days_of_months(months))))
    if unit == "YEAR":
        years = to_years(days)
        return days_of_years(years + (up & (days > days_of_years(years))))
    if unit == "QUARTER":
        begins_year = days == days_of_years(to_years(days))
        return days_of_months(months // 3 * 3 + 3 * (up & ~begins_year))
    span, first = _SPANS[unit]
    return days_of_years((to_years(days) - first) // span * span + first + span * up)


def _point(unit: str, up: bool, per_number: int, numbers: Numbers) -> Numbers:
    """Round temporal values. `per_number`: the nanoseconds that each number stands for."""
    if unit in _DAYS:
        per_day = DAY_NS // per_number
        return _days(unit, up, numbers // per_day) * per_day
    if per_number == DAY_NS:
        return numbers + int(up and unit == "DAY")
    size = _NANOSECONDS[unit] // per_number
    if size <= 1:
        return numbers
    return -(-numbers // size) * size if up else numbers // size * size


def _bind_point(up: bool, call: Call) -> Kernel:
    data_type, zone = call.types[0], call.session.zone
    kind = arrow_type(call.result)
    compute: Callable[[Numbers], Numbers] = partial(_point, str(call.value(1)), up, unit_ns(data_type))
    if isinstance(data_type, TimeType):
        day = DAY_NS // unit_ns(data_type)
        around = compute
        compute = lambda numbers: around(numbers) % day  # noqa: E731
    if not isinstance(data_type, LocalZonedTimestampType):
        return lambda column, unit: column_of_numbers(compute(to_numbers(column)), kind, (column,))

    def in_zone(column: Datum, unit: Datum) -> Datum:
        """Round local time, with the zone's offset to UTC at the original instant."""
        numbers, as_shown = to_numbers(column), to_numbers(local(column, data_type, zone))
        return column_of_numbers(numbers + (compute(as_shown) - as_shown), kind, (column,))

    return in_zone


def _bind(up: bool, call: Call) -> Kernel:
    if len(call.types) > 1:
        return _bind_point(up, call)
    if isinstance(call.types[0], IntegralType):
        return lambda column: column
    rounded = pc.ceil if up else pc.floor
    kind = arrow_type(call.result)
    if not pa.types.is_decimal(kind):
        return lambda column: rounded(column)
    return lambda column: rounded(column).cast(kind)


_SIGNATURES: Final = (takes(where("<DATETIME>", _rounded), UNIT), takes(NUMERIC))


def _infer_result_type(call: Operands) -> DataType:
    return _result(call) if len(call) == 1 else call.types[0]


FUNCTIONS: tuple[ScalarFunction, ...] = (
    scalar(
        "FLOOR",
        _SIGNATURES,
        _infer_result_type,
        partial(_bind, False),
        "Rounds a number down to an integer, or a point in time down to a unit.",
        usage="FLOOR(number) or FLOOR(point_in_time TO unit)",
        section="time",
    ),
    scalar(
        "CEIL",
        _SIGNATURES,
        _infer_result_type,
        partial(_bind, True),
        "Rounds a number up to an integer, or a point in time up to a unit.",
        usage="CEIL(number) or CEIL(point_in_time TO unit)",
        section="time",
        aliases=("CEILING",),
    ),
)
