"""Table functions: evaluates them for each row of a batch, and returns the resulting rows as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.base.errors import StopIterationRaised, WrongTypeError
from penstock.base.types import Row
from penstock.table.data.logical_types import DataType, RowType
from penstock.table.data.values import Datum
from penstock.table.user_functions.definition import UserFunction
from penstock.table.user_functions.opened import OpenFunctions
from penstock.table.user_functions.values import Results, seen_values

#: the resulting rows: the index of the input row that each comes from, ascending, and their columns
Made: TypeAlias = tuple[npt.NDArray[np.int64], list[pa.Array]]
#: takes the number of rows and their operands, and returns the resulting rows
TableKernel: TypeAlias = Callable[..., Made]


def table_kernel(function: UserFunction, types: Sequence[DataType], opened: OpenFunctions) -> TableKernel:
    """Return the kernel of a call with operands of these types."""
    evaluate = opened.open(function).eval
    row_type = function.result_type
    assert isinstance(row_type, RowType)
    names, kinds = row_type.field_names(), row_type.field_types()
    results = [Results(kind, opened.zone) for kind in kinds]

    def kernel(rows: int, *columns: Datum) -> Made:
        operands = [seen_values(operand, kind, opened.zone, rows) for operand, kind in zip(columns, types, strict=True)]
        records = list(zip(*operands, strict=True)) if operands else [()] * rows
        parents: list[int] = []
        produced: list[Sequence[Any]] = []
        for parent, record in enumerate(records):
            try:
                returned = evaluate(*record)
                given = len(produced)
                produced.extend(unpack_row(row, names) for row in iterate_rows(returned))
                parents.extend([parent] * (len(produced) - given))
            except StopIteration:
                raise opened.failed(function, record) from StopIterationRaised()
            except Exception as error:
                raise opened.failed(function, record) from error

        def column(index: int) -> pa.Array:
            def refuse(row_index: int, value: object) -> None:
                opened.refuse(
                    function, records[parents[row_index]], value, f"{kinds[index]}, as column {names[index]} is"
                )

            return results[index].column([row[index] for row in produced], refuse)

        return np.array(parents, np.int64), [column(index) for index in range(len(names))]

    return kernel


def iterate_rows(returned: Any) -> Any:
    """Return the rows in a function's result: a list, range or iterator of rows, None, or one row."""
    if returned is None:
        return ()
    return returned if isinstance(returned, list | range | Iterator) else (returned,)


def unpack_row(row: Any, names: list[str]) -> Sequence[Any]:
    """Return the column values of a row that a function returned."""
    if isinstance(row, Row):
        is_named = row.has_field_names and set(names) <= set(row.as_dict())
        parts: Sequence[Any] = row.get_fields_by_names(names) if is_named else list(row)
    else:
        parts = row if isinstance(row, tuple) else (row,)
    if len(parts) != len(names):
        raise WrongTypeError(f"it gave the row {row!r} of {len(parts)} fields, and its result types are {len(names)}")
    return parts
