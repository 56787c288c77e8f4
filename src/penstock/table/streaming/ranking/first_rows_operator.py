"""The first rows of each partition as they come: LIMIT without an order, and the first rows by processing time.

State: for each partition how many rows it has had, as long as that matters.
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

#: The state.
COUNTS: Final = "counts"


class FirstRowsOperator(ExpiringOperator):
    """See the module's text. Rows only come.

    Args:
        partition: the places of the columns by which rows are partitioned.
        start: the first number of the rows that are sent, from 1.
        end: the last one.
        names: of the columns of the output: those of the input, and the number if it is shown.
        shows_number: whether it is.
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
        """Send the rows that are among the first."""
        taken = as_columns(batch, self.context.operator_name)
        keys = self._partition.of(taken.columns)
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
            self.output.collect(self._first(taken, rows, numbers))

    def _first(self, taken: ColumnBatch, rows: list[int], numbers: list[int]) -> ColumnBatch:
        found = taken if len(rows) == len(taken) else taken.take(np.array(rows))
        if not self._shows_number:
            return found
        arrays = [*found.columns.columns, pa.array(numbers, pa.int64())]
        return ColumnBatch(pa.RecordBatch.from_arrays(arrays, self._names), found.rowtimes)
