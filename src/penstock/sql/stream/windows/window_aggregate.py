"""Window aggregates and window tables: when windows end, which time assigns rows to them, and their operators.

`WindowEnds`: the edges of windows are wall-clock times, while watermarks and timers are instants.

`WindowTime`: the time that assigns rows to windows is a column, or the clock time of their arrival.

`WindowAggregateOperator` emits a row for each window and group when the watermark passes the window's end.

`WindowTableOperator` (TUMBLE, HOP and CUMULATE) emits each row once for each window that contains its time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from heapq import heapify, heappop, heappush
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.codecs.column_data import ColumnData
from penstock.runtime.columns import ColumnBatch, as_columns
from penstock.runtime.operators.base import StreamOperator, UserCodeError
from penstock.runtime.operators.function_context import OperatorContext
from penstock.runtime.operators.watermarks import LATE_RECORDS
from penstock.runtime.records import MAX_WATERMARK, MIN_TIMESTAMP, Batch
from penstock.sql.analyzer.select import is_processing
from penstock.sql.data.arrow import milliseconds, to_column, to_values
from penstock.sql.data.datetimes import MILLISECOND_NS, local_ns, moment_ns, to_local, to_moments
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.data.row_data import RowData
from penstock.sql.data.types import DataType, LocalZonedTimestampType
from penstock.sql.functions.clock import ASSIGN
from penstock.sql.logical.nodes import DELETE, INSERT, UPDATE_BEFORE, AggregateCall, WindowTable
from penstock.sql.stream.aggregates.accumulators import build_accumulator
from penstock.sql.stream.aggregates.functions import read_operands
from penstock.sql.stream.rows.rows import RowKeys
from penstock.sql.stream.rows.state_ttl import EvaluatingOperator, StreamSession
from penstock.sql.stream.rows.watermarks import has_milliseconds
from penstock.state.equality import canonical_column

_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS


class WindowEnds:
    """Converts between the ends of windows and event time or processing time.

    A window that ends in an hour that the clock shows twice is due the second time.

    Args:
        zone: the time zone of a time attribute that is an instant (TIMESTAMP_LTZ); None for other time attributes.
    """

    def __init__(self, zone: tzinfo | None) -> None:
        self._zone = zone

    def due_ms(self, end: int) -> int:
        """Return the watermark that fires a window."""
        last = end - 1
        if self._zone is None:
            return last
        due = moment_ns(last * MILLISECOND_NS, self._zone) // MILLISECOND_NS
        return due + _HOUR_MS if self._shown(due + _HOUR_MS, self._zone) == last else due

    def time_ms(self, end: int) -> int:
        """Return the value of a window's time attribute: the first instant at which the clock shows its last ms."""
        last = end - 1
        return last if self._zone is None else moment_ns(last * MILLISECOND_NS, self._zone) // MILLISECOND_NS

    def reached(self, watermark: int) -> int:
        """Return the wall-clock time at a watermark: exactly the windows that end by then are due."""
        if self._zone is None or watermark in (MIN_TIMESTAMP, MAX_WATERMARK):
            return watermark
        clock_ms = self._shown(watermark, self._zone)
        if self.due_ms(clock_ms + 1) <= watermark:
            return clock_ms
        due, later = clock_ms - _DAY_MS, clock_ms
        while later - due > 1:
            middle = (due + later) // 2
            if self.due_ms(middle + 1) <= watermark:
                due = middle
            else:
                later = middle
        return due

    @staticmethod
    def _shown(moment: int, zone: tzinfo) -> int:
        return local_ns(moment * MILLISECOND_NS, zone) // MILLISECOND_NS


_MOMENT: Final = pa.timestamp("ms", "UTC")


