"""Numeric operators and functions: + - * / and MOD, the sign prefixes, mathematical functions, ROUND and TRUNCATE.

**Operators.** Integers return the wider type of the two and wrap around on overflow, as in Java. Arithmetic of
timestamps and intervals is in `datetime`.

**Functions.** Powers, logarithms, trigonometry, absolute values and signs. Most compute in DOUBLE.

**ROUND and TRUNCATE.** Floating-point numbers are rounded by their decimal text, not by their binary value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.sql.data.arrow import Datum, Kernel, arrow_type
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.data.types import (
    PRECISION_MAX,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    NullType,
    NumericType,
)
from penstock.sql.functions import datetime as temporal_arithmetic
from penstock.sql.functions import definition
from penstock.sql.functions.numbers import RESULTS, as_decimals, decimal_kernel, fitted, quotients, remainders
from penstock.sql.functions.type_rules import INTERVALS, TIMES, as_decimal, is_text, least_restrictive, rounded_decimal

_APPROXIMATE: Final = (FloatType, DoubleType)


def _number(call: definition.Operands, index: int, exact: bool = False) -> DataType | None:
    """Accept one of two numbers. NULL takes the other one's type. FLOAT or DOUBLE with DECIMAL: both become DOUBLE.
    FLOAT with DOUBLE is not cast, because the first type is the type of the result.

    `exact`: whether to reject floating-point numbers.
    """
    operand_type, other = call.types[index], call.types[1 - index]
    if isinstance(operand_type, NullType):
        operand_type = other.nullable()
    if not isinstance(operand_type, NumericType) or (exact and isinstance(operand_type, _APPROXIMATE)):
        return None
    kinds = (operand_type, other)
    if any(isinstance(kind, DecimalType) for kind in kinds) and any(isinstance(kind, _APPROXIMATE) for kind in kinds):
        return definition.DOUBLE.nullable() if operand_type.is_nullable else definition.DOUBLE.not_null()
    return operand_type


_NUMBER = definition.where("<NUMERIC>", _number)
_EXACT = definition.where("<EXACT_NUMERIC>", partial(_number, exact=True))


def _is_temporal(call: definition.Operands | definition.Call) -> bool:
    return any(isinstance(operand_type, (*TIMES, *INTERVALS)) for operand_type in call.types)


# --- what they give --------------------------------------------------------------------------------------------------


def _result(operator: str) -> Callable[[definition.Operands], DataType]:
    def rule(call: definition.Operands) -> DataType:
        if _is_temporal(call):
            return temporal_arithmetic.result_type(operator, call)
        if operator == "/":
            _check_divisor(call)
        result_type = _number_type(operator, call)
        return result_type.nullable() if call.any_nullable() else result_type.not_null()

    return rule


def _number_type(operator: str, call: definition.Operands) -> DataType:
    first, other = call.types
    if isinstance(first, _APPROXIMATE) or isinstance(other, _APPROXIMATE):
        return _common(call.types)
    if isinstance(first, DecimalType) or isinstance(other, DecimalType):
        left, right = as_decimal(first), as_decimal(other)
        return other if operator == "MOD" and not left.scale and not right.scale else RESULTS[operator](left, right)
    return other if operator == "MOD" else _common(call.types)


def _common(types: tuple[DataType, ...]) -> DataType:
    common_type = least_restrictive(types)
    assert common_type is not None  # numbers always have a common type
    return common_type


def _check_divisor(call: definition.Operands) -> None:
    """Reject a constant zero as floating-point divisor at planning time, as Flink does; so no constant is infinite."""
    divisor = call.value(1)
    is_floating = any(isinstance(operand_type, _APPROXIMATE) for operand_type in call.types)
    if is_floating and divisor is not definition.UNKNOWN and divisor == 0:
        raise ValidationError("Division by zero")


# --- how they run ----------------------------------------------------------------------------------------------------


def _bind(operator: str) -> Callable[[definition.Call], Kernel]:
    def bind(call: definition.Call) -> Kernel:
        if _is_temporal(call):
            return temporal_arithmetic.bind(operator, call)
        if any(isinstance(operand_type, DecimalType) for operand_type in call.types):
            return decimal_kernel(operator, call.types[0], call.types[1], call.result)
        common = _common(call.types)
        function = _FLOATING[operator] if isinstance(common, _APPROXIMATE) else _WHOLE[operator]
        kernel = _with_types(function, arrow_type(common), arrow_type(call.result))
        divisor = call.value(1)
        if operator not in ("/", "MOD") or isinstance(common, _APPROXIMATE) or not isinstance(divisor, int):
            return kernel
        return _by_constant(operator, divisor, arrow_type(common), arrow_type(call.result), kernel)

    return bind


def _with_types(function: Kernel, common: pa.DataType, result: pa.DataType) -> Kernel:
    casts = common != result

    def cast(column: Datum) -> Datum:
        return column if column.type == common else pc.cast(column, common, safe=False)

    def kernel(first: Datum, other: Datum) -> Datum:
        values = function(cast(first), cast(other))
        return pc.cast(values, result) if casts else values

    return kernel


def _by_constant(operator: str, divisor: int, common: pa.DataType, result: pa.DataType, general: Kernel) -> Kernel:
    """Return the kernel of a division by a constant. `general`: the kernel for all other divisions."""
    constant = pa.scalar(divisor, common)
    is_remainder = operator == "MOD"
    if not divisor or (is_remainder and pc.abs(constant).as_py() < 0):  # the minimum has no absolute value
        return general
    if is_remainder:
        divide = remainders(abs(divisor), result)
    else:
        divide = quotients(divisor, lambda column: general(column, constant))

    def kernel(dividend: Datum, other: Datum) -> Datum:
        if isinstance(dividend, pa.Scalar):
            return general(dividend, other)
        return divide(dividend if dividend.type == common else pc.cast(dividend, common, safe=False))

    return kernel


def _may_divide_by_zero(call: definition.Operands) -> bool:
    """Return whether a division may fail: not for integers and floats divided by a constant other than zero."""
    is_plain = all(isinstance(operand_type, (IntegralType, *_APPROXIMATE)) for operand_type in call.types)
    return not is_plain or call.value(1) is definition.UNKNOWN or not call.value(1)


def _quotient(dividend: Datum, divisor: Datum) -> Datum:
    quotient = pc.divide(dividend, divisor)
    if isinstance(divisor, pa.Scalar) and divisor.as_py() != -1:
        return quotient
    # the least number divided by -1 leaves the type: Arrow gives 0, Java the same number again
    return pc.if_else(pc.equal(divisor, pa.scalar(-1, divisor.type)), pc.negate(dividend), quotient)


def _remainder(dividend: Datum, divisor: Datum) -> Datum:
    size = pc.abs(divisor)
    return pc.subtract(dividend, pc.multiply(pc.divide(dividend, size), size))


_FLOATING: Final[dict[str, Kernel]] = {"+": pc.add, "-": pc.subtract, "*": pc.multiply, "/": pc.divide}
_WHOLE: Final[dict[str, Kernel]] = {**_FLOATING, "/": _quotient, "MOD": _remainder}


def _negate(call: definition.Call) -> Kernel:
    return temporal_arithmetic.bind("MINUS_PREFIX", call) if _is_temporal(call) else pc.negate


def _same(call: definition.Call) -> Kernel:
    return lambda column: column


def _with_times(operator: str, numbers: definition.Signature) -> tuple[definition.Signature, ...]:
    return (numbers, *temporal_arithmetic.SIGNATURES.get(operator, ()))


_CAN_FAIL: Final = {
    "+": temporal_arithmetic.move_may_fail,
    "-": temporal_arithmetic.move_may_fail,
    "*": temporal_arithmetic.product_may_fail,
    "/": _may_divide_by_zero,
}
_BINARY: Final = (
    ("+", "plus", "number1 + number2", "Returns number1 plus number2."),
    ("-", "minus", "number1 - number2", "Returns number1 minus number2."),
    ("*", "times", "number1 * number2", "Returns number1 multiplied by number2."),
    ("/", "divide", "number1 / number2", "Returns number1 divided by number2; the quotient of integers is an integer."),
)

ARITHMETIC_FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    *(
        definition.scalar(
            operator,
            _with_times(operator, definition.takes(_NUMBER, _NUMBER)),
            _result(operator),
            _bind(operator),
            summary,
            python_name=python_name,
            usage=usage,
            section="arithmetic",
            can_fail=_CAN_FAIL.get(operator, False),
        )
        for operator, python_name, usage, summary in _BINARY
    ),
    definition.scalar(
        "MOD",
        definition.takes(_EXACT, _EXACT),
        _result("MOD"),
        _bind("MOD"),
        "Returns the remainder of number1 divided by number2, with the sign of number1.",
        python_name="mod",
        aliases=("%",),
        usage="MOD(number1, number2)",
        section="arithmetic",
        can_fail=_may_divide_by_zero,
    ),
    definition.scalar(
        "MINUS_PREFIX",
        _with_times("MINUS_PREFIX", definition.takes(definition.NUMERIC)),
        definition.returns_operand(0),
        _negate,
        "Returns the negated number.",
        python_name="minusPrefix",
        usage="-number",
        section="arithmetic",
    ),
    definition.scalar(
        "PLUS_PREFIX",
        _with_times("PLUS_PREFIX", definition.takes(definition.NUMERIC)),
        definition.returns_operand(0),
        _same,
        "Returns the number.",
        python_name="plusPrefix",
        usage="+number",
        section="arithmetic",
    ),
)


_DEGREES: Final = 57.29577951308232
_RADIANS: Final = 0.017453292519943295


def _as_double(call: definition.Operands, index: int) -> DataType | None:
    """Accept numbers, but not strings, which are cast implicitly elsewhere."""
    return None if is_text(call.types[index]) else definition.AS_DOUBLE.check(call, index)


_DOUBLE = definition.where("<NUMERIC>", _as_double)


def _sized(call: definition.Operands, index: int) -> DataType | None:
    data_type = call.types[index]
    return (
        definition.NUMERIC.check(call, index)
        if isinstance(data_type, NullType)
        else definition.INTERVAL.check(call, index)
    )


_SIZED: definition.Operand = definition.either(definition.NUMERIC, definition.where("<INTERVAL>", _sized))


def _absolute(call: definition.Call) -> Kernel:
    if not isinstance(call.result, DayTimeIntervalType):
        return lambda column: pc.abs(column)
    kind = arrow_type(call.result)
    return lambda column: pc.cast(pc.abs(pc.cast(column, pa.int64())), kind)


def _sign(call: definition.Call) -> Kernel:
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


def _constant(value: float) -> Callable[[definition.Call], Kernel]:
    return lambda call: lambda: pa.scalar(value)


MATHEMATICS_FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    *(
        definition.scalar(
            name,
            definition.takes(_DOUBLE),
            definition.returns(definition.DOUBLE),
            definition.arrow(function),
            summary,
            python_name=name.lower(),
            usage=f"{name}(number)",
            section="arithmetic",
        )
        for name, function, summary in _OF_ONE
    ),
    definition.scalar(
        "LOG",
        (definition.takes(_DOUBLE), definition.takes(_DOUBLE, _DOUBLE)),
        definition.returns(definition.DOUBLE),
        definition.arrow(_log_of_base),
        "Returns the logarithm to the base, by default the natural logarithm.",
        python_name="log",
        usage="LOG([base, ]number)",
        section="arithmetic",
    ),
    definition.scalar(
        "POWER",
        definition.takes(_DOUBLE, _DOUBLE),
        definition.returns(definition.DOUBLE),
        definition.arrow(pc.power),
        "Returns number1 raised to the power of number2.",
        python_name="power",
        usage="POWER(number1, number2)",
        section="arithmetic",
    ),
    definition.scalar(
        "ATAN2",
        definition.takes(_DOUBLE, _DOUBLE),
        definition.returns(definition.DOUBLE),
        definition.arrow(pc.atan2),
        "Returns the arc tangent of the coordinates (number2, number1).",
        python_name="atan2",
        usage="ATAN2(number1, number2)",
        section="arithmetic",
    ),
    definition.scalar(
        "ABS",
        definition.takes(_SIZED),
        definition.returns_operand(0),
        _absolute,
        "Returns the absolute value.",
        python_name="abs",
        usage="ABS(number)",
        section="arithmetic",
    ),
    definition.scalar(
        "SIGN",
        definition.takes(definition.NUMERIC),
        definition.returns_operand(0),
        _sign,
        "Returns the sign of the number: 1, -1 or 0.",
        python_name="sign",
        usage="SIGN(number)",
        section="arithmetic",
    ),
    definition.scalar(
        "PI",
        definition.takes(),
        definition.returns_not_null(definition.DOUBLE),
        _constant(math.pi),
        "Returns the ratio of a circle's circumference to its diameter.",
        python_name="pi",
        usage="PI()",
        section="arithmetic",
    ),
    definition.scalar(
        "E",
        definition.takes(),
        definition.returns_not_null(definition.DOUBLE),
        _constant(math.e),
        "Returns the base of the natural logarithm.",
        python_name="e",
        usage="E()",
        section="arithmetic",
    ),
)


_ROUNDING_CONTEXT: Final = Context(prec=1200, Emax=9999, Emin=-9999)
_Floats = npt.NDArray[np.float64]


def _rounded_type(call: definition.Operands) -> DataType:
    """Return the operand's type. A decimal has the digits that remain, if their number is constant."""
    data_type = call.types[0]
    if isinstance(data_type, DecimalType):
        digits = call.value(1) if len(call) == 2 else 0
        if isinstance(digits, int):
            data_type = rounded_decimal(data_type, digits)
    return data_type.nullable() if call.any_nullable() else data_type.not_null()


