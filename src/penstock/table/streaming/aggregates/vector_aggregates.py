"""User-defined aggregate functions that receive all rows at once, as pandas or Arrow columns.

The state of a group is its rows in arrival order, and the number of pending retractions for each row. The function is
called when its value is needed.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.base.errors import MisuseError
from penstock.table.data.values import to_column
from penstock.table.plan.logical import UserAggregateCall
from penstock.table.streaming.aggregates.base import Accumulator, changed_count
from penstock.table.streaming.aggregates.gathered import is_owed
from penstock.table.streaming.rows.held_rows import RowEquality
from penstock.table.user_functions.definition import PANDAS
from penstock.table.user_functions.opened import OpenFunctions
from penstock.table.user_functions.values import Results
from penstock.table.user_functions.vectors import check_pandas, to_pandas_column


class VectorAccumulator(Accumulator):
    """An aggregate function of whole columns: [rows, {row as text: number of pending retractions}]."""

    call: UserAggregateCall

    def __init__(self, call: UserAggregateCall, functions: OpenFunctions) -> None:
        super().__init__(call)
        self._user = call.user
        self._is_pandas = call.user.func_type == PANDAS
        if self._is_pandas:
            check_pandas(call.user)
        self._functions = functions
        self._function = functions.open(call.user)
        self._results = Results(call.type, functions.zone)
        self._types = [operand.type for operand in call.operands]
        self._equality = RowEquality(self._types, zeros="merged")

    def create(self) -> Any:
        """See `Accumulator`."""
        return [[], {}]

    def add(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        rows, owed = state
        if owed and is_owed(owed, self._name(values)):
            return state
        rows.append(values)
        return state

    def retract(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        rows, owed = state
        for index, row in enumerate(rows):  # usually, the oldest row is retracted
            if self._equality.same(row, values):
                del rows[index]
                return state
        changed_count(owed, self._name(values), 1)
        return state

    def _name(self, values: tuple[Any, ...]) -> str:
        """Return a text that is the same for equal rows."""
        return repr(self._equality.key(values))

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        rows = state[0]
        columns = zip(*rows, strict=True) if rows else ((),) * len(self._types)
        arrays = [to_column(list(column), kind) for column, kind in zip(columns, self._types, strict=True)]
        record = f"{len(rows)} rows"
        try:
            result = self._called(arrays)
        except Exception as error:
            raise self._functions.failed(self._user, record) from error

        def refuse(_: int, value: object) -> None:
            self._functions.refuse(self._user, record, value, self._results.data_type)

        return self._results.held(result, refuse)

    def _called(self, arrays: list[pa.Array]) -> Any:
        operands = arrays
        if self._is_pandas:
            zone = str(self._functions.zone)
            operands = [to_pandas_column(array, kind, zone) for array, kind in zip(arrays, self._types, strict=True)]
        if hasattr(self._function, "eval"):
            result = self._function.eval(*operands)
        else:
            accumulator = self._function.create_accumulator()
            self._function.accumulate(accumulator, *operands)
            result = self._function.get_value(accumulator)
        return _plain(result, self._is_pandas)


def _plain(value: Any, is_pandas: bool) -> Any:
    """Convert a pandas, NumPy or Arrow value to Python. In pandas, NaN stands for NULL."""
    if isinstance(value, tuple):
        return tuple([_plain(item, is_pandas) for item in value])
    if is_pandas and isinstance(value, float) and value != value:
        return None
    if isinstance(value, pa.Scalar):
        return value.as_py()
    if type(value).__module__.split(".")[0] == "numpy" and hasattr(value, "item") and value.ndim == 0:
        # NumPy times with nanoseconds would become integers.
        return value.item() if value.dtype.kind not in "mM" else value.astype(f"{value.dtype.kind}8[us]").item()
    if type(value).__module__.startswith("pandas.") or isinstance(value, pa.Array | pa.ChunkedArray):
        return _of_pandas(value)
    return value


def _of_pandas(value: Any) -> Any:
    import pandas

    if value is pandas.NA or value is pandas.NaT:
        return None
    if isinstance(value, pandas.Series | pandas.DataFrame | pa.Array | pa.ChunkedArray):
        raise MisuseError(f"an aggregate function gives one value for all rows, not a {type(value).__name__}")
    return value
