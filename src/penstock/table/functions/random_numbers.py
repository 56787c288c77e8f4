"""RAND and RAND_INTEGER. With a seed they return the numbers of Java's generator, so queries are reproducible."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.table.data.errors import TableRuntimeError
from penstock.table.data.values import Datum, Kernel, to_full_array
from penstock.table.functions.definition import UNKNOWN, Call, ScalarFunction, scalar
from penstock.table.functions.kernels import value_kernel
from penstock.table.functions.signatures import AS_INT, DOUBLE, INT, returns, takes

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


FUNCTIONS: tuple[ScalarFunction, ...] = (
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
