"""Converts a program's rows to tables: infers column types by PyFlink's rules, and verifies values."""

from __future__ import annotations

import array
import datetime
import decimal
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, Final

import pyarrow as pa

from penstock.base.errors import WrongTypeError, WrongValueError, short_repr, shorten
from penstock.base.types import Row
from penstock.codecs.arrow_columns import exact_cast
from penstock.codecs.variant import from_stored, holds_variants, packed_type
from penstock.sql.data import types
from penstock.sql.data.arrow import arrow_type, logical_type, to_column
from penstock.sql.data.conversion import parts_of_row, to_internal
from penstock.sql.data.types import DataType, RowField, RowType
from penstock.sql.logical.nodes import ArrowRows, PlanColumn, RowSchema

#: a program's schema: a ROW, a single type for one-column rows, names, types, or None
RowsSchema = RowType | DataType | Sequence[str] | Sequence[DataType] | None

_INFERRED: Final[dict[type, DataType]] = {
    type(None): types.NullType(),
    bool: types.BooleanType(),
    int: types.BigIntType(),
    float: types.DoubleType(),
    str: types.VarCharType(types.LENGTH_MAX),
    bytes: types.VarBinaryType(types.LENGTH_MAX),
    bytearray: types.VarBinaryType(types.LENGTH_MAX),
    decimal.Decimal: types.DecimalType(38, 18),
    datetime.date: types.DateType(),
    datetime.datetime: types.LocalZonedTimestampType(6),
    datetime.time: types.TimeType(),
    datetime.timedelta: types.DayTimeIntervalType(),
}
_ACCEPTED: Final[tuple[tuple[type[DataType], tuple[type, ...]], ...]] = (
    (types.BooleanType, (bool,)),
    (types.IntegralType, (int,)),
    (types.FloatType, (float,)),
    (types.DoubleType, (float,)),
    (types.DecimalType, (decimal.Decimal,)),
    (types.CharType, (str,)),
    (types.VarCharType, (str,)),
    (types.BinaryType, (bytes, bytearray)),
    (types.VarBinaryType, (bytes, bytearray)),
    (types.DateType, (datetime.date,)),
    (types.TimeType, (datetime.time,)),
    (types.TimestampType, (datetime.datetime,)),
    (types.LocalZonedTimestampType, (datetime.datetime,)),
    (types.DayTimeIntervalType, (datetime.timedelta,)),
    (types.MultisetType, (dict, list, tuple)),
    (types.ArrayType, (list, tuple, array.array)),
    (types.MapType, (dict,)),
)
_BITS: Final[dict[type[DataType], int]] = {
    types.TinyIntType: 7,
    types.SmallIntType: 15,
    types.IntType: 31,
    types.BigIntType: 63,
}


def rows_of_elements(elements: Iterable[Any], schema: RowsSchema, verifies: bool, zone: datetime.tzinfo) -> ArrowRows:
    """Return a plan of a program's rows. See `TableEnvironment.from_elements`."""
    rows = list(elements)
    row_type = _row_type(rows, schema)
    if not isinstance(schema, RowType) and isinstance(schema, DataType):
        rows = [(row,) for row in rows]
    if verifies:
        for row in rows:
            verify(row, row_type, "")
    parts = list(map(parts_of_row(row_type), rows))
    columns = [_column([part[index] for part in parts], field, zone) for index, field in enumerate(row_type.fields)]
    return arrow_rows(columns, row_type)


def _column(values: Sequence[Any], field: RowField, zone: datetime.tzinfo) -> pa.Array:
    convert = to_internal(field.data_type, zone)
    try:
        return to_column(list(map(convert, values)), field.data_type)
    except (WrongTypeError, WrongValueError, pa.ArrowException, OverflowError) as error:
        raise WrongTypeError(
            f"column {field.name!r} of type {field.data_type} cannot hold the value: {error}"
        ) from error


def arrow_rows(columns: Sequence[pa.Array], row_type: RowType) -> ArrowRows:
    """Return a plan of these columns."""
    fields = [pa.field(field.name, arrow_type(field.data_type)) for field in row_type.fields]
    data = pa.Table.from_arrays(list(columns), schema=pa.schema(fields))
    schema = RowSchema(tuple(PlanColumn(field.name, field.data_type) for field in row_type.fields))
    return ArrowRows(schema=schema, data=data)


