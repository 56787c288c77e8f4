"""Lossless casts of Arrow columns.

Arrow's own cast does not check every value: a decimal too large for 128 bits becomes another number, and with
`safe=False` a time becomes another time. `exact_cast` instead raises an error that shows the value. Use it wherever a
column of external data (files, servers, messages, programs) becomes a column of a declared type.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from penstock.codecs.column_leaves import has_decimals
from penstock.codecs.map_columns import with_keys_like

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
