"""The arithmetic operators + - * / and MOD, and the sign prefixes.

Integers return the wider type of the two and wrap around on overflow, as in Java. Arithmetic of timestamps and
intervals is in `temporal_arithmetic`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import (
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    NullType,
    NumericType,
)
from penstock.table.data.values import Datum, Kernel
from penstock.table.functions import temporal_arithmetic
from penstock.table.functions.constant_divisors import quotients, remainders
from penstock.table.functions.decimal_arithmetic import RESULTS, decimal_kernel
from penstock.table.functions.definition import UNKNOWN, Call, Operands, ScalarFunction, Signature, scalar
from penstock.table.functions.signatures import DOUBLE, NUMERIC, returns_operand, takes, where
from penstock.table.functions.type_rules import INTERVALS, TIMES, as_decimal, least_restrictive

_APPROXIMATE: Final = (FloatType, DoubleType)


def _number(call: Operands, index: int, exact: bool = False) -> DataType | None:
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
        return DOUBLE.nullable() if operand_type.is_nullable else DOUBLE.not_null()
    return operand_type


_NUMBER = where("<NUMERIC>", _number)
_EXACT = where("<EXACT_NUMERIC>", partial(_number, exact=True))


def _is_temporal(call: Operands | Call) -> bool:
    return any(isinstance(operand_type, (*TIMES, *INTERVALS)) for operand_type in call.types)


# --- what they give --------------------------------------------------------------------------------------------------


def _result(operator: str) -> Callable[[Operands], DataType]:
    def rule(call: Operands) -> DataType:
        if _is_temporal(call):
            return temporal_arithmetic.result_type(operator, call)
        if operator == "/":
            _check_divisor(call)
        result_type = _number_type(operator, call)
        return result_type.nullable() if call.any_nullable() else result_type.not_null()

    return rule


def _number_type(operator: str, call: Operands) -> DataType:
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


def _check_divisor(call: Operands) -> None:
    """Reject a constant zero as floating-point divisor at planning time, as Flink does; so no constant is infinite."""
    divisor = call.value(1)
    is_floating = any(isinstance(operand_type, _APPROXIMATE) for operand_type in call.types)
    if is_floating and divisor is not UNKNOWN and divisor == 0:
        raise ValidationError("Division by zero")


# --- how they run ----------------------------------------------------------------------------------------------------


def _bind(operator: str) -> Callable[[Call], Kernel]:
    def bind(call: Call) -> Kernel:
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


def _may_divide_by_zero(call: Operands) -> bool:
    """Return whether a division may fail: not for integers and floats divided by a constant other than zero."""
    is_plain = all(isinstance(operand_type, (IntegralType, *_APPROXIMATE)) for operand_type in call.types)
    return not is_plain or call.value(1) is UNKNOWN or not call.value(1)


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


def _negate(call: Call) -> Kernel:
    return temporal_arithmetic.bind("MINUS_PREFIX", call) if _is_temporal(call) else pc.negate


def _same(call: Call) -> Kernel:
    return lambda column: column


def _with_times(operator: str, numbers: Signature) -> tuple[Signature, ...]:
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

FUNCTIONS: tuple[ScalarFunction, ...] = (
    *(
        scalar(
            operator,
            _with_times(operator, takes(_NUMBER, _NUMBER)),
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
    scalar(
        "MOD",
        takes(_EXACT, _EXACT),
        _result("MOD"),
        _bind("MOD"),
        "Returns the remainder of number1 divided by number2, with the sign of number1.",
        python_name="mod",
        aliases=("%",),
        usage="MOD(number1, number2)",
        section="arithmetic",
        can_fail=_may_divide_by_zero,
    ),
    scalar(
        "MINUS_PREFIX",
        _with_times("MINUS_PREFIX", takes(NUMERIC)),
        returns_operand(0),
        _negate,
        "Returns the negated number.",
        python_name="minusPrefix",
        usage="-number",
        section="arithmetic",
    ),
    scalar(
        "PLUS_PREFIX",
        _with_times("PLUS_PREFIX", takes(NUMERIC)),
        returns_operand(0),
        _same,
        "Returns the number.",
        python_name="plusPrefix",
        usage="+number",
        section="arithmetic",
    ),
)