def rows_of_pandas(pdf: Any, schema: RowsSchema) -> ArrowRows:
    """Return a plan of the rows of a pandas data frame. See `TableEnvironment.from_pandas`."""
    table = pa.Table.from_pandas(pdf, preserve_index=False)
    return rows_of_arrow(table.rename_columns([str(name) for name in pdf.columns]), schema, "data frame")


def rows_of_arrow(table: pa.Table, schema: RowsSchema, what: str) -> ArrowRows:
    """Return a plan of the rows of an Arrow table. `what`: the kind of input, for messages."""
    names, kinds = table.column_names, [logical_type(column_type) for column_type in table.schema.types]
    if isinstance(schema, RowType):
        names, kinds = schema.field_names(), schema.field_types()
    elif isinstance(schema, list | tuple):
        if all(isinstance(name, str) for name in schema):
            names = [str(name) for name in schema]
        elif all(isinstance(data_type, DataType) for data_type in schema):
            kinds = [data_type for data_type in schema if isinstance(data_type, DataType)]
        else:
            raise WrongTypeError(f"the schema of the {what} is a ROW, a list of names or a list of types")
    elif schema is not None:
        raise WrongTypeError(f"the schema of the {what} is a ROW, a list of names or a list of types, not {schema!r}")
    if not len(names) == len(kinds) == table.num_columns:
        raise WrongValueError(
            f"the {what} has {table.num_columns} columns, and the schema {min(len(names), len(kinds))}"
        )
    columns = [_cast(table.column(index), kind, names[index], what) for index, kind in enumerate(kinds)]
    return arrow_rows(columns, RowType([RowField(*pair) for pair in zip(names, kinds, strict=True)], False))


def _cast(column: pa.ChunkedArray, data_type: DataType, name: str, source: str) -> pa.Array:
    try:
        # A table that Spark made may hold variants in Spark's form.
        packed = pa.chunked_array(
            [from_stored(chunk, column.type) for chunk in column.chunks], packed_type(column.type)
        )
        cast = exact_cast(packed if holds_variants(column.type) else column, arrow_type(data_type))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise WrongTypeError(f"column {name!r} of the {source} cannot be read as {data_type}: {error}") from error
    return cast.combine_chunks()


# --- types -----------------------------------------------------------------------------------------------------------


def _row_type(rows: Sequence[Any], schema: RowsSchema) -> RowType:
    if isinstance(schema, RowType):
        return schema
    if isinstance(schema, DataType):
        return RowType([RowField("value", schema)])
    if schema is not None and not (isinstance(schema, list | tuple) and all(isinstance(name, str) for name in schema)):
        raise WrongTypeError(f"schema should be RowType, list, tuple or None, but got: {schema!r}")
    if not rows:
        raise WrongValueError("can not infer schema from empty data set: give the types of the columns")
    names = [str(name) for name in schema or ()]
    row_types: list[DataType] = [_type_of_row(row, names) for row in rows]
    merged = reduce(_merged, row_types)
    assert isinstance(merged, RowType)
    for field in merged.fields:
        if _has_null(field.data_type):
            raise WrongValueError(
                f"the type of column {field.name!r} cannot be found out, because all its values are None: give the "
                "types of the columns"
            )
    return merged


def _type_of_row(row: Any, names: Sequence[str]) -> RowType:
    if isinstance(row, Mapping):
        pairs = sorted(row.items())
    elif isinstance(row, Row) and row.has_field_names:
        pairs = list(row.as_dict().items())
    elif isinstance(row, tuple) and hasattr(row, "_fields"):
        pairs = list(zip(row._fields, row, strict=True))
    elif isinstance(row, tuple | list | Row):
        all_names = [*names, *(f"_{index}" for index in range(len(names) + 1, len(row) + 1))]
        return RowType([RowField(name, _infer_type(value)) for name, value in zip(all_names, row, strict=False)])
    elif hasattr(row, "__dict__"):
        pairs = sorted(vars(row).items())
    else:
        raise WrongTypeError(
            f"can not infer schema for type {type(row).__name__}: rows are tuples, lists, dicts or Row"
        )
    field_names = [name for name, _ in pairs]
    field_names[: len(names)] = names
    return RowType([RowField(name, _infer_type(value)) for name, (_, value) in zip(field_names, pairs, strict=False)])


