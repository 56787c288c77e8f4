"""Converts rows of a table to records of a data stream."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.operators.base import StreamOperator
from penstock.core.records import Batch
from penstock.table.data.flat import milliseconds
from penstock.table.records.shapes import RecordShape
from penstock.table.streaming.rows.null_times import check_times
from penstock.table.streaming.rows.row_tuples import without_update_before
from penstock.table.streaming.rows.sessions import StreamSession


class ToRecordsOperator(StreamOperator):
    """Converts rows to records. Watermarks pass unchanged.

    Args:
        shape: the shape of a record.
        rowtime: the index of the column that becomes the timestamp of a record; None for records without timestamps.
        keeps_before: whether previous rows of updates (UPDATE_BEFORE) become records. Otherwise they are deletions:
            the query sends them only if no new row needs to follow, such as in a join with a further condition.
        session: provides the time zone of instants.
        names: the names of the columns, for errors.
    """

    def __init__(
        self,
        shape: RecordShape,
        rowtime: int | None,
        keeps_before: bool,
        session: StreamSession,
        names: Sequence[str],
    ) -> None:
        self._names = tuple(names)
        self._shape = shape
        self._rowtime = rowtime
        self._keeps_before = keeps_before
        self._session = session

    def open(self) -> None:
        """Create the converter of values."""
        self._records = self._shape.open(self._session.zone)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Convert columns to records."""
        records = as_columns(batch, self.context.operator_name)
        if not self._keeps_before:
            records = without_update_before(records)
        if len(records):
            self.output.collect(Batch(self._records(records), self._times(records)))

    def _times(self, batch: ColumnBatch) -> list[int] | None:
        if self._rowtime is None:
            return None
        times = batch.columns.column(self._rowtime)
        check_times(batch, self._rowtime, self._names, self.context.operator_name, "a stream with timestamps")
        return list(milliseconds(times).tolist())
