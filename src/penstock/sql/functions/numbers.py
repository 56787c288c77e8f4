"""RAND and RAND_INTEGER. With a seed they return the numbers of Java's generator, so queries are reproducible.

Numbers in other bases and bytes as hexadecimal digits: BIN, HEX and UNHEX.

Numbers as Java prints them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.sql.data.arrow import Datum, Kernel, to_full_array
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.functions.definition import (
    AS_INT,
    BYTES_TYPE,
    DOUBLE,
    INT,
    INTEGER,
    STRING,
    TEXT,
    UNKNOWN,
    Call,
    ScalarFunction,
    per_value,
    returns,
    returns_nullable,
    scalar,
    takes,
    value_kernel,
)

_FACTOR: Final = 0x5DEECE66D
_MASK: Final = (1 << 48) - 1
_Words = npt.NDArray[np.uint64]


class JavaRandom:
    """The generator of `java.util.Random`."""

    def __init__(self, seed: int) -> None:
        self._state = (seed ^ _FACTOR) & _MASK

    def next_double(self) -> float:
        """Return a number from 0 (inclusive) to 1 (exclusive)."""
        return ((self._next(26) << 27) + self._next(27)) / (1 << 53)

    def next_int(self, bound: int) -> int:
        """Return an integer from 0 (inclusive) to the bound (exclusive)."""
        check_bound(bound)
        if bound & (bound - 1) == 0:
            return (bound * self._next(31)) >> 31
        while True:
            bits = self._next(31)
            value = bits % bound
            if bits - value + bound <= 1 << 31:
                return value

    def doubles(self, count: int) -> npt.NDArray[np.float64]:
        """Return the next `count` numbers of `next_double`, vectorized."""
        states = self._states(2 * count)
        high = (states[0::2] >> np.uint64(22)) << np.uint64(27)
        values: npt.NDArray[np.float64] = (high + (states[1::2] >> np.uint64(21))) / float(1 << 53)
        return values

    def _next(self, bits: int) -> int:
        self._state = (self._state * _FACTOR + 0xB) & _MASK
        return self._state >> (48 - bits)

    def _states(self, count: int) -> _Words:
        """Return the next states. Each is the current state times a factor, plus a sum independent of the seed."""
        if not count:
            return np.zeros(0, np.uint64)
        factors = np.cumprod(np.full(count, _FACTOR, np.uint64))
        sums = np.cumsum(np.concatenate((np.ones(1, np.uint64), factors[:-1]))) * np.uint64(0xB)
        states: _Words = (factors * np.uint64(self._state) + sums) & np.uint64(_MASK)
        self._state = int(states[-1])
        return states


def check_bound(bound: int) -> None:
    """Raise `TableRuntimeError` unless the bound is positive."""
    if bound <= 0:
        raise TableRuntimeError(f"the bound of RAND_INTEGER must be above 0, not {bound}")


# --- RAND ------------------------------------------------------------------------------------------------------------


def _doubles(call: Call) -> Kernel:
    if not call.types:
        return lambda rows: pc.random(rows)
    seed = call.value(0)
    if seed is UNKNOWN:
        by_value = value_kernel(lambda row_seed: JavaRandom(row_seed).next_double(), call.types, call.result)
        return lambda rows, column: by_value(column)
    if not isinstance(seed, int):
        return lambda rows, column: pa.scalar(None, pa.float64())
    generator = JavaRandom(seed)
    return lambda rows, column: pa.array(generator.doubles(rows))


# --- RAND_INTEGER ----------------------------------------------------------------------------------------------------


def _integers(call: Call) -> Kernel:
    if len(call.types) == 1:
        return _each(random.randrange)
    seed = call.value(0)
    if seed is UNKNOWN:
        by_value = value_kernel(lambda row_seed, bound: JavaRandom(row_seed).next_int(bound), call.types, call.result)
        return lambda rows, seeds, bounds: by_value(seeds, bounds)
    if not isinstance(seed, int):
        return lambda rows, seeds, bounds: pa.scalar(None, pa.int32())
    kernel = _each(JavaRandom(seed).next_int)
    return lambda rows, seeds, bounds: kernel(rows, bounds)


def _each(draw: Callable[[int], int]) -> Kernel:
    """Draw a number for every row, even if the bound is a scalar."""

    def drawn(bound: int | None) -> int | None:
        if bound is None:
            return None
        check_bound(bound)
        return draw(bound)

    def kernel(rows: int, bounds: Datum) -> Datum:
        return pa.array([drawn(bound) for bound in to_full_array(bounds, rows).to_pylist()], pa.int32())

    return kernel


RANDOM_NUMBERS_FUNCTIONS: tuple[ScalarFunction, ...] = (
    scalar(
        "RAND",
        (takes(), takes(AS_INT)),
        returns(DOUBLE),
        _doubles,
        "Returns a random number from 0 (inclusive) to 1 (exclusive); a seed makes the sequence repeatable.",
        python_name="rand",
        usage="RAND([seed])",
        section="arithmetic",
        is_deterministic=False,
        takes_rows=True,
    ),
    scalar(
        "RAND_INTEGER",
        (takes(AS_INT), takes(AS_INT, AS_INT)),
        returns(INT),
        _integers,
        "Returns a random integer from 0 (inclusive) to the bound (exclusive); a seed makes the sequence repeatable.",
        python_name="randInteger",
        usage="RAND_INTEGER([seed, ]bound)",
        section="arithmetic",
        is_deterministic=False,
        takes_rows=True,
        can_fail=True,
    ),
)


_BITS: Final = (1 << 64) - 1
_DIGITS: Final = frozenset("0123456789abcdefABCDEF")


def _binary(number: int) -> str:
    """Return binary digits: for negative numbers, all 64 digits of the two's complement."""
    return format(number & _BITS, "b")


