"""ROUND and TRUNCATE. Floating-point numbers are rounded by their decimal text, not by their binary value."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.errors import TableRuntimeError
from penstock.table.data.logical_types import PRECISION_MAX, DataType, DecimalType, DoubleType, FloatType
from penstock.table.data.values import Datum, Kernel
from penstock.table.functions.decimal_arithmetic import as_decimals, fitted
from penstock.table.functions.definition import UNKNOWN, Call, Operands, ScalarFunction, scalar
from penstock.table.functions.kernels import value_kernel
from penstock.table.functions.signatures import AS_INT, NUMERIC, takes
from penstock.table.functions.type_rules import rounded_decimal

_EXACT: Final = Context(prec=1200, Emax=9999, Emin=-9999)
_Floats = npt.NDArray[np.float64]


def _result(call: Operands) -> DataType:
    """Return the operand's type. A decimal has the digits that remain, if their number is constant."""
    data_type = call.types[0]
    if isinstance(data_type, DecimalType):
        digits = call.value(1) if len(call) == 2 else 0
        if isinstance(digits, int):
            data_type = rounded_decimal(data_type, digits)
    return data_type.nullable() if call.any_nullable() else data_type.not_null()


def _bind(mode: str) -> Callable[[Call], Kernel]:
    def bind(call: Call) -> Kernel:
        digits = call.value(1) if len(call.types) == 2 else 0
        by_value = value_kernel(_of_value(call, mode), call.types, call.result)
        if digits is UNKNOWN or not isinstance(digits, int):
            return by_value
        fast = _of_column(call.types[0], call.result, digits, mode)

        def kernel(*columns: Datum) -> Datum:
            rounded = fast(columns[0]) if isinstance(columns[0], pa.Array) else None
            return by_value(*columns) if rounded is None else rounded

        return kernel

    return bind


# --- value by value --------------------------------------------------------------------------------------------------


def _of_value(call: Call, mode: str) -> Callable[..., object]:
    kind, result = call.types[0], call.result
    if isinstance(kind, DecimalType) and isinstance(result, DecimalType):
        limit = Decimal(10) ** (result.precision - result.scale)
        return lambda number, digits=0: _within(rounded_value(number, min(digits, kind.scale), mode), limit)
    if isinstance(kind, FloatType | DoubleType):
        return lambda number, digits=0: float(rounded_value(_written(number), digits, mode))
    bits = arrow_type(result).bit_width
    return lambda number, digits=0: _wrapped(int(rounded_value(Decimal(number), min(digits, 0), mode)), bits)


def rounded_value(number: Decimal, digits: int, mode: str) -> Decimal:
    """Round to at most `digits` decimal places. A negative number rounds digits before the point."""
    if -int(number.as_tuple().exponent) <= digits:
        return number
    if digits < -400:
        return Decimal(0)
    quantized = number.quantize(Decimal(1).scaleb(-digits), mode, _EXACT)
    return quantized if digits >= 0 else quantized.quantize(Decimal(1), context=_EXACT)


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


_SIGNATURES: Final = (takes(NUMERIC), takes(NUMERIC, AS_INT))

FUNCTIONS: tuple[ScalarFunction, ...] = (
    scalar(
        "ROUND",
        _SIGNATURES,
        _result,
        _bind(ROUND_HALF_UP),
        "Rounds the number to `digits` decimal places, by default 0; halves are rounded away from 0.",
        python_name="round",
        usage="ROUND(number[, digits])",
        section="arithmetic",
        can_fail=True,
    ),
    scalar(
        "TRUNCATE",
        _SIGNATURES,
        _result,
        _bind(ROUND_DOWN),
        "Truncates the number to `digits` decimal places, by default 0.",
        python_name="truncate",
        usage="TRUNCATE(number[, digits])",
        section="arithmetic",
        can_fail=True,
    ),
)
