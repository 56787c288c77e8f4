"""Converts stream records to columns."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.base.errors import PenstockError, WrongTypeError, short_repr
from penstock.base.types import Row
from penstock.codecs.exact_cast import exact_cast
from penstock.codecs.map_columns import nullable_key_column, plain_type
from penstock.codecs.row_columns import exact_array
from penstock.core.columns.batch import ColumnBatch
from penstock.core.operators.base import UserCodeError
from penstock.core.records import Batch
from penstock.table.data import logical_types as types
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.conversion import Converter, checked, to_internal
from penstock.table.data.errors import TableRuntimeError
from penstock.table.data.logical_types import DataType
from penstock.table.data.values import to_column

#: types that Arrow checks as strictly as `to_internal`, so that a column can be built at once
_AT_ONCE: Final = (
    types.BooleanType,
    types.IntegralType,
    types.DoubleType,
    types.VarCharType,
    types.CharType,
)


@dataclass(frozen=True)
class RecordLayout:
    """The layout of a stream's records.

    Attributes:
        names: the fields that become columns, in column order.
        types: their types.
        places: their indexes in records without names.
        width: the number of fields of such a record.
        is_record: whether a record has fields; otherwise it is the value of a single column.
        rowtime: the type of an additional column with the record timestamps; None to omit it.
    """

    names: tuple[str, ...]
    types: tuple[DataType, ...]
    places: tuple[int, ...]
    width: int
    is_record: bool = True
    rowtime: DataType | None = None

    def open(self, zone: datetime.tzinfo, owner: str) -> RecordColumns:
        """Return the converter from batches to columns. `zone`: for datetimes without one; `owner`: the operator."""
        return RecordColumns(
            self, [checked(data_type, to_internal(data_type, zone)) for data_type in self.types], owner
        )


class RecordColumns:
    """Converts batches to columns, see `RecordLayout`. Raises `UserCodeError` with the record if one does not fit."""

    def __init__(self, layout: RecordLayout, converters: Sequence[Converter], owner: str) -> None:
        self._layout = layout
        self._fields = list(zip(layout.types, converters, layout.names, strict=True))
        self._owner = owner

    def __call__(self, batch: Batch) -> list[pa.Array]:
        """Return the columns of a batch."""
        columns = self._columns(batch)
        rowtime = self._layout.rowtime
        return columns if rowtime is None else [*columns, self._times(batch, rowtime)]

    def _columns(self, batch: Batch) -> list[pa.Array]:
        layout = self._layout
        data = self._chosen(batch.columns) if isinstance(batch, ColumnBatch) else None
        if data is not None:
            return [self._cast(column, *field) for column, field in zip(data, self._fields, strict=True)]
        values = batch.values
        if not layout.is_record:
            return [self._column(values, values, *self._fields[0])]
        parts = [self._parts(value) for value in values]
        lists = list(zip(*parts, strict=True))
        return [self._column(column, values, *field) for column, field in zip(lists, self._fields, strict=True)]

    def _chosen(self, columns: pa.RecordBatch) -> list[pa.Array] | None:
        """Return the needed columns of a columnar batch, by name or else by index. None if neither matches."""
        layout = self._layout
        if not layout.is_record:
            return [columns.column(0)] if columns.num_columns == 1 else None
        if set(layout.names) <= set(columns.schema.names):
            return [columns.column(columns.schema.get_field_index(name)) for name in layout.names]
        return [columns.column(index) for index in layout.places] if columns.num_columns == layout.width else None

    def _parts(self, value: Any) -> Sequence[Any]:
        """Return the fields of a record, whatever its class."""
        names, indices, width = self._layout.names, self._layout.places, self._layout.width
        if isinstance(value, Row) and value.has_field_names and set(names) <= set(value.as_dict()):
            return value.get_fields_by_names(names)
        if isinstance(value, Mapping):
            return [value.get(name) for name in names]
        if isinstance(value, tuple | list | Row):
            if len(value) == width:
                return [value[index] for index in indices]
            cause = WrongTypeError(f"the record has {len(value)} fields, and its type {width}")
        elif hasattr(value, "__dict__"):
            return [getattr(value, name, None) for name in names]
        else:
            cause = WrongTypeError(
                f"{short_repr(value)} has no fields: a record of the columns {', '.join(names)} is a Row, a tuple, a "
                "list or a dict"
            )
        raise UserCodeError(self._owner, value) from cause

    def _column(
        self, values: Sequence[Any], records: Sequence[Any], data_type: DataType, convert: Converter, name: str
    ) -> pa.Array:
        if isinstance(data_type, _AT_ONCE):
            try:
                return exact_array(values, arrow_type(data_type))
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                pass  # convert values one by one below, to find the one that does not fit
        converted = []
        for value, record in zip(values, records, strict=True):
            try:
                converted.append(convert(value))
            except PenstockError as error:
                raise UserCodeError(self._owner, record) from WrongTypeError(
                    f"column {name!r} of type {data_type} cannot hold the value: {error}"
                )
        try:
            return to_column(converted, data_type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise UserCodeError(self._owner, f"a batch of {len(converted)} records") from WrongTypeError(
                f"column {name!r} of type {data_type} cannot hold these values: {error}"
            )

    def _cast(self, column: pa.Array, data_type: DataType, convert: Converter, name: str) -> pa.Array:
        kind = arrow_type(data_type)
        if column.type == plain_type(kind):
            return nullable_key_column(column)
        if isinstance(data_type, _AT_ONCE) and not pa.types.is_temporal(column.type):
            try:
                return exact_cast(column, kind)
            except pa.ArrowException:
                pass  # convert values one by one, as in `_column`
        values = column.to_pylist()
        return self._column(values, values, data_type, convert, name)

    def _times(self, batch: Batch, data_type: DataType) -> pa.Array:
        """Return the record timestamps as a column."""
        if batch.timestamps is None:
            raise UserCodeError(self._owner, f"a batch of {len(batch)} records") from TableRuntimeError(
                "Could not find timestamp in DataStream API record. Make sure that timestamps have been assigned "
                "before, with assign_timestamps_and_watermarks."
            )
        return pa.array(np.asarray(batch.timestamps, np.int64)).view(arrow_type(data_type))
