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
from penstock.table.data.conversion import to_external
from penstock.table.data.logical_types import DataType, LocalZonedTimestampType, RowType
from penstock.table.data.values import Datum, Kernel, to_full_array, to_values
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
    target_type, result = arrow_type(function.result_type), function.result_type
    converters = [to_external(kind, opened.zone, for_functions=True) for kind in types]

    def operand(column: Datum, index: int, rows: int, all_same: bool) -> Any:
        if isinstance(column, pa.Scalar) and not all_same:
            return converters[index](to_values(column, types[index])[0])
        full = plain_column(to_full_array(column, rows))
        return to_pandas_column(full, types[index], str(opened.zone)) if is_pandas else full

    def kernel(rows: int, *columns: Datum) -> pa.Array:
        all_same = all(isinstance(datum, pa.Scalar) for datum in columns)
        record = f"a batch of {rows} rows"
        try:
            operands = [operand(datum, index, rows, all_same) for index, datum in enumerate(columns)]
        except _FAULTS as error:
            raise opened.failed(function, record) from MisuseError(f"it cannot get an operand: {error}")
        try:
            returned = evaluate(*operands)
        except Exception as error:
            raise opened.failed(function, record) from error
        try:
            column = (_of_pandas if is_pandas else _of_arrow)(returned, rows, target_type, result)
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


def to_pandas_column(column: pa.Array, data_type: DataType, zone: str) -> Any:
    """Convert a column to a pandas series, or a column of rows to a data frame."""
    import pandas

    if isinstance(data_type, RowType):
        fields = zip(column.flatten(), data_type.fields, strict=True)
        return pandas.DataFrame({field.name: to_pandas_column(child, field.data_type, zone) for child, field in fields})
    series = column.to_pandas()
    return series.dt.tz_convert(zone) if isinstance(data_type, LocalZonedTimestampType) else series


def _of_arrow(returned: Any, rows: int, target_type: pa.DataType, result: DataType) -> pa.Array:
    if isinstance(returned, pa.ChunkedArray):
        returned = returned.combine_chunks()
    if not isinstance(returned, pa.Array):
        raise MisuseError(f"a function of func_type 'arrow' returns an Arrow array, not {type(returned).__name__}")
    _check_length(len(returned), rows)
    return exact_cast(returned, target_type)


def _of_pandas(returned: Any, rows: int, target_type: pa.DataType, result: DataType) -> pa.Array:
    import pandas

    if isinstance(result, RowType) and isinstance(returned, pandas.DataFrame | tuple):
        return _struct(returned, rows, target_type, result)
    if not isinstance(returned, pandas.Series):
        raise MisuseError(f"a function of func_type 'pandas' returns a pandas.Series, not {type(returned).__name__}")
    _check_length(len(returned), rows)
    # pandas has nanoseconds where a plain column has fewer digits; the excess digits are truncated, as in a cast.
    is_known = pa.types.is_nested(target_type) or pa.types.is_decimal(target_type)
    column = pa.Array.from_pandas(returned, type=plain_type(target_type) if is_known else None)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return exact_cast(column, target_type)


def _struct(returned: Any, rows: int, target_type: pa.StructType, result: RowType) -> pa.Array:
    import pandas

    parts = [returned[name] for name in returned.columns] if isinstance(returned, pandas.DataFrame) else list(returned)
    if len(parts) != len(result.fields):
        raise MisuseError(f"it returned {len(parts)} columns, and its result type is {result}")
    columns = [
        _of_pandas(part, rows, target_type.field(index).type, field.data_type)
        for index, (part, field) in enumerate(zip(parts, result.fields, strict=True))
    ]
    return pa.StructArray.from_arrays(columns, fields=list(target_type))


def _check_length(length: int, rows: int) -> None:
    if length != rows:
        raise MisuseError(f"it returned {length} values for a batch of {rows} rows: it has to return one for each row")
