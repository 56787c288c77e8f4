"""Delta Lake's column types, a subset of Arrow's."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.base.typeinfo import RowTypeInfo
from penstock.codecs.arrow_types import arrow_schema, arrow_type
from penstock.codecs.map_columns import get_map_key_type


def columns_of_type(row_type: Any, owner: str) -> pa.Schema:
    """Return the columns of a row type, of a dict from name to type, or of an Arrow schema.

    Raises:
        ConfigurationError: for anything else; the message names `owner`.
    """
    if isinstance(row_type, RowTypeInfo):
        return arrow_schema(row_type)
    if isinstance(row_type, dict):
        return pa.schema([(name, arrow_type(kind)) for name, kind in row_type.items()])
    if isinstance(row_type, pa.Schema) and len(row_type):
        return row_type
    raise ConfigurationError(f"{owner} needs a row type, a dict of types or an Arrow schema, not {row_type!r}")


def stored_schema(columns: pa.Schema) -> pa.Schema:
    """Convert columns to the table's storage types; all are nullable.

    Raises:
        UnsupportedError: for a column type that Delta Lake does not have; the message names the column.
    """
    return pa.schema([pa.field(field.name, stored_type(field.type, field.name)) for field in columns])


def stored_type(kind: pa.DataType, column: str) -> pa.DataType:
    """Return the table's storage type for a type. Raises as `stored_schema` does."""
    types = pa.types
    if types.is_timestamp(kind):
        if kind.unit == "ns":
            raise _unsupported(column, kind, "points in time have microseconds: use 6 digits, TIMESTAMP(6)")
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if types.is_large_string(kind) or kind == pa.string_view():
        return pa.string()
    if types.is_large_binary(kind) or types.is_fixed_size_binary(kind) or kind == pa.binary_view():
        return pa.binary()
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, stored_type(field.type, f"{column}.{field.name}")) for field in kind])
    if types.is_map(kind):
        return pa.map_(stored_type(get_map_key_type(kind), column), stored_type(kind.item_type, column))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(stored_type(kind.value_type, column))
    if types.is_dictionary(kind):
        return stored_type(kind.value_type, column)
    is_plain = types.is_boolean(kind) or types.is_signed_integer(kind) or types.is_date32(kind)
    if is_plain or kind in (pa.string(), pa.binary(), pa.float32(), pa.float64()):
        return kind
    if types.is_decimal128(kind):
        return kind
    raise _unsupported(column, kind, "store it as a number or as text")


def _unsupported(column: str, kind: pa.DataType, advice: str) -> UnsupportedError:
    return UnsupportedError(f"column {column!r} has the type {kind}, which Delta Lake does not have: {advice}")


def is_same(kind: pa.DataType, other: pa.DataType) -> bool:
    """Return whether two table types are equal, ignoring Arrow's list item names and nullability."""
    return bool(stored_type(kind, "") == stored_type(other, ""))
