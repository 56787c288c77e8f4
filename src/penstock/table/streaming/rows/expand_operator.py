"""Expands rows for grouping sets: emits each row once for each set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.operators.base import StreamOperator, UserCodeError
from penstock.core.records import Batch
from penstock.table.data.errors import TableRuntimeError
from penstock.table.evaluation.columns import Columns
from penstock.table.evaluation.evaluator import Evaluator
from penstock.table.streaming.rows.sessions import StreamSession
from penstock.table.typed.nodes import Typed


class ExpandOperator(StreamOperator):
    """Emits the rows of a batch once for each projection, one projection after another.

    Args:
        projections: the expressions of the output columns, for each projection.
        names: the names of the output columns.
    """

    def __init__(self, projections: Sequence[Sequence[Typed]], names: Sequence[str], session: StreamSession) -> None:
        self._projections = tuple(map(tuple, projections))
        self._names = list(names)
        self._session = session

    def open(self) -> None:
        """Create the evaluators of the expressions."""
        session = self._session.open(self.context.now_ms)
        self._evaluators = [Evaluator(projection, session) for projection in self._projections]

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Repeat the rows of a batch."""
        records = as_columns(batch, self.context.operator_name)
        columns = Columns.of(records.columns)
        try:
            parts = [evaluate(columns) for evaluate in self._evaluators]
        except TableRuntimeError as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(records)} rows") from error
        arrays = [pa.concat_arrays(list(column)) for column in zip(*parts, strict=True)]
        times = None if records.rowtimes is None else np.tile(records.rowtimes, len(parts))
        kinds = None if records.kinds is None else records.kinds * len(parts)
        self.output.collect(ColumnBatch(pa.RecordBatch.from_arrays(arrays, self._names), times, kinds))
