"""Filters rows and computes columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.codecs.column_data import ChosenColumns
from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.operators.base import UserCodeError
from penstock.core.records import Batch
from penstock.table.data.errors import TableRuntimeError
from penstock.table.evaluation.columns import Columns
from penstock.table.evaluation.condition import Condition
from penstock.table.evaluation.evaluator import Evaluator, compile_expressions
from penstock.table.streaming.rows.evaluating import EvaluatingOperator
from penstock.table.streaming.rows.sessions import StreamSession
from penstock.table.typed.nodes import Field, Typed, conjuncts

#: Columns are cut lazily if the whole batch has at most this many times the chosen rows, because it stays in memory.
_PINNED_MAX: Final = 2


class CalcOperator(EvaluatingOperator):
    """Keeps the rows that satisfy a condition, and computes a column for each expression.

    Args:
        condition: None to keep all rows.
        expressions: None to keep the columns unchanged.
        names: the names of the output columns.
    """

    def __init__(
        self, condition: Typed | None, expressions: Sequence[Typed] | None, names: Sequence[str], session: StreamSession
    ) -> None:
        self._condition = condition
        self._expressions = None if expressions is None else tuple(expressions)
        self._names = list(names)
        self._session = session

    def open(self) -> None:
        """Create the evaluators of the expressions."""
        self._watermark: int | None = None
        session = self.running(self._session, lambda: self._watermark)
        conditions = [] if self._condition is None else conjuncts(self._condition)
        parts = compile_expressions([*conditions, *(self._expressions or ())], session)
        self._where = Condition(parts[: len(conditions)]) if conditions else None
        selected = parts[len(conditions) :]
        self._select = None if self._expressions is None else Evaluator((), session, selected)
        expressions = self._expressions or ()
        read = {
            part.index
            for expression in expressions
            if not isinstance(expression, Field)
            for part in _fields(expression.walk())
        }
        #: for each expression, the column that it copies, if no computed expression reads it; None for a computed one
        self._columns = [
            expression.index if isinstance(expression, Field) and expression.index not in read else None
            for expression in expressions
        ]
        computed = [part for part, column in zip(selected, self._columns, strict=False) if column is None]
        self._has_columns = len(computed) < len(expressions)
        self._compute_others = Evaluator((), session, computed)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Filter and compute a batch."""
        records = as_columns(batch, self.context.operator_name)
        try:
            self._compute(records)
        except TableRuntimeError as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(records)} rows") from error

    def resume_event_time(self, watermark: int) -> None:
        """Do nothing: as in Flink, CURRENT_WATERMARK is NULL after a restart until the next watermark."""

    def process_watermark(self, timestamp: int) -> None:
        """Record the watermark for CURRENT_WATERMARK."""
        self._watermark = timestamp
        super().process_watermark(timestamp)

    def _compute(self, records: ColumnBatch) -> None:
        columns = Columns.of(records.columns)
        if self._where is not None:
            columns = self._where.chosen(columns)
            if not columns.rows:
                return
        computed = self._computed(records, columns)
        if columns.numbers is None:
            computed.origin = records.origin
        self.output.collect(computed)

    def _computed(self, records: ColumnBatch, columns: Columns) -> ColumnBatch:
        """Return the batch of the chosen rows. Columns that no expression reads are not cut."""
        chosen = columns.numbers
        rowtimes, kinds = records.rowtimes, records.kinds
        if chosen is not None:
            rowtimes = None if rowtimes is None else rowtimes[chosen]
            kinds = None if kinds is None else np.frombuffer(kinds, np.uint8)[chosen].tobytes()
            if len(chosen) * _PINNED_MAX >= len(records) and (self._select is None or self._has_columns):
                return ColumnBatch(self._uncut(records, columns, chosen), rowtimes, kinds)
        if self._select is None:
            return records if chosen is None else records.take(chosen)
        arrays = self._select(columns)
        if not arrays:
            # Rows without columns still exist, for consumers that count them.
            return ColumnBatch(pa.RecordBatch.from_arrays([pa.nulls(columns.rows)], ["c0"]), rowtimes, kinds)
        return ColumnBatch(pa.RecordBatch.from_arrays(arrays, self._names), rowtimes, kinds)

    def _uncut(self, records: ColumnBatch, columns: Columns, chosen: Any) -> ChosenColumns:
        """Return the chosen rows, cutting only the columns that are computed."""
        if self._select is None:
            names = records.columns.schema.names
            whole_columns = [columns.whole(column) for column in range(len(names))]
            return ChosenColumns(whole_columns, names, chosen, {}, columns.mask)
        computed = iter(self._compute_others(columns))
        known = {index: next(computed) for index, column in enumerate(self._columns) if column is None}
        # Arrow's `take` is several times faster for columns without NULLs.
        whole_columns = [None if column is None else columns.whole(column) for column in self._columns]
        return ChosenColumns(whole_columns, self._names, chosen, known, columns.mask)


def _fields(expressions: Iterable[Typed]) -> list[Field]:
    return [expression for expression in expressions if isinstance(expression, Field)]
