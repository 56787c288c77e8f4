"""OVER windows in processing-time order: each row is emitted with its result as soon as it arrives."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.operators.base import UserCodeError
from penstock.core.records import Batch
from penstock.table.data.errors import TableRuntimeError
from penstock.table.data.logical_types import DataType
from penstock.table.plan.logical import AggregateCall
from penstock.table.streaming.over.over_calls import OverCalls
from penstock.table.streaming.over.over_frames import Frame
from penstock.table.streaming.rows.evaluating import EvaluatingOperator
from penstock.table.streaming.rows.row_keys import RowKeys
from penstock.table.streaming.rows.sessions import StreamSession
from penstock.table.streaming.rows.state_times import ExpiringOperator

#: The name of the state.
FRAMES = "over_frames"


class OverAtOnceOperator(EvaluatingOperator, ExpiringOperator):
    """Emits rows with the results of the calls over the rows so far.

    Args:
        partition: the columns that rows are partitioned by.
        order: the column that they are ordered by.
        calls: the calls, over columns of the input.
        types: the types of the input columns.
        names: the names of the output columns: the input's, then the calls'.
        distance: the number of rows before the current one in the frame; None for all.
        session: the session of user-defined functions.
    """

    def __init__(
        self,
        partition: Sequence[int],
        order: int,
        calls: Sequence[AggregateCall],
        types: Sequence[DataType],
        names: Sequence[str],
        distance: int | None,
        session: StreamSession | None = None,
    ) -> None:
        self._partition = RowKeys(partition)
        self._order = order
        self._call_list = tuple(calls)
        self._types = tuple(types)
        self._names = list(names)
        self._distance = distance
        self._session = session or StreamSession()

    def open(self) -> None:
        """Open the state."""
        functions = self.running(self._session).functions
        self._calls = OverCalls(self._call_list, self._order, self._types, self._distance is not None, functions)
        self._frame = Frame(self._calls, True, self._distance)
        table = self.context.keyed.table(FRAMES)
        self._entries, self._mark = table.entries(None), table.mark
        self._expire(self._entries, table.mark)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Aggregate the rows, and emit each with its results."""
        records = as_columns(batch, self.context.operator_name)
        keys = self._partition.of(records.columns)
        distinct = set(keys)
        self._look(distinct)
        entries, frame = self._entries, self._frame
        results = []
        try:
            for key, row in zip(keys, self._calls.rows(records, False), strict=True):
                entry = entries.get(key)
                if entry is None:
                    entry = entries[key] = frame.create()
                results += frame.results(entry, 0, (row,))
        except TableRuntimeError as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(records)} rows") from error
        self._mark(None, distinct)
        self._written(distinct)
        arrays = [*records.columns.columns, *self._calls.columns(results)]
        self.output.collect(ColumnBatch(pa.RecordBatch.from_arrays(arrays, self._names), records.rowtimes))
