"""SESSION as a window table function: emits the rows of a session when no further row can belong to it.

State: partition -> sessions in order of time, each [start, end, rows]; a row is (kind, values). A row that belongs to
several sessions merges them. Rows are emitted in arrival order.

A retraction by event time removes its row from the session. If that row held the session together, the session splits
again; Flink leaves it in one piece. Parts that the watermark has already passed stay with the next part, because they
would be late. A retraction that arrives before its row waits in a session of its own until the row arrives.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Any, Final

import numpy as np

from penstock.runtime.columns.batch import as_columns
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.operators.watermarks import LATE_RECORDS
from penstock.runtime.records import MIN_TIMESTAMP, Batch
from penstock.runtime.windowing.assigners import time_of_sessions
from penstock.sql.data.datetimes import local_ns
from penstock.sql.data.types import DataType
from penstock.sql.logical.nodes import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from penstock.sql.stream.rows.evaluation import StreamSession
from penstock.sql.stream.rows.rows import RowEquality, RowKeys, build_batch, to_tuples
from penstock.sql.stream.windows.window_aggregate import WindowEnds, WindowTime

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
