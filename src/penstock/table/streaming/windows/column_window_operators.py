"""Window aggregates by kernels. Each row is added to one pane, which all its windows share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.core.columns.batch import as_columns
from penstock.core.operators.columnar.columnar_session import END, START, ColumnarSessionOperator
from penstock.core.operators.columnar.columnar_window import ColumnarWindowOperator
from penstock.core.operators.columnar.columnar_window_base import lowest, read_times
from penstock.core.records import Batch
from penstock.core.windowing.session_windows import EventTimeSessionWindows, time_of_sessions
from penstock.core.windowing.time_windows import (
    AlignedAssigner,
    CumulativeEventTimeWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from penstock.table.data.flat import milliseconds
from penstock.table.streaming.windows.column_windows import ColumnWindows, ColumnWindowsOperator

TUMBLE: Final = "TUMBLE"


class ColumnWindowAggregateOperator(ColumnWindowsOperator, ColumnarWindowOperator):
    """Aggregates of TUMBLE, HOP and CUMULATE windows.

    Args:
        kind: TUMBLE, HOP or CUMULATE.
        sizes: in ms: the size for TUMBLE, slide and size for HOP, step and size for CUMULATE.
        offset: the shift of the windows' starts, in ms.
    """

    def __init__(self, windows: ColumnWindows, kind: str, sizes: Sequence[int], offset: int) -> None:
        ColumnarWindowOperator.__init__(self, windows.key(), _assigner(kind, sizes, offset), [])
        self.begin(windows, kind != TUMBLE)

    def open(self) -> None:
        """Find the window that fires next, considering the ones that fired before a restore."""
        super().open()
        self._find_next()

    def next_end(self) -> int | None:
        """See `ColumnWindowsOperator`."""
        return self._next_end

    def fire_until(self, timestamp: int) -> None:
        """See `ColumnWindowsOperator`."""
        ColumnarWindowOperator.fire_until(self, timestamp)


class ColumnSessionAggregateOperator(ColumnWindowsOperator, ColumnarSessionOperator):
    """Aggregates of SESSION windows. `gap`: the gap that ends a session, in ms."""

    def __init__(self, windows: ColumnWindows, gap: int) -> None:
        ColumnarSessionOperator.__init__(self, windows.key(), EventTimeSessionWindows(gap), [])
        self.begin(windows, False)

    def next_end(self) -> int | None:
        """See `ColumnWindowsOperator`."""
        return lowest(self.parts, END)

    def process_watermark(self, timestamp: int) -> None:
        """See `ColumnWindowsOperator`."""
        is_processing = self._windows.time.is_processing
        super().process_watermark(timestamp if is_processing else time_of_sessions(timestamp))

    def fire_until(self, timestamp: int) -> None:
        """See `ColumnWindowsOperator`."""
        ColumnarSessionOperator.fire_until(self, timestamp)


class ColumnWindowsOfRowsOperator(ColumnWindowsOperator):
    """Aggregates of windows that are columns of the input, such as results of other windows.

    Args:
        start: the index of the window's start; `end`: the index of its end.
    """

    state_name = "_penstock_column_windows"

    def __init__(self, windows: ColumnWindows, start: int, end: int) -> None:
        super().__init__(windows.key(), [], None)
        self.begin(windows, False)
        self._places = (start, end)
        self._next_end: int | None = None

    def open(self) -> None:
        """Find the window that fires next."""
        super().open()
        self._next_end = lowest(self.parts, END)

    def about(self) -> str:
        """See `ColumnarWindowBase`."""
        return f"{self.aggregates.describe()} by {len(self.key_names)} columns and windows of rows"

    def merge(self, parts: list[pa.Table]) -> pa.Table:
        """Merge parts to one row for each key and window."""
        return self.aggregates.merged(parts, [START, END, *self.key_names])

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Add the rows to their groups."""
        records = as_columns(batch, self.context.operator_name)
        starts, ends = (milliseconds(records.columns.column(index)) for index in self._places)
        late = ends - 1 <= self.watermark
        if late.any():
            self.late(records.where(late))
            records, starts, ends = records.where(~late), starts[~late], ends[~late]
        if len(records):
            least = int(ends.min())
            self._next_end = least if self._next_end is None else min(self._next_end, least)
            self.take(records, {START: starts, END: ends, **self.key_columns(records)})

    def next_end(self) -> int | None:
        """See `ColumnWindowsOperator`."""
        return self._next_end

    def fire_until(self, timestamp: int) -> None:
        """See `ColumnWindowsOperator`."""
        self.watermark = timestamp
        if self._next_end is not None and self._next_end - 1 <= timestamp:
            table = self.take_due(END, timestamp + 1)
            self._next_end = lowest(self.parts, END)
            ends = read_times(table, END)
            order = np.argsort(ends, kind="stable")
            self.emit(table.take(pa.array(order)), read_times(table, START)[order], ends[order])


def _assigner(kind: str, sizes: Sequence[int], offset: int) -> AlignedAssigner:
    if kind == TUMBLE:
        (size,) = sizes
        return TumblingEventTimeWindows(size, offset % size)
    step, size = sizes
    if kind == "HOP":
        return SlidingEventTimeWindows(size, step, offset % step)
    return CumulativeEventTimeWindows(size, step, offset % size)