def _infer_type(value: Any) -> DataType:
    plain = _INFERRED.get(type(value))
    if plain is not None:
        return plain
    if isinstance(value, dict):
        pairs = [(map_key, other) for map_key, other in value.items() if map_key is not None and other is not None]
        key, other = pairs[0] if pairs else (None, None)
        return types.MapType(_infer_type(key), _infer_type(other))
    if isinstance(value, list | array.array):
        nothing: DataType = types.NullType()
        return types.ArrayType(reduce(_merged, map(_infer_type, value), nothing))
    for kind, data_type in _INFERRED.items():
        if isinstance(value, kind):
            return data_type
    return _type_of_row(value, ())


def _merged(data_type: DataType, other: DataType) -> DataType:
    """Return the type that holds values of both types."""
    if isinstance(data_type, types.NullType) or isinstance(other, types.NullType):
        return other if isinstance(data_type, types.NullType) else data_type
    if type(data_type) is not type(other):
        raise WrongTypeError(f"can not merge type {data_type} and {other}: give the types of the columns")
    if isinstance(data_type, RowType) and isinstance(other, RowType):
        theirs = {field.name: field.data_type for field in other.fields}
        fields = [
            RowField(field.name, _merged(field.data_type, theirs.get(field.name, types.NullType())))
            for field in data_type.fields
        ]
        mine = data_type.field_names()
        return RowType([*fields, *(field for field in other.fields if field.name not in mine)])
    if isinstance(data_type, types.ArrayType) and isinstance(other, types.ArrayType):
        return types.ArrayType(_merged(data_type.element_type, other.element_type))
    if isinstance(data_type, types.MapType) and isinstance(other, types.MapType):
        return types.MapType(
            _merged(data_type.key_type, other.key_type), _merged(data_type.value_type, other.value_type)
        )
    return data_type


def _has_null(data_type: DataType) -> bool:
    return isinstance(data_type, types.NullType) or any(map(_has_null, data_type.children()))


def verify(value: Any, data_type: DataType, name: str) -> None:
    """Raise `WrongTypeError` for a value of the wrong class, and `WrongValueError` for one that is None, out of range,
    too long or too short. `name`: the column's name, for messages.
    """
    where = f"field {name}: " if name else ""
    if value is None:
        if not data_type.is_nullable and name:
            raise WrongValueError(f"{where}This field ({data_type}) is not nullable, but got None")
        return
    accepted = next((classes for kind, classes in _ACCEPTED if isinstance(data_type, kind)), None)
    if accepted is not None and (not isinstance(value, accepted) or (isinstance(value, bool) and bool not in accepted)):
        raise WrongTypeError(f"{where}{data_type} can not accept object {short_repr(value)} in type {type(value)}")
    bits = _BITS.get(type(data_type))
    if bits is not None and not -(2**bits) <= value < 2**bits:
        raise WrongValueError(f"{where}object of {data_type} out of range, got: {value}")
    match data_type:
        case types.CharType(length=length) | types.BinaryType(length=length) if len(value) != length:
            raise WrongValueError(f"{where}length of object ({_shown(value)}) of {data_type} is not: {length}")
        case types.VarCharType(length=length) | types.VarBinaryType(length=length) if len(value) > length:
            raise WrongValueError(f"{where}length of object ({_shown(value)}) of {data_type} exceeds: {length}")
        case RowType():
            _verify_row(value, data_type, name)
        case types.ArrayType(element_type=element):
            for member in value:
                verify(member, element, f"element in array {name or 'value'}")
        case types.MapType(key_type=key, value_type=item):
            for member, other in value.items():
                verify(member, key, f"key of map {name or 'value'}")
                verify(other, item, f"value of map {name or 'value'}")


def _shown(value: str | bytes) -> str:
    return shorten(value) if isinstance(value, str) else short_repr(value)


def _verify_row(value: Any, data_type: RowType, name: str) -> None:
    names = data_type.field_names()
    if isinstance(value, Mapping):
        parts = [value.get(field_name) for field_name in names]
    elif isinstance(value, Row) and value.has_field_names and set(names) <= set(value.as_dict()):
        parts = value.get_fields_by_names(names)
    elif isinstance(value, tuple | list | Row):
        parts = list(value)
        if len(parts) != len(names):
            raise WrongValueError(
                f"Length of object ({len(parts)}) does not match with length of fields ({len(names)})"
            )
    elif hasattr(value, "__dict__"):
        parts = [vars(value).get(field_name) for field_name in names]
    else:
        raise WrongTypeError(f"{data_type} can not accept object {short_repr(value)} in type {type(value)}")
    for field, part in zip(data_type.fields, parts, strict=True):
        verify(part, field.data_type, f"{name}.{field.name}" if name else field.name)
