"""Repeats each row as often as its last column says, for INTERSECT ALL and EXCEPT ALL."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.operators.base import StreamOperator
from penstock.core.records import Batch


class ReplicateOperator(StreamOperator):
    """See the module docstring. `names`: the names of the output columns, without the last one."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Repeat each row."""
        records = as_columns(batch, self.context.operator_name)
        *columns, times = records.columns.columns
        counts = times.to_numpy(zero_copy_only=False)
        rows = ColumnBatch(pa.RecordBatch.from_arrays(columns, self._names), records.rowtimes, records.kinds)
        repeated = np.repeat(np.arange(len(records)), counts)
        if len(repeated):
            self.output.collect(rows.take(repeated))
