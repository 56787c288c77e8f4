"""Event time of rows: how far it has come is worked out from each row's columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.operators.base import UserCodeError
from penstock.core.records import MAX_WATERMARK, MIN_TIMESTAMP, Batch
from penstock.table.data.errors import TableRuntimeError
from penstock.table.evaluation.columns import Columns
from penstock.table.evaluation.evaluator import Evaluator
from penstock.table.streaming.rows.evaluating import EvaluatingOperator
from penstock.table.streaming.rows.sessions import StreamSession
from penstock.table.typed.nodes import Typed


class WatermarkAssignerOperator(EvaluatingOperator):
    """Sends a watermark after a batch whose rows let event time advance.

    The watermark of a row is what the expression gives, as in Flink: a row of that very time is late after it.
    Watermarks from above are dropped, but for the last one.

    Args:
        column: the place of the time attribute, whose value is the timestamp of a row.
        expression: over the columns of a row; NULL leaves event time where it is.
    """

    def __init__(self, column: int, expression: Typed, session: StreamSession) -> None:
        self._column = column
        self._expression = expression
        self._session = session
        self._watermark = MIN_TIMESTAMP

    def open(self) -> None:
        """Make what runs the expression."""
        session = self.running(self._session)
        self._evaluate = Evaluator([self._expression], session)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Pass rows on with their timestamps, then tell how far event time has come."""
        taken = as_columns(batch, self.context.operator_name)
        times = taken.columns.column(self._column)
        if times.null_count:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(taken)} rows") from TableRuntimeError(
                "RowTime field should not be null, please convert it to a non-null long value."
            )
        try:
            (marks,) = self._evaluate(Columns.of(taken.columns))
        except TableRuntimeError as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(taken)} rows") from error
        self.output.collect(ColumnBatch(taken.data, milliseconds(times), taken.kinds))
        highest = pc.max(marks)
        if highest.is_valid:
            self._advance(int(milliseconds(pa.array([highest]))[0]))

    def _advance(self, watermark: int) -> None:
        if watermark > self._watermark:
            self._watermark = watermark
            self.output.emit_watermark(watermark)

    def process_watermark(self, timestamp: int) -> None:
        """Only the end of event time comes from above."""
        if timestamp == MAX_WATERMARK:
            self._watermark = timestamp
            self.output.emit_watermark(timestamp)


def milliseconds(times: pa.Array) -> Any:
    """Points in time as a numpy array of milliseconds since 1970."""
    return times.cast(pa.timestamp("ms", times.type.tz), safe=False).view(pa.int64()).to_numpy(zero_copy_only=False)
