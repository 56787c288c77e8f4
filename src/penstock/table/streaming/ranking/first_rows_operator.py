"""Emits the first rows of each partition in arrival order: LIMIT without ORDER BY, and top-N by processing time.

State: the number of rows so far for each partition, counted up to the end of the range.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.records import Batch
from penstock.table.streaming.rows.row_keys import RowKeys
from penstock.table.streaming.rows.state_times import ExpiringOperator

#: The name of the state.
COUNTS: Final = "counts"


class FirstRowsOperator(ExpiringOperator):
    """See the module docstring. The input is append-only.

    Args:
        partition: the indexes of the partition columns.
        start: the first row number to emit, from 1.
        end: the last row number to emit.
        names: the names of the output columns: the input columns, and the row number if it is output.
        shows_number: whether the row number is output.
    """

    def __init__(
        self, partition: Sequence[int], start: int, end: int, names: Sequence[str], shows_number: bool = False
    ) -> None:
        self._partition = RowKeys(partition)
        self._start = start
        self._end = end
        self._names = list(names)
        self._shows_number = shows_number

    def open(self) -> None:
        """Look up the state."""
        table = self.context.keyed.table(COUNTS)
        self._entries, self._mark = table.entries(None), table.mark
        self._expire(self._entries, table.mark)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Emit the rows within the range."""
        records = as_columns(batch, self.context.operator_name)
        keys = self._partition.of(records.columns)
        self._look(set(keys))
        entries, start, end = self._entries, self._start, self._end
        rows: list[int] = []
        numbers: list[int] = []
        changed = set()
        for row, key in enumerate(keys):
            count = entries.get(key, 0)
            if count == end:
                continue
            count = entries[key] = count + 1
            changed.add(key)
            if count >= start:
                rows.append(row)
                numbers.append(count)
        self._mark(None, changed)
        self._written(changed)
        if rows:
            self.output.collect(self._first(records, rows, numbers))

    def _first(self, records: ColumnBatch, rows: list[int], numbers: list[int]) -> ColumnBatch:
        selected = records if len(rows) == len(records) else records.take(np.array(rows))
        if not self._shows_number:
            return selected
        arrays = [*selected.columns.columns, pa.array(numbers, pa.int64())]
        return ColumnBatch(pa.RecordBatch.from_arrays(arrays, self._names), selected.rowtimes)