@dataclass(frozen=True, slots=True)
class WindowTime:
    """A time attribute.

    Args:
        place: the index of the column.
        is_moment: whether it is an instant (TIMESTAMP_LTZ), which is converted to the session's time zone, where
            windows begin at full hours.
        is_processing: whether it is processing time, which is read from the clock when rows arrive, so the column
            is not read.
    """

    place: int
    is_moment: bool
    is_processing: bool = False

    @staticmethod
    def of(window: WindowTable) -> WindowTime:
        """Return the time that assigns rows to the windows of a window table."""
        is_moment = isinstance(window.input.schema[window.time].type, LocalZonedTimestampType)
        return WindowTime(window.time, is_moment, is_processing(window))

    def get_zone(self, session: StreamSession) -> tzinfo | None:
        """Return the time zone of the windows; None for times without one."""
        return session.zone if self.is_moment else None

    def clock(self, records: ColumnBatch, session: StreamSession, context: OperatorContext) -> tuple[ColumnBatch, Any]:
        """Return the rows of a batch that have a time, and their wall-clock times as a NumPy array of ms."""
        if self.is_processing:
            times = pa.array(np.full(len(records), context.now_ms(), np.int64)).view(_MOMENT)
        else:
            times = records.columns.column(self.place)
            if times.null_count:
                # A row without a time belongs to no window.
                records = records.take(np.flatnonzero(times.is_valid().to_numpy(zero_copy_only=False)))
                times = records.columns.column(self.place)
        return records, milliseconds(to_local(times, session.zone) if self.is_moment else times)

    def clock_of_few(
        self, records: ColumnBatch, session: StreamSession, context: OperatorContext
    ) -> tuple[ColumnBatch, list[int]]:
        """Do as `clock` for a few rows, which may be tuples; the times are a list."""
        times = self._read_tuples(records.data)
        if self.is_processing:
            times = [context.now_ms() * MILLISECOND_NS] * len(records)
        if times is not None:
            if self.is_moment:
                times = [local_ns(time, session.zone) for time in times]
            return records, [time // MILLISECOND_NS for time in times]
        records, clock = self.clock(records, session, context)
        return records, clock.tolist()

    def _read_tuples(self, data: ColumnData) -> list[int] | None:
        """Return the times of rows in ns, unless these are columns or one has no time."""
        if not isinstance(data, RowData) or not has_milliseconds(data.layout.types[self.place]):
            return None
        times = [row[self.place] for row in data.tuples]
        return None if None in times else times


#: State: (start, end) -> group -> [number of rows, accumulators, values of the key].
WINDOWS: Final = "windows"
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
                times = [(*window, ends[window[1]])[edge] * MILLISECOND_NS for _, window, _, _ in rows]
                arrays.append(to_column(times, self._types[key]))
            else:
                position = self._groups.places.index(key)
                arrays.append(to_column([values[position] for _, _, values, _ in rows], self._types[key]))
        for index, call in enumerate(self._calls):
            arrays.append(to_column([results[index] for _, _, _, results in rows], call.type))
        kinds = bytes(kind for kind, _, _, _ in rows)
        columns = pa.RecordBatch.from_arrays(arrays, self._names)
        self.output.collect(ColumnBatch(columns, kinds=kinds if any(kinds) else None))


_CLOCK: Final = pa.timestamp("ms")


class WindowTableOperator(StreamOperator):
    """Adds the start, the end and the time of the window, which is 1 ms before its end.

    A time attribute that is an instant (TIMESTAMP_LTZ) is converted to the session's time zone, where windows begin at
    full hours and days.

    Args:
        kind: TUMBLE, HOP or CUMULATE.
        time: the time attribute.
        sizes: in ms: the size for TUMBLE, slide and size for HOP, step and size for CUMULATE.
        offset: the shift of the windows' starts, in ms.
        names: the names of the output columns.
    """

    def __init__(
        self,
        kind: str,
        time: WindowTime,
        sizes: Sequence[int],
        offset: int,
        names: Sequence[str],
        session: StreamSession,
    ) -> None:
        self._assign = ASSIGN[kind]
        self._time = time
        self._sizes = tuple(sizes)
        self._offset = offset
        self._names = list(names)
        self._session = session

    def open(self) -> None:
        """Look up the time zone."""
        self._zone = self._session.zone

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Emit each row with its windows."""
        records, clock = self._time.clock(as_columns(batch, self.context.operator_name), self._session, self.context)
        rows, starts, ends = self._assign(clock, self._sizes, self._offset)
        if rows is not None:
            records = records.take(rows)
        if not len(records):
            return
        last = pa.array(ends - 1).view(_CLOCK)
        edges = [pa.array(starts).view(_CLOCK), pa.array(ends).view(_CLOCK)]
        time = to_moments(last, self._zone).cast(_MOMENT) if self._time.is_moment else last
        columns = pa.RecordBatch.from_arrays([*records.columns.columns, *edges, time], self._names)
        self.output.collect(ColumnBatch(columns, records.rowtimes, records.kinds))
