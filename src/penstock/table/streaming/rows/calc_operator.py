"""Filters and computes columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.operators.base import UserCodeError
from penstock.core.records import Batch
from penstock.table.data.errors import TableRuntimeError
from penstock.table.evaluation.columns import Columns
from penstock.table.evaluation.condition import Condition
from penstock.table.evaluation.evaluator import Evaluator, parts_of
from penstock.table.streaming.rows.evaluating import EvaluatingOperator
from penstock.table.streaming.rows.sessions import StreamSession
from penstock.table.typed.nodes import Typed, conjuncts


class CalcOperator(EvaluatingOperator):
    """Keeps the rows for which a condition is true, and gives a column for each expression.

    Args:
        condition: None to keep all rows.
        expressions: None for the columns as they are.
        names: of the columns that it gives.
    """

    def __init__(
        self, condition: Typed | None, expressions: Sequence[Typed] | None, names: Sequence[str], session: StreamSession
    ) -> None:
        self._condition = condition
        self._expressions = None if expressions is None else tuple(expressions)
        self._names = list(names)
        self._session = session

    def open(self) -> None:
        """Make what runs the expressions."""
        self._watermark: int | None = None
        session = self.running(self._session, lambda: self._watermark)
        conditions = [] if self._condition is None else conjuncts(self._condition)
        parts = parts_of([*conditions, *(self._expressions or ())], session)
        self._where = Condition(parts[: len(conditions)]) if conditions else None
        self._select = None if self._expressions is None else Evaluator((), session, parts[len(conditions) :])

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Compute a batch."""
        taken = as_columns(batch, self.context.operator_name)
        try:
            self._compute(taken)
        except TableRuntimeError as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(taken)} rows") from error

    def process_watermark(self, timestamp: int) -> None:
        """Note it for CURRENT_WATERMARK."""
        self._watermark = timestamp
        super().process_watermark(timestamp)

    def _compute(self, taken: ColumnBatch) -> None:
        columns = Columns.of(taken.columns)
        if self._where is not None:
            columns = self._where.chosen(columns)
            if not columns.rows:
                return
        self.output.collect(self._computed(taken, columns))

    def _computed(self, taken: ColumnBatch, columns: Columns) -> ColumnBatch:
        """The batch of the chosen rows; what no expression reads is not cut."""
        chosen = columns.numbers
        if self._select is None:
            return taken if chosen is None else taken.take(chosen)
        rowtimes, kinds = taken.rowtimes, taken.kinds
        if chosen is not None:
            rowtimes = None if rowtimes is None else rowtimes[chosen]
            kinds = None if kinds is None else np.frombuffer(kinds, np.uint8)[chosen].tobytes()
        arrays = self._select(columns)
        if not arrays:
            # Rows without columns are there all the same, for those who count them.
            return ColumnBatch(pa.RecordBatch.from_arrays([pa.nulls(columns.rows)], ["c0"]), rowtimes, kinds)
        return ColumnBatch(pa.RecordBatch.from_arrays(arrays, self._names), rowtimes, kinds)
