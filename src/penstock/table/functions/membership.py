"""IN: tests membership. Constant operands form a set that is built once for all batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from penstock.table.data.logical_types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    NullType,
    RowType,
)
from penstock.table.data.values import Datum, Kernel, to_column
from penstock.table.functions.definition import UNKNOWN, Call, Operands
from penstock.table.typed.nodes import Constants

#: builds the kernel of `=`
Equality = Callable[[Call], Kernel]

_NESTED = (ArrayType, MapType, RowType)


def evaluated_operands(call: Operands) -> list[int]:
    """Return the indexes of the operands that the kernel takes: the first one and all that are not in the set."""
    if not _has_set(call.types[0]):
        return list(range(len(call)))
    return [index for index in range(len(call)) if not index or call.value(index) is UNKNOWN]


def membership_kernel(equality: Equality, call: Call) -> Kernel:
    """Return the kernel of IN: NULL if no other operand equals the first but one is NULL."""
    pair = replace(call.operands, types=call.types[:2], values=())
    equal = equality(replace(call, operands=pair))
    constants = call.operands.values[1:] if _has_set(call.types[0]) else ()
    given = [
        value
        for constant in constants
        for value in (constant.values if isinstance(constant, Constants) else (constant,))
    ]
    given = [value for value in given if value is not UNKNOWN]
    if not given:
        return lambda operand, *among: _any_equal(equal, operand, among)
    contains = _set_kernel(given, call.types[0])

    def kernel(operand: Datum, *among: Datum) -> Datum:
        contained = contains(operand)
        return pc.or_kleene(contained, _any_equal(equal, operand, among)) if among else contained

    return kernel


def _has_set(kind: DataType) -> bool:
    return not isinstance(kind, (*_NESTED, NullType))


def _set_kernel(given: list[object], kind: DataType) -> Kernel:
    # NaN does not equal anything, not even itself.
    known = [value for value in given if value is not None and value == value]
    has_null = any(value is None for value in given)
    if 0.0 in known and isinstance(kind, FloatType | DoubleType):
        known += [0.0, -0.0]  # They are equal, but distinct in an Arrow value set.
    values = to_column(known, kind)

    def kernel(operand: Datum) -> Datum:
        contained = pc.is_in(operand, value_set=values)
        unknown = pc.or_(pc.is_null(operand), pc.invert(contained)) if has_null else pc.is_null(operand)
        return pc.if_else(unknown, pa.scalar(None, pa.bool_()), contained)

    return kernel


def _any_equal(equal: Kernel, operand: Datum, among: tuple[Datum, ...]) -> Datum:
    result = equal(operand, among[0])
    for member in among[1:]:
        result = pc.or_kleene(result, equal(operand, member))
    return result
