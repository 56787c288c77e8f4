"""User-defined aggregate functions that receive all rows at once, as pandas or Arrow columns.

The state of a group is its rows in arrival order, and the number of pending retractions for each row. The function is
called when its value is needed.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.base.errors import MisuseError
from penstock.table.data.values import column_of
from penstock.table.plan.logical import UserAggregateCall
from penstock.table.streaming.aggregates.base import Accumulator, changed_count
from penstock.table.streaming.aggregates.gathered import is_owed
from penstock.table.streaming.rows.held_rows import RowEquality
from penstock.table.user_functions.definition import PANDAS
from penstock.table.user_functions.opened import OpenFunctions
from penstock.table.user_functions.values import Results
from penstock.table.user_functions.vectors import check_pandas, pandas_of


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
        self._types = [one.type for one in call.operands]
        self._equality = RowEquality(self._types, zeros="merged")

    def create(self) -> Any:
        """See `Accumulator`."""
        return [[], {}]

    def add(self, held: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        rows, owed = held
        if owed and is_owed(owed, self._name(values)):
            return held
        rows.append(values)
        return held

    def retract(self, held: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        rows, owed = held
        for index, row in enumerate(rows):  # usually, the oldest row is retracted
            if self._equality.same(row, values):
                del rows[index]
                return held
        changed_count(owed, self._name(values), 1)
        return held

    def _name(self, values: tuple[Any, ...]) -> str:
        """Return a text that is the same for equal rows."""
        return repr(self._equality.key(values))

    def value(self, held: Any) -> Any:
        """See `Accumulator`."""
        rows = held[0]
        columns = zip(*rows, strict=True) if rows else ((),) * len(self._types)
        arrays = [column_of(list(one), kind) for one, kind in zip(columns, self._types, strict=True)]
        record = f"{len(rows)} rows"
        try:
            found = self._called(arrays)
        except Exception as error:
            raise self._functions.failed(self._user, record) from error

        def refuse(_: int, value: object) -> None:
            self._functions.refuse(self._user, record, value, self._results.data_type)

        return self._results.held(found, refuse)

    def _called(self, arrays: list[pa.Array]) -> Any:
        operands = arrays
        if self._is_pandas:
            zone = str(self._functions.zone)
            operands = [pandas_of(one, kind, zone) for one, kind in zip(arrays, self._types, strict=True)]
        if hasattr(self._function, "eval"):
            found = self._function.eval(*operands)
        else:
            accumulator = self._function.create_accumulator()
            self._function.accumulate(accumulator, *operands)
            found = self._function.get_value(accumulator)
        return _plain(found, self._is_pandas)


def _plain(found: Any, is_pandas: bool) -> Any:
    """Convert a pandas, NumPy or Arrow value to Python. In pandas, NaN stands for NULL."""
    if isinstance(found, tuple):
        return tuple([_plain(one, is_pandas) for one in found])
    if is_pandas and isinstance(found, float) and found != found:
        return None
    if isinstance(found, pa.Scalar):
        return found.as_py()
    if type(found).__module__.split(".")[0] == "numpy" and hasattr(found, "item") and found.ndim == 0:
        # NumPy times with nanoseconds would become integers.
        return found.item() if found.dtype.kind not in "mM" else found.astype(f"{found.dtype.kind}8[us]").item()
    if type(found).__module__.startswith("pandas.") or isinstance(found, pa.Array | pa.ChunkedArray):
        return _of_pandas(found)
    return found


def _of_pandas(found: Any) -> Any:
    import pandas

    if found is pandas.NA or found is pandas.NaT:
        return None
    if isinstance(found, pandas.Series | pandas.DataFrame | pa.Array | pa.ChunkedArray):
        raise MisuseError(f"an aggregate function gives one value for all rows, not a {type(found).__name__}")
    return found
