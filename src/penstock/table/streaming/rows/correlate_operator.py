"""Joins each row with the rows that a table function makes of it, or with the elements that it has (UNNEST)."""

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
    """Gives the columns of its input and those of the function. A row that results has the kind and time of its row.

    Rows that go are given to the function again: what it makes of them has to be what it made when they came. So a
    function that is not deterministic wants rows that are only inserted, as in Flink.

    Args:
        node: says what is done; its inputs are not looked at.
        names: of the columns that it gives.
    """

    def __init__(self, node: Correlate, names: Sequence[str], session: StreamSession) -> None:
        # What the node reads need not travel to workers.
        self._node = replace(node, input=Values(schema=node.input.schema, rows=()))
        self._names = list(names)
        self._session = session

    def open(self) -> None:
        """Open the function, and make what runs its operands and the condition."""
        self._watermark: int | None = None
        self._correlation = Correlation(self._node, self.running(self._session, lambda: self._watermark))

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Join a batch."""
        taken = as_columns(batch, self.context.operator_name)
        try:
            parents, made = self._correlation(Columns.of(taken.columns))
        except TableRuntimeError as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(taken)} rows") from error
        if not len(parents):
            return
        rows = taken.take(parents)
        width = len(self._node.input.schema)
        arrays = [*rows.columns.columns[:width], *made]
        self.output.collect(ColumnBatch(pa.RecordBatch.from_arrays(arrays, self._names), rows.rowtimes, rows.kinds))

    def resume_event_time(self, watermark: int) -> None:
        """As in Flink, CURRENT_WATERMARK is NULL after a restart until the next watermark."""

    def process_watermark(self, timestamp: int) -> None:
        """Note it for CURRENT_WATERMARK."""
        self._watermark = timestamp
        super().process_watermark(timestamp)
