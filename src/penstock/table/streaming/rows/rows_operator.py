"""Converts rows of columns to tuples, for consumers of single rows."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.columns.batch import as_columns
from penstock.core.operators.base import StreamOperator
from penstock.core.records import Batch
from penstock.table.data.logical_types import DataType
from penstock.table.functions.row_text import row_text
from penstock.table.plan.changes import INSERT, SHORT
from penstock.table.streaming.rows.row_tuples import to_tuples


class ToRowsOperator(StreamOperator):
    """Emits (kind, values) for each row: the byte of the kind, and a tuple of internal values, see `data.values`.

    With `as_text`, emits the text of each row instead, as Flink prints it.
    """

    def __init__(self, types: Sequence[DataType], as_text: bool = False) -> None:
        self._types = tuple(types)
        self._as_text = as_text

    def open(self) -> None:
        """Create the function that formats rows."""
        self._text = row_text(self._types)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Convert columns to rows."""
        records = as_columns(batch, self.context.operator_name)
        rows = to_tuples(records, self._types)
        kinds = [INSERT] * len(rows) if records.kinds is None else list(records.kinds)
        if self._as_text:
            text = self._text
            texts = [text(SHORT[kind], values) for kind, values in zip(kinds, rows, strict=True)]
            self.output.collect(Batch(texts, batch.timestamps))
        else:
            self.output.collect(Batch(list(zip(kinds, rows, strict=True)), batch.timestamps))
