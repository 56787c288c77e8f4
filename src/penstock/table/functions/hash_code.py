"""HASH_CODE: the hash codes that Java computes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from penstock.base.errors import UnsupportedError
from penstock.table.data.logical_types import (
    BigIntType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    LocalZonedTimestampType,
    TimestampType,
    TimeType,
)
from penstock.table.data.values import Kernel
from penstock.table.functions.definition import Call, ScalarFunction, scalar
from penstock.table.functions.java_text import units
from penstock.table.functions.kernels import value_kernel
from penstock.table.functions.signatures import BOOLEAN, INT, NUMERIC, POINT_IN_TIME, TEXT, either, returns, takes
from penstock.table.functions.type_rules import is_text


def _wrapped(number: int) -> int:
    """Wrap a number to a signed 32-bit integer."""
    return (number + 2**31) % 2**32 - 2**31


def _of_long(number: int) -> int:
    bits = number & 0xFFFFFFFFFFFFFFFF
    return _wrapped(bits ^ bits >> 32)


def _of_text(text: str) -> int:
    """Return the absolute value of a string's hash code."""
    code = 0
    for unit in units(text):
        code = (code * 31 + ord(unit)) & 0xFFFFFFFF
    return _wrapped(abs(_wrapped(code)))


def _of_double(number: float) -> int:
    return _of_long(int.from_bytes(struct.pack(">d", number), "big"))


def _of_float(number: float) -> int:
    return int.from_bytes(struct.pack(">f", number), "big", signed=True)


def _of_decimal(number: Decimal) -> int:
    """Return the hash code of the unscaled value, computed from its 32-bit words, combined with the scale."""
    sign, digits, exponent = number.as_tuple()
    rest, code = int("".join(map(str, digits))), 0
    words = []
    while rest:
        rest, word = divmod(rest, 2**32)
        words.append(word)
    for word in reversed(words):
        code = (31 * code + word) & 0xFFFFFFFF
    return _wrapped(31 * (-code if sign else code) - int(exponent))


def _of_timestamp(nanoseconds: int) -> int:
    milliseconds, rest = divmod(nanoseconds, 1_000_000)
    return _wrapped(31 * _of_long(milliseconds) + rest)


def _select_hash(data_type: DataType) -> Callable[[Any], int]:
    if is_text(data_type):
        return _of_text
    if isinstance(data_type, BooleanType):
        return lambda value: 1231 if value else 1237
    if isinstance(data_type, BigIntType):
        return _of_long
    if isinstance(data_type, DecimalType):
        return _of_decimal
    if isinstance(data_type, IntegralType | DateType | TimeType):
        return int
    if isinstance(data_type, DoubleType):
        return _of_double
    if isinstance(data_type, FloatType):
        return _of_float
    if isinstance(data_type, TimestampType | LocalZonedTimestampType):
        return _of_timestamp
    raise UnsupportedError(f"HASH_CODE has no hash of values of type {data_type}")


def _hash_code(call: Call) -> Kernel:
    return value_kernel(_select_hash(call.types[0]), call.types, call.result)


FUNCTIONS: tuple[ScalarFunction, ...] = (
    scalar(
        "HASH_CODE",
        takes(either(TEXT, BOOLEAN, NUMERIC, POINT_IN_TIME)),
        returns(INT),
        _hash_code,
        "Returns the Java hash code of the value; for strings, its absolute value.",
        section="hash",
        usage="HASH_CODE(value)",
    ),
)
