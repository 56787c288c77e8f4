"""Arrow columns: their types, conversion from and to rows, lossless casts, maps with nullable keys, and legacy dates.

**Types and rows.** `arrow_type` and `arrow_schema` convert Penstock's types to Arrow's. `columns_by_name`, `to_columns`
and `fields_of_rows` convert between rows and columns.

**Nested columns.** `leaf_types` and `convert_leaves` reach the leaves of nested list, map and struct columns.

**Maps with nullable keys**, which Arrow's own maps do not allow. The key of such a map is a struct with a single
nullable field. Tables store all their maps and multisets this way; other programs exchange plain maps. `exact_cast`
converts between the two.

**Lossless casts.** Arrow's own cast does not check every value: a decimal too large for 128 bits becomes another
number, and with `safe=False` a time becomes another time. `exact_cast` instead raises an error that shows the value.
Use it wherever a column of external data (files, servers, messages, programs) becomes a column of a declared type.

**Dates.** `to_gregorian` and `to_julian` convert dates from and to Java's legacy classes, which use the Julian calendar
before 15 October 1582. Java programs that use those classes (Spark for ORC, Flink for timestamps in Parquet) store such
a date as the number of days elapsed since then. All other programs use the Gregorian calendar for every year. Both
identify a date by year, month and day, so these functions map one day number to the other with the same date.
"""

from __future__ import annotations

import datetime
import decimal
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import chain
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from penstock.base import typeinfo
from penstock.base.errors import ConfigurationError, FormatError, UnsupportedError, WrongValueError, short_repr
from penstock.base.types import Row, values_by_names
from penstock.codecs.column_data import ColumnData
from penstock.codecs.serialization import BadMessage, Deserialized, format_reason

#: fractional digits of a second in each of Arrow's units
DIGITS: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}
#: nanoseconds in each of Arrow's units
NANOSECONDS: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_BASIC = {
    typeinfo.BasicType.STRING: pa.string(),
    typeinfo.BasicType.CHAR: pa.string(),
    typeinfo.BasicType.BOOLEAN: pa.bool_(),
    typeinfo.BasicType.BYTE: pa.int8(),
    typeinfo.BasicType.SHORT: pa.int16(),
    typeinfo.BasicType.INT: pa.int32(),
    typeinfo.BasicType.LONG: pa.int64(),
    typeinfo.BasicType.FLOAT: pa.float32(),
    typeinfo.BasicType.DOUBLE: pa.float64(),
    typeinfo.BasicType.BIG_INT: pa.decimal128(38, 0),
    typeinfo.BasicType.BIG_DEC: pa.decimal128(38, 18),
}

_PYTHON: dict[Any, Any] = {
    str: pa.string(),
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    bytes: pa.binary(),
    decimal.Decimal: pa.decimal128(38, 18),
    datetime.date: pa.date32(),
    datetime.time: pa.time64("us"),
    datetime.datetime: pa.timestamp("us"),
}


def arrow_type(column_type: Any) -> Any:
    """Return Arrow's type for a Python type or a `TypeInformation`; an Arrow type is returned unchanged.

    Raises:
        ConfigurationError: if Arrow has no such type.
    """
    if isinstance(column_type, pa.DataType):
        return column_type
    if isinstance(column_type, type) and column_type in _PYTHON:
        return _PYTHON[column_type]
    if isinstance(column_type, typeinfo.BasicTypeInfo) and column_type.basic_type in _BASIC:
        return _BASIC[column_type.basic_type]
    if isinstance(column_type, typeinfo.DateTypeInfo):
        return pa.date32()
    if isinstance(column_type, typeinfo.TimeTypeInfo):
        return pa.time64("us")
    if isinstance(column_type, typeinfo.TimestampTypeInfo):
        return pa.timestamp("us")
    if column_type == typeinfo.Types.PRIMITIVE_ARRAY(typeinfo.Types.BYTE()):
        return pa.binary()
    if isinstance(
        column_type,
        typeinfo.BasicArrayTypeInfo
        | typeinfo.ListTypeInfo
        | typeinfo.ObjectArrayTypeInfo
        | typeinfo.PrimitiveArrayTypeInfo,
    ):
        return pa.list_(arrow_type(column_type.element_type))
    if isinstance(column_type, typeinfo.MapTypeInfo):
        return pa.map_(arrow_type(column_type.key_type_info), arrow_type(column_type.value_type_info))
    if isinstance(column_type, typeinfo.RowTypeInfo):
        return pa.struct(list(arrow_schema(column_type)))
    raise ConfigurationError(f"Arrow has no type for {column_type!r}")