def _hexadecimal(value: int | str) -> str:
    return value.encode().hex().upper() if isinstance(value, str) else format(value & _BITS, "X")


def _bytes(digits: str) -> bytes | None:
    """Decode hexadecimal digits. If their count is odd, the first digit counts as 0, as in Flink."""
    if not _DIGITS.issuperset(digits):
        return None
    return bytes.fromhex(f"00{digits[1:]}" if len(digits) % 2 else digits)


NUMBER_TEXTS_FUNCTIONS: tuple[ScalarFunction, ...] = (
    scalar(
        "BIN",
        takes(INTEGER),
        returns(STRING),
        per_value(_binary),
        "Returns the integer in binary format.",
        python_name="bin",
        usage="BIN(integer)",
        section="arithmetic",
    ),
    scalar(
        "HEX",
        (takes(INTEGER), takes(TEXT)),
        returns(STRING),
        per_value(_hexadecimal),
        "Returns an integer, or the UTF-8 bytes of a string, in hexadecimal format.",
        python_name="hex",
        usage="HEX(value)",
        section="arithmetic",
    ),
    scalar(
        "UNHEX",
        takes(TEXT),
        returns_nullable(BYTES_TYPE),
        per_value(_bytes),
        "Decodes hexadecimal digits to bytes; returns NULL if the string has other characters.",
        python_name="unhex",
        usage="UNHEX(string)",
        section="arithmetic",
    ),
)


def double_text(value: float) -> str:
    """Return the shortest exact text of a DOUBLE: `1.5`, `1.0E10`, `NaN`, `Infinity`."""
    return _special(value) or _plain_or_scientific(Decimal(repr(value)), value)


def float_text(value: float) -> str:
    """Return the text of a FLOAT, which has fewer digits than a DOUBLE."""
    return _special(value) or _plain_or_scientific(Decimal(np.format_float_scientific(np.float32(value))), value)


def _special(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return ("-0.0" if math.copysign(1, value) < 0 else "0.0") if value == 0 else ""


def _plain_or_scientific(number: Decimal, value: float) -> str:
    sign, digits, _ = number.normalize().as_tuple()
    digit_text = "".join(map(str, digits))
    exponent = number.adjusted()
    prefix = "-" if sign else ""
    if not -3 <= exponent < 7:
        return f"{prefix}{digit_text[0]}.{digit_text[1:] or '0'}E{exponent}"
    if exponent < 0:
        return f"{prefix}0.{'0' * (-exponent - 1)}{digit_text}"
    integer = digit_text[: exponent + 1].ljust(exponent + 1, "0")
    return f"{prefix}{integer}.{digit_text[exponent + 1 :] or '0'}"


FUNCTIONS: tuple[ScalarFunction, ...] = (*RANDOM_NUMBERS_FUNCTIONS, *NUMBER_TEXTS_FUNCTIONS)
