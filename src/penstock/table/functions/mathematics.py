"""Numeric functions: powers, logarithms, trigonometry, absolute values and signs. Most compute in DOUBLE."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.logical_types import DataType, DayTimeIntervalType, DecimalType, NullType
from penstock.table.data.values import Datum, Kernel
from penstock.table.functions.decimal_arithmetic import fitted
from penstock.table.functions.definition import Call, Operand, Operands, ScalarFunction, scalar
from penstock.table.functions.kernels import arrow
from penstock.table.functions.signatures import (
    AS_DOUBLE,
    DOUBLE,
    INTERVAL,
    NUMERIC,
    either,
    returns,
    returns_not_null,
    returns_operand,
    takes,
    where,
)
from penstock.table.functions.type_rules import is_text

_DEGREES: Final = 57.29577951308232
_RADIANS: Final = 0.017453292519943295


def _as_double(call: Operands, index: int) -> DataType | None:
    """Accept numbers, but not strings, which are cast implicitly elsewhere."""
    return None if is_text(call.types[index]) else AS_DOUBLE.check(call, index)


_DOUBLE = where("<NUMERIC>", _as_double)


def _sized(call: Operands, index: int) -> DataType | None:
    data_type = call.types[index]
    return NUMERIC.check(call, index) if isinstance(data_type, NullType) else INTERVAL.check(call, index)


_SIZED: Operand = either(NUMERIC, where("<INTERVAL>", _sized))


def _absolute(call: Call) -> Kernel:
    if not isinstance(call.result, DayTimeIntervalType):
        return lambda column: pc.abs(column)
    kind = arrow_type(call.result)
    return lambda column: pc.cast(pc.abs(pc.cast(column, pa.int64())), kind)


def _sign(call: Call) -> Kernel:
    kind = call.result
    if isinstance(kind, DecimalType):
        return lambda column: fitted(pc.cast(pc.sign(column), pa.decimal128(19, 0)), kind)
    target = arrow_type(kind)
    return lambda column: pc.cast(pc.sign(column), target)


def _log_of_base(*columns: Datum) -> Datum:
    """Return the natural logarithm, or the logarithm to the base in the first operand."""
    if len(columns) == 1:
        return pc.ln(columns[0])
    base, number = columns
    return pc.divide(pc.ln(number), pc.ln(base))


def _square_root(column: Datum) -> Datum:
    return pc.power(column, pa.scalar(0.5))


def _log2(column: Datum) -> Datum:
    return pc.divide(pc.ln(column), pa.scalar(math.log(2)))


def _cotangent(column: Datum) -> Datum:
    return pc.divide(pa.scalar(1.0), pc.tan(column))


def _times(factor: float) -> Callable[[Datum], Datum]:
    return lambda column: pc.multiply(column, pa.scalar(factor))


_OF_ONE: Final[tuple[tuple[str, Callable[[Datum], Datum], str], ...]] = (
    ("SQRT", _square_root, "Returns the square root."),
    ("LN", pc.ln, "Returns the natural logarithm."),
    ("LOG10", pc.log10, "Returns the base-10 logarithm."),
    ("LOG2", _log2, "Returns the base-2 logarithm."),
    ("EXP", pc.exp, "Returns e raised to the power of the number."),
    ("SIN", pc.sin, "Returns the sine."),
    ("COS", pc.cos, "Returns the cosine."),
    ("TAN", pc.tan, "Returns the tangent."),
    ("COT", _cotangent, "Returns the cotangent."),
    ("ASIN", pc.asin, "Returns the arc sine."),
    ("ACOS", pc.acos, "Returns the arc cosine."),
    ("ATAN", pc.atan, "Returns the arc tangent."),
    ("SINH", pc.sinh, "Returns the hyperbolic sine."),
    ("COSH", pc.cosh, "Returns the hyperbolic cosine."),
    ("TANH", pc.tanh, "Returns the hyperbolic tangent."),
    ("DEGREES", _times(_DEGREES), "Converts radians to degrees."),
    ("RADIANS", _times(_RADIANS), "Converts degrees to radians."),
)


def _constant(value: float) -> Callable[[Call], Kernel]:
    return lambda call: lambda: pa.scalar(value)


FUNCTIONS: tuple[ScalarFunction, ...] = (
    *(
        scalar(
            name,
            takes(_DOUBLE),
            returns(DOUBLE),
            arrow(function),
            summary,
            python_name=name.lower(),
            usage=f"{name}(number)",
            section="arithmetic",
        )
        for name, function, summary in _OF_ONE
    ),
    scalar(
        "LOG",
        (takes(_DOUBLE), takes(_DOUBLE, _DOUBLE)),
        returns(DOUBLE),
        arrow(_log_of_base),
        "Returns the logarithm to the base, by default the natural logarithm.",
        python_name="log",
        usage="LOG([base, ]number)",
        section="arithmetic",
    ),
    scalar(
        "POWER",
        takes(_DOUBLE, _DOUBLE),
        returns(DOUBLE),
        arrow(pc.power),
        "Returns number1 raised to the power of number2.",
        python_name="power",
        usage="POWER(number1, number2)",
        section="arithmetic",
    ),
    scalar(
        "ATAN2",
        takes(_DOUBLE, _DOUBLE),
        returns(DOUBLE),
        arrow(pc.atan2),
        "Returns the arc tangent of the coordinates (number2, number1).",
        python_name="atan2",
        usage="ATAN2(number1, number2)",
        section="arithmetic",
    ),
    scalar(
        "ABS",
        takes(_SIZED),
        returns_operand(0),
        _absolute,
        "Returns the absolute value.",
        python_name="abs",
        usage="ABS(number)",
        section="arithmetic",
    ),
    scalar(
        "SIGN",
        takes(NUMERIC),
        returns_operand(0),
        _sign,
        "Returns the sign of the number: 1, -1 or 0.",
        python_name="sign",
        usage="SIGN(number)",
        section="arithmetic",
    ),
    scalar(
        "PI",
        takes(),
        returns_not_null(DOUBLE),
        _constant(math.pi),
        "Returns the ratio of a circle's circumference to its diameter.",
        python_name="pi",
        usage="PI()",
        section="arithmetic",
    ),
    scalar(
        "E",
        takes(),
        returns_not_null(DOUBLE),
        _constant(math.e),
        "Returns the base of the natural logarithm.",
        python_name="e",
        usage="E()",
        section="arithmetic",
    ),
)