def _bind_rounding(mode: str) -> Callable[[definition.Call], Kernel]:
    def bind(call: definition.Call) -> Kernel:
        digits = call.value(1) if len(call.types) == 2 else 0
        by_value = definition.value_kernel(_of_value(call, mode), call.types, call.result)
        if digits is definition.UNKNOWN or not isinstance(digits, int):
            return by_value
        fast = _of_column(call.types[0], call.result, digits, mode)

        def kernel(*columns: Datum) -> Datum:
            rounded = fast(columns[0]) if isinstance(columns[0], pa.Array) else None
            return by_value(*columns) if rounded is None else rounded

        return kernel

    return bind


# --- value by value --------------------------------------------------------------------------------------------------


def _of_value(call: definition.Call, mode: str) -> Callable[..., object]:
    kind, result = call.types[0], call.result
    if isinstance(kind, DecimalType) and isinstance(result, DecimalType):
        limit = Decimal(10) ** (result.precision - result.scale)
        return lambda number, digits=0: _within(rounded_value(number, min(digits, kind.scale), mode), limit)
    if isinstance(kind, FloatType | DoubleType):
        # As in Flink, nothing is rounded to -0.0.
        return lambda number, digits=0: float(rounded_value(_written(number), digits, mode)) + 0.0
    bits = arrow_type(result).bit_width
    return lambda number, digits=0: _wrapped(int(rounded_value(Decimal(number), min(digits, 0), mode)), bits)


