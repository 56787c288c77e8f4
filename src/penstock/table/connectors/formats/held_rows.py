"""Conversion between columns and rows of internal values (see `data.values`), for formats that read messages singly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from penstock.base.errors import FormatError, PenstockError
from penstock.codecs.messages import BAD_RECORD, BadMessage, Deserialized, format_reason
from penstock.table.connectors.formats.format import decoded
from penstock.table.data.values import to_column, to_values
from penstock.table.plan.row_schema import RowSchema

_UNFIT: Final = (pa.ArrowException, PenstockError, TypeError, ValueError, OverflowError)


class HeldRows:
    """Turns rows into columns, for changelogs."""

    def __init__(self, schema: RowSchema) -> None:
        self._schema = schema

    def decode(self, rows: Sequence[Any]) -> Deserialized:
        """See `RowDecoder`."""
        return decode_rows(rows, lambda row: row, self._schema)


def decode_rows(messages: Sequence[Any], read: Callable[[Any], Sequence[Any]], schema: RowSchema) -> Deserialized:
    """Decode messages with a function that reads one row, or raises one of `BAD_RECORD` for an invalid message."""
    try:
        return decoded(columns_of_rows(list(map(read, messages)), schema), len(messages))
    except BAD_RECORD:
        pass
    rows: list[Sequence[Any]] = []
    bad: list[BadMessage] = []
    for index, message in enumerate(messages):
        try:
            row = read(message)
            columns_of_rows([row], schema)
            rows.append(row)
        except BAD_RECORD as error:
            bad.append(BadMessage(index, format_reason(error), error))
    return decoded(columns_of_rows(rows, schema), len(messages), bad)


def columns_of_rows(rows: Sequence[Sequence[Any]], schema: RowSchema) -> pa.RecordBatch:
    """Return rows as columns. Raises FormatError, with the column, for values that do not fit its type."""
    values = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = []
    for column, of_rows in zip(schema, values, strict=True):
        try:
            arrays.append(to_column(of_rows, column.type))
        except _UNFIT as error:
            reason = f"column '{column.name}' cannot be read as {column.type}: {format_reason(error)}"
            raise FormatError(reason) from error
    return pa.RecordBatch.from_arrays(arrays, schema.names)


def rows_of_columns(columns: pa.RecordBatch, schema: RowSchema) -> list[tuple[Any, ...]]:
    """Return columns as rows."""
    values = [to_values(column, kind) for column, kind in zip(columns.columns, schema.types, strict=True)]
    return list(zip(*values, strict=True))
