"""SESSION as a window table function, and windows that emit results before they end, and again for late rows.

`SessionTableOperator` emits the rows of a session, in arrival order, when no further row can belong to it. Its state is
partition -> sessions in order of time, each [start, end, rows]; a row is (kind, values). A row that belongs to several
sessions merges them.

A retraction by event time removes its row from the session. If that row held the session together, the session splits
again; Flink leaves it in one piece. Parts that the watermark has already passed stay with the next part, because they
would be late. A retraction that arrives before its row waits in a session of its own until the row arrives.

`EmittingWindowOperator` remembers the last result of a group of a window. A new result replaces it, and an unchanged
one is not emitted. Delays are in processing time: they start with a row, and repeat while the window is kept. The
watermark determines whether a window is late. If results are also emitted early, the window remembers that it has
ended, so that it is still late after a restore. Flink does the same.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Any, Final

import numpy as np

from penstock.runtime.columns import as_columns
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.operators.watermarks import LATE_RECORDS
from penstock.runtime.records import MIN_TIMESTAMP, Batch
from penstock.runtime.windowing.assigners import time_of_sessions
from penstock.sql.data.datetimes import local_ns
from penstock.sql.data.types import DataType
from penstock.sql.logical.nodes import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from penstock.sql.stream.planning.options import Emission
from penstock.sql.stream.rows.rows import RowEquality, RowKeys, build_batch, to_tuples
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.stream.windows.window_aggregate import Result, Window, WindowAggregateOperator, WindowEnds, WindowTime

#: The name of the state.
SESSIONS: Final = "sessions"
START, END, ROWS = 0, 1, 2
#: The number of window columns, which follow the input columns.
_EDGES: Final = 3
_MILLISECOND_NS: Final = 1_000_000


class SessionTableOperator(StreamOperator):
    """See the module docstring.

    Args:
        partition: the indexes of the partition columns, whose values have separate sessions.
        time: the time attribute.
        gap: the gap that ends a session, in ms.
        types: the types of the output columns; `names`: their names.
    """

    is_keyed = True

    def __init__(
        self,
        partition: Sequence[int],
        time: WindowTime,
        gap: int,
        types: Sequence[DataType],
        names: Sequence[str],
        session: StreamSession,
    ) -> None:
        self._partition = RowKeys(partition)
        self._time = time
        self._gap = gap
        self._types = tuple(types)
        self._equality = RowEquality(types[: len(types) - _EDGES])
        self._names = list(names)
        self._session = session
        self._watermark = MIN_TIMESTAMP

    def open(self) -> None:
        """Look up the sessions and when they are due."""
        self._zone = self._time.get_zone(self._session)
        self._ends = WindowEnds(self._zone)
        table = self.context.keyed.table(SESSIONS)
        self._entries, self._mark = table.entries(None), table.mark
        #: (due time, number, partition): the entry of a session that has grown is due too early, so another one follows
        self._due: list[tuple[int, int, Any]] = []
        self._number = 0
        #: the partitions that may have retractions waiting for their rows
        self._owed: set[Any] = set()
        for key, sessions in self._entries.items():
            for session in sessions:
                self._wait(key, session[END])
                if _is_owed(session):
                    self._owed.add(key)
        heapify(self._due)

    def _wait(self, key: Any, end: int) -> None:
        self._number += 1
        heappush(self._due, (self._ends.due_ms(end), self._number, key))

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Add rows to sessions, or retract them."""
        records, times = self._time.clock(as_columns(batch, self.context.operator_name), self._session, self.context)
        keys = self._partition.of(records.columns)
        kinds = records.kinds or bytes(len(records))
        late = 0
        changed = set()
        for key, time, kind, row in zip(keys, times.tolist(), kinds, to_tuples(records, self._types), strict=True):
            is_retraction = kind in (UPDATE_BEFORE, DELETE) and not self._time.is_processing
            if self._retract(key, time, row) if is_retraction else self._add(key, time, (kind, row)):
                changed.add(key)
            else:
                late += 1
        self._mark(None, changed)
        if late:
            self.context.count(LATE_RECORDS, late)

    def _add(self, key: Any, time: int, row: tuple[int, tuple[Any, ...]]) -> bool:
        """Add a row to the session that it belongs to. Returns False if that has ended."""
        start, end = time, time + self._gap
        sessions = self._entries.get(key, [])
        if key in self._owed and self._meets_its_retraction(key, sessions, row[1]):
            return True
        met = [
            candidate
            for candidate in sessions
            if candidate[START] <= end and start <= candidate[END] and not _is_owed(candidate)
        ]
        if met:
            start, end = min(start, met[0][START]), max(end, met[-1][END])
        if self._is_over(end):
            return False
        if len(met) == 1:
            (session,) = met
            has_grown = end > session[END]
            session[START], session[END] = start, end
            session[ROWS].append(row)
        else:
            has_grown = True
            rows = [entry for met_session in met for entry in met_session[ROWS]]
            others = [candidate for candidate in sessions if candidate not in met] if met else sessions
            self._entries[key] = sorted([*others, [start, end, [*rows, row]]], key=_get_session_start)
        if has_grown:
            self._wait(key, end)
        return True

    def _is_over(self, end: int) -> bool:
        return not self._time.is_processing and self._ends.due_ms(end) <= self._watermark

    # --- retractions --------------------------------------------------------------------------------------------------

    def _retract(self, key: Any, time: int, row: tuple[Any, ...]) -> bool:
        """Remove a row from its session. Returns False if the row is not found and its session would have ended."""
        sessions = self._entries.get(key, [])
        for session in sessions:
            if session[START] <= time <= session[END] and not _is_owed(session):
                index = self._find_index(row, session[ROWS])
                if index is not None:
                    del session[ROWS][index]
                    self._shrink(key, sessions, session, time)
                    return True
        end = time + self._gap
        if self._is_over(end):
            return False
        self._entries[key] = sorted([*sessions, [time, end, [(DELETE, row)]]], key=_get_session_start)
        self._owed.add(key)
        self._wait(key, end)
        return True

    def _find_index(self, row: tuple[Any, ...], rows: list[tuple[int, tuple[Any, ...]]]) -> int | None:
        """Return the index of the row that a retraction removes from a session, or None."""
        same = self._equality.same
        for index, (kind, other) in enumerate(rows):
            if kind not in (UPDATE_BEFORE, DELETE) and same(row, other):
                return index
        return None

    def _meets_its_retraction(self, key: Any, sessions: list[list[Any]], row: tuple[Any, ...]) -> bool:
        """Return whether a row was retracted before it arrived. If so, both are dropped."""
        for session in sessions:
            if _is_owed(session) and self._equality.same(row, session[ROWS][0][1]):
                self._replace(key, sessions, session, [])
                return True
        return False

    def _shrink(self, key: Any, sessions: list[list[Any]], session: list[Any], time: int) -> None:
        """Adjust the edges of a session, or split it, after a row of this time was removed."""
        rows = session[ROWS]
        times = [self._extract_time_ms(row) for _, row in rows]
        if time in times:
            return
        before = max((other for other in times if other < time), default=None)
        after = min((other for other in times if other > time), default=None)
        if before is not None and after is not None and after - before <= self._gap:
            return
        in_order = sorted(set(times))
        gaps = [
            (early, late)
            for early, late in pairwise(in_order)
            if late - early > self._gap and not self._is_over(early + self._gap)
        ]
        starts = [*in_order[:1], *(late for _, late in gaps)]
        ends = [*(early + self._gap for early, _ in gaps), *(last + self._gap for last in in_order[-1:])]
        if ends and self._is_over(ends[-1]):
            ends[-1] = session[END]
        parts: list[list[Any]] = [[start, end, []] for start, end in zip(starts, ends, strict=True)]
        for entry, of_row in zip(rows, times, strict=True):
            parts[bisect_right(starts, of_row) - 1][ROWS].append(entry)
        self._replace(key, sessions, session, parts)

    def _extract_time_ms(self, row: tuple[Any, ...]) -> int:
        """Return the wall-clock time of a row, in ms."""
        moment: int = row[self._time.place]
        return (moment if self._zone is None else local_ns(moment, self._zone)) // _MILLISECOND_NS

    def _replace(self, key: Any, sessions: list[list[Any]], session: list[Any], parts: list[list[Any]]) -> None:
        """Replace a session with others."""
        others = [other for other in sessions if other is not session]
        if others or parts:
            self._entries[key] = sorted([*others, *parts], key=_get_session_start)
        else:
            del self._entries[key]
        for part in parts:
            self._wait(key, part[END])

    # --- time ---------------------------------------------------------------------------------------------------------

    def process_watermark(self, timestamp: int) -> None:
        """Emit the sessions that have ended."""
        if not self._time.is_processing:
            timestamp = time_of_sessions(timestamp)
            self._advance(timestamp)
        self.output.emit_watermark(timestamp)

    def next_timer_ms(self) -> int | None:
        """See `StreamOperator`."""
        return self._due[0][0] + 1 if self._time.is_processing and self._due else None

    def on_processing_time(self, now_ms: int) -> None:
        """Emit the processing-time sessions that have ended."""
        if self._time.is_processing:
            self._advance(now_ms - 1)

    def _advance(self, timestamp: int) -> None:
        self._watermark = timestamp
        over: list[tuple[int, list[Any]]] = []
        changed = set()
        while self._due and self._due[0][0] <= timestamp:
            _, number, key = heappop(self._due)
            sessions = self._entries.get(key, [])
            expired = [session for session in sessions if self._ends.due_ms(session[END]) <= timestamp]
            if expired:
                over += [(number, session) for session in expired]
                changed.add(key)
                self._owed.discard(key)
                rest = [session for session in sessions if session not in expired]
                if any(map(_is_owed, rest)):
                    self._owed.add(key)
                if rest:
                    self._entries[key] = rest
                else:
                    del self._entries[key]
        self._mark(None, changed)
        if over:
            self._send([session for _, session in over])

    def _send(self, sessions: list[Any]) -> None:
        rows, kinds = [], []
        sessions = [session for session in sessions if not _is_owed(session)]
        for start, end, entries in sessions:
            edges = (start * _MILLISECOND_NS, end * _MILLISECOND_NS, self._ends.time_ms(end) * _MILLISECOND_NS)
            rows += [(*row, *edges) for _, row in entries]
            kinds += [kind for kind, _ in entries]
        if not self._time.is_processing:
            # The rows that they replace were removed before they were emitted.
            kinds = [INSERT if kind == UPDATE_AFTER else kind for kind in kinds]
        if not rows:
            return
        rowtimes = np.repeat(
            [self._ends.time_ms(end) for _, end, _ in sessions],
            [len(session_entries) for _, _, session_entries in sessions],
        ).astype(np.int64)
        self.output.collect(build_batch(rows, self._types, self._names, rowtimes, kinds))


def _get_session_start(session: list[Any]) -> int:
    return session[START]  # type: ignore[no-any-return]


def _is_owed(session: list[Any]) -> bool:
    """Return whether it is a retraction that waits for its row, rather than a session."""
    rows = session[ROWS]
    return len(rows) == 1 and rows[0][0] in (UPDATE_BEFORE, DELETE)


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
