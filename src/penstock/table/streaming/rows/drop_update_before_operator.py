"""Drops the previous rows of updates (UPDATE_BEFORE), for consumers that do not need them."""

from __future__ import annotations

import numpy as np

from penstock.core.columns.batch import as_columns
from penstock.core.operators.base import StreamOperator
from penstock.core.records import Batch
from penstock.table.plan.changes import UPDATE_BEFORE


class DropUpdateBeforeOperator(StreamOperator):
    """See the module docstring."""

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Emit all other changes."""
        records = as_columns(batch, self.context.operator_name)
        if records.kinds is not None and UPDATE_BEFORE in records.kinds:
            records = records.where(np.frombuffer(records.kinds, np.uint8) != UPDATE_BEFORE)
        if len(records):
            self.output.collect(records)
