"""Writes columns as CSV."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import UnsupportedError
from penstock.table.connectors.formats.csv_rules import CsvRules
from penstock.table.connectors.formats.decimal_text import shortest
from penstock.table.connectors.formats.format import MessageEncoder
from penstock.table.data import logical_types as types
from penstock.table.data.logical_types import DataType
from penstock.table.functions.cast_to_text import text_kernel
from penstock.table.functions.definition import Session
from penstock.table.plan.row_schema import RowSchema

#: returns the texts of a column; NULL stays NULL
Show = Callable[[pa.Array], pa.Array]

_STRING: Final = types.VarCharType(types.LENGTH_MAX)


class CsvMessageEncoder(MessageEncoder):
    """Writes each row as a line. Fields are quoted if necessary."""

    def __init__(self, schema: RowSchema, rules: CsvRules) -> None:
        self._parts = schema, rules
        self._rules = rules
        self._columns = [shown(column.type, rules, f"column '{column.name}'") for column in schema]
        self._types = schema.types
        special = "".join(character for character in (rules.delimiter, rules.quote, rules.escape, "\r\n") if character)
        self._special_bytes = [character.encode() for character in special]
        self._special = f"[{re.escape(special)}]" + ("|^#" if rules.has_comments else "")

    def encode(self, columns: pa.RecordBatch) -> list[bytes]:
        """See `MessageEncoder`."""
        return [line.encode() for line in self._lines(columns).to_pylist()]

    def lines(self, columns: pa.RecordBatch) -> bytes:
        """See `MessageEncoder`. Copies the bytes of an Arrow column, where the lines are contiguous."""
        return _join_bytes(pc.binary_join_element_wise(self._lines(columns), "", "\n"))

    def _lines(self, columns: pa.RecordBatch) -> pa.Array:
        texts = [
            self._field(show(column), kind)
            for show, column, kind in zip(self._columns, columns.columns, self._types, strict=True)
        ]
        return pc.binary_join_element_wise(*texts, self._rules.delimiter) if len(texts) > 1 else texts[0]

    def _field(self, texts: pa.Array, kind: DataType) -> pa.Array:
        rules = self._rules
        texts = texts.fill_null(rules.null or "")
        if isinstance(kind, types.NumericType | types.BooleanType | types.DateType) and rules.delimiter not in "+-.E":
            return texts
        if not self._may_need_quotes(texts):
            return texts
        needs = pc.match_substring_regex(texts, self._special)
        if len(self._types) == 1 and rules.quote is not None:
            needs = pc.or_(needs, pc.equal(texts, ""))  # an empty line would not be read as a row
        if not pc.any(needs).as_py():
            return texts
        if rules.quote is None and rules.escape is None:
            bad = texts.filter(needs)[0].as_py()
            raise UnsupportedError(
                f"the text {bad!r} cannot be written as CSV without quotes: it has the delimiter or a line feed in it"
            )
        marked = pc.replace_substring(texts, rules.escape, rules.escape * 2) if rules.escape else texts
        if rules.quote is None:
            marked = pc.replace_substring(marked, rules.delimiter, f"{rules.escape}{rules.delimiter}")
        else:
            marked = pc.replace_substring(marked, rules.quote, rules.quote * 2)
            quote = pa.scalar(rules.quote)
            marked = pc.binary_join_element_wise(quote, marked, quote, "")
        return pc.if_else(needs, marked, texts)

    def _may_need_quotes(self, texts: pa.Array) -> bool:
        """Return whether a text may need quotes; fast if none contains a special character."""
        if len(self._types) == 1 or self._rules.has_comments:
            return True
        data = _join_bytes(texts)
        return any(character in data for character in self._special_bytes)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts


def _join_bytes(texts: pa.Array) -> bytes:
    """Return the concatenated bytes of all texts. They must not be NULL."""
    if not len(texts):
        return b""
    _, ends, data = texts.buffers()
    offsets = np.frombuffer(ends, np.int32, len(texts) + 1, texts.offset * 4)
    return b"" if data is None else data.slice(int(offsets[0]), int(offsets[-1] - offsets[0])).to_pybytes()


def shown(kind: DataType, rules: CsvRules, what: str) -> Show:
    """Return the function that formats values of a type. Raises `UnsupportedError`, naming `what`, for others."""
    match kind:
        case types.CharType() | types.VarCharType():
            return lambda column: column
        case types.BinaryType() | types.VarBinaryType():
            return _base64
        case types.BooleanType():
            return lambda column: column.cast(pa.string())
        case types.MultisetType() | types.MapType():
            raise UnsupportedError(f"{what} of type {kind} cannot be written as CSV")
        case types.ArrayType(element_type=element):
            inner = shown(element, rules, what)
            return lambda column: _joined(_lists(column, inner), rules)
        case types.RowType():
            parts = [shown(field_type, rules, what) for field_type in kind.field_types()]
            return lambda column: _rows(column, parts, rules)
        case types.TimestampType() | types.LocalZonedTimestampType():
            return _moments(kind)
        case types.DecimalType() if rules.has_short_decimals:
            return _decimals
        case types.NumericType() | types.DateType() | types.TimeType():
            return _cast(kind)
        case _:
            raise UnsupportedError(f"{what} of type {kind} cannot be written as CSV")


def _cast(kind: DataType) -> Show:
    return text_kernel(kind, _STRING, Session())


def _decimals(column: pa.Array) -> pa.Array:
    return pa.array([None if value is None else str(shortest(value)) for value in column.to_pylist()], pa.string())


def _moments(kind: DataType) -> Show:
    """Format timestamps without trailing zeros; a TIMESTAMP_LTZ is in UTC and ends with Z."""
    show = _cast(kind)
    end = "Z" if isinstance(kind, types.LocalZonedTimestampType) else ""

    def texts(column: pa.Array) -> pa.Array:
        result = _repeated(show, column)
        if kind.precision:  # type: ignore[attr-defined]
            result = pc.ascii_rtrim(pc.ascii_rtrim(result, "0"), ".")
        return pc.binary_join_element_wise(result, end, "") if end else result

    return texts


def _repeated(show: Show, column: pa.Array) -> pa.Array:
    """Format a column whose values usually repeat: each distinct value is formatted once."""
    values = column.dictionary_encode()
    if len(values.dictionary) > len(column) // 2:
        return show(column)
    return show(values.dictionary).take(values.indices)


def _base64(column: pa.Array) -> pa.Array:
    texts = [None if value is None else base64.b64encode(value).decode() for value in column.to_pylist()]
    return pa.array(texts, pa.string())


def _lists(column: pa.Array, show: Show) -> list[list[str | None] | None]:
    texts = pa.ListArray.from_arrays(column.offsets, show(column.values))
    return [
        elements if valid else None
        for elements, valid in zip(texts.to_pylist(), column.is_valid().to_pylist(), strict=True)
    ]


def _joined(lists: list[list[str | None] | None], rules: CsvRules) -> pa.Array:
    null = rules.null or ""
    texts = [
        None if elements is None else rules.separator.join([null if text is None else text for text in elements])
        for elements in lists
    ]
    return pa.array(texts, pa.string())


def _rows(column: pa.Array, parts: list[Show], rules: CsvRules) -> pa.Array:
    fields = [show(column.field(index)).to_pylist() for index, show in enumerate(parts)]
    rows = zip(*fields, strict=True)
    valid = column.is_valid().to_pylist()
    return _joined([list(row) if is_valid else None for row, is_valid in zip(rows, valid, strict=True)], rules)