def rounded_value(number: Decimal, digits: int, mode: str) -> Decimal:
    """Round to at most `digits` decimal places. A negative number rounds digits before the point."""
    if -int(number.as_tuple().exponent) <= digits:
        return number
    if digits < -400:
        return Decimal(0)
    quantized = number.quantize(Decimal(1).scaleb(-digits), mode, _ROUNDING_CONTEXT)
    return quantized if digits >= 0 else quantized.quantize(Decimal(1), context=_ROUNDING_CONTEXT)


def _within(number: Decimal, limit: Decimal) -> Decimal | None:
    return number if number.copy_abs() < limit else None


def _written(number: float) -> Decimal:
    if not math.isfinite(number):
        raise TableRuntimeError(f"{number} cannot be rounded")
    return Decimal(repr(number))


def _wrapped(number: int, bits: int) -> int:
    half = 1 << (bits - 1)
    return (number + half) % (1 << bits) - half


# --- whole columns ---------------------------------------------------------------------------------------------------

_MODES: Final = {ROUND_HALF_UP: "half_towards_infinity", ROUND_DOWN: "towards_zero"}


def _of_column(kind: DataType, result: DataType, digits: int, mode: str) -> Callable[[pa.Array], pa.Array | None]:
    if isinstance(kind, DecimalType) and isinstance(result, DecimalType):
        return lambda column: _of_decimals(column, kind, result, digits, mode)
    if isinstance(kind, FloatType | DoubleType):
        return lambda column: _of_floats(column, digits, mode)
    return lambda column: _of_whole(column, digits, mode)


