"""Converts table columns to stream records."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from penstock.codecs.row_batches import make_rows
from penstock.core.columns.batch import ColumnBatch
from penstock.table.data import logical_types as types
from penstock.table.data.conversion import to_external
from penstock.table.data.logical_types import DataType
from penstock.table.data.values import to_values
from penstock.table.plan.changes import INSERT, UPDATE_AFTER

_ADDS: Final = (INSERT, UPDATE_AFTER)
#: types whose internal and external values are the same
_SAME: Final = (
    types.IntegralType,
    types.DoubleType,
    types.DecimalType,
    types.BooleanType,
    types.CharType,
    types.VarCharType,
    types.BinaryType,
    types.VarBinaryType,
    types.RawType,
    types.YearMonthIntervalType,
)


class Form(Enum):
    """The class of a record."""

    ROW = "ROW"
    TUPLE = "TUPLE"
    SINGLE = "SINGLE"


@dataclass(frozen=True)
class RecordShape:
    """The records to create from a table's rows.

    Attributes:
        types: the types of the table's columns.
        places: the indexes of the columns that go into a record.
        names: their field names in rows; None for rows without names.
        form: the class of a record. `SINGLE` is the value of a single column.
        has_flag: whether a record is a pair of a flag, true for an addition and false for a retraction, and the `form`.
    """

    types: tuple[DataType, ...]
    places: tuple[int, ...]
    names: tuple[str, ...] | None
    form: Form = Form.ROW
    has_flag: bool = False

    def open(self, zone: datetime.tzinfo) -> Callable[[ColumnBatch], list[Any]]:
        """Return the converter from batches to records."""
        converters = [
            None if isinstance(data_type, _SAME) else to_external(data_type, zone) for data_type in self.types
        ]

        def records(batch: ColumnBatch) -> list[Any]:
            columns: list[Sequence[Any]] = []
            for index in self.places:
                values = to_values(batch.columns.column(index), self.types[index])
                convert = converters[index]
                columns.append(values if convert is None else [convert(value) for value in values])
            formed = self._formed(columns, len(batch), None if self.has_flag else batch.kinds)
            return _flagged(formed, batch.kinds) if self.has_flag else formed

        return records

    def _formed(self, columns: list[Sequence[Any]], count: int, kinds: bytes | None) -> list[Any]:
        if self.form is Form.SINGLE:
            return list(columns[0])
        if self.form is Form.TUPLE:
            return list(zip(*columns, strict=True))
        values = map(list, zip(*columns, strict=True)) if columns else ([] for _ in range(count))
        return list(make_rows(self.names, values, kinds))


def _flagged(records: list[Any], kinds: bytes | None) -> list[Any]:
    if kinds is None:
        return [(True, record) for record in records]
    return [(kind in _ADDS, record) for kind, record in zip(kinds, records, strict=True)]
