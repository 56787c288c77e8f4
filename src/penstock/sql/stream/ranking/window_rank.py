"""Emits the first rows of each window and partition in some order when the watermark passes the window's end.

State: (start, end) -> partition -> the group that `TopN` maintains. The input is append-only; rows of windows that have
ended are late.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Any, Final

from penstock.runtime.columns.batch import as_columns
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.operators.watermarks import LATE_RECORDS
from penstock.runtime.records import MIN_TIMESTAMP, Batch
from penstock.sql.data.arrow import milliseconds
from penstock.sql.data.types import BigIntType, DataType
from penstock.sql.logical.nodes import SortKey
from penstock.sql.stream.ranking.top_n import Sent, TopN
from penstock.sql.stream.rows.evaluation import StreamSession
from penstock.sql.stream.rows.rows import RowKeys, build_batch, sort_keys, to_tuples
from penstock.sql.stream.windows.window_aggregate import WindowEnds

#: The name of the state.
WINDOWS: Final = "windows"
_NUMBER: Final = BigIntType(False)


class WindowRankOperator(StreamOperator):
    """See the module docstring.

    Args:
        partition: the indexes of the partition columns other than the window's.
        edges: the indexes of the window's start and end.
        is_moment: whether the time attribute is an instant (TIMESTAMP_LTZ), so that windows end in the session's time
            zone.
        order: the sort keys.
        numbers: the first and the last row number to emit.
        top: maintains the rows of a partition.
        types: the types of the input columns.
        names: the names of the output columns: the input columns, and the row number if it is output.
    """

    is_keyed = True

    def __init__(
        self,
        partition: Sequence[int],
        edges: tuple[int, int],
        is_moment: bool,
        order: Sequence[SortKey],
        numbers: tuple[int, int],
        top: TopN,
        types: Sequence[DataType],
        names: Sequence[str],
        session: StreamSession,
    ) -> None:
        self._partition = RowKeys(partition)
        self._edges = edges
        self._is_moment = is_moment
        self._order = tuple(order)
        self._numbers = numbers
        self._top = top
        self._types = tuple(types)
        self._names = list(names)
        self._shows_number = len(self._names) > len(self._types)
        self._session = session
        self._watermark = MIN_TIMESTAMP

    def open(self) -> None:
        """Look up the windows and when they are due."""
        self._ends = WindowEnds(self._session.zone if self._is_moment else None)
        self._table = self.context.keyed.table(WINDOWS)
        self._due = [(self._ends.due_ms(window[1]), window) for window in self._table.panes]
        heapify(self._due)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Add rows to their windows."""
        records = as_columns(batch, self.context.operator_name)
        starts, ends = (milliseconds(records.columns.column(edge)).tolist() for edge in self._edges)
        keys = self._partition.of(records.columns)
        rows = to_tuples(records, self._types)
        order_keys = sort_keys(self._order, self._types, rows)
        marks: dict[tuple[int, int], set[Any]] = {}
        unheard = Sent()
        late = 0
        for window, key, order_key, row in zip(zip(starts, ends, strict=True), keys, order_keys, rows, strict=True):
            if window not in marks:
                due = self._ends.due_ms(window[1])
                if due <= self._watermark:
                    late += 1
                    continue
                if window not in self._table.panes:
                    heappush(self._due, (due, window))
                marks[window] = set()
            entries = self._table.entries(window)
            if key not in entries:
                entries[key] = self._top.create(self._numbers[1])
            self._top.add(entries[key], order_key, row, unheard)
            marks[window].add(key)
        for window, changed in marks.items():
            self._table.mark(window, changed)
        if late:
            self.context.count(LATE_RECORDS, late)

    def process_watermark(self, timestamp: int) -> None:
        """Emit the rows of the windows that have ended, in order of time."""
        self._watermark = max(self._watermark, timestamp)
        while self._due and self._due[0][0] <= timestamp:
            _, window = heappop(self._due)
            self._fire(list(self._table.drop(window).values()))
        self.output.emit_watermark(timestamp)

    def _fire(self, partitions: list[Any]) -> None:
        first, last = self._numbers
        numbered = [
            (*row, number) if self._shows_number else row
            for group in partitions
            for number, row in enumerate(group[1][first - 1 : last], first)
        ]
        if numbered:
            types = (*self._types, _NUMBER) if self._shows_number else self._types
            self.output.collect(build_batch(numbered, types, self._names))
