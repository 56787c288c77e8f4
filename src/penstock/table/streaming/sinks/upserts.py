"""Rows of a query that share a primary key: finds the row that a change affects, and builds the output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.core.columns.batch import ColumnBatch
from penstock.table.data.logical_types import DataType
from penstock.table.streaming.rows.held_rows import RowEquality, build_columns
from penstock.table.streaming.rows.row_tuples import pack_kinds

Row = tuple[Any, ...]


class Identity:
    """Compares rows by the columns at `indices`, or by all columns if it is None.

    Rows are in canonical form (`to_canonical_rows`), but state of an earlier release may have others. `types`: of
    all columns.
    """

    def __init__(self, indices: Sequence[int] | None, types: Sequence[DataType]) -> None:
        self._places = None if indices is None else tuple(indices)
        self._equality = RowEquality(types if indices is None else [types[index] for index in indices])

    @property
    def is_known(self) -> bool:
        """Whether there are such columns. Then a row replaces the one with the same values in them."""
        return self._places is not None

    def of(self, row: Row) -> Row:
        """Return the values that identify a row."""
        return row if self._places is None else tuple([row[index] for index in self._places])

    def find(self, rows: Sequence[Row], row: Row) -> int | None:
        """Return the index of the row that a change affects: the last of equal ones, or None if not found."""
        identity = self.of(row)
        for index in range(len(rows) - 1, -1, -1):
            if self._equality.same(self.of(rows[index]), identity):
                return index
        return None


def sent_batch(sent: Sequence[tuple[int, Row]], types: Sequence[DataType], names: Sequence[str]) -> ColumnBatch:
    """Build a batch from kinds and rows."""
    columns = build_columns([row for _, row in sent], types)
    return ColumnBatch(pa.RecordBatch.from_arrays(columns, list(names)), None, pack_kinds([kind for kind, _ in sent]))