def arrow_schema(row_type: typeinfo.RowTypeInfo) -> pa.Schema:
    """Return the Arrow schema of a row type. Raises ConfigurationError if Arrow has no type for a field."""
    fields = zip(row_type.get_field_names(), row_type.get_field_types(), strict=True)
    return pa.schema([(name, arrow_type(field_type)) for name, field_type in fields])


#: Exceptions that writing an invalid record may raise.
BAD_VALUE: Final = (AttributeError, TypeError, ValueError, ArithmeticError, LookupError)


#: type codes of Python arrays with the same memory layout as Arrow's
_ARRAY_CODES: Final = {pa.int8(): "b", pa.int16(): "h", pa.int32(): "i", pa.int64(): "q"}
#: classes whose values Arrow truncates to integers
_FRACTIONAL: Final = (float, Decimal, np.floating)


def exact_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Build a column from Python values without truncating any of them to an integer.

    `pa.array` truncates 7.9 to 7 for integers, dates and times, also inside lists, maps and structs.

    Raises:
        ValueError: if a value is not integral but the type requires it; the message shows the value.
        TypeError, pyarrow.ArrowException, OverflowError: as `pa.array` raises for other invalid values.
    """
    code = _ARRAY_CODES.get(kind)
    if code is not None:
        try:  # the fastest way, which accepts only integers, no None
            numbers = pa.py_buffer(array(code, values))
        except (TypeError, OverflowError):
            pass
        else:
            return pa.Array.from_buffers(kind, len(values), [None, numbers])
    if _has_whole_numbers(kind):
        _check_whole_numbers(values, kind)
    return pa.array(values, kind)


def _is_whole(kind: pa.DataType) -> bool:
    return bool(kinds.is_integer(kind) or (kinds.is_temporal(kind) and not kinds.is_interval(kind)))


def _has_whole_numbers(kind: pa.DataType) -> bool:
    """Return whether a type is or contains a type stored as integers."""
    return _is_whole(kind) or any(_has_whole_numbers(kind.field(index).type) for index in range(kind.num_fields))


def _check_whole_numbers(values: Sequence[Any], kind: pa.DataType) -> None:
    if _is_whole(kind):
        if not any(issubclass(value_type, _FRACTIONAL) for value_type in set(map(type, values))):
            return
        for value in values:
            if isinstance(value, _FRACTIONAL) and value % 1 != 0:
                raise WrongValueError(f"{short_repr(value)} is not a whole number")
    elif kinds.is_map(kind):
        entries = list(chain.from_iterable(_entries(mapping) for mapping in values))
        for index, part in enumerate((kind.key_type, kind.item_type)):
            if _has_whole_numbers(part):
                _check_whole_numbers([entry[index] for entry in entries], part)
    elif kinds.is_struct(kind):
        rows = [row if isinstance(row, Mapping) else dict(row or ()) for row in values]
        for field in kind:
            if _has_whole_numbers(field.type):
                _check_whole_numbers([row.get(field.name) for row in rows], field.type)
    elif kind.num_fields == 1:  # all list types
        _check_whole_numbers(
            list(chain.from_iterable(items for items in values if items is not None)), kind.field(0).type
        )


def _entries(value: Any) -> Iterable[Any]:
    return value.items() if isinstance(value, Mapping) else value or ()


def columns_by_name(columns: Sequence[Sequence[Any]], schema: pa.Schema) -> ColumnData:
    """Build columns from the values of each field. Raises ValueError, naming the field, for values of another type."""
    arrays = []
    for values, field in zip(columns, schema, strict=True):
        try:
            arrays.append(exact_array(values, field.type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise FormatError(f"field {field.name!r}: {format_reason(error)}") from error
    return ColumnData(pa.RecordBatch.from_arrays(arrays, schema=schema))


def to_columns(deserialized: Deserialized, schema: pa.Schema) -> Deserialized:
    """Convert decoded rows to columns. Rows that do not fit the schema become bad messages."""
    assert isinstance(deserialized.values, list)
    rows: list[Row] = deserialized.values
    try:
        return deserialized._replace(values=columns_by_name(fields_of_rows(rows, schema.names), schema))
    except ValueError:
        positions = range(len(rows)) if deserialized.places is None else deserialized.places
    valid: list[int] = []
    bad = list(deserialized.bad)
    for index, row in enumerate(rows):
        try:
            columns_by_name(fields_of_rows([row], schema.names), schema)
            valid.append(index)
        except ValueError as error:
            bad.append(BadMessage(positions[index], format_reason(error), error))
    columns = columns_by_name(fields_of_rows([rows[index] for index in valid], schema.names), schema)
    return Deserialized(columns, [positions[index] for index in valid], sorted(bad))


def fields_of_rows(records: Sequence[Any] | ColumnData, names: Sequence[str]) -> list[Sequence[Any]]:
    """Return the values of each field: by name from dicts, columns and named rows, by position from other records.

    Raises:
        ValueError: if a record has the wrong number of fields.
        KeyError: if the columns lack a name.
    """
    if isinstance(records, ColumnData):
        return [records.columns.column(name).to_pylist() for name in names]
    ordered = tuple(names)
    rows = [
        values_by_names(record, ordered)
        if record.__class__ is Row
        else [record.get(name) for name in names]
        if isinstance(record, dict)
        else record
        for record in records
    ]
    return list(zip(*rows, strict=True)) if rows else [()] * len(names)


def leaf_types(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Yield the leaf types of a type; yield the type itself if it is not nested."""
    if not kinds.is_nested(kind):
        yield kind
    for index in range(kind.num_fields):
        yield from leaf_types(kind.field(index).type)


