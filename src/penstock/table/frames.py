"""Rows of a result as a data frame of pandas or Polars, or as an Arrow table."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.base.errors import UnsupportedError
from penstock.base.types import Row, RowKind
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.conversion import held_of
from penstock.table.data.values import column_of
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


def arrow_of(rows: Iterable[Row], schema: RowSchema) -> pa.Table:
    """The rows that are left when all changes are made."""
    kept = _kept(rows)
    columns = []
    for index, column in enumerate(schema):
        held = held_of(column.type, datetime.UTC)  # moments of a result know their time zone
        columns.append(column_of([held(row[index]) for row in kept], column.type))
    fields = [pa.field(column.name, arrow_type(column.type), column.type.is_nullable) for column in schema]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def polars_of(table: pa.Table) -> Any:
    """The rows of an Arrow table. Raises `UnsupportedError` where Polars is not installed."""
    try:
        polars = import_module("polars")
    except ImportError as error:
        raise UnsupportedError("to_polars needs Polars: install it with `pip install polars`") from error
    return polars.from_arrow(table)


def _kept(rows: Iterable[Row]) -> list[list[Any]]:
    """The rows in the order in which they came. A row that goes takes the last one that is the same with it."""
    kept: dict[int, list[Any]] = {}
    places: dict[Any, list[int]] = {}
    for number, row in enumerate(rows):
        values = list(row)
        known = places.setdefault(_key(values), [])
        if row.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER):
            kept[number] = values
            known.append(number)
        elif known:
            del kept[known.pop()]
    return list(kept.values())


def _key(value: Any) -> Any:
    """A value that can be a key, the same for the same values."""
    if isinstance(value, dict):
        return frozenset((_key(one), _key(other)) for one, other in value.items())
    if isinstance(value, list | tuple | Row):
        return tuple(map(_key, value))
    if isinstance(value, float) and value != value:
        return "NaN", float
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value


def _series(values: list[Any], data_type: Any, series: Any) -> Any:
    """A column as Arrow gives it to pandas; as plain objects where Arrow has no form for the values."""
    try:
        return pa.array(values, arrow_type(data_type)).to_pandas()
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, UnsupportedError):
        return series(values, dtype=object)
