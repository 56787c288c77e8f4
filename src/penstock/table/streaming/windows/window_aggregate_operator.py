"""Window aggregates: emits a row for each window and group when the watermark passes the window's end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, Final

import pyarrow as pa

from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.operators.base import UserCodeError
from penstock.core.operators.watermarks import LATE_RECORDS
from penstock.core.records import MIN_TIMESTAMP, Batch
from penstock.state.equality import canonical_column
from penstock.table.data.errors import TableRuntimeError
from penstock.table.data.flat import milliseconds
from penstock.table.data.logical_types import DataType
from penstock.table.data.values import to_column, to_values
from penstock.table.plan.changes import DELETE, INSERT, UPDATE_BEFORE
from penstock.table.plan.logical import AggregateCall
from penstock.table.streaming.aggregates.accumulators import build_accumulator
from penstock.table.streaming.aggregates.operands import read_operands
from penstock.table.streaming.rows.evaluating import EvaluatingOperator
from penstock.table.streaming.rows.row_keys import RowKeys
from penstock.table.streaming.rows.sessions import StreamSession
from penstock.table.streaming.windows.window_ends import WindowEnds
from penstock.table.streaming.windows.window_times import WindowTime

#: State: (start, end) -> group -> [number of rows, accumulators, values of the key].
WINDOWS: Final = "windows"
_MILLISECOND_NS: Final = 1_000_000
#: start and end, in ms
Window = tuple[int, int]
#: the kind of a row, its window, the values of its key, and its results
Result = tuple[int, Window, Sequence[Any], Sequence[Any]]


class WindowAggregateOperator(EvaluatingOperator):
    """See the module docstring.

    Args:
        keys: the indexes of the grouping columns, including the window's.
        edges: the keys that are columns of the window: index -> 0 for its start, 1 for its end, 2 for its time.
        time: the time attribute. In processing time no row is late: windows fire when the clock is next checked.
        retracts: whether the input may have retractions.
    """

    is_keyed = True
    #: how long, in event time, a window is kept after its end
    lateness_ms = 0
    #: called after each row with the window, the group and its state
    taken_in: Callable[[Window, Any, list[Any]], None] | None = None

    def __init__(
        self,
        keys: Sequence[int],
        edges: Mapping[int, int],
        time: WindowTime,
        calls: Sequence[AggregateCall],
        types: Sequence[DataType],
        names: Sequence[str],
        retracts: bool,
        session: StreamSession,
    ) -> None:
        self._keys = tuple(keys)
        self._groups = RowKeys([key for key in keys if key not in edges])
        self._edges = dict(edges)
        edge_keys = {edge: key for key, edge in edges.items()}
        self._start, self._end = edge_keys[0], edge_keys[1]
        self._time = time
        self._calls = tuple(calls)
        self._types = tuple(types)
        self._names = list(names)
        self._retracts = retracts
        self._session = session
        self._watermark = MIN_TIMESTAMP

    def open(self) -> None:
        """Look up the windows and when they are due."""
        self._ends = WindowEnds(self._time.get_zone(self._session))
        functions = self.running(self._session).functions
        self._accumulators = [build_accumulator(call, self._retracts, functions) for call in self._calls]
        self._table = self.context.keyed.table(WINDOWS)
        self._due = [(self._ends.due_ms(end), start, end) for start, end in self._table.panes]
        heapify(self._due)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Add rows to their groups."""
        records = as_columns(batch, self.context.operator_name)
        starts = milliseconds(records.columns.column(self._start)).tolist()
        ends = milliseconds(records.columns.column(self._end)).tolist()
        groups = self._groups.of(records.columns)
        keys = [(canonical_column(records.columns.column(key)), self._types[key]) for key in self._groups.places]
        columns = [to_values(column, data_type) for column, data_type in keys]
        operands = [read_operands(call, records.columns, self._types) for call in self._calls]
        try:
            self._accumulate_rows(records, list(zip(starts, ends, strict=True)), groups, columns, operands)
        except TableRuntimeError as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(records)} rows") from error

    def _accumulate_rows(
        self,
        records: ColumnBatch,
        windows: list[Window],
        groups: list[Any],
        columns: list[list[Any]],
        operands: list[list[tuple[Any, ...] | None]],
    ) -> None:
        kinds, late = records.kinds, 0
        panes: dict[Window, tuple[dict[Any, Any], set[Any]] | None] = {}
        taken_in = self.taken_in
        for row, (window, group) in enumerate(zip(windows, groups, strict=True)):
            if window not in panes:
                panes[window] = self._pane(window)
            pane = panes[window]
            if pane is None:
                late += 1
                continue
            entries, marked = pane
            entry = entries.get(group)
            if entry is None:
                values = tuple([column[row] for column in columns])
                entry = entries[group] = [0, [accumulator.create() for accumulator in self._accumulators], values]
            goes = kinds is not None and kinds[row] in (UPDATE_BEFORE, DELETE)
            entry[0] += -1 if goes else 1
            states = entry[1]
            for index, accumulator in enumerate(self._accumulators):
                of_row = operands[index][row]
                if of_row is not None:
                    states[index] = (accumulator.retract if goes else accumulator.add)(states[index], of_row)
            marked.add(group)
            if taken_in is not None:
                taken_in(window, group, entry)
        for window, pane in panes.items():
            if pane is not None:
                self._table.mark(window, pane[1])
        if late:
            self.context.count(LATE_RECORDS, late)

    def _pane(self, window: Window) -> tuple[dict[Any, Any], set[Any]] | None:
        """Return the groups of a window and a set for the changed ones. None if the window has been dropped."""
        due = self._ends.due_ms(window[1])
        if due + self.lateness_ms <= self._watermark and not self._time.is_processing:
            return None
        if window not in self._table.panes:
            self.add_window(window, due)
        return self._table.entries(window), set()

    def add_window(self, window: Window, due_ms: int) -> None:
        """Register a window when its first row arrives."""
        heappush(self._due, (due_ms, *window))

    def process_watermark(self, timestamp: int) -> None:
        """Fire the windows that have ended, in order of time."""
        if not self._time.is_processing:
            self._advance(timestamp)
        self.output.emit_watermark(timestamp)

    def next_timer_ms(self) -> int | None:
        """See `StreamOperator`."""
        return self._due[0][0] + 1 if self._time.is_processing and self._due else None

    def on_processing_time(self, now_ms: int) -> None:
        """Fire the processing-time windows that have ended."""
        if self._time.is_processing:
            self._advance(now_ms - 1)

    def _advance(self, timestamp: int) -> None:
        self._watermark = max(self._watermark, timestamp)
        while self._due and self._due[0][0] <= timestamp:
            _, start, end = heappop(self._due)
            self.fire((start, end))

    def fire(self, window: Window) -> None:
        """Emit the results of a window that has ended, and drop it."""
        alive = [entry for entry in self._table.drop(window).values() if entry[0] > 0]
        self.send([(INSERT, window, entry[2], self.results(entry)) for entry in alive])

    def results(self, entry: Sequence[Any]) -> list[Any]:
        """Return the values of all calls for a group."""
        return [accumulator.value(state) for accumulator, state in zip(self._accumulators, entry[1], strict=True)]

    def send(self, rows: Sequence[Result]) -> None:
        """Emit results in order."""
        if not rows:
            return
        ends = {end: self._ends.time_ms(end) for _, (_, end), _, _ in rows}
        arrays = []
        for key in self._keys:
            if key in self._edges:
                edge = self._edges[key]
                times = [(*window, ends[window[1]])[edge] * _MILLISECOND_NS for _, window, _, _ in rows]
                arrays.append(to_column(times, self._types[key]))
            else:
                position = self._groups.places.index(key)
                arrays.append(to_column([values[position] for _, _, values, _ in rows], self._types[key]))
        for index, call in enumerate(self._calls):
            arrays.append(to_column([results[index] for _, _, _, results in rows], call.type))
        kinds = bytes(kind for kind, _, _, _ in rows)
        columns = pa.RecordBatch.from_arrays(arrays, self._names)
        self.output.collect(ColumnBatch(columns, kinds=kinds if any(kinds) else None))
