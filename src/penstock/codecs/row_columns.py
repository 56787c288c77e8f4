"""Between rows and the columns of their fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from penstock.base.errors import FormatError
from penstock.base.types import Row, values_by_names
from penstock.codecs.column_data import ColumnData
from penstock.codecs.messages import BadMessage, Deserialized, reason_of

#: What writing a record that does not fit may raise.
BAD_VALUE: Final = (AttributeError, TypeError, ValueError, ArithmeticError, LookupError)


def columns_by_name(columns: Sequence[Sequence[Any]], schema: pa.Schema) -> ColumnData:
    """Values of each field as columns. Raises ValueError, naming the field, for values that are not of its type."""
    arrays = []
    for values, field in zip(columns, schema, strict=True):
        try:
            arrays.append(pa.array(values, field.type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise FormatError(f"field {field.name!r}: {reason_of(error)}") from error
    return ColumnData(pa.RecordBatch.from_arrays(arrays, schema=schema))


def to_columns(found: Deserialized, schema: pa.Schema) -> Deserialized:
    """The same with its rows as columns. Rows that do not fit are bad messages, too."""
    assert isinstance(found.values, list)
    rows: list[Row] = found.values
    try:
        return found._replace(values=columns_by_name(fields_of_rows(rows, schema.names), schema))
    except ValueError:
        places = range(len(rows)) if found.places is None else found.places
    kept: list[int] = []
    bad = list(found.bad)
    for index, row in enumerate(rows):
        try:
            columns_by_name(fields_of_rows([row], schema.names), schema)
            kept.append(index)
        except ValueError as error:
            bad.append(BadMessage(places[index], reason_of(error), error))
    columns = columns_by_name(fields_of_rows([rows[index] for index in kept], schema.names), schema)
    return Deserialized(columns, [places[index] for index in kept], sorted(bad))


def fields_of_rows(records: Sequence[Any] | ColumnData, names: Sequence[str]) -> list[Sequence[Any]]:
    """The values of each field: of dicts, columns and rows with these names by name, of others by position.

    Raises:
        ValueError: if a record has another number of fields.
        KeyError: if columns lack a name.
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