def _of_decimals(column: pa.Array, kind: DecimalType, result: DecimalType, digits: int, mode: str) -> pa.Array:
    if digits >= kind.scale:
        return as_decimals(column, result)
    if digits < kind.scale - kind.precision:
        return pc.if_else(pc.is_valid(column), pa.scalar(Decimal(0), arrow_type(result)), None)
    make = pa.decimal128 if kind.precision < PRECISION_MAX else pa.decimal256
    wide = pc.cast(column, make(kind.precision + 1, kind.scale))
    return fitted(pc.round(wide, ndigits=digits, round_mode=_MODES[mode]), result)


def _of_whole(column: pa.Array, digits: int, mode: str) -> pa.Array | None:
    if digits >= 0:
        return column
    if digits < -18:
        return None
    step = pa.scalar(10**-digits, pa.int64())
    numbers = pc.cast(column, pa.int64())
    times = pc.divide(numbers, step)
    if mode == ROUND_HALF_UP:
        rest = pc.subtract(numbers, pc.multiply(times, step))
        goes_on = pc.greater_equal(pc.multiply(pc.abs(rest), 2), step)
        times = pc.add(times, pc.if_else(goes_on, pc.cast(pc.sign(rest), pa.int64()), 0))
    return pc.cast(pc.multiply(times, step), column.type, safe=False)


