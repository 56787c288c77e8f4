"""Many rows in one call: what functions of `func_type` `pandas` and `arrow` take and give.

A call has the rows of a table that came together: all of a batch with row semantics, those of one partition with set
semantics. They are a data frame, or an Arrow table, under the names of the table's columns. The function gives any
number of the same: one, a list, or by `yield`. Columns of the result are found by name. In pandas, NaN is NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import tzinfo
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.base.errors import MisuseError, WrongTypeError
from penstock.codecs.arrow_columns import exact_cast, plain_column
from penstock.sql.data.arrow import arrow_type
from penstock.sql.data.types import DataType
from penstock.sql.stream.process.calls import InputTable
from penstock.sql.user_functions.calls import to_pandas_column


def group_rows(keys: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield each key with the indices of its rows, in the order in which keys come."""
    places: dict[Any, list[int]] = {}
    for index, key in enumerate(keys):
        places.setdefault(key, []).append(index)
    for key, indices in places.items():
        yield key, np.array(indices, np.int64)


def build_frame(columns: pa.RecordBatch, table: InputTable, is_pandas: bool, zone: tzinfo) -> Any:
    """Return rows as functions take them."""
    arrays = [plain_column(column) for column in columns.columns[: len(table.types)]]
    if not is_pandas:
        return pa.table(arrays, names=list(table.names))
    import pandas

    series = [to_pandas_column(array, kind, str(zone)) for array, kind in zip(arrays, table.types, strict=True)]
    return pandas.DataFrame(dict(zip(table.names, series, strict=True)))


def iterate_frames(returned: Any) -> Iterator[Any]:
    """Yield the frames in a function's result."""
    if returned is None:
        return
    yield from returned if isinstance(returned, list | Iterator) else (returned,)


def read_frame(frame: Any, names: Sequence[str], types: Sequence[DataType]) -> list[pa.Array]:
    """Return the columns of a frame that a function gave. Raises `WrongTypeError` for anything else."""
    find: Callable[[str], Any]
    if isinstance(frame, pa.RecordBatch | pa.Table):
        known, find = frame.schema.names, frame.column
    elif type(frame).__module__.split(".")[0] == "pandas" and hasattr(frame, "columns"):
        known, find = list(frame.columns), frame.__getitem__
    else:
        raise WrongTypeError(f"it returned {type(frame).__name__}, and not a data frame or an Arrow table")
    missing = [name for name in names if name not in known]
    if missing:
        raise MisuseError(f"it returned the columns {', '.join(map(str, known))}, and not {', '.join(missing)}")
    return [_read_column(find(name), kind, name) for name, kind in zip(names, types, strict=True)]


def _read_column(column: Any, kind: DataType, name: str) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    if not isinstance(column, pa.Array):
        column = pa.Array.from_pandas(column)
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
    try:
        read = exact_cast(column, arrow_type(kind))
    except (pa.ArrowException, OverflowError) as error:
        raise MisuseError(f"it returned values that are no {kind} in column {name}: {error}") from error
    if read.null_count and not kind.is_nullable:
        raise MisuseError(f"it returned NULL in column {name} of type {kind}")
    return read
