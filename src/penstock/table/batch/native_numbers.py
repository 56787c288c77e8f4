"""Arithmetic in Spark SQL.

Whole numbers wrap around on overflow. Types of up to four bytes are computed in eight bytes and truncated. With eight
bytes, Spark's `try_` functions come first, and only if they fail is the result computed with decimals. Decimals have
the same digits and rounding in Spark, whose `try_` functions return NULL if there are too many digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from penstock.table.batch.stored import spark_type
from penstock.table.data.logical_types import (
    BigIntType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    IntType,
    SmallIntType,
    TinyIntType,
)
from penstock.table.functions.decimal_arithmetic import RESULTS
from penstock.table.functions.type_rules import as_decimal
from penstock.table.typed.nodes import Constant, FunctionCall, Typed

#: prefix of a function's message in the text of a Spark error
RAISED: Final = "penstock: "
BITS: Final[dict[type[DataType], int]] = {TinyIntType: 8, SmallIntType: 16, IntType: 32, BigIntType: 64}
_FLOATING: Final = (FloatType, DoubleType)
_TRY: Final = {"+": "try_add", "-": "try_subtract", "*": "try_multiply"}
_HALF: Final = f"CAST('{2**63}' AS DECIMAL(38,0))"
_WHOLE: Final = f"CAST('{2**64}' AS DECIMAL(38,0))"


def raised(message: str, kind: str) -> str:
    """Return an expression that raises an error when it is evaluated."""
    return f"CAST(raise_error('{RAISED}{message}') AS {kind})"


def wrapped(text: str, kind: DataType) -> str:
    """Wrap a number of eight bytes around to a smaller type."""
    bits = BITS[type(kind)]
    if bits == 64:
        return text
    return f"CAST(shiftright(shiftleft({text}, {64 - bits}), {64 - bits}) AS {spark_type(kind)})"


def wrapped_decimal(text: str) -> str:
    """Wrap a decimal without a fraction around to a number of eight bytes."""
    return f"CAST(pmod(CAST({text} AS DECIMAL(38,0)) + {_HALF}, {_WHOLE}) - {_HALF} AS BIGINT)"


def _bits(operand: Typed) -> int:
    """Return how many bits the values of a whole number need."""
    if isinstance(operand, Constant) and isinstance(operand.value, int):
        return operand.value.bit_length() + 1
    if isinstance(operand, FunctionCall) and operand.function == "CAST":
        return min(_bits(operand.operands[0]), BITS[type(operand.type)])
    return BITS.get(type(operand.type), 64)


def _is_not_zero(operand: Typed) -> bool:
    return isinstance(operand, Constant) and bool(operand.value)


def _divisor(operand: Typed, text: str, kind: str, divided: str) -> str:
    """Return a divisor; it raises an error if it is zero and the dividend is not NULL."""
    if _is_not_zero(operand):
        return text
    is_wrong = f"{text} = 0 AND {divided} IS NOT NULL"
    return f"(CASE WHEN {is_wrong} THEN {raised('Division by zero', kind)} ELSE {text} END)"


def _arithmetic(operator: str, call: FunctionCall, operands: Sequence[str]) -> str | None:
    types = [operand.type for operand in call.operands]
    if any(isinstance(kind, DecimalType) for kind in types):
        if all(isinstance(kind, DecimalType | IntegralType) for kind in types):
            return _decimals(operator, call, operands)
        return None
    if all(isinstance(kind, IntegralType) for kind in types):
        return _whole_numbers(operator, call, operands)
    if all(isinstance(kind, _FLOATING) and type(kind) is type(call.type) for kind in types):
        return _floating(operator, call, operands)
    return None


def _decimals(operator: str, call: FunctionCall, operands: Sequence[str]) -> str | None:
    """Compute with decimals, or decimals and whole numbers."""
    left, right = (as_decimal(operand.type) for operand in call.operands)
    lhs, rhs = (
        text if isinstance(node.type, DecimalType) else f"CAST({text} AS {spark_type(kind)})"
        for text, node, kind in zip(operands, call.operands, (left, right), strict=True)
    )
    result = spark_type(call.type)
    if operator in _TRY:
        text = f"{_TRY[operator]}({lhs}, {rhs})"
    else:
        rhs = _divisor(call.operands[1], rhs, spark_type(right), lhs)
        text = f"try_divide({lhs}, {rhs})" if operator == "/" else f"({lhs} % {rhs})"
    # Spark derives the digits of a result by the same rule
    given = RESULTS[operator](left, right)
    return text if spark_type(given) == result else f"CAST({text} AS {result})"


def _whole_numbers(operator: str, call: FunctionCall, operands: Sequence[str]) -> str:
    left, right = call.operands
    bits = BITS[type(call.type)]
    lhs, rhs = (
        text if isinstance(node.type, BigIntType) else f"CAST({text} AS BIGINT)"
        for text, node in zip(operands, call.operands, strict=True)
    )
    if operator == "/":
        text = f"({lhs} div {_divisor(right, rhs, 'BIGINT', lhs)})"
        if _bits(left) < 64 or _is_not_zero(right):
            # only dividing the least number by -1 may overflow
            is_minus_one = isinstance(right, Constant) and right.value == -1
            return wrapped(text, call.type) if not is_minus_one else wrapped(_negated(lhs), call.type)
        return wrapped(f"(CASE WHEN {rhs} = -1 THEN {_negated(lhs)} ELSE {text} END)", call.type)
    if operator in ("MOD", "%"):
        text = f"({lhs} % {_divisor(right, rhs, 'BIGINT', lhs)})"
        return text if bits == 64 else f"CAST({text} AS {spark_type(call.type)})"
    needed = _bits(left) + _bits(right) if operator == "*" else max(_bits(left), _bits(right)) + 1
    if needed <= 64:
        return wrapped(f"({lhs} {operator} {rhs})", call.type)
    digits = "DECIMAL(19,0)" if operator == "*" else "DECIMAL(20,0)"
    exact = f"CAST({lhs} AS {digits}) {operator} CAST({rhs} AS {digits})"
    if operator == "*":
        # 38 digits hold any product of two 63-bit numbers
        exact = f"CAST(try_multiply(CAST({lhs} AS DECIMAL(19,0)), CAST({rhs} AS DECIMAL(19,0))) AS DECIMAL(38,0))"
    return wrapped(f"coalesce({_TRY[operator]}({lhs}, {rhs}), {wrapped_decimal(exact)})", call.type)


def _negated(text: str) -> str:
    """Negate a number of eight bytes."""
    return f"coalesce(try_subtract(0L, {text}), {text})"


def _floating(operator: str, call: FunctionCall, operands: Sequence[str]) -> str | None:
    """Compute with numbers of one type. Divisors must be constant: Spark handles division by zero differently."""
    if operator == "/" and not _is_not_zero(call.operands[1]):
        return None
    return None if operator in ("MOD", "%") else f"({operands[0]} {operator} {operands[1]})"


def _changes_sign(kind: DataType) -> bool:
    """Return whether Spark negates all values correctly. It does so with up to 34 digits."""
    return isinstance(kind, FloatType | DoubleType) or (isinstance(kind, DecimalType) and kind.precision <= 34)


def _negative(call: FunctionCall, operands: Sequence[str]) -> str | None:
    kind = call.type
    if _changes_sign(kind):
        return f"(-{operands[0]})"
    if isinstance(kind, BigIntType):
        return _negated(operands[0])
    return wrapped(f"(-CAST({operands[0]} AS BIGINT))", kind) if isinstance(kind, IntegralType) else None


def _abs(call: FunctionCall, operands: Sequence[str]) -> str | None:
    """Return the absolute value of decimals and floating-point numbers."""
    same = spark_type(call.type) == spark_type(call.operands[0].type)
    return f"abs({operands[0]})" if same and _changes_sign(call.type) else None


def _round(call: FunctionCall, operands: Sequence[str]) -> str | None:
    """Round decimals to a constant, non-negative number of digits."""
    digits = call.operands[1] if len(call.operands) > 1 else Constant(IntType(), 0)
    kind = call.operands[0].type
    if not isinstance(kind, DecimalType) or not isinstance(call.type, DecimalType):
        return None
    if not isinstance(digits, Constant) or not isinstance(digits.value, int) or digits.value < 0:
        return None
    if kind.precision - kind.scale + 1 + call.type.scale > 38 or digits.value >= kind.scale:
        return None
    return f"CAST(round({operands[0]}, {digits.value}) AS {spark_type(call.type)})"


Native = Callable[[FunctionCall, Sequence[str]], str | None]

NATIVE: Final[dict[str, Native]] = {
    **{operator: partial(_arithmetic, operator) for operator in ("+", "-", "*", "/")},
    "MOD": partial(_arithmetic, "MOD"),
    "%": partial(_arithmetic, "MOD"),
    "MINUS_PREFIX": _negative,
    "PLUS_PREFIX": lambda call, operands: operands[0],
    "ABS": _abs,
    "ROUND": _round,
}
