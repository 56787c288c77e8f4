"""How Spark stores columns between the steps of a plan: types, conversions, literals, and keys with maps.

**Types.** Spark's timestamps have microseconds. Finer ones are stored as whole numbers of nanoseconds, so no digit is
lost. A TIME is a number of milliseconds, an interval a number of months or of milliseconds, and types that are bytes in
Arrow stay bytes.

**Literals.** `literal_text` returns a constant as a literal of Spark SQL.

**Maps as keys.** Spark neither compares nor groups maps. A map therefore becomes an array of its entries sorted by key,
which is the same for equal maps (`penstock.state.equality`). Spark compares such arrays like rows: NaN equals NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import UnsupportedError
from penstock.codecs.arrow_columns import exact_cast, get_map_keys, has_nullable_keys, map_array
from penstock.sql.data import types
from penstock.sql.data.arrow import arrow_type
from penstock.sql.data.datetimes import DAY_NS
from penstock.sql.data.errors import TableRuntimeError

#: digits of the fraction of a second in Spark's timestamps
MICROSECOND_DIGITS: Final = 6
_PLAIN: Final[dict[type[types.DataType], str]] = {
    types.NullType: "BOOLEAN",
    types.BooleanType: "BOOLEAN",
    types.TinyIntType: "TINYINT",
    types.SmallIntType: "SMALLINT",
    types.IntType: "INT",
    types.BigIntType: "BIGINT",
    types.FloatType: "FLOAT",
    types.DoubleType: "DOUBLE",
    types.CharType: "STRING",
    types.VarCharType: "STRING",
    types.BinaryType: "BINARY",
    types.VarBinaryType: "BINARY",
    types.DateType: "DATE",
    types.TimeType: "INT",
    types.YearMonthIntervalType: "INT",
    types.DayTimeIntervalType: "BIGINT",
    types.RawType: "BINARY",
    types.VariantType: "BINARY",
    types.BitmapType: "BINARY",
}
_ARROW: Final[dict[str, pa.DataType]] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
}
Convert = Callable[[pa.Array], pa.Array]


def spark_type(data_type: types.DataType, variant: str = "BINARY") -> str:
    """Return the type in Spark SQL. Raises `UnsupportedError` for types that a column cannot have.

    `variant`: the type of variants, which are packed bytes here, and VARIANT in the tables of Spark programs.
    """
    if isinstance(data_type, types.VariantType):
        return variant
    plain = _PLAIN.get(type(data_type))
    if plain is not None:
        return plain
    if isinstance(data_type, types.DecimalType):
        return f"DECIMAL({data_type.precision},{data_type.scale})"
    if isinstance(data_type, types.TimestampType | types.LocalZonedTimestampType):
        if data_type.precision > MICROSECOND_DIGITS:
            return "BIGINT"
        return "TIMESTAMP_NTZ" if isinstance(data_type, types.TimestampType) else "TIMESTAMP"
    if isinstance(data_type, types.MultisetType):
        return f"MAP<{spark_type(data_type.element_type, variant)},INT>"
    if isinstance(data_type, types.ArrayType):
        return f"ARRAY<{spark_type(data_type.element_type, variant)}>"
    if isinstance(data_type, types.MapType):
        return f"MAP<{spark_type(data_type.key_type, variant)},{spark_type(data_type.value_type, variant)}>"
    if isinstance(data_type, types.RowType):
        # Fields are named by index, because Spark does not distinguish names that differ only in case.
        fields = [f"f{index}:{spark_type(kind, variant)}" for index, kind in enumerate(data_type.field_types())]
        return f"STRUCT<{','.join(fields)}>"
    raise UnsupportedError(f"a column cannot have the type {data_type} in batch")


def stored_type(data_type: types.DataType) -> pa.DataType:
    """Return the Arrow type that Spark uses to exchange a column."""
    if isinstance(data_type, types.MultisetType):
        return pa.map_(stored_type(data_type.element_type), pa.int32())
    if isinstance(data_type, types.ArrayType):
        return pa.list_(stored_type(data_type.element_type))
    if isinstance(data_type, types.MapType):
        return pa.map_(stored_type(data_type.key_type), stored_type(data_type.value_type))
    if isinstance(data_type, types.RowType):
        kinds = enumerate(map(stored_type, data_type.field_types()))
        return pa.struct([pa.field(f"f{index}", kind) for index, kind in kinds])
    if isinstance(data_type, types.DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    return _ARROW[spark_type(data_type)]


def to_stored(column: pa.Array, data_type: types.DataType) -> pa.Array:
    """Convert a column to Spark's form."""
    return _converted(column, data_type, stored_type, _to_stored)


