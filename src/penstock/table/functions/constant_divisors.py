"""Division of integers by a constant: NumPy multiplies several numbers at a time, where Arrow divides.

NumPy rounds a quotient down, SQL toward zero; both are equal if neither number is negative.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.table.data.flat import apply_validity, flat_values

Quotients: TypeAlias = Callable[[pa.Array], pa.Array]


def quotients(divisor: int, otherwise: Quotients) -> Quotients:
    """Return a kernel for quotients. `otherwise`: the kernel for negative numbers and for divisors below 1."""

    def kernel(column: pa.Array) -> pa.Array:
        values = flat_values(column)
        if divisor < 1 or not len(values) or values.min() < 0:
            return otherwise(column)
        return apply_validity(column, values // values.dtype.type(divisor), column.type)

    return kernel


def remainders(divisor: int, result: pa.DataType) -> Quotients:
    """Return a kernel for remainders, signed like the dividend. `divisor`: above 0. `result`: holds all remainders."""

    def kernel(column: pa.Array) -> pa.Array:
        values = flat_values(column)
        return apply_validity(column, _remainders(values, values.dtype.type(divisor)), result)

    return kernel


def _remainders(values: Any, divisor: Any) -> Any:
    # Faster than NumPy's own remainder. The product may overflow, but the sum wraps back into the type.
    result = values // divisor
    result *= -divisor
    result += values
    if len(values) and values.min() < 0:
        np.subtract(result, divisor, out=result, where=(values < 0) & (result != 0))
    return result