def _of_floats(column: pa.Array, digits: int, mode: str) -> pa.Array | None:
    """Round a column. Numbers too large for exact digits are rounded one by one."""
    if not -15 <= digits <= 20:
        return None
    missing = np.asarray(column.is_null()) if column.null_count else None
    filled = pc.fill_null(column, 0.0) if column.null_count else column
    numbers = filled.to_numpy().astype(np.float64)
    sizes = np.abs(numbers)
    unsure = np.flatnonzero(~(sizes < _SURE / 10.0 ** max(digits, 0)))
    sizes[unsure] = 0.0
    rounded = np.copysign(_round_sizes(sizes, digits, mode), numbers) + 0.0
    rounded[unsure] = [float(rounded_value(_written(number), digits, mode)) for number in numbers[unsure].tolist()]
    return pa.array(rounded, mask=missing).cast(column.type, safe=False)


#: below this, all digits of a number and one more are exact
_SURE: Final = 1e14


def _round_sizes(sizes: _Floats, digits: int, mode: str) -> _Floats:
    """Round absolute values. The boundaries between results are the nearest floats, so comparing with them is exact."""
    step = 10.0 ** abs(digits)

    def number(times: _Floats) -> _Floats:
        return times / step if digits >= 0 else times * step

    times = np.floor(sizes * step if digits >= 0 else sizes / step)
    if mode == ROUND_HALF_UP:
        middle = (times * 10 + 5) / (step * 10) if digits >= 0 else (times * 10 + 5) * step / 10
        return number(times + (sizes >= middle))
    times = times - (number(times) > sizes)
    return number(times + (number(times + 1) <= sizes))


_SIGNATURES: Final = (definition.takes(definition.NUMERIC), definition.takes(definition.NUMERIC, definition.AS_INT))

ROUNDING_FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    definition.scalar(
        "ROUND",
        _SIGNATURES,
        _rounded_type,
        _bind_rounding(ROUND_HALF_UP),
        "Rounds the number to `digits` decimal places, by default 0; halves are rounded away from 0.",
        python_name="round",
        usage="ROUND(number[, digits])",
        section="arithmetic",
        can_fail=True,
    ),
    definition.scalar(
        "TRUNCATE",
        _SIGNATURES,
        _rounded_type,
        _bind_rounding(ROUND_DOWN),
        "Truncates the number to `digits` decimal places, by default 0.",
        python_name="truncate",
        usage="TRUNCATE(number[, digits])",
        section="arithmetic",
        can_fail=True,
    ),
)


FUNCTIONS: tuple[definition.ScalarFunction, ...] = (*ARITHMETIC_FUNCTIONS, *MATHEMATICS_FUNCTIONS, *ROUNDING_FUNCTIONS)
