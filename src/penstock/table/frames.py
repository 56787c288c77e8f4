"""Converts the rows of a result to a pandas or Polars data frame, or to an Arrow table."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.base.errors import UnsupportedError, WrongValueError, write_install_command
from penstock.codecs.arrow_columns import exact_cast, plain_type
from penstock.sql.data.arrow import arrow_type, to_column
from penstock.sql.data.conversion import to_external
from penstock.sql.data.datetimes import zone_name
from penstock.sql.data.types import DataType, RawType, RowField, RowType, VariantType
from penstock.sql.executor import ChangelogRow
from penstock.sql.logical.nodes import PlanColumn, RowSchema
from penstock.state.equality import build_canonicalizer

if TYPE_CHECKING:
    import pandas


def build_pandas_frame(changes: Iterable[ChangelogRow], schema: RowSchema, zone: datetime.tzinfo) -> pandas.DataFrame:
    """Return the rows that remain after all changes, as a pandas data frame.

    Args:
        changes: rows with internal values (`penstock.sql.data.arrow`).
        schema: the columns.
        zone: the session time zone, which TIMESTAMP_LTZ columns get.

    Raises:
        UnsupportedError: if pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise UnsupportedError(f"to_pandas needs pandas: {write_install_command('pandas')}") from error
    rows = _kept(changes, schema)
    series = [_series([row[index] for row in rows], column, zone) for index, column in enumerate(schema)]
    frame = pandas.concat(series, axis=1) if series else pandas.DataFrame(index=range(len(rows)))
    frame.columns = pandas.Index(schema.names)
    return frame


def build_arrow_table(changes: Iterable[ChangelogRow], schema: RowSchema, zone: datetime.tzinfo) -> pa.Table:
    """Return the rows that remain after all changes, as an Arrow table. See `build_pandas_frame`."""
    rows = _kept(changes, schema)
    columns = [_column([row[index] for row in rows], column, zone) for index, column in enumerate(schema)]
    fields = [
        pa.field(column.name, array.type, column.type.is_nullable)
        for column, array in zip(schema, columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def build_polars_frame(table: pa.Table) -> Any:
    """Return an Arrow table as a Polars data frame; raise `UnsupportedError` if Polars is not installed."""
    try:
        polars = import_module("polars")
    except ImportError as error:
        raise UnsupportedError("to_polars needs Polars: install it with `pip install polars`") from error
    return polars.from_arrow(table)


def _kept(changes: Iterable[ChangelogRow], schema: RowSchema) -> list[tuple[Any, ...]]:
    """Return the remaining rows, in order of arrival. A retraction removes the last row that equals it."""
    rows: dict[int, tuple[Any, ...]] = {}
    numbers_by_key: dict[Any, list[int]] = {}
    key_of = _keys(schema)
    for number, (kind, values) in enumerate(changes):
        known = numbers_by_key.setdefault(key_of(values), [])
        if kind in ("+I", "+U"):
            rows[number] = values
            known.append(number)
        elif known:
            del rows[known.pop()]
    return list(rows.values())


def _keys(schema: RowSchema) -> Callable[[tuple[Any, ...]], Any]:
    """Return a function that maps a row to a dictionary key, which equal rows share."""
    canonical = build_canonicalizer(arrow_type(RowType([RowField(column.name, column.type) for column in schema])))
    assert canonical is not None  # rows have a canonical form
    is_hashable = not any(isinstance(column.type, RawType | VariantType) for column in schema)
    return canonical if is_hashable else lambda values: _hashable(canonical(values))


def _hashable(values: Any) -> Any:
    """Return a hashable form of values: Python objects without a hash are compared by their `repr`."""
    try:
        hash(values)
    except TypeError:
        return repr(values)
    return values


def _column(values: list[Any], column: PlanColumn, zone: datetime.tzinfo) -> pa.Array:
    """Return a column with instants in a time zone. Arrow stores them in UTC, so no value changes."""
    array = to_column(values, column.type)
    try:
        return exact_cast(array, _in_zone(plain_type(array.type), zone_name(zone)))
    except pa.ArrowInvalid as error:
        raise WrongValueError(f"column {column.name!r} of type {column.type} has no form in Arrow: {error}") from error


def _in_zone(kind: pa.DataType, zone: str) -> pa.DataType:
    """Return an Arrow type with this time zone instead of UTC, also inside lists, maps and structs."""
    if pa.types.is_timestamp(kind):
        return kind if kind.tz is None else pa.timestamp(kind.unit, zone)
    if pa.types.is_map(kind):
        return pa.map_(_in_zone(kind.key_type, zone), _in_zone(kind.item_type, zone))
    if pa.types.is_list(kind):
        return pa.list_(_in_zone(kind.value_type, zone))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _in_zone(field.type, zone)) for field in kind])
    return kind


def _series(values: list[Any], column: PlanColumn, zone: datetime.tzinfo) -> Any:
    """Convert a column to pandas through Arrow, or to plain objects if Arrow cannot represent the values."""
    import pandas

    if _has_objects(column.type):
        return pandas.Series(list(map(to_external(column.type, zone), values)), dtype=object)
    array = _column(values, column, zone)
    if array.null_count:
        nullable = (pandas.Int8Dtype(), pandas.Int16Dtype(), pandas.Int32Dtype(), pandas.Int64Dtype())
        of_arrow = dict(zip((pa.int8(), pa.int16(), pa.int32(), pa.int64()), nullable, strict=True))
        return array.to_pandas(types_mapper=of_arrow.get, integer_object_nulls=True)
    return array.to_pandas(integer_object_nulls=True)


def _has_objects(data_type: DataType) -> bool:
    """Return whether pandas gets Python objects: rows, variants and objects of user code."""
    return isinstance(data_type, RowType | RawType | VariantType) or any(map(_has_objects, data_type.children()))
