"""Event time of rows whose source sends its watermarks itself."""

from __future__ import annotations

from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.operators.base import StreamOperator, UserCodeError
from penstock.core.records import Batch
from penstock.table.data.errors import TableRuntimeError
from penstock.table.streaming.rows.watermark_operator import milliseconds
from penstock.table.typed.nodes import FunctionCall, Typed


def is_source_watermark(expression: Typed) -> bool:
    """Whether an expression is SOURCE_WATERMARK(), perhaps in a cast."""
    while isinstance(expression, FunctionCall) and expression.function == "CAST":
        (expression,) = expression.operands
    return isinstance(expression, FunctionCall) and expression.function == "SOURCE_WATERMARK"


class SourceWatermarkOperator(StreamOperator):
    """Gives rows the timestamps that their time attribute has. Watermarks pass as they come."""

    def __init__(self, column: int) -> None:
        self._column = column

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Pass rows on with their timestamps."""
        taken = as_columns(batch, self.context.operator_name)
        times = taken.columns.column(self._column)
        if times.null_count:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(taken)} rows") from TableRuntimeError(
                "RowTime field should not be null, please convert it to a non-null long value."
            )
        self.output.collect(ColumnBatch(taken.data, milliseconds(times), taken.kinds))