def has_times(kind: pa.DataType) -> bool:
    """Return whether a type is or contains a timestamp."""
    return any(kinds.is_timestamp(leaf) for leaf in leaf_types(kind))


def has_dates(kind: pa.DataType) -> bool:
    """Return whether a type is or contains a date."""
    return any(kinds.is_date32(leaf) for leaf in leaf_types(kind))


def has_decimals(kind: pa.DataType) -> bool:
    """Return whether a type is or contains a decimal."""
    return any(kinds.is_decimal(leaf) for leaf in leaf_types(kind))


def convert_leaves(convert: Callable[..., pa.Array], *columns: pa.Array) -> pa.Array:
    """Apply `convert` to the leaf values of a column and return a column of the same shape.

    Args:
        convert: takes one leaf of each column and returns an array of the same length.
        columns: columns of the same shape. The result has the nulls and lengths of the first one.

    Raises:
        UnsupportedError: for a list type that file readers do not produce.
    """
    first = columns[0]
    kind = first.type
    if not kinds.is_nested(kind):
        return convert(*columns)
    if kinds.is_struct(kind):
        parts = [
            convert_leaves(convert, *[column.field(index) for column in columns]) for index in range(kind.num_fields)
        ]
        fields = [kind.field(index).with_type(part.type) for index, part in enumerate(parts)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=first.is_null())
    if first.offset:  # a slice shares the values of the whole column
        columns = tuple(column.take(pa.array(np.arange(len(column)))) for column in columns)
        first = columns[0]
    if kinds.is_map(kind):
        keys = convert_leaves(convert, *[column.keys for column in columns])
        items = convert_leaves(convert, *[column.items for column in columns])
        return pa.MapArray.from_arrays(get_list_offsets(first), keys, items)
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        values = convert_leaves(convert, *[column.values for column in columns])
        field = kind.value_field.with_type(values.type)
        if kinds.is_large_list(kind):
            return pa.LargeListArray.from_arrays(get_list_offsets(first), values, type=pa.large_list(field))
        return pa.ListArray.from_arrays(get_list_offsets(first), values, type=pa.list_(field))
    raise UnsupportedError(f"values inside of {kind} cannot be converted")


