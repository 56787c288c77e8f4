"""Arithmetic of aggregates: integers wrap as in Java, decimals have a scale and a maximum precision."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

from penstock.table.data.logical_types import (
    BigIntType,
    DataType,
    DecimalType,
    FloatType,
    IntegralType,
    IntType,
    SmallIntType,
    TinyIntType,
)

_BITS: dict[type[DataType], int] = {TinyIntType: 8, SmallIntType: 16, IntType: 32, BigIntType: 64}
#: for sums of decimals, which lose no digits
EXACT: Final = Context(prec=80, rounding=ROUND_HALF_UP)
#: for quotients of decimals
_QUOTIENT: Final = Context(prec=38, rounding=ROUND_HALF_UP)
#: the type of integer sums that AVG computes
SUM_OF_WHOLE: Final = BigIntType()


def bounds(kind: DataType) -> tuple[int, int] | None:
    """Return the least and the greatest value of an integer type."""
    bits = _BITS.get(type(kind))
    return None if bits is None else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def wrapped(kind: DataType) -> Callable[[Any], Any]:
    """Return a function that wraps or rounds sums to a type."""
    bits = _BITS.get(type(kind))
    if bits is not None:
        half, modulus = 1 << (bits - 1), 1 << bits
        return lambda value: value if -half <= value < half else (value + half) % modulus - half
    if isinstance(kind, FloatType):
        return single
    return lambda value: value


def single(value: float) -> float:
    """Return the nearest single-precision number."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def rounded(value: Decimal, scale: int) -> Decimal:
    """Round a decimal to `scale` fractional digits."""
    return value.quantize(Decimal(1).scaleb(-scale), context=EXACT)


def fitted(value: Decimal, kind: DecimalType) -> Decimal | None:
    """Round a decimal to the scale of a type; return None if it has too many digits."""
    rescaled = value if value.as_tuple().exponent == -kind.scale else rounded(value, kind.scale)
    return rescaled if rescaled.adjusted() < kind.precision - kind.scale or not rescaled else None


def quotient(total: Decimal, count: int) -> Decimal:
    """Divide a sum of decimals by a count, with 38 digits."""
    return _QUOTIENT.divide(total, Decimal(count))


def from_double(kind: DataType) -> Callable[[float], Any]:
    """Return a function that casts double-precision numbers to a type."""
    if isinstance(kind, DecimalType):
        return lambda value: fitted(Decimal(repr(value)), kind) if math.isfinite(value) else None
    limits = bounds(kind)
    if isinstance(kind, IntegralType) and limits is not None:
        low, high = limits
        return lambda value: 0 if value != value else high if value >= high else max(low, int(value))
    return single if isinstance(kind, FloatType) else lambda value: value
