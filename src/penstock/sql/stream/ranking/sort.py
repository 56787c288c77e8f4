"""ORDER BY a time attribute: sorts rows by time, and rows with the same time by the other columns."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Any, Final

import numpy as np

from penstock.runtime.columns.batch import as_columns
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.operators.watermarks import LATE_RECORDS
from penstock.runtime.records import MIN_TIMESTAMP, Batch
from penstock.sql.data.arrow import milliseconds
from penstock.sql.data.types import DataType
from penstock.sql.logical.nodes import SortKey
from penstock.sql.stream.rows.rows import build_batch, sort_keys, to_tuples

#: The states: the rows of each time (ms), and the last time whose rows have been sent.
ROWS: Final = "rows"
SENT: Final = "sent"
#: The key of all rows, because a single subtask sorts them.
ALL_ROWS: Final = 0


class EventTimeSortOperator(StreamOperator):
    """Emits rows when the watermark reaches them. Rows up to the last time emitted are late.

    Args:
        order: the time attribute, followed by the other sort keys.
        types: the types of the columns.
        names: the names of the columns.
    """

    is_keyed = True

    def __init__(self, order: Sequence[SortKey], types: Sequence[DataType], names: Sequence[str]) -> None:
        self._order = tuple(order)
        self._types = tuple(types)
        self._names = list(names)

    def open(self) -> None:
        """Look up the states and the pending rows."""
        self._rows = self.context.keyed.table(ROWS)
        self._sent = self.context.keyed.table(SENT)
        self._due = [time for time, rows in self._rows.panes.items() if rows]
        heapify(self._due)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Keep rows until they are due."""
        records = as_columns(batch, self.context.operator_name)
        last = self._sent.entries(None).get(ALL_ROWS, MIN_TIMESTAMP - 1)
        times = milliseconds(records.columns.column(self._order[0].index)).tolist()
        late = 0
        for time, row in zip(times, to_tuples(records, self._types), strict=True):
            if time <= last:
                late += 1
                continue
            entries = self._rows.entries(time)
            if not entries:
                entries[ALL_ROWS] = []
                heappush(self._due, time)
            entries[ALL_ROWS].append(row)
            self._rows.mark(time, (ALL_ROWS,))
        if late:
            self.context.count(LATE_RECORDS, late)

    def process_watermark(self, timestamp: int) -> None:
        """Emit the rows that the watermark has reached."""
        rows: list[tuple[Any, ...]] = []
        times: list[int] = []
        while self._due and self._due[0] <= timestamp:
            time = heappop(self._due)
            due_rows = self._rows.drop(time)[ALL_ROWS]
            rows += _in_order(due_rows, self._order, self._types)
            times += [time] * len(due_rows)
        if rows:
            self._sent.entries(None)[ALL_ROWS] = times[-1]
            self._sent.mark(None, (ALL_ROWS,))
            self.output.collect(build_batch(rows, self._types, self._names, np.array(times, np.int64)))
        self.output.emit_watermark(timestamp)


class ProcessingTimeSortOperator(StreamOperator):
    """Emits the rows of one millisecond, sorted, once it has passed, and the remaining ones at the end of the input.

    Args:
        order: the sort keys after the time attribute.
        types: the types of the columns.
        names: the names of the columns.
    """

    is_keyed = True

    def __init__(self, order: Sequence[SortKey], types: Sequence[DataType], names: Sequence[str]) -> None:
        self._order = tuple(order)
        self._types = tuple(types)
        self._names = list(names)

    def open(self) -> None:
        """Look up the state."""
        table = self.context.keyed.table(ROWS)
        self._entries, self._mark = table.entries(None), table.mark

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Keep rows until their millisecond has passed."""
        records = as_columns(batch, self.context.operator_name)
        pending = self._entries.setdefault(ALL_ROWS, [self.context.now_ms() + 1, []])
        pending[1] += to_tuples(records, self._types)
        self._mark(None, (ALL_ROWS,))

    def next_timer_ms(self) -> int | None:
        """See `StreamOperator`."""
        pending = self._entries.get(ALL_ROWS)
        return None if pending is None else int(pending[0])

    def on_processing_time(self, now_ms: int) -> None:
        """Emit the rows that are due."""
        pending = self._entries.get(ALL_ROWS)
        if pending is not None and pending[0] <= now_ms:
            self.finish()

    def finish(self) -> None:
        """Emit the remaining rows."""
        pending = self._entries.pop(ALL_ROWS, None)
        if pending is not None:
            self._mark(None, (ALL_ROWS,))
            rows = _in_order(pending[1], self._order, self._types)
            self.output.collect(build_batch(rows, self._types, self._names))


def _in_order(
    rows: list[tuple[Any, ...]], order: Sequence[SortKey], types: Sequence[DataType]
) -> list[tuple[Any, ...]]:
    keys = sort_keys(order, types, rows)
    return [rows[index] for index in sorted(range(len(rows)), key=keys.__getitem__)]
