"""The base of window aggregates by kernels: their input and output columns, and their clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.columns.expressions import full
from penstock.core.columns.keys import ColumnKey
from penstock.core.operators.columnar.columnar_window_base import ColumnarWindowBase, read_times
from penstock.core.records import Batch
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.logical_types import DataType
from penstock.table.data.zones import to_moments
from penstock.table.plan.logical import AggregateCall
from penstock.table.streaming.rows.row_keys import ONLY_KEY
from penstock.table.streaming.rows.sessions import StreamSession
from penstock.table.streaming.windows.column_aggregates import ColumnAggregates
from penstock.table.streaming.windows.window_ends import WindowEnds
from penstock.table.streaming.windows.window_times import WindowTime

_CLOCK = pa.timestamp("ms")
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
        self.aggregates = ColumnAggregates(windows.calls, shares_panes)
        self.key_names = self.key_names or ["key.0"]

    def fire_until(self, timestamp: int) -> None:
        """Fire the windows whose last millisecond is at or before a time."""
        raise NotImplementedError

    def next_end(self) -> int | None:
        """Return the end of the window that fires next."""
        raise NotImplementedError

    def open(self) -> None:
        """Look up the time zone."""
        self._ends = WindowEnds(self._windows.time.get_zone(self._windows.session))

    # --- rows ---------------------------------------------------------------------------------------------------------

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Add the rows to their groups."""
        windows = self._windows
        records, times = windows.time.clock(
            as_columns(batch, self.context.operator_name), windows.session, self.context
        )
        if len(records):
            super().process_batch(records.with_rowtimes(times), input_index)

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
