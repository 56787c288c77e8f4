"""Event time of rows whose source emits watermarks itself."""

from __future__ import annotations

from penstock.core.columns.batch import as_columns
from penstock.core.operators.base import StreamOperator, UserCodeError
from penstock.core.records import Batch
from penstock.table.streaming.rows.null_times import NullTimeError, NullTimes
from penstock.table.typed.nodes import FunctionCall, Typed


def is_source_watermark(expression: Typed) -> bool:
    """Return whether an expression is SOURCE_WATERMARK(), possibly in a cast."""
    while isinstance(expression, FunctionCall) and expression.function == "CAST":
        (expression,) = expression.operands
    return isinstance(expression, FunctionCall) and expression.function == "SOURCE_WATERMARK"


class SourceWatermarkOperator(StreamOperator):
    """Sets the timestamps of rows from their time attribute. Watermarks pass unchanged.

    Args:
        column: the index of the time attribute.
        null_times: handles rows with a NULL event time.
    """

    makes_watermarks = True

    def __init__(self, column: int, null_times: NullTimes) -> None:
        self._column = column
        self._null_times = null_times

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Emit the rows with their timestamps."""
        records = as_columns(batch, self.context.operator_name)
        try:
            timed = self._null_times.take_out(records, records.columns.column(self._column))
        except NullTimeError as error:
            raise UserCodeError(self.context.operator_name, error.record) from error
        self.output.collect(timed.batch)
