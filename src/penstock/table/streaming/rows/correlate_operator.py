"""Joins each row with the rows that a table function returns for it, or with its elements (UNNEST)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.operators.base import UserCodeError
from penstock.core.records import Batch
from penstock.table.data.errors import TableRuntimeError
from penstock.table.evaluation.columns import Columns
from penstock.table.evaluation.correlation import Correlation
from penstock.table.plan.logical import Correlate, Values
from penstock.table.streaming.rows.evaluating import EvaluatingOperator
from penstock.table.streaming.rows.sessions import StreamSession


class CorrelateOperator(EvaluatingOperator):
    """Emits the columns of its input and of the function. An output row has the kind and time of its input row.

    The function is called again for retracted rows, and must return the same rows as for the insert. So a
    non-deterministic function requires an append-only input, as in Flink.

    Args:
        node: defines the join; its inputs are ignored.
        names: the names of the output columns.
    """

    def __init__(self, node: Correlate, names: Sequence[str], session: StreamSession) -> None:
        # Workers do not need the input of the node.
        self._node = replace(node, input=Values(schema=node.input.schema, rows=()))
        self._names = list(names)
        self._session = session

    def open(self) -> None:
        """Open the function, and create the evaluators of its operands and the condition."""
        self._watermark: int | None = None
        self._correlation = Correlation(self._node, self.running(self._session, lambda: self._watermark))

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Join a batch."""
        records = as_columns(batch, self.context.operator_name)
        try:
            parents, results = self._correlation(Columns.of(records.columns))
        except TableRuntimeError as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(records)} rows") from error
        if not len(parents):
            return
        rows = records.take(parents)
        width = len(self._node.input.schema)
        arrays = [*rows.columns.columns[:width], *results]
        self.output.collect(ColumnBatch(pa.RecordBatch.from_arrays(arrays, self._names), rows.rowtimes, rows.kinds))

    def resume_event_time(self, watermark: int) -> None:
        """Do nothing: as in Flink, CURRENT_WATERMARK is NULL after a restart until the next watermark."""

    def process_watermark(self, timestamp: int) -> None:
        """Record the watermark for CURRENT_WATERMARK."""
        self._watermark = timestamp
        super().process_watermark(timestamp)
