"""Rows with their key columns first, whose other columns are cut when they are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.codecs.column_data import ChosenColumns, ColumnData


@dataclass(frozen=True, slots=True)
class UncutRows:
    """See the module docstring.

    Args:
        keys: the key columns, already cut.
        data: the other columns, which begin with the rows' own.
        names: the names of the key columns and of the rows' own columns.
    """

    keys: Sequence[pa.Array]
    data: ColumnData
    names: Sequence[str]

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return len(self.data)

    def column(self, index: int) -> pa.Array:
        """Return one column."""
        keys = len(self.keys)
        return self.keys[index] if index < keys else self.data.column(index - keys)

    def taken(self, index: int, rows: Any) -> pa.Array:
        """Return one column of the rows with these numbers, a NumPy array."""
        keys = len(self.keys)
        return self.keys[index].take(pa.array(rows)) if index < keys else self.data.taken(index - keys, rows)

    def cut(self) -> pa.RecordBatch:
        """Return all columns."""
        width = len(self.names) - len(self.keys)
        return pa.RecordBatch.from_arrays([*self.keys, *self.data.cut().columns[:width]], list(self.names))

    def to_keep(self) -> pa.RecordBatch | UncutRows:
        """Return the same rows for keeping: as an Arrow batch if they are already cut."""
        return self if isinstance(self.data, ChosenColumns) and not self.data.is_cut else self.cut()


def taken(rows: pa.RecordBatch | UncutRows, index: int, numbers: Any) -> pa.Array:
    """Return one column of the rows with these numbers, a NumPy array."""
    return rows.taken(index, numbers) if isinstance(rows, UncutRows) else rows.column(index).take(pa.array(numbers))


def cut(rows: pa.RecordBatch | UncutRows) -> pa.RecordBatch:
    """Return all columns."""
    return rows.cut() if isinstance(rows, UncutRows) else rows
