"""JSON messages as columns, many at once. A message gives the same rows or error alone as among others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from penstock.base.errors import FormatError
from penstock.codecs.column_data import ColumnData
from penstock.codecs.json_text import encode_json, message_parser
from penstock.codecs.messages import BadMessage, Deserialized, format_reason
from penstock.table.connectors.formats.format import MessageDecoder
from penstock.table.connectors.formats.json_columns import JsonColumns
from penstock.table.connectors.formats.json_rules import JsonRules
from penstock.table.connectors.formats.json_values import BAD, ReadValue, nullable, value_reader
from penstock.table.data import logical_types as types
from penstock.table.data.logical_types import DataType
from penstock.table.data.values import to_column
from penstock.table.plan.row_schema import RowSchema

_TEXT_CHARS_MAX: Final = 40


class JsonMessageDecoder(MessageDecoder):
    """Reads messages of one object each. An empty message gives no row.

    Args:
        schema: the columns.
        rules: the options of the format.
        takes_arrays: whether a message may be an array of objects; then each object is a row.

    Raises:
        UnsupportedError: for types that JSON lacks; it names the column.
    """

    def __init__(self, schema: RowSchema, rules: JsonRules, takes_arrays: bool = True) -> None:
        self._parts = schema, rules, takes_arrays
        self._schema = schema
        self._rules = rules
        self._takes_arrays = takes_arrays
        self._readers: list[ReadValue] = [
            nullable(value_reader(column.type, rules, f"column '{column.name}'"), rules) for column in schema
        ]
        self._columns = JsonColumns(schema, rules)
        self._parse = message_parser(keeps_digits=any(map(_wants_digits, schema.types)))

    def decode(self, messages: Sequence[bytes]) -> Deserialized:
        """See `MessageDecoder`."""
        arrays, positions, left = self._columns.parse(messages)
        if positions and not left:
            return Deserialized(ColumnData(pa.RecordBatch.from_arrays(arrays, self._schema.names)))
        bad: list[BadMessage] = []
        rows: list[tuple[Any, ...]] = []
        row_positions: list[int] = []
        for position in left:
            try:
                message_rows = self._rows(messages[position])
            except BAD as error:
                bad.append(BadMessage(position, format_reason(error), error))
            else:
                rows += message_rows
                row_positions += [position] * len(message_rows)
        all_positions: Sequence[int] = positions
        if not positions:
            arrays, all_positions = self._to_arrays(rows), row_positions
        elif rows:
            row_arrays = self._to_arrays(rows)
            order = sorted(range(len(positions) + len(row_positions)), key=[*positions, *row_positions].__getitem__)
            indices = pa.array(order, pa.int64())
            arrays = [pa.concat_arrays(pair).take(indices) for pair in zip(arrays, row_arrays, strict=True)]
            all_positions = sorted([*positions, *row_positions])
        values = ColumnData(pa.RecordBatch.from_arrays(arrays, self._schema.names))
        is_each_a_row = not bad and len(messages) == len(all_positions) == len(set(all_positions))
        return Deserialized(values, None if is_each_a_row else all_positions, bad)

    def _to_arrays(self, rows: Sequence[tuple[Any, ...]]) -> list[pa.Array]:
        columns = list(zip(*rows, strict=True)) or [()] * len(self._schema)
        return [to_column(column, kind) for column, kind in zip(columns, self._schema.types, strict=True)]

    def _rows(self, message: bytes) -> list[tuple[Any, ...]]:
        """Return the rows of one message, whose fields may have other JSON types than their columns."""
        if not message:
            return []
        value = self._parse(message)
        if self._takes_arrays and isinstance(value, list):
            return list(map(self._row, value))
        return [self._row(value)]

    def _row(self, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, dict):
            raise FormatError("it is not an object")
        values = []
        for name, read in zip(self._schema.names, self._readers, strict=True):
            if self._rules.fails_on_missing and name not in value:
                raise FormatError(f"Could not find field with name '{name}'.")
            field = value.get(name)
            try:
                values.append(read(field))
            except BAD as error:
                text = (field if isinstance(field, str) else encode_json(field).decode())[:_TEXT_CHARS_MAX]
                raise FormatError(f"column '{name}': {text!r} cannot be read: {error}") from error
        return tuple(values)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts


def _wants_digits(kind: DataType) -> bool:
    """Return whether a column needs more digits of a number than a float holds."""
    if isinstance(kind, types.DecimalType | types.BigIntType | types.CharType | types.VarCharType):
        return True
    return any(map(_wants_digits, kind.children()))
