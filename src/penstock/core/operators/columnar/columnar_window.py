"""Tumbling, sliding and cumulative event-time windows over columns, aggregated by kernels.

Time is divided into *panes*, the longest intervals that lie in the same windows as a whole: a tumbling window is one
pane, a sliding window several. The operator keeps a row of partials for each key and pane, so a record counts once,
however many windows contain it. A window that fires merges the partials of its panes.

Sliding and cumulative windows share panes, and some windows of a pane may have fired when a snapshot is taken. So the
snapshot has a column with the watermark up to which they have fired. Without it they would fire again after a recovery,
where event time begins again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.core.columns.expressions import Aggregate, Literal
from penstock.core.columns.keys import ColumnKey
from penstock.core.operators.columnar.columnar_window_base import ColumnarWindowBase, read_times
from penstock.core.records import MIN_TIMESTAMP, Batch
from penstock.core.windowing.time_windows import (
    AlignedAssigner,
    CumulativeEventTimeWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)

PANE: Final = "pane"
#: Up to this number, panes are looked up one by one, which is faster than finding the distinct panes of a batch.
_LOOKED_FOR_MAX: Final = 32


class ColumnarWindowOperator(ColumnarWindowBase):
    """Aggregates tumbling, sliding and cumulative windows over columns; see the module docstring."""

    state_name = "_penstock_column_panes"

    def __init__(
        self, key: ColumnKey, assigner: AlignedAssigner, aggregates: Sequence[Aggregate], late_tag: str | None = None
    ) -> None:
        self._is_tumbling = isinstance(assigner, TumblingEventTimeWindows)
        self._shown = len(aggregates)
        if not self._is_tumbling:
            aggregates = [*aggregates, Aggregate("max", Literal(MIN_TIMESTAMP), "fired")]
        super().__init__(key, aggregates, late_tag)
        self._assigner = assigner
        self._pane_ms = _pane_ms(assigner)
        #: the current panes, and the end of the window that fires next
        self._panes: set[int] = set()
        self._next_end: int | None = None

    @property
    def shown(self) -> int:
        """The number of aggregates that the user asked for."""
        return self._shown

    def about(self) -> str:
        """Describe the windows and aggregates."""
        return f"{self._assigner!r} of {self.aggregates.describe()} by {len(self.key_names)} columns"

    def merge(self, parts: list[pa.Table]) -> pa.Table:
        """Merge partials into one row for each key and pane."""
        return self.aggregates.merged(parts, [PANE, *self.key_names])

    def initialize_state(self) -> None:
        """Restore the table, and find when its next window is due."""
        super().initialize_state()
        for part in self.parts:
            self._note(read_times(part, PANE))

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Add the records' partials."""
        records = self.to_column_batch(batch)
        panes = self._assign_panes(records.rowtimes)
        if self._last_end(int(panes.min())) - 1 <= self.watermark or self._has_gaps:
            unique, codes = np.unique(panes, return_inverse=True)
            ends = np.array([self._last_end(pane) for pane in unique.tolist()])
            belongs = ends > MIN_TIMESTAMP
            late = (belongs & (ends - 1 <= self.watermark))[codes]
            if late.any():
                self.late(records.where(late))
            is_kept = ~late & belongs[codes]
            records, panes = records.where(is_kept), panes[is_kept]
            if not len(records):
                return
        self._note(panes)
        self.take(records, {PANE: panes, **self.key_columns(records)})

    def process_watermark(self, timestamp: int) -> None:
        """Fire the windows that event time has passed, and pass the watermark on."""
        self.fire_until(timestamp)
        self.output.emit_watermark(timestamp)

    def fire_until(self, timestamp: int) -> None:
        """Fire the windows that end at or before a time."""
        if self._next_end is not None and self._next_end - 1 <= timestamp:
            due = sorted((w for w in self._not_fired() if w[1] - 1 <= timestamp), key=lambda w: w[::-1])
            table = self.take_due(PANE, due[-1][1] - 1)
            panes = read_times(table, PANE)
            expired = {pane for pane in self._panes if self._last_end(pane) - 1 <= timestamp}
            self._panes -= expired
            if self._is_tumbling:
                self._fire_tumbling(table, panes)
            else:
                self._fire(table, panes, due)
                self.put_back(table.filter(pa.array(~np.isin(panes, list(expired)))))
        self.watermark = timestamp
        self._find_next()

    def _fire_tumbling(self, table: pa.Table, panes: Any) -> None:
        if panes[0] != panes[-1] or (panes != panes[0]).any():
            order = np.argsort(panes, kind="stable")
            table, panes = table.take(pa.array(order)), panes[order]
        self.emit(table, panes, panes + self._pane_ms)

    def _fire(self, table: pa.Table, panes: Any, due: list[tuple[int, int]]) -> None:
        fired = read_times(table, self.aggregates.partial_columns[-1])
        for start, end in due:
            inside = (panes >= start) & (panes < end) & (fired < end - 1)
            if inside.any():
                merged = self.aggregates.merged([table.filter(pa.array(inside))], self.key_names)
                rows = merged.num_rows
                self.emit(merged, np.full(rows, start), np.full(rows, end))

    def to_capture(self, table: pa.Table) -> pa.Table:
        """Return the table with the watermark up to which its windows have fired."""
        if self._is_tumbling:
            return table
        name = self.aggregates.partial_columns[-1]
        fired = np.maximum(read_times(table, name), self.watermark)
        return table.set_column(table.schema.get_field_index(name), name, pa.array(fired, pa.int64()))

    # --- panes -----------------------------------------------------------------------------------------------------

    @property
    def _has_gaps(self) -> bool:
        """Whether some times lie in no window."""
        assigner = self._assigner
        return isinstance(assigner, SlidingEventTimeWindows) and assigner.slide_ms > assigner.size_ms

    def _last_end(self, pane: int) -> int:
        """Return the end of the last window that contains a pane; the least number if no window does."""
        return max((end for _, end in self._assigner.assign(pane)[2]), default=MIN_TIMESTAMP)

    def _assign_panes(self, times: Any) -> Any:
        """Return the pane of each time."""
        offset_ms, pane_ms = self._assigner.offset_ms, self._pane_ms
        first, last = ((int(time) - offset_ms) // pane_ms * pane_ms + offset_ms for time in (times.min(), times.max()))
        if first == last:
            return np.full(len(times), first)
        # By division, because NumPy's remainder is several times slower.
        return (times - offset_ms) // pane_ms * pane_ms + offset_ms

    def _note(self, panes: Any) -> None:
        between = range(int(panes.min()), int(panes.max()) + 1, self._pane_ms)
        if len(between) <= len(self._panes) and self._panes.issuperset(between):
            return
        if len(between) <= _LOOKED_FOR_MAX:
            new = {pane for pane in between if pane not in self._panes and (panes == pane).any()}
        else:
            new = set(np.unique(panes).tolist()) - self._panes
        if new:
            self._panes |= new
            self._find_next()

    def _not_fired(self) -> set[tuple[int, int]]:
        """Return the windows of the panes that event time has not passed."""
        return {w for pane in self._panes for w in self._assigner.assign(pane)[2] if w[1] - 1 > self.watermark}

    def _find_next(self) -> None:
        self._next_end = min((end for _, end in self._not_fired()), default=None)


def _pane_ms(assigner: AlignedAssigner) -> int:
    if isinstance(assigner, CumulativeEventTimeWindows):
        return assigner.step_ms
    if isinstance(assigner, SlidingEventTimeWindows):
        return math.gcd(assigner.size_ms, assigner.slide_ms)
    return assigner.size_ms