def get_list_offsets(column: pa.Array) -> pa.Array:
    """Return the start offset of each list, or NULL where the list is NULL."""
    missing = np.append(column.is_null().to_numpy(zero_copy_only=False), False)
    offsets = column.offsets
    return pa.array(offsets.to_numpy(), offsets.type, mask=missing) if missing.any() else offsets


#: The name of the single field of a key.
NULLABLE_KEY: Final = "nullable key"
_TYPES_MAX: Final = 4096


def map_type(key: pa.DataType, item: pa.DataType) -> pa.DataType:
    """Return the type of a map with nullable keys."""
    return pa.map_(pa.struct([pa.field(NULLABLE_KEY, key)]), item)


def get_map_key_type(kind: pa.DataType) -> pa.DataType:
    """Return the key type of a map type, with or without nullable keys."""
    return kind.key_type.field(0).type if _is_key(kind.key_type) else kind.key_type


def get_map_keys(column: pa.Array) -> pa.Array:
    """Return all keys of a map column, with or without nullable keys. Like `pa.MapArray.keys`, it ignores slices."""
    return column.keys.field(0) if _is_key(column.type.key_type) else column.keys


def map_array(
    offsets: pa.Array, keys: pa.Array, items: pa.Array, kind: pa.DataType, mask: pa.Array | None = None
) -> pa.Array:
    """Build a map column.

    Args:
        offsets: the offset at which each row's entries begin, and the end of the last row; NULL for a NULL row.
        keys: the keys of all rows.
        items: the values of the entries.
        kind: the map type, with or without nullable keys.
        mask: which rows are NULL, if `offsets` does not say so.

    Raises:
        pa.ArrowInvalid: if a key is NULL and the map type does not allow it.
    """
    if _is_key(kind.key_type):
        keys = pa.StructArray.from_arrays([keys], fields=[kind.key_type.field(0)])
    elif keys.null_count:
        raise pa.ArrowInvalid("a key of a map is NULL, which maps of Arrow cannot have")
    return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=mask)


@lru_cache(_TYPES_MAX)
def has_nullable_keys(kind: pa.DataType) -> bool:
    """Return whether a type is or contains a map with nullable keys."""
    if kinds.is_map(kind) and _is_key(kind.key_type):
        return True
    return any(has_nullable_keys(kind.field(index).type) for index in range(kind.num_fields))


@lru_cache(_TYPES_MAX)
def plain_type(kind: pa.DataType) -> pa.DataType:
    """Replace maps with nullable keys in a type by plain maps, for other programs."""
    return _with_keys(kind, pa.map_) if has_nullable_keys(kind) else kind


def plain_column(column: Any) -> Any:
    """Convert a column to plain maps. Raises `pa.ArrowInvalid` if a key is NULL."""
    return _convert_keys(column, plain_type(column.type))


def nullable_key_column(column: Any) -> Any:
    """Convert a column to maps with nullable keys, as tables store it."""
    return _convert_keys(column, _nullable_key_type(column.type))


def nullable_key_table(table: pa.Table) -> pa.Table:
    """Convert a table to maps with nullable keys."""
    return _with_columns(table, map(nullable_key_column, table.columns))


def plain_table(table: pa.Table) -> pa.Table:
    """Convert a table to plain maps. Raises `pa.ArrowInvalid` if a key is NULL."""
    return _with_columns(table, map(plain_column, table.columns))


def with_keys_like(column: Any, kind: pa.DataType) -> Any:
    """Convert a column's maps to the kind that a type uses: plain maps or maps with nullable keys.

    Raises:
        pa.ArrowInvalid: if a key is NULL and the type uses plain maps.
    """
    if has_nullable_keys(column.type) == has_nullable_keys(kind):
        return column
    make_map = map_type if has_nullable_keys(kind) else pa.map_
    return _convert_keys(column, _with_keys(column.type, make_map))


