"""Ways to build the kernel of a function.

There are three, fastest first: an Arrow kernel, one Python call for each distinct value, and kernels that a module
implements itself. Kernels take columns or scalars; a result that is the same for all rows may be a scalar.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from penstock.table.data.logical_types import DataType
from penstock.table.data.values import Datum, Kernel, to_column, to_scalar, to_values
from penstock.table.functions.definition import Call


def arrow(function: Callable[..., Datum], **options: object) -> Callable[[Call], Kernel]:
    """Wrap an Arrow function that already returns the Arrow type of the function's result."""

    def kernel(*columns: Datum) -> Datum:
        return function(*columns, **options)

    return lambda call: kernel


def per_value(function: Callable[..., object], takes_null: bool = False) -> Callable[[Call], Kernel]:
    """Wrap a Python function of single values (`penstock.table.data.values`), called once for each distinct value.

    Any NULL among the operands yields NULL without a call, unless `takes_null` is set.
    """

    def bind(call: Call) -> Kernel:
        return value_kernel(function, call.types, call.result, takes_null)

    return bind


def value_kernel(
    function: Callable[..., object], types: Sequence[DataType], result: DataType, takes_null: bool = False
) -> Kernel:
    """Return the kernel of a Python function of single values."""

    def checked(*operands: object) -> object:
        return function(*operands) if takes_null or None not in operands else None

    def of_one(column: Datum, constants: list[object], position: int) -> Datum:
        """Evaluate with one column; the other operands are the same for all rows."""

        def made(value: object) -> object:
            return checked(*constants[:position], value, *constants[position:])

        if _can_be_encoded(column.type) and len(column) > _FEW:
            encoded = column.dictionary_encode(null_encoding="encode")
            if len(encoded.dictionary) <= len(column) // 2:
                distinct = to_column([made(value) for value in to_values(encoded.dictionary, types[position])], result)
                return distinct.take(encoded.indices)
        return to_column([made(value) for value in to_values(column, types[position])], result)

    def kernel(*columns: Datum) -> Datum:
        full = [index for index, column in enumerate(columns) if isinstance(column, pa.Array)]
        if not full:
            single = [to_values(column, data_type)[0] for column, data_type in zip(columns, types, strict=True)]
            return to_scalar(checked(*single), result)
        if len(full) == 1:
            position = full[0]
            constants: list[Any] = [
                to_values(column, data_type)[0]
                for index, (column, data_type) in enumerate(zip(columns, types, strict=True))
                if index != position
            ]
            return of_one(columns[position], constants, position)
        rows = len(columns[full[0]])
        listed = [
            to_values(column, data_type) if isinstance(column, pa.Array) else to_values(column, data_type) * rows
            for column, data_type in zip(columns, types, strict=True)
        ]
        return to_column([checked(*operands) for operands in zip(*listed, strict=True)], result)

    return kernel


#: with fewer rows, distinct values are not looked for
_FEW = 16


def _can_be_encoded(data_type: pa.DataType) -> bool:
    return not pa.types.is_nested(data_type) and not pa.types.is_null(data_type) and not pa.types.is_floating(data_type)
