"""Scalar functions on whole columns, as pandas objects (`func_type="pandas"`) or Arrow arrays (`"arrow"`).

An operand that is constant over the batch is passed as a single value, unless all operands are constant. A pandas
function gets a ROW as a data frame. The result must be as long as the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from penstock.base.errors import MisuseError, UnsupportedError
from penstock.codecs.exact_cast import exact_cast
from penstock.codecs.map_columns import plain_column, plain_type
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.conversion import seen_of
from penstock.table.data.logical_types import DataType, LocalZonedTimestampType, RowType
from penstock.table.data.values import Datum, Kernel, array_of, values_of
from penstock.table.user_functions.definition import PANDAS, UserFunction
from penstock.table.user_functions.opened import OpenFunctions

#: errors that Arrow raises for values that do not fit
_FAULTS: Final = (pa.ArrowException, OverflowError)


def vector_kernel(function: UserFunction, types: Sequence[DataType], opened: OpenFunctions) -> Kernel:
    """Return the kernel of a call with operands of these types. The kernel takes the number of rows first."""
    is_pandas = function.func_type == PANDAS
    if is_pandas:
        check_pandas(function)
    evaluate = opened.open(function).eval
    wanted, result = arrow_type(function.result_type), function.result_type
    seen = [seen_of(kind, opened.zone, for_functions=True) for kind in types]

    def operand(column: Datum, place: int, rows: int, all_same: bool) -> Any:
        if isinstance(column, pa.Scalar) and not all_same:
            return seen[place](values_of(column, types[place])[0])
        full = plain_column(array_of(column, rows))
        return pandas_of(full, types[place], str(opened.zone)) if is_pandas else full

    def kernel(rows: int, *columns: Datum) -> pa.Array:
        all_same = all(isinstance(one, pa.Scalar) for one in columns)
        record = f"a batch of {rows} rows"
        try:
            operands = [operand(one, place, rows, all_same) for place, one in enumerate(columns)]
        except _FAULTS as error:
            raise opened.failed(function, record) from MisuseError(f"it cannot get an operand: {error}")
        try:
            found = evaluate(*operands)
        except Exception as error:
            raise opened.failed(function, record) from error
        try:
            column = (_of_pandas if is_pandas else _of_arrow)(found, rows, wanted, result)
        except MisuseError as error:
            raise opened.failed(function, record) from error
        except _FAULTS as error:
            raise opened.failed(function, record) from MisuseError(f"it returned values that are no {result}: {error}")
        if column.null_count and not result.is_nullable:
            raise opened.failed(function, record) from MisuseError(f"it returned NULL, and its result type is {result}")
        return column

    return kernel


def check_pandas(function: UserFunction) -> None:
    """Raise `UnsupportedError` if pandas is not installed."""
    try:
        import pandas  # noqa: F401 - asked for at once, not at the first row
    except ImportError as error:
        raise UnsupportedError(f"{function} needs pandas: install it with `pip install pandas`") from error


def pandas_of(column: pa.Array, data_type: DataType, zone: str) -> Any:
    """Convert a column to a pandas series, or a column of rows to a data frame."""
    import pandas

    if isinstance(data_type, RowType):
        fields = zip(column.flatten(), data_type.fields, strict=True)
        return pandas.DataFrame({field.name: pandas_of(one, field.data_type, zone) for one, field in fields})
    found = column.to_pandas()
    return found.dt.tz_convert(zone) if isinstance(data_type, LocalZonedTimestampType) else found


def _of_arrow(found: Any, rows: int, wanted: pa.DataType, result: DataType) -> pa.Array:
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks()
    if not isinstance(found, pa.Array):
        raise MisuseError(f"a function of func_type 'arrow' returns an Arrow array, not {type(found).__name__}")
    _check_length(len(found), rows)
    return exact_cast(found, wanted)


def _of_pandas(found: Any, rows: int, wanted: pa.DataType, result: DataType) -> pa.Array:
    import pandas

    if isinstance(result, RowType) and isinstance(found, pandas.DataFrame | tuple):
        return _struct(found, rows, wanted, result)
    if not isinstance(found, pandas.Series):
        raise MisuseError(f"a function of func_type 'pandas' returns a pandas.Series, not {type(found).__name__}")
    _check_length(len(found), rows)
    # pandas has nanoseconds where a plain column has fewer digits; the excess digits are truncated, as in a cast.
    is_known = pa.types.is_nested(wanted) or pa.types.is_decimal(wanted)
    column = pa.Array.from_pandas(found, type=plain_type(wanted) if is_known else None)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return exact_cast(column, wanted)


def _struct(found: Any, rows: int, wanted: pa.StructType, result: RowType) -> pa.Array:
    import pandas

    parts = [found[name] for name in found.columns] if isinstance(found, pandas.DataFrame) else list(found)
    if len(parts) != len(result.fields):
        raise MisuseError(f"it returned {len(parts)} columns, and its result type is {result}")
    columns = [
        _of_pandas(part, rows, wanted.field(index).type, field.data_type)
        for index, (part, field) in enumerate(zip(parts, result.fields, strict=True))
    ]
    return pa.StructArray.from_arrays(columns, fields=list(wanted))


def _check_length(length: int, rows: int) -> None:
    if length != rows:
        raise MisuseError(f"it returned {length} values for a batch of {rows} rows: it has to return one for each row")
