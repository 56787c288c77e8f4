"""The operators `+`, `-`, `*` and `/` for temporal values and intervals.

An interval of months moves a value to the same day of another month, or to that month's last day. A DATE moves by whole
days; a TIME wraps around after 24 hours.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.errors import TableRuntimeError
from penstock.table.data.logical_types import (
    DataType,
    DateType,
    IntegralType,
    NullType,
    NumericType,
    TimeType,
    YearMonthIntervalType,
)
from penstock.table.data.moments import (
    MILLISECOND_NS,
    Numbers,
    add_months,
    days_and_nanos,
    number_kernel,
    toward_zero,
    unit_ns,
)
from penstock.table.data.temporal_text import DAY_MS, DAY_NS, FAR_NANOSECONDS
from penstock.table.data.values import Datum, Kernel
from penstock.table.functions.definition import Call, Operand, Operands, Signature
from penstock.table.functions.signatures import takes, where
from penstock.table.functions.type_rules import INTERVALS, TIMES, common_type


def _point(call: Operands, index: int) -> DataType | None:
    data_type = call.types[index]
    return data_type if isinstance(data_type, TIMES) else None


def _interval(call: Operands, index: int) -> DataType | None:
    data_type = call.types[index]
    return data_type if isinstance(data_type, INTERVALS) else None


def _same_interval(call: Operands, index: int) -> DataType | None:
    """Accept an interval of the same kind as the other operand; either may be a NULL literal."""
    known = [data_type for data_type in call.types if isinstance(data_type, INTERVALS)]
    if not known or any(type(data_type) is not type(known[0]) for data_type in known):
        return None
    return known[0].nullable() if isinstance(call.types[index], NullType) else _interval(call, index)


def _number(call: Operands, index: int) -> DataType | None:
    data_type = call.types[index]
    return data_type if isinstance(data_type, NumericType) else None


_POINT: Final = Operand("<DATETIME>", _point)
_INTERVAL: Final = where("<INTERVAL>", _interval)
_SAME: Final = where("<INTERVAL>", _same_interval)
_NUMBER: Final = where("<NUMERIC>", _number)

#: the temporal signatures of each operator
SIGNATURES: Final[dict[str, tuple[Signature, ...]]] = {
    "+": (takes(_POINT, _INTERVAL), takes(_INTERVAL, _POINT), takes(_SAME, _SAME)),
    "-": (takes(_POINT, _INTERVAL), takes(_SAME, _SAME)),
    "*": (takes(_INTERVAL, _NUMBER), takes(_NUMBER, _INTERVAL)),
    "/": (takes(_INTERVAL, _NUMBER),),
    "MINUS_PREFIX": (takes(_INTERVAL),),
    "PLUS_PREFIX": (takes(_INTERVAL),),
}


def result_type(operator: str, call: Operands) -> DataType:
    """Return the result type of an operator."""
    points = [data_type for data_type in call.types if isinstance(data_type, TIMES)]
    intervals = [data_type for data_type in call.types if isinstance(data_type, INTERVALS)]
    common = points[0] if points else common_type(intervals)
    assert common is not None  # checked by a signature
    return common.nullable() if call.any_nullable() else common.not_null()


def move_may_fail(call: Operands) -> bool:
    """Return whether adding an interval may leave the years that the type supports."""
    return any(isinstance(data_type, TIMES) and unit_ns(data_type) == 1 for data_type in call.types)


def product_may_fail(call: Operands) -> bool:
    """Return whether multiplying an interval may overflow or produce NaN."""
    is_scaled = any(isinstance(data_type, INTERVALS) for data_type in call.types)
    return is_scaled and not any(isinstance(data_type, IntegralType) for data_type in call.types)


def bind(operator: str, call: Call) -> Kernel:
    """Return the kernel of an operator."""
    types = call.types
    if operator == "MINUS_PREFIX":
        return number_kernel(np.negative, call.result)
    if operator == "PLUS_PREFIX":
        return lambda column: column
    if operator in ("*", "/"):
        swapped = not isinstance(types[0], INTERVALS)
        kernel = _scaled(operator, call.result)
        return (lambda number, interval: kernel(interval, number)) if swapped else kernel
    sign = -1 if operator == "-" else 1
    if isinstance(types[1], TIMES):
        moved = number_kernel(_moving(types[1], types[0], sign), call.result)
        return lambda interval, point: moved(point, interval)
    if isinstance(types[0], TIMES):
        return number_kernel(_moving(types[0], types[1], sign), call.result)
    return number_kernel(np.add if sign > 0 else np.subtract, call.result)


def _moving(point: DataType, interval: DataType, sign: int) -> partial[Numbers]:
    """Return a function on arrays of numbers that adds an interval to temporal values."""
    if isinstance(interval, YearMonthIntervalType):
        return partial(_unmoved) if isinstance(point, TimeType) else partial(_by_months, unit_ns(point), sign)
    if isinstance(point, DateType):
        return partial(_by_days, sign)
    if isinstance(point, TimeType):
        return partial(_around_the_clock, sign)
    return partial(_by_milliseconds, unit_ns(point), sign * (MILLISECOND_NS // unit_ns(point)))


def _unmoved(points: Numbers, months: Numbers) -> Numbers:
    """Return times of day unchanged: months do not move them."""
    return points + 0 * months


def _by_months(unit: int, sign: int, points: Numbers, months: Numbers) -> Numbers:
    if unit == DAY_NS:
        return add_months(points, sign * months)
    days, _ = days_and_nanos(points, unit)
    moved_by = add_months(days, sign * months) - days
    _check_reach(unit, points, moved_by, DAY_NS // unit)
    return points + moved_by * (DAY_NS // unit)


def _by_days(sign: int, days: Numbers, milliseconds: Numbers) -> Numbers:
    """Move dates by the whole days of intervals."""
    return days + sign * toward_zero(milliseconds, DAY_MS)


def _around_the_clock(sign: int, times: Numbers, milliseconds: Numbers) -> Numbers:
    return (times + sign * milliseconds) % DAY_MS


def _by_milliseconds(unit: int, factor: int, points: Numbers, milliseconds: Numbers) -> Numbers:
    _check_reach(unit, points, milliseconds, factor)
    return points + factor * milliseconds


def _check_reach(unit: int, points: Numbers, moved_by: Numbers, factor: int) -> None:
    """Raise `TableRuntimeError` if results in nanoseconds overflow 64 bits. `unit`: the nanoseconds of each number."""
    if unit > 1:
        return
    moved = points.astype(np.float64) + moved_by.astype(np.float64) * factor
    if moved.size and np.abs(moved).max() >= _REACH:
        raise TableRuntimeError(FAR_NANOSECONDS)


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
