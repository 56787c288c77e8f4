"""Windows that emit results before they end, and again for late rows.

A group of a window remembers its last result. A new result replaces it, and an unchanged one is not emitted. Delays are
in processing time: they start with a row, and repeat while the window is kept. The watermark determines whether a
window is late. If results are also emitted early, the window remembers that it has ended, so that it is still late
after a restore. Flink does the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Any, Final

from penstock.runtime.records import Batch
from penstock.sql.logical.nodes import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from penstock.sql.stream.planning.options import Emission
from penstock.sql.stream.rows.rows import RowEquality
from penstock.sql.stream.windows.window_aggregate import Result, Window, WindowAggregateOperator

#: additional items of an entry of the state: the last results sent, when the next ones are due in processing time, and
#: whether its window has ended
_SENT: Final = 3
_NEXT_MS: Final = 4
_OVER: Final = 5


class EmittingWindowOperator(WindowAggregateOperator):
    """See the module docstring.

    Args:
        emission: when results are emitted.
        wants_before: whether updates include the previous row (UPDATE_BEFORE).
    """

    def __init__(self, *args: Any, emission: Emission, wants_before: bool) -> None:
        super().__init__(*args)
        self._emission = emission
        self._wants_before = wants_before
        self._equality = RowEquality([call.type for call in self._calls])
        self.lateness_ms = emission.lateness_ms
        self.taken_in = self._schedule_emission

    def open(self) -> None:
        """Look up the windows and when their results are due."""
        super().open()
        self._results: list[Result] = []
        self._over: list[tuple[int, int, int]] = []
        self._timers = [
            (entry[_NEXT_MS], number, window, group)
            for number, (window, group, entry) in enumerate(
                (window, group, entry)
                for window, groups in self._table.panes.items()
                for group, entry in groups.items()
                if entry[_NEXT_MS] is not None
            )
        ]
        heapify(self._timers)
        self._timer_number = len(self._timers)

    def resume_event_time(self, watermark: int) -> None:
        """Keep windows that ended before a restore from firing again. Later results are due by processing time only."""
        self._watermark = max(self._watermark, watermark)
        while self.lateness_ms and self._due and self._due[0][0] <= self._watermark:
            _, start, end = heappop(self._due)
            self._keep_over((start, end))
        super().resume_event_time(watermark)

    def add_window(self, window: Window, due_ms: int) -> None:
        """Register a window. One whose first row is late has already ended, so a watermark does not fire it."""
        if self._time.is_processing or due_ms > self._watermark:
            super().add_window(window, due_ms)
        else:
            self._keep_over(window)

    def _keep_over(self, window: Window) -> None:
        start, end = window
        heappush(self._over, (self._ends.due_ms(end) + self.lateness_ms, start, end))

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Process rows and emit the resulting changes."""
        super().process_batch(batch, input_index)
        self._flush()

    def _schedule_emission(self, window: Window, group: Any, entry: list[Any]) -> None:
        if len(entry) == _SENT:
            entry += [None, None, False]
        if not self._is_late(window, entry):
            delay = self._emission.early_ms
        elif entry[_SENT] is None and not entry[_OVER]:
            delay = 0  # no result was emitted when it ended
        else:
            delay = self._emission.late_ms
        if delay == 0:
            self._emit(window, entry)
        elif delay is not None and entry[_NEXT_MS] is None:
            self._begin_timer(self.context.now_ms() + delay, window, group, entry)

    def _is_late(self, window: Window, entry: list[Any]) -> bool:
        if self._time.is_processing:
            return False
        return entry[_OVER] or self._ends.due_ms(window[1]) <= self._watermark

    def _begin_timer(self, due_ms: int, window: Window, group: Any, entry: list[Any]) -> None:
        entry[_NEXT_MS] = due_ms
        self._timer_number += 1
        heappush(self._timers, (due_ms, self._timer_number, window, group))

    def _emit(self, window: Window, entry: list[Any]) -> None:
        """Add the result of a group if it has changed."""
        before, values = entry[_SENT], entry[2]
        if entry[0] <= 0:
            entry[_SENT] = None
            if before is not None:
                self._results.append((DELETE, window, values, before))
            return
        results = self.results(entry)
        if self._equality.same(results, before):
            return
        entry[_SENT] = results
        if before is None:
            self._results.append((INSERT, window, values, results))
            return
        if self._wants_before:
            self._results.append((UPDATE_BEFORE, window, values, before))
        self._results.append((UPDATE_AFTER, window, values, results))

    def _flush(self) -> None:
        rows, self._results = self._results, []
        self.send(rows)

    # --- time ---------------------------------------------------------------------------------------------------------

    def fire(self, window: Window) -> None:
        """Emit the pending results of a window that has ended."""
        if self._time.is_processing or not self.lateness_ms:
            self._emit_all(window, self._table.drop(window).values())
            return
        entries = self._table.entries(window)
        # RocksDB recreates the objects of entries in files each time the entries are listed.
        copied = dict(entries.items())
        self._emit_all(window, [entry for entry in copied.values() if not entry[_OVER]])
        for group, entry in copied.items():
            entry[_NEXT_MS] = None
            entry[_OVER] = self._emission.early_ms is not None
            entries[group] = entry
        self._table.mark(window, set(copied))
        self._keep_over(window)

    def _emit_all(self, window: Window, entries: Iterable[list[Any]]) -> None:
        for entry in entries:
            self._emit(window, entry)

    def _advance(self, timestamp: int) -> None:
        super()._advance(timestamp)
        while self._over and self._over[0][0] <= timestamp:
            _, start, end = heappop(self._over)
            if (start, end) in self._table.panes:
                self._table.drop((start, end))
        self._flush()

    def next_timer_ms(self) -> int | None:
        """See `StreamOperator`."""
        times = [
            time_ms for time_ms in (super().next_timer_ms(), self._timers[0][0] if self._timers else None) if time_ms
        ]
        return min(times, default=None)

    def on_processing_time(self, now_ms: int) -> None:
        """Emit the results that are due in processing time."""
        while self._timers and self._timers[0][0] <= now_ms:
            due_ms, _, window, group = heappop(self._timers)
            entry = self._table.panes.get(window, {}).get(group)
            if entry is None or entry[_NEXT_MS] != due_ms:
                continue
            delay = self._emission.late_ms if self._is_late(window, entry) else self._emission.early_ms
            entry[_NEXT_MS] = None
            if delay:
                self._emit(window, entry)
                self._begin_timer(due_ms + delay, window, group, entry)
            self._table.mark(window, {group})
        self._flush()
        super().on_processing_time(now_ms)
