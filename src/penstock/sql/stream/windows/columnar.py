"""Window aggregates by kernels: each row is added to one pane, which all its windows share.

`ColumnWindowsOperator` is the base of the operators: it handles their input and output columns (`ColumnWindows`) and
their clock.

Kernels cost as much for one row as for a hundred. So the rows of small batches wait as they come, and kernels take many
of them together: once there are many, before a large batch, before windows fire, and before a checkpoint. Whether a row
is late is decided when it comes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.runtime.columns import ColumnBatch, ColumnKey, as_columns, full
from penstock.runtime.operators.columnar.windows import (
    END,
    PANE,
    START,
    ColumnarSessionOperator,
    ColumnarWindowBase,
    ColumnarWindowOperator,
    lowest,
    read_times,
)
from penstock.runtime.records import MIN_TIMESTAMP, Batch
from penstock.runtime.windowing import assigners
from penstock.sql.data.arrow import arrow_type, milliseconds
from penstock.sql.data.datetimes import to_moments
from penstock.sql.data.row_data import FewRows
from penstock.sql.data.types import DataType
from penstock.sql.logical.nodes import AggregateCall
from penstock.sql.stream.aggregates.kernels import ColumnAggregates
from penstock.sql.stream.rows.rows import ONLY_KEY
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.stream.windows.window_aggregate import WindowEnds, WindowTime
from penstock.state.snapshot import StateCapture

_CLOCK = pa.timestamp("ms")
#: Batches of at most this many rows wait.
FEW_ROWS: Final = 64
#: Rows count, or come after their windows, or lie between windows.
ON_TIME, LATE, OUTSIDE = 0, 1, 2
#: how many rows wait at most
_WAITING_MAX: Final = 1 << 12
#: the columns of a window's start and end while distinct values are counted
_START, _END = "$start", "$end"


@dataclass(frozen=True, slots=True)
class ColumnWindows:
    """The input and output of a window aggregate.

    Args:
        keys: the grouping keys, in output order: indexes of columns, and -1, -2 and -3 for the start, end and time of
            the window.
        time: the time attribute.
        calls: aggregates that kernels can compute, see `is_by_kernel`.
        types: the types of the output columns: keys, then calls; `names`: their names.
    """

    keys: tuple[int, ...]
    time: WindowTime
    calls: tuple[AggregateCall, ...]
    types: tuple[DataType, ...]
    names: tuple[str, ...]
    session: StreamSession

    def groups(self) -> tuple[int, ...]:
        """Return the indexes of the grouping columns, without the window's."""
        return tuple(key for key in self.keys if key >= 0)

    def key(self) -> ColumnKey:
        """Return the columns of the key."""
        return ColumnKey(tuple(f"c{key}" for key in self.groups()))


