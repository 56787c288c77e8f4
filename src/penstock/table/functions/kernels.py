"""Ways to build the kernel of a function.

There are three, fastest first: an Arrow kernel, one Python call for each distinct value, and kernels that a module
implements itself. Kernels take columns or scalars; a result that is the same for all rows may be a scalar.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from penstock.table.data.logical_types import DataType
from penstock.table.data.values import Datum, Kernel, column_of, scalar_of, values_of
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

    def of_one(column: Datum, others: list[object], place: int) -> Datum:
        """Evaluate with one column; the other operands are the same for all rows."""

        def made(one: object) -> object:
            return checked(*others[:place], one, *others[place:])

        if _can_be_encoded(column.type) and len(column) > _FEW:
            encoded = column.dictionary_encode(null_encoding="encode")
            if len(encoded.dictionary) <= len(column) // 2:
                kept = column_of([made(one) for one in values_of(encoded.dictionary, types[place])], result)
                return kept.take(encoded.indices)
        return column_of([made(one) for one in values_of(column, types[place])], result)

    def kernel(*columns: Datum) -> Datum:
        full = [index for index, column in enumerate(columns) if isinstance(column, pa.Array)]
        if not full:
            single = [values_of(column, one)[0] for column, one in zip(columns, types, strict=True)]
            return scalar_of(checked(*single), result)
        if len(full) == 1:
            place = full[0]
            others: list[Any] = [
                values_of(column, one)[0]
                for index, (column, one) in enumerate(zip(columns, types, strict=True))
                if index != place
            ]
            return of_one(columns[place], others, place)
        rows = len(columns[full[0]])
        listed = [
            values_of(column, one) if isinstance(column, pa.Array) else values_of(column, one) * rows
            for column, one in zip(columns, types, strict=True)
        ]
        return column_of([checked(*operands) for operands in zip(*listed, strict=True)], result)

    return kernel


#: with fewer rows, distinct values are not looked for
_FEW = 16


def _can_be_encoded(found: pa.DataType) -> bool:
    return not pa.types.is_nested(found) and not pa.types.is_null(found) and not pa.types.is_floating(found)
