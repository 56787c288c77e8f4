"""Rows of a query that share a primary key: finds the row that a change affects, and builds the output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.core.columns.batch import ColumnBatch
from penstock.table.data.logical_types import DataType
from penstock.table.streaming.rows.held_rows import RowEquality, columns_of
from penstock.table.streaming.rows.row_tuples import kinds_of

Row = tuple[Any, ...]


class Identity:
    """Compares rows by the columns at `places`, or by all columns if it is None.

    Rows are in canonical form (`rows_of`), but state of an earlier release may have others. `types`: the types of all
    columns.
    """

    def __init__(self, places: Sequence[int] | None, types: Sequence[DataType]) -> None:
        self._places = None if places is None else tuple(places)
        self._equality = RowEquality(types if places is None else [types[place] for place in places])

    @property
    def is_known(self) -> bool:
        """Whether there are such columns. Then a row replaces the one with the same values in them."""
        return self._places is not None

    def of(self, row: Row) -> Row:
        """Return the values that identify a row."""
        return row if self._places is None else tuple([row[place] for place in self._places])

    def find(self, rows: Sequence[Row], row: Row) -> int | None:
        """Return the index of the row that a change affects: the last of equal ones, or None if not found."""
        wanted = self.of(row)
        for place in range(len(rows) - 1, -1, -1):
            if self._equality.same(self.of(rows[place]), wanted):
                return place
        return None


def sent_batch(sent: Sequence[tuple[int, Row]], types: Sequence[DataType], names: Sequence[str]) -> ColumnBatch:
    """Build a batch from kinds and rows."""
    columns = columns_of([row for _, row in sent], types)
    return ColumnBatch(pa.RecordBatch.from_arrays(columns, list(names)), None, kinds_of([kind for kind, _ in sent]))
