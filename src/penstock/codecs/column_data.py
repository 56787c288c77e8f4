"""Records as Arrow columns: the values of a `ColumnBatch`, on the wire, in files and in snapshots."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from penstock.base.types import Row
from penstock.codecs.row_batches import make_rows

#: The most records that a source hands over as columns at a time.
COLUMN_BATCH_ROWS: Final = 1 << 16


class ColumnData:
    """An Arrow record batch that behaves as the list of its records, each a `Row` with the columns' names.

    A slice shares memory with its batch. A pickled batch is its IPC message, which protocol 5 keeps out of band. The
    message of a slice holds only the slice.
    """

    __slots__ = ("_rows", "columns")

    def __init__(self, columns: pa.RecordBatch) -> None:
        self.columns = columns
        self._rows: list[Row] | None = None

    def __len__(self) -> int:
        rows: int = self.columns.num_rows
        return rows

    def __getitem__(self, part: slice) -> ColumnData:
        start, stop, _ = part.indices(len(self))
        return ColumnData(self.columns.slice(start, max(0, stop - start)))

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ColumnData) and bool(self.columns.equals(other.columns))

    __hash__ = None  # type: ignore[assignment]

    def rows(self, kinds: bytes | None = None) -> list[Row]:
        """The records, made once, with these kinds; the same at each call."""
        if self._rows is None:
            names = tuple(self.columns.schema.names)
            columns = [column.to_pylist() for column in self.columns.columns]
            lists = map(list, zip(*columns, strict=True)) if columns else ([] for _ in range(len(self)))
            self._rows = make_rows(names, lists, kinds)
        return self._rows

    def __reduce__(self) -> tuple[Any, ...]:
        message = pickle.PickleBuffer(self.columns.serialize())
        return _from_message, (self.columns.schema.serialize().to_pybytes(), message)


def _from_message(schema: bytes, message: Any) -> ColumnData:
    found = pa.ipc.read_schema(pa.py_buffer(schema))
    return ColumnData(pa.ipc.read_record_batch(pa.py_buffer(message), found))
