"""Rows of a result as a data frame of pandas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.base.errors import UnsupportedError
from penstock.base.types import Row, RowKind
from penstock.table.data.arrow_types import arrow_type
from penstock.table.plan.row_schema import RowSchema

if TYPE_CHECKING:
    import pandas


def frame_of(rows: Iterable[Row], schema: RowSchema) -> pandas.DataFrame:
    """The rows that are left when all changes are made. Raises `UnsupportedError` where pandas is not installed."""
    try:
        import pandas
    except ImportError as error:
        raise UnsupportedError("to_pandas needs pandas: install it with `pip install pandas`") from error
    kept = _kept(rows)
    columns = [_series([row[index] for row in kept], column.type, pandas.Series) for index, column in enumerate(schema)]
    frame = pandas.concat(columns, axis=1) if columns else pandas.DataFrame(index=range(len(kept)))
    frame.columns = pandas.Index(schema.names)
    return frame


def _kept(rows: Iterable[Row]) -> list[list[Any]]:
    kept: list[list[Any]] = []
    for row in rows:
        values = list(row)
        if row.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER):
            kept.append(values)
        elif values in kept:
            del kept[len(kept) - 1 - kept[::-1].index(values)]
    return kept


def _series(values: list[Any], data_type: Any, series: Any) -> Any:
    """A column as Arrow gives it to pandas; as plain objects where Arrow has no form for the values."""
    try:
        return pa.array(values, arrow_type(data_type)).to_pandas()
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, UnsupportedError):
        return series(values, dtype=object)