def _with_columns(table: pa.Table, columns: Iterable[Any]) -> pa.Table:
    return pa.Table.from_arrays(list(columns), table.column_names).replace_schema_metadata(table.schema.metadata)


@lru_cache(_TYPES_MAX)
def _nullable_key_type(kind: pa.DataType) -> pa.DataType:
    return _with_keys(kind, map_type)


def _is_key(kind: pa.DataType) -> bool:
    return bool(kinds.is_struct(kind) and kind.num_fields == 1 and kind.field(0).name == NULLABLE_KEY)


def _with_keys(kind: pa.DataType, make_map: Any) -> pa.DataType:
    if kinds.is_map(kind):
        return make_map(_with_keys(get_map_key_type(kind), make_map), _with_keys(kind.item_type, make_map))
    if kinds.is_struct(kind):
        return pa.struct([field.with_type(_with_keys(field.type, make_map)) for field in kind])
    if kinds.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_keys(kind.value_type, make_map)))
    if kinds.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_with_keys(kind.value_type, make_map)))
    if kinds.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_with_keys(kind.value_type, make_map)), kind.list_size)
    return kind


def _convert_keys(column: Any, kind: pa.DataType) -> Any:
    if column.type == kind:
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([_convert_keys(chunk, kind) for chunk in column.chunks], kind)
    if kinds.is_struct(kind):
        parts = [_convert_keys(column.field(index), field.type) for index, field in enumerate(kind)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())
    if column.offset or column.null_count:  # NULL rows, and rows outside a slice, may still have entries
        column = column.take(pa.array(range(len(column)), pa.int64()))
    if kinds.is_fixed_size_list(kind):
        values = _convert_keys(column.values, kind.value_type)
        return pa.FixedSizeListArray.from_arrays(values, type=kind, mask=column.is_null())
    offsets = get_list_offsets(column)
    if kinds.is_map(kind):
        keys = _convert_keys(get_map_keys(column), get_map_key_type(kind))
        return map_array(offsets, keys, _convert_keys(column.items, kind.item_type), kind)
    of_lists = pa.LargeListArray if kinds.is_large_list(kind) else pa.ListArray
    return of_lists.from_arrays(offsets, _convert_keys(column.values, kind.value_type), type=kind)


#: matches the decimal numbers that both Python and Arrow accept
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,9})?", re.ASCII)
_SHOWN_CHARS_MAX: Final = 60
#: how many of each Arrow time unit make up a second
_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def exact_cast(column: Any, kind: pa.DataType) -> Any:
    """Cast an array or chunked array; return the same object if it already has the type.

    A top-level timestamp is truncated to the type's fractional digits, toward the past. Decimals never lose digits, nor
    do timestamps nested in lists, maps and structs. Maps with nullable keys become plain maps, or vice versa, to match
    the type.

    Raises:
        pa.ArrowInvalid: for a value that does not fit the type; the message shows the value.
        pa.ArrowException: if Arrow has no cast between the types.
    """
    if column.type == kind:
        return column
    if kinds.is_nested(kind) and kinds.is_nested(column.type):
        column = with_keys_like(column, kind)
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([exact_cast(chunk, kind) for chunk in column.chunks], kind)
    if kinds.is_dictionary(column.type):
        return exact_cast(column.dictionary_decode(), kind)
    if kinds.is_decimal(kind) and _is_text(column.type):
        return _decimals_of_texts(column, kind)
    if kinds.is_timestamp(kind) and kinds.is_timestamp(column.type):
        return _timestamps(column, kind)
    if kinds.is_time(kind) or kinds.is_date(kind) or (kinds.is_duration(kind) and _is_coarser(kind, column.type)):
        return column.cast(kind, safe=False)
    check_decimals(column, kind)
    return column.cast(kind)


