"""The columns of a batch of rows, as expressions read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.table.data.flat import as_mask, drop_masked_nulls

#: A selection keeps most rows if at most one in this many is missing.
_MOST_OF: Final = 8


class Columns:
    """Arrow arrays of the same length, optionally with a selection of rows. A column is filtered only when it is read.

    `parent`: the columns that these rows were selected from. `origin`: the columns of the whole batch.
    """

    __slots__ = ("_arrays", "_known", "_mask", "_numbers", "_places", "origin", "parent", "rows")

    def __init__(self, arrays: Sequence[pa.Array] | pa.RecordBatch, rows: int, parent: Columns | None = None) -> None:
        self._arrays = arrays
        self.rows = rows
        self.parent = parent
        self.origin: Columns = self if parent is None else parent.origin
        #: the same rows as a mask over the parent, if they are most of its rows
        self._mask: pa.Array | None = None
        self._places: Any = None
        self._numbers: Any = None
        #: the columns and fields that have been read
        self._known: dict[int | tuple[int, ...], pa.Array] = {}

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> Columns:
        """Return the columns of an Arrow batch."""
        return cls(batch, batch.num_rows)

    @property
    def places(self) -> Any:
        """The indexes of the rows in the parent, as a NumPy array."""
        if self._places is None:
            self._places = np.flatnonzero(as_mask(self._mask))
        return self._places

    @property
    def numbers(self) -> Any:
        """The indexes of the rows in the origin, as a NumPy array; None for all of them."""
        if self._numbers is None and self.parent is not None:
            of_parent = self.parent.numbers
            self._numbers = self.places if of_parent is None else of_parent[self.places]
        return self._numbers

    def __getitem__(self, index: int) -> pa.Array:
        array = self._known.get(index)
        if array is None:
            array = self._arrays[index] if self.parent is None else self._chosen(index, self._arrays[index])
            self._known[index] = array
        return array

    def _chosen(self, key: int | tuple[int, ...], array: pa.Array) -> pa.Array:
        """Filter a column of the origin, starting from the parent's filtered column if there is one."""
        parent = self.parent
        known = None if parent is None else parent._known.get(key)
        return self.take_chosen(self.origin, array) if known is None else self.cut(known)

    @property
    def mask(self) -> pa.Array | None:
        """The rows as a mask over the origin, if it is available because they are most of its rows."""
        return self._mask if self.parent is self.origin else None

    def whole(self, index: int) -> pa.Array:
        """Return a column with all rows of the origin. If no selected row is NULL, other values may be arbitrary."""
        column, mask = self.origin[index], self.mask
        return column if mask is None else drop_masked_nulls(column, mask)

    def take_chosen(self, ancestor: Columns, column: pa.Array) -> pa.Array:
        """Filter a column of the parent or of the origin to the selected rows."""
        return self.cut(column) if ancestor is self.parent else column.take(pa.array(self.numbers))

    def cut(self, column: pa.Array) -> pa.Array:
        """Filter a column of the parent to the selected rows."""
        if self._mask is None:
            return column.take(pa.array(self.places))
        return drop_masked_nulls(column, self._mask).filter(self._mask)

    def field(self, path: tuple[int, ...]) -> pa.Array:
        """Return a field of a ROW column: the column's index, then field indexes. The other fields are not filtered."""
        array = self._known.get(path)
        if array is None:
            array = pc.struct_field(self._arrays[path[0]], list(path[1:]))
            if self.parent is not None:
                array = self._chosen(path, array)
            self._known[path] = array
        return array

    def arrays(self) -> list[pa.Array]:
        """Return all columns, filtered."""
        count = len(self._arrays) if not isinstance(self._arrays, pa.RecordBatch) else self._arrays.num_columns
        return [self[index] for index in range(count)]

    def where(self, mask: pa.Array) -> Columns:
        """Select the rows where a mask without NULLs is true."""
        columns = Columns(self._arrays, mask.true_count, self)
        if columns.rows * _MOST_OF >= self.rows * (_MOST_OF - 1):
            # A mask copies runs of rows as a whole.
            columns._mask = mask
        else:
            columns._places = np.flatnonzero(as_mask(mask))
        return columns

    def take(self, rows: pa.Array) -> Columns:
        """Select rows by their indexes."""
        columns = Columns(self._arrays, len(rows), self)
        columns._places = rows.to_numpy()
        return columns
