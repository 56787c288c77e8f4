"""The rows of one side of a window join as columns, until their windows end.

A row consists of its window's start and end, its key columns and its own columns. Rows are stored in parts, in arrival
order. A part whose windows have all ended is returned whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from penstock.core.operators.columnar.columnar_window_base import read_times

START: Final = "start"
END: Final = "end"
#: The number of window columns in a row.
EDGES: Final = 2
_KEY: Final = "key."
#: Batches are merged into parts of this many batches, so that single rows do not become parts.
_BATCHES: Final = 64


def key_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the key columns."""
    return tuple(name for name in names if name.startswith(_KEY))


def build_row_schema(keys: Sequence[pa.DataType], rows: Sequence[pa.DataType]) -> pa.Schema:
    """Return the schema of rows. Without key columns, all rows share one key, which gives them a key group."""
    keys = list(keys) or [pa.int64()]
    edges = [(START, pa.int64()), (END, pa.int64())]
    of_key = [(f"{_KEY}{index}", kind) for index, kind in enumerate(keys)]
    return pa.schema([*edges, *of_key, *((f"c{index}", kind) for index, kind in enumerate(rows))])


class WindowRows:
    """See the module docstring. `schema`: see `build_row_schema`."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.key_names = key_names(schema.names)
        #: rows with the first and the last end of their windows
        self._parts: list[tuple[pa.RecordBatch, int, int]] = []
        #: batches not yet merged into a part
        self._new: list[pa.RecordBatch] = []
        self.next_end: int | None = None

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows."""
        if not rows.num_rows:
            return
        least = int(read_times(rows, END).min())
        self.next_end = least if self.next_end is None else min(self.next_end, least)
        self._new.append(rows)
        if len(self._new) >= _BATCHES:
            self._settle()

    def _settle(self) -> None:
        if self._new:
            self._append(_together(self._new))
            self._new = []

    def _append(self, rows: pa.RecordBatch) -> None:
        ends = read_times(rows, END)
        self._parts.append((rows, int(ends.min()), int(ends.max())))

    def take_due(self, end: int) -> pa.RecordBatch:
        """Remove and return the rows of windows that end at or before `end`."""
        if self.next_end is None or self.next_end > end:
            return pa.RecordBatch.from_pylist([], self.schema)
        self._settle()
        parts, self._parts = self._parts, []
        due = []
        for rows, first, last in parts:
            if last <= end:
                due.append(rows)
            elif first > end:
                self._parts.append((rows, first, last))
            else:
                is_due = read_times(rows, END) <= end
                due.append(rows.filter(pa.array(is_due)))
                self._append(rows.filter(pa.array(~is_due)))
        self.next_end = min((first for _, first, _ in self._parts), default=None)
        return _together(due)

    def table(self) -> pa.Table:
        """Return all rows."""
        return pa.Table.from_batches([*(rows for rows, _, _ in self._parts), *self._new], self.schema)


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.concat_batches(batches) if len(batches) > 1 else batches[0]
