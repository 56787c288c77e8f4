"""The columns of a batch of rows, as expressions read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

#: Rows are most of all where fewer than one in so many is missing.
_MOST_OF: Final = 8


class Columns:
    """Arrow arrays of the same length. Rows may be chosen; a column is only cut when somebody reads it."""

    __slots__ = ("_arrays", "_cut", "_mask", "chosen", "origin", "rows")

    def __init__(
        self, arrays: Sequence[pa.Array], rows: int, chosen: pa.Array | None = None, origin: Columns | None = None
    ) -> None:
        self._arrays = arrays
        #: the numbers that the rows have in `origin`; None for all of them
        self.chosen = chosen
        #: the columns of all rows of the batch
        self.origin = self if origin is None else origin
        #: the same rows as a mask over `origin`, where they are most of its rows
        self._mask: pa.Array | None = None
        self._cut: dict[int | tuple[int, ...], pa.Array] = {}
        self.rows = rows

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> Columns:
        """The columns of an Arrow batch."""
        return cls(batch.columns, batch.num_rows)

    def __getitem__(self, index: int) -> pa.Array:
        if self.chosen is None:
            return self._arrays[index]
        found = self._cut.get(index)
        if found is None:
            found = self._cut[index] = self.cut(self._arrays[index])
        return found

    def cut(self, column: pa.Array) -> pa.Array:
        """The chosen rows of a column of all rows."""
        return column.take(self.chosen) if self._mask is None else column.filter(self._mask)

    def field(self, path: tuple[int, ...]) -> pa.Array:
        """A field of a column of rows: the column's number, then which field of each row. The others are not cut."""
        found = self._cut.get(path)
        if found is None:
            found = pc.struct_field(self._arrays[path[0]], list(path[1:]))
            if self.chosen is not None:
                found = self.cut(found)
            self._cut[path] = found
        return found

    def arrays(self) -> list[pa.Array]:
        """All of them, cut."""
        return [self[index] for index in range(len(self._arrays))]

    def where(self, mask: pa.Array, rows: Any) -> Columns:
        """The rows for which a mask without NULL is true; `rows` has their numbers, as a numpy array."""
        found = self.take(pa.array(rows))
        if self.chosen is None and len(rows) * _MOST_OF >= self.rows * (_MOST_OF - 1):
            # Runs of rows are copied as a whole.
            found._mask = mask
        return found

    def take(self, rows: pa.Array) -> Columns:
        """These rows, by their numbers."""
        chosen = rows if self.chosen is None else self.chosen.take(rows)
        return Columns(self._arrays, len(rows), chosen, self.origin)
