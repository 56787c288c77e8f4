"""Casts in Spark SQL: lossless casts, and casts with a simple text.

A decimal with too many digits for another decimal type becomes NULL in Spark as well, and rounding is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from penstock.table.batch.native_numbers import BITS
from penstock.table.batch.stored import MICROSECOND_DIGITS, spark_type
from penstock.table.data.logical_types import (
    LENGTH_MAX,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    TimestampType,
    VarCharType,
)
from penstock.table.functions.type_rules import as_decimal
from penstock.table.typed.nodes import FunctionCall

#: A decimal with up to this many digits becomes the same nearest DOUBLE in Spark and Penstock.
_DIGITS_OF_DOUBLE: Final = 15


def _cast(call: FunctionCall, operands: Sequence[str]) -> str | None:
    source, to = call.operands[0].type, call.type
    if source.nullable() == to.nullable():
        return operands[0]
    if isinstance(source, CharType | VarCharType):
        return _text(source, to, operands[0])
    if isinstance(source, DecimalType) and isinstance(to, DecimalType) and not _loses_nothing(source, to):
        return f"try_cast({operands[0]} AS {spark_type(to)})"
    return f"CAST({operands[0]} AS {spark_type(to)})" if _loses_nothing(source, to) else None


def _text(source: CharType | VarCharType, to: DataType, operand: str) -> str | None:
    """Cast text to VARCHAR, truncated if it is too long."""
    if not isinstance(to, VarCharType):
        return None
    return operand if source.length <= to.length or to.length == LENGTH_MAX else f"substring({operand}, 1, {to.length})"


def _loses_nothing(source: DataType, to: DataType) -> bool:
    if isinstance(source, IntegralType):
        if isinstance(to, IntegralType):
            return BITS[type(source)] <= BITS[type(to)]
        if isinstance(to, DecimalType):
            return as_decimal(source).precision <= to.precision - to.scale
        return isinstance(to, DoubleType) or (isinstance(to, VarCharType) and to.length == LENGTH_MAX)
    if isinstance(source, DecimalType):
        if isinstance(to, DecimalType):
            return source.scale <= to.scale and source.precision - source.scale <= to.precision - to.scale
        return isinstance(to, DoubleType) and source.precision <= _DIGITS_OF_DOUBLE
    if isinstance(source, FloatType):
        return isinstance(to, DoubleType)
    if isinstance(source, DateType):
        return isinstance(to, TimestampType) and to.precision <= MICROSECOND_DIGITS
    if isinstance(source, TimestampType):
        return isinstance(to, TimestampType) and source.precision <= to.precision <= MICROSECOND_DIGITS
    return False


Native = Callable[[FunctionCall, Sequence[str]], str | None]

NATIVE: Final[dict[str, Native]] = {"CAST": _cast, "TRY_CAST": _cast}