class ColumnWindowsOperator(ColumnarWindowBase):
    """The base class, to be listed before a columnar operator. See the module docstring."""

    aggregates: ColumnAggregates
    _windows: ColumnWindows

    def begin(self, windows: ColumnWindows, shares_panes: bool) -> None:
        """Set the input and the output."""
        self._windows = windows
        #: rows that kernels have not taken, and their times
        self._few, self._few_times = FewRows(), list[int]()
        self.aggregates = ColumnAggregates(windows.calls, shares_panes)
        self.key_names = self.key_names or ["key.0"]

    def fire_until(self, timestamp: int) -> None:
        """Fire the windows whose last millisecond is at or before a time."""
        end = self.next_end()
        if end is not None and end - 1 <= timestamp:
            self.take_few()

    def next_end(self) -> int | None:
        """Return the end of the window that fires next."""
        raise NotImplementedError

    def open(self) -> None:
        """Look up the time zone."""
        self._ends = WindowEnds(self._windows.time.get_zone(self._windows.session))

    # --- rows ---------------------------------------------------------------------------------------------------------

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Add the rows to their groups."""
        windows, records = self._windows, as_columns(batch, self.context.operator_name)
        if len(records) <= FEW_ROWS:
            self._process_few(*windows.time.clock_of_few(records, windows.session, self.context))
            return
        self.take_few()
        records, times = windows.time.clock(records, windows.session, self.context)
        if len(records):
            super().process_batch(records.with_rowtimes(times), input_index)

    def _process_few(self, records: ColumnBatch, times: list[int]) -> None:
        if not times:
            return
        verdicts = self.judge(times)
        if verdicts is None:
            self.take_few()
            super().process_batch(records.with_rowtimes(np.array(times, np.int64)))
            return
        if any(verdicts):
            late, kept = (
                np.array([index for index, verdict in enumerate(verdicts) if verdict == wanted], np.int64)
                for wanted in (LATE, ON_TIME)
            )
            if len(late):
                self.late(records.take(late))
            if not len(kept):
                return
            records, times = records.take(kept), [times[index] for index in kept.tolist()]
        if not self._few.add(records.data):
            self.take_few()
            self._few.add(records.data)
        self._few_times += times
        if len(self._few_times) >= _WAITING_MAX:
            self.take_few()

    def judge(self, times: list[int]) -> list[int] | None:
        """Judge a few rows, and note the windows of those that are on time. None if more than times decides."""
        raise NotImplementedError

    def take_few(self) -> None:
        """Give the waiting rows to kernels."""
        times, self._few_times = self._few_times, []
        if times:
            self.take_on_time(ColumnBatch(self._few.take(), np.array(times, np.int64)))

    def take_on_time(self, records: ColumnBatch) -> None:
        """Add rows with their times, none of which is late."""
        raise NotImplementedError

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        """See `ColumnarWindowBase`."""
        self.take_few()
        return super().snapshot_state(checkpoint_id)

    def to_column_batch(self, batch: Batch) -> ColumnBatch:
        """See `ColumnarWindowBase`."""
        assert isinstance(batch, ColumnBatch)
        return batch

    def key_columns(self, records: ColumnBatch) -> dict[str, Any]:
        """See `ColumnarWindowBase`. Without key columns, all rows have one key."""
        columns = super().key_columns(records) if self.key.names else {}
        return columns or {self.key_names[0]: np.full(len(records), ONLY_KEY, np.int64)}

    def grouped(self, arguments: pa.Table, group: list[str]) -> pa.Table:
        """See `ColumnarWindowBase`. Without keys, the rows of a window are mostly adjacent, because time advances."""
        return super().grouped(arguments, group) if self.key.names else self.aggregates.in_runs(arguments, group)

    def emit(self, partials: pa.Table, starts: Any, ends: Any) -> None:
        """Emit a row for each group and window."""
        if self.aggregates.has_distinct:
            partials = partials.append_column(_START, pa.array(starts)).append_column(_END, pa.array(ends))
            partials = self.aggregates.settled(partials, [_START, _END, *self.key_names])
            starts, ends = read_times(partials, _START), read_times(partials, _END)
        windows = self._windows
        groups = iter(self.key_names)
        edges: Mapping[int, Any] = {-1: starts, -2: ends, -3: ends - 1}
        arrays = []
        for key, kind in zip(windows.keys, windows.types, strict=False):
            if key >= 0:
                arrays.append(full(partials.column(next(groups)), 0))
            else:
                arrays.append(self._edge(pa.array(edges[key]).view(_CLOCK), kind))
        arrays += self.aggregates.results(partials)
        self.output.collect(ColumnBatch(pa.RecordBatch.from_arrays(arrays, list(windows.names))))

    def _edge(self, clock: pa.Array, kind: DataType) -> pa.Array:
        target_type = arrow_type(kind)
        zone = self._windows.session.zone
        return (clock if target_type.tz is None else to_moments(clock, zone)).cast(target_type)

    # --- time ---------------------------------------------------------------------------------------------------------

    def process_watermark(self, timestamp: int) -> None:
        """Fire the windows that have ended."""
        if not self._windows.time.is_processing:
            self.fire_until(max(self.watermark, self._ends.reached(timestamp)))
        self.output.emit_watermark(timestamp)

    def next_timer_ms(self) -> int | None:
        """See `StreamOperator`."""
        end = self.next_end() if self._windows.time.is_processing else None
        return None if end is None else self._ends.due_ms(end) + 1

    def on_processing_time(self, now_ms: int) -> None:
        """Fire the processing-time windows that have ended."""
        if self._windows.time.is_processing:
            self.fire_until(self._ends.reached(now_ms - 1))


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
        super().fire_until(timestamp)
        ColumnarWindowOperator.fire_until(self, timestamp)

    def judge(self, times: list[int]) -> list[int]:
        """See `ColumnWindowsOperator`."""
        panes, pane_ms, offset_ms = self._panes, self._pane_ms, self._assigner.offset_ms
        verdicts = []
        for time in times:
            pane = (time - offset_ms) // pane_ms * pane_ms + offset_ms
            verdict = ON_TIME
            if pane not in panes:
                end = self._last_end(pane)
                if end - 1 > self.watermark:
                    panes.add(pane)
                    self._find_next()
                else:
                    verdict = LATE if end > MIN_TIMESTAMP else OUTSIDE
            verdicts.append(verdict)
        return verdicts

    def take_on_time(self, records: ColumnBatch) -> None:
        """See `ColumnWindowsOperator`."""
        self.take(records, {PANE: self._assign_panes(records.rowtimes), **self.key_columns(records)})


class ColumnSessionAggregateOperator(ColumnWindowsOperator, ColumnarSessionOperator):
    """Aggregates of SESSION windows. `gap`: the gap that ends a session, in ms."""

    def __init__(self, windows: ColumnWindows, gap: int) -> None:
        ColumnarSessionOperator.__init__(self, windows.key(), assigners.EventTimeSessionWindows(gap), [])
        self.begin(windows, False)

    def next_end(self) -> int | None:
        """See `ColumnWindowsOperator`."""
        return self.least_end

    def judge(self, times: list[int]) -> list[int] | None:
        """See `ColumnWindowsOperator`. A row that is late alone may belong to a session that is not."""
        end = min(times) + self._gap_ms
        if end - 1 <= self.watermark:
            return None
        self.note_end(end)
        return [ON_TIME] * len(times)

    def take_on_time(self, records: ColumnBatch) -> None:
        """See `ColumnWindowsOperator`."""
        self.add(self._assign_sessions(records)[0])

    def process_watermark(self, timestamp: int) -> None:
        """See `ColumnWindowsOperator`."""
        is_processing = self._windows.time.is_processing
        super().process_watermark(timestamp if is_processing else assigners.time_of_sessions(timestamp))

    def fire_until(self, timestamp: int) -> None:
        """See `ColumnWindowsOperator`."""
        super().fire_until(timestamp)
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


def _assigner(kind: str, sizes: Sequence[int], offset: int) -> assigners.AlignedAssigner:
    if kind == TUMBLE:
        (size,) = sizes
        return assigners.TumblingEventTimeWindows(size, offset % size)
    step, size = sizes
    if kind == "HOP":
        return assigners.SlidingEventTimeWindows(size, step, offset % step)
    return assigners.CumulativeEventTimeWindows(size, step, offset % size)
