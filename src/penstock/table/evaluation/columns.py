"""The columns of a batch of rows, as expressions read them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


class Columns:
    """Arrow arrays of the same length. Rows may be chosen; a column is only cut when somebody reads it."""

    __slots__ = ("_arrays", "_chosen", "_cut", "rows")

    def __init__(self, arrays: Sequence[pa.Array], rows: int, chosen: pa.Array | None = None) -> None:
        self._arrays = arrays
        self._chosen = chosen
        self._cut: dict[int, pa.Array] = {}
        self.rows = rows

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> Columns:
        """The columns of an Arrow batch."""
        return cls(batch.columns, batch.num_rows)

    def __getitem__(self, index: int) -> pa.Array:
        if self._chosen is None:
            return self._arrays[index]
        found = self._cut.get(index)
        if found is None:
            found = self._cut[index] = self._arrays[index].take(self._chosen)
        return found

    def take(self, rows: pa.Array) -> Columns:
        """These rows, by their numbers."""
        chosen = rows if self._chosen is None else self._chosen.take(rows)
        return Columns(self._arrays, len(rows), chosen)
