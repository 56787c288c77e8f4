"""Writes columns as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from penstock.base.errors import FormatError, UnsupportedError
from penstock.table.connectors.formats.decimal_text import shortest
from penstock.table.connectors.formats.format import MessageEncoder
from penstock.table.connectors.formats.json_rules import NULL_KEYS, JsonRules
from penstock.table.data import logical_types as types
from penstock.table.data.logical_types import DataType
from penstock.table.data.temporal_text import format_date, format_time, format_timestamp
from penstock.table.data.values import to_values
from penstock.table.plan.row_schema import RowSchema

#: converts an internal value other than None to a value for msgspec
Show = Callable[[Any], Any]
_NANOSECOND_DIGITS: Final = 9


class JsonMessageEncoder(MessageEncoder):
    """Writes each row as an object."""

    def __init__(self, schema: RowSchema, rules: JsonRules) -> None:
        self._parts = schema, rules
        self._types = schema.types
        self._names = schema.names
        self._leaves_out_nulls = rules.leaves_out_nulls
        self._shows = [shown(column.type, rules, f"column '{column.name}'") for column in schema]
        self._encode = msgspec.json.Encoder(decimal_format="number").encode

    def encode(self, columns: pa.RecordBatch) -> list[bytes]:
        """See `MessageEncoder`."""
        shown_columns: list[list[Any]] = []
        for column, kind, show in zip(columns.columns, self._types, self._shows, strict=True):
            values = to_values(column, kind)
            shown_columns.append(
                values if show is None else [None if value is None else show(value) for value in values]
            )
        names, encode = self._names, self._encode
        rows: Any = zip(*shown_columns, strict=True)
        if self._leaves_out_nulls:
            return [
                encode({name: value for name, value in zip(names, row, strict=True) if value is not None})
                for row in rows
            ]
        return [encode(dict(zip(names, row, strict=True))) for row in rows]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts


def shown(kind: DataType, rules: JsonRules, what: str) -> Show | None:
    """Return the conversion of a type's values for msgspec; None if none is needed.

    Raises `UnsupportedError` for other types.
    """
    match kind:
        case types.BooleanType() | types.IntegralType() | types.CharType() | types.VarCharType():
            return None
        case types.BinaryType() | types.VarBinaryType():
            return None
        case types.FloatType():
            return _short_float
        case types.DoubleType():
            return _float
        case types.DecimalType():
            return _plain if rules.has_plain_decimals else shortest
        case types.DateType():
            return format_date
        case types.TimeType(precision=digits):
            return lambda value: (
                _short(format_time(value * 1_000_000, _NANOSECOND_DIGITS))
                if digits
                else format_time(value * 1_000_000, 0)
            )
        case types.TimestampType() | types.LocalZonedTimestampType():
            return _moment(rules.is_iso, "Z" if isinstance(kind, types.LocalZonedTimestampType) else "")
        case types.RowType():
            return _row(kind, rules, what)
        case types.MultisetType(element_type=element):
            return _map(element, types.IntType(), rules, what)
        case types.MapType(key_type=key, value_type=item):
            return _map(key, item, rules, what)
        case types.ArrayType(element_type=element):
            show = shown(element, rules, what)
            return (
                None
                if show is None
                else lambda value: [None if element is None else show(element) for element in value]
            )
        case _:
            raise UnsupportedError(f"{what} of type {kind} has no form in JSON")


def _float(value: float) -> Any:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _short_float(value: float) -> Any:
    """Return a 32-bit float with the fewest digits that identify it."""
    return float(str(np.float32(value))) if math.isfinite(value) else _float(value)


def _plain(value: Any) -> msgspec.Raw:
    return msgspec.Raw(f"{value:f}".encode())


def _short(text: str) -> str:
    """Strip trailing zeros from the fraction of a second."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def _moment(is_iso: bool, end: str) -> Show:
    def show(value: int) -> str:
        text = _short(format_timestamp(value, _NANOSECOND_DIGITS))
        return (text.replace(" ", "T", 1) if is_iso else text) + end

    return show


def _row(kind: types.RowType, rules: JsonRules, what: str) -> Show:
    fields = [(field.name, shown(field.data_type, rules, what)) for field in kind.fields]

    def show(value: tuple[Any, ...]) -> dict[str, Any]:
        members = {
            name: part if of is None or part is None else of(part)
            for (name, of), part in zip(fields, value, strict=True)
        }
        if rules.leaves_out_nulls:
            return {name: part for name, part in members.items() if part is not None}
        return members

    return show


def _map(key: DataType, item: DataType, rules: JsonRules, what: str) -> Show:
    if not isinstance(key, types.CharType | types.VarCharType):
        raise UnsupportedError(f"{what}: JSON only has maps and multisets with texts as keys, not {key}")
    of = shown(item, rules, what)

    def show(value: Sequence[tuple[str | None, Any]]) -> dict[Any, Any]:
        entries = {name: part if of is None or part is None else of(part) for name, part in value}
        return _without_null_key(entries, rules, what) if None in entries else entries

    return show


def _without_null_key(entries: dict[Any, Any], rules: JsonRules, what: str) -> dict[Any, Any]:
    if rules.null_keys == "FAIL":
        raise FormatError(
            f"{what}: a key of a map is NULL, and JSON has no such keys. Leave these entries out with "
            f"'{NULL_KEYS}' = 'DROP', or name them with 'LITERAL'"
        )
    if rules.null_keys == "DROP":
        return {name: part for name, part in entries.items() if name is not None}
    return {rules.null_key if name is None else name: part for name, part in entries.items()}
