"""Columns of a sink that are NOT NULL: rows with NULL there fail the job, or are dropped."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.core.columns.batch import as_columns
from penstock.core.operators.base import StreamOperator, UserCodeError
from penstock.core.records import Batch
from penstock.table.data.errors import TableRuntimeError

ENFORCER = "table.exec.sink.not-null-enforcer"


class NotNullOperator(StreamOperator):
    """Looks at these columns, whose places and names are given. `drops`: rows with NULL are dropped."""

    def __init__(self, columns: Sequence[int], names: Sequence[str], drops: bool) -> None:
        self._columns = tuple(columns)
        self._names = tuple(names)
        self._drops = drops

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Pass on rows without NULL."""
        taken = as_columns(batch, self.context.operator_name)
        for column, name in zip(self._columns, self._names, strict=True):
            values = taken.columns.column(column)
            if not values.null_count:
                continue
            if not self._drops:
                raise UserCodeError(self.context.operator_name, None) from TableRuntimeError(
                    f"Column '{name}' is NOT NULL, however, a null value is being written into it. You can set job "
                    f"configuration '{ENFORCER}'='DROP' to suppress this exception and drop such records silently."
                )
            taken = taken.take(np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False)))
        if len(taken):
            self.output.collect(taken)