def exact_cast_columns(columns: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of a schema, selected by name, in its order, and each cast by `exact_cast`.

    Raises:
        pa.ArrowInvalid: as in `exact_cast`; the message names the column.
        KeyError: if a column is missing.
    """
    arrays = []
    for field in schema:
        try:
            arrays.append(exact_cast(columns.column(field.name), field.type))
        except pa.ArrowException as error:
            raise pa.ArrowInvalid(f"column {field.name!r}: {error}") from error
    return pa.RecordBatch.from_arrays(arrays, schema.names).cast(schema)


def check_decimals(column: pa.Array, kind: pa.DataType) -> None:
    """Raise `pa.ArrowInvalid` if Arrow's cast to a type would change a decimal, including inside nested values."""
    column_type = column.type
    if kinds.is_decimal(kind):
        if _is_text(column_type):
            _decimals_of_texts(column, kind)
        elif kinds.is_decimal(column_type):
            _check_range(column, kind)
    elif kinds.is_struct(kind) and kinds.is_struct(column_type):
        parts = dict(zip((field.name for field in column_type), column.flatten(), strict=True))
        for field in kind:
            if field.name in parts:
                check_decimals(parts[field.name], field.type)
    elif kinds.is_map(kind) and kinds.is_map(column_type):
        if has_decimals(kind):
            entry = pa.struct([("key", column_type.key_type), ("value", column_type.item_type)])
            keys, items = column.cast(pa.list_(entry)).flatten().flatten()
            check_decimals(keys, kind.key_type)
            check_decimals(items, kind.item_type)
    elif _is_list(kind) and _is_list(column_type) and has_decimals(kind):
        check_decimals(column.flatten(), kind.value_type)


def _check_range(column: pa.Array, kind: pa.DataType) -> None:
    integer_digits = kind.precision - kind.scale
    if column.type.precision - column.type.scale <= integer_digits:
        return
    ends = pc.min_max(column)
    limit = Decimal(1).scaleb(integer_digits)
    for end in (ends["min"].as_py(), ends["max"].as_py()):
        if end is not None and not -limit < end < limit:
            raise _misfit(str(end), kind)


def _decimals_of_texts(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert text to decimals: by Arrow's cast if all values have few enough digits to be safe, else one by one."""
    usual = rf"^[+-]?[0-9]{{1,{max(kind.precision - kind.scale, 1)}}}(\.[0-9]{{0,{max(kind.scale, 0)}}})?$"
    if kind.precision > kind.scale >= 0 and pc.all(pc.match_substring_regex(column, usual)).as_py() is not False:
        return column.cast(kind)
    return pa.array([None if text is None else _decimal(text, kind) for text in column.to_pylist()], kind)


def _decimal(text: str, kind: pa.DataType) -> Decimal:
    if not _NUMBER.fullmatch(text):
        raise _misfit(repr(text), kind)
    number = Decimal(text)
    if not number:
        return Decimal(0)
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    written = "".join(map(str, digits)).lstrip("0")
    significant = written.rstrip("0")
    exponent += len(written) - len(significant)
    if len(significant) + exponent > kind.precision - kind.scale or -exponent > kind.scale:
        raise _misfit(text, kind)
    sign = "-" if number < 0 else ""
    return Decimal(f"{sign}{significant}E{exponent}")


def _timestamps(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert between units. The time zone affects only how Arrow displays timestamps, never the numbers."""
    had, wanted = _PER_SECOND[column.type.unit], _PER_SECOND[kind.unit]
    if had == wanted:
        return column.view(kind)
    numbers = column.view(pa.int64())
    ends = pc.min_max(numbers)
    least, greatest = ends["min"].as_py(), ends["max"].as_py()
    if least is None:
        return pa.nulls(len(column), kind)
    if had < wanted:
        factor = wanted // had
        for end in (least, greatest):
            if not -(2**63) < end * factor < 2**63:
                raise _misfit(_shown_time(end, had), kind)
        return pc.multiply(numbers, factor).view(kind)
    factor = had // wanted
    if least >= 0:
        return pc.divide(numbers, factor).view(kind)
    missing = column.is_null().to_numpy(zero_copy_only=False)
    plain = (numbers.fill_null(0) if column.null_count else numbers).to_numpy()
    return pa.array(np.floor_divide(plain, factor), pa.int64(), mask=missing if column.null_count else None).view(kind)


def _is_coarser(kind: pa.DataType, column_type: pa.DataType) -> bool:
    return bool(kinds.is_duration(column_type)) and _PER_SECOND[kind.unit] < _PER_SECOND[column_type.unit]


def _shown_time(number: int, per_second: int) -> str:
    """Return a time in ISO 8601; if the year has more than four digits, as a number of seconds."""
    seconds, rest = divmod(number, per_second)
    try:
        day = str(np.datetime64(seconds, "s"))
    except (ValueError, OverflowError):
        day = f"{seconds} s since 1970"
    return day.replace("T", " ") + (f".{rest:0{len(str(per_second)) - 1}d}" if rest else "")


def _misfit(value: str, kind: pa.DataType) -> pa.ArrowInvalid:
    short = value if len(value) <= _SHOWN_CHARS_MAX else f"{value[:_SHOWN_CHARS_MAX]}…"
    return pa.ArrowInvalid(f"{short} does not fit {_named(kind)}")


def _named(kind: pa.DataType) -> str:
    if kinds.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if kinds.is_timestamp(kind) and kind.unit == "ns":
        return f"{kind}, which holds the years 1678 to 2261; declare the column with 6 digits or fewer"
    return str(kind)


def _is_text(kind: pa.DataType) -> bool:
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind))


Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

#: 15 October 1582 in days since 1970: the first day of the Gregorian calendar
FIRST_GREGORIAN_DAY: Final = -141_427
#: the Julian day number of 1 January 1970, counted from 4713 BC
_EPOCH_DAY: Final = 2_440_588


def to_gregorian(days: Numbers) -> Numbers:
    """Convert days since 1970 in Java's legacy calendar to Gregorian days with the same dates."""
    is_old = days < FIRST_GREGORIAN_DAY
    if not is_old.any():
        return days
    converted = days.copy()
    shifted = days[is_old] + (_EPOCH_DAY + 32_082)
    years = (4 * shifted + 3) // 1461
    of_year = shifted - 1461 * years // 4
    months = (5 * of_year + 2) // 153
    day_of_month = of_year - (153 * months + 2) // 5
    since_1970 = (years - 4800 + months // 10 - 1970) * 12 + (months + 2) % 12
    # A date that exists only in the Julian calendar, such as 29 February 1500, becomes the next day, as in Java.
    converted[is_old] = since_1970.view("datetime64[M]").astype("datetime64[D]").view(np.int64) + day_of_month
    return converted


def to_julian(days: Numbers) -> Numbers:
    """Convert Gregorian days since 1970 to days in Java's legacy calendar with the same dates."""
    is_old = days < FIRST_GREGORIAN_DAY
    if not is_old.any():
        return days
    converted = days.copy()
    dates = days[is_old].view("datetime64[D]")
    months = dates.astype("datetime64[M]")
    day_of_month = (dates - months.astype("datetime64[D]")).astype(np.int64)
    since_1970 = months.view(np.int64)
    months_of_year = since_1970 % 12
    late = (14 - (months_of_year + 1)) // 12
    years = since_1970 // 12 + 1970 + 4800 - late
    counted = months_of_year + 1 + 12 * late - 3
    converted[is_old] = (153 * counted + 2) // 5 + 365 * years + years // 4 - 32_083 + day_of_month + 1 - _EPOCH_DAY
    return converted


def gregorian_dates(column: pa.Array) -> pa.Array:
    """Convert a date column from Java's legacy calendar to the Gregorian one; other types stay unchanged."""
    if not pa.types.is_date32(column.type) or not len(column):
        return column
    days = column.view(pa.int32()).fill_null(0).to_numpy().astype(np.int64)
    if days.min() >= FIRST_GREGORIAN_DAY:
        return column
    missing = column.is_null().to_numpy(zero_copy_only=False)
    return pa.array(to_gregorian(days).astype(np.int32), pa.int32(), mask=missing).view(pa.date32())
