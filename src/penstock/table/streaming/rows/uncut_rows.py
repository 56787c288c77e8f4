"""Rows with the columns of their keys ahead, whose other columns are cut when somebody reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.codecs.column_data import ChosenColumns, ColumnData


@dataclass(frozen=True, slots=True)
class UncutRows:
    """See the module's text.

    Args:
        keys: the columns of the key, which are cut.
        data: the other ones, of which the first are the rows' own.
        names: of the columns of the key, and of the rows' own.
    """

    keys: Sequence[pa.Array]
    data: ColumnData
    names: Sequence[str]

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return len(self.data)

    def column(self, place: int) -> pa.Array:
        """One column."""
        keys = len(self.keys)
        return self.keys[place] if place < keys else self.data.column(place - keys)

    def taken(self, place: int, rows: Any) -> pa.Array:
        """One column of the rows with these numbers, a numpy array."""
        keys = len(self.keys)
        return self.keys[place].take(pa.array(rows)) if place < keys else self.data.taken(place - keys, rows)

    def cut(self) -> pa.RecordBatch:
        """All columns."""
        width = len(self.names) - len(self.keys)
        return pa.RecordBatch.from_arrays([*self.keys, *self.data.cut().columns[:width]], list(self.names))

    def to_keep(self) -> pa.RecordBatch | UncutRows:
        """The same rows, to be kept: in an Arrow batch where they are cut already."""
        return self if isinstance(self.data, ChosenColumns) and not self.data.is_cut else self.cut()


def taken(rows: pa.RecordBatch | UncutRows, place: int, numbers: Any) -> pa.Array:
    """One column of the rows with these numbers, a numpy array."""
    return rows.taken(place, numbers) if isinstance(rows, UncutRows) else rows.column(place).take(pa.array(numbers))


def cut(rows: pa.RecordBatch | UncutRows) -> pa.RecordBatch:
    """All columns."""
    return rows.cut() if isinstance(rows, UncutRows) else rows