def from_stored(column: pa.Array, data_type: types.DataType) -> pa.Array:
    """Convert a column of Spark to the form that functions use."""
    return _converted(column, data_type, arrow_type, _from_stored)


def _to_stored(column: pa.Array, data_type: types.DataType) -> pa.Array:
    target_type = stored_type(data_type)
    if isinstance(data_type, types.NullType):
        return pa.nulls(len(column), target_type)
    if isinstance(data_type, types.TimestampType | types.LocalZonedTimestampType) and pa.types.is_int64(target_type):
        return column.view(target_type)
    if isinstance(data_type, types.TimeType | types.DayTimeIntervalType):
        return column.view(target_type)
    return exact_cast(column, target_type)


def _from_stored(column: pa.Array, data_type: types.DataType) -> pa.Array:
    target_type = arrow_type(data_type)
    if isinstance(data_type, types.NullType):
        return pa.nulls(len(column), target_type)
    if pa.types.is_int64(column.type) and not pa.types.is_int64(target_type):
        return column.view(target_type)
    if isinstance(data_type, types.TimeType):
        return column.view(target_type)
    # The zone in Spark's type only affects display; the numbers are in UTC.
    return exact_cast(column, target_type)


def _converted(
    column: pa.Array,
    data_type: types.DataType,
    kind_of: Callable[[types.DataType], pa.DataType],
    convert: Callable[[pa.Array, types.DataType], pa.Array],
) -> pa.Array:
    """Convert the parts of a column, each on its own."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(data_type, types.RowType):
        kinds = data_type.field_types()
        parts = [_converted(column.field(index), kind, kind_of, convert) for index, kind in enumerate(kinds)]
        target_type = kind_of(data_type)
        if not parts:
            return pa.array([None if value is None else {} for value in column.to_pylist()], target_type)
        return pa.StructArray.from_arrays(parts, fields=list(target_type), mask=column.is_null())
    if isinstance(data_type, types.MapType | types.MultisetType):
        key, item = (
            (data_type.element_type, types.IntType())
            if isinstance(data_type, types.MultisetType)
            else (data_type.key_type, data_type.value_type)
        )
        keys = _converted(get_map_keys(column), key, kind_of, convert)
        items = _converted(column.items, item, kind_of, convert)
        target_type = kind_of(data_type)
        if keys.null_count and not has_nullable_keys(target_type):
            raise TableRuntimeError(
                "a key of a map is NULL: Spark, which runs queries in batch mode, has no maps with such keys"
            )
        return map_array(_offsets(column), keys, items, target_type)
    if isinstance(data_type, types.ArrayType):
        elements = _converted(column.values, data_type.element_type, kind_of, convert)
        return pa.ListArray.from_arrays(_offsets(column), elements, type=kind_of(data_type))
    return convert(column, data_type)


def _offsets(column: pa.Array) -> pa.Array:
    """Return the offset of each entry, NULL for a NULL entry."""
    if not column.null_count:
        return column.offsets
    valid = pa.concat_arrays([column.is_valid(), pa.array([True])])
    return pc.if_else(valid, column.offsets, None)


_WHOLE: Final = (types.IntegralType, types.TimeType, types.YearMonthIntervalType, types.DayTimeIntervalType)
#: days from 1970 to the years 1 and 10000, between which Spark reads dates unchanged
_FIRST_DAY: Final = -719162
_LAST_DAY: Final = 2932896


def literal_text(value: Any, data_type: types.DataType) -> str | None:
    """Return a constant, or None if Spark SQL cannot write it."""
    kind = spark_type(data_type)
    if value is None or isinstance(data_type, types.NullType):
        return f"CAST(NULL AS {kind})"
    if isinstance(data_type, types.BooleanType):
        return "true" if value else "false"
    if isinstance(data_type, types.CharType | types.VarCharType):
        return text_literal(value)
    if isinstance(data_type, _WHOLE):
        return _number(str(value), kind)
    if isinstance(data_type, types.DecimalType):
        return _number(format(Decimal(value), "f"), kind)
    if isinstance(data_type, types.FloatType | types.DoubleType):
        return _number(repr(value), kind) if math.isfinite(value) else f"CAST('{value}' AS {kind})"
    if isinstance(data_type, types.DateType):
        return f"DATE'{_day(value)}'" if _FIRST_DAY <= value < _LAST_DAY else None
    if isinstance(data_type, types.TimestampType | types.LocalZonedTimestampType):
        return _point(value, data_type, kind)
    return None


def text_literal(text: str) -> str:
    """Return a text literal, escaped so that no character is special."""
    escaped = "".join(_escaped(char) for char in text)
    return f"'{escaped}'"


def _escaped(char: str) -> str:
    if char in "'\\":
        return "\\" + char
    code = ord(char)
    if 32 <= code < 127:
        return char
    return f"\\u{code:04x}" if code < 2**16 else f"\\U{code:08x}"


def _number(digits: str, kind: str) -> str:
    return f"CAST('{digits}' AS {kind})"


def _point(value: int, data_type: types.TimestampType | types.LocalZonedTimestampType, kind: str) -> str | None:
    """Return a point in time. A TIMESTAMP_LTZ does not depend on the session's time zone."""
    if data_type.precision > MICROSECOND_DIGITS:
        return _number(str(value), kind)
    days, nanos = divmod(value, DAY_NS)
    if not _FIRST_DAY <= days < _LAST_DAY:
        return None
    if isinstance(data_type, types.LocalZonedTimestampType):
        return f"timestamp_micros({value // 1000}L)"
    seconds, fraction = divmod(nanos // 1000, 1_000_000)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:06d}"
    return f"TIMESTAMP_NTZ'{_day(days)} {clock}'"


def _day(days: int) -> str:
    """Return the ISO date of a day since 1970."""
    return (date(1970, 1, 1) + timedelta(days=days)).isoformat()


#: types stored as bytes that may differ for equal values
_WITHOUT_EQUALITY: Final = (types.RawType, types.BitmapType, types.NullType)


def has_maps(data_type: types.DataType) -> bool:
    """Return whether values of a type are maps or multisets, or contain any."""
    return isinstance(data_type, types.MapType | types.MultisetType) or any(map(has_maps, data_type.children()))


def group_text(text: str, data_type: types.DataType) -> str:
    """Return a column as a comparable key. Raises `UnsupportedError` for maps of values that cannot be compared."""
    if not has_maps(data_type):
        return text
    key = key_text(text, data_type)
    if key is None:
        raise UnsupportedError(
            f"a column of type {data_type} cannot be compared in batch: group, partition or match rows by a part of it "
            "that has a simpler type"
        )
    return key


def key_text(text: str, data_type: types.DataType) -> str | None:
    """Return a value as a key that Spark compares and groups by. None for types that Spark cannot compare."""
    if isinstance(data_type, _WITHOUT_EQUALITY):
        return None
    if not has_maps(data_type):
        return None if any(map(_lacks_equality, data_type.children())) else text
    if isinstance(data_type, types.MapType | types.MultisetType):
        key, item = _entry_types(data_type)
        entry = _struct((("key", "e.key", key), ("value", "e.value", item)))
        if entry is None or has_maps(key):
            return None
        entries = f"map_entries({text})"
        return f"array_sort({entries if not has_maps(item) else f'transform({entries}, e -> {entry})'})"
    if isinstance(data_type, types.ArrayType):
        element = key_text("e", data_type.element_type)
        return None if element is None else f"transform({text}, e -> {element})"
    assert isinstance(data_type, types.RowType)
    kinds = enumerate(data_type.field_types())
    row = _struct([(f"f{index}", f"{text}.f{index}", kind) for index, kind in kinds])
    return None if row is None else f"if({text} IS NULL, NULL, {row})"


def value_text(text: str, data_type: types.DataType) -> str:
    """Return the value of a key that `key_text` made."""
    if not has_maps(data_type):
        return text
    if isinstance(data_type, types.MapType | types.MultisetType):
        _, item = _entry_types(data_type)
        if not has_maps(item):
            return f"map_from_entries({text})"
        return f"map_from_entries(transform({text}, e -> named_struct('k', e.key, 'v', {value_text('e.value', item)})))"
    if isinstance(data_type, types.ArrayType):
        return f"transform({text}, e -> {value_text('e', data_type.element_type)})"
    assert isinstance(data_type, types.RowType)
    kinds = enumerate(data_type.field_types())
    fields = ", ".join(f"'f{index}', {value_text(f'{text}.f{index}', kind)}" for index, kind in kinds)
    return f"if({text} IS NULL, NULL, named_struct({fields}))"


def _lacks_equality(data_type: types.DataType) -> bool:
    return isinstance(data_type, _WITHOUT_EQUALITY) or any(map(_lacks_equality, data_type.children()))


def _struct(parts: Sequence[tuple[str, str, types.DataType]]) -> str | None:
    texts = [(name, key_text(text, data_type)) for name, text, data_type in parts]
    if any(text is None for _, text in texts):
        return None
    return f"named_struct({', '.join(f'{name!r}, {text}' for name, text in texts)})"


def _entry_types(data_type: types.MapType | types.MultisetType) -> tuple[types.DataType, types.DataType]:
    if isinstance(data_type, types.MultisetType):
        return data_type.element_type, types.IntType(False)
    return data_type.key_type, data_type.value_type
