"""SESSION as a table of its own: the rows of each session, when no further row can belong to it.

State: partition -> sessions in the order of time, each [start, end, rows]; a row is (kind, values). Sessions that a
row belongs to become one. Rows are sent in the order in which they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Any, Final

import numpy as np

from penstock.core.columns.batch import as_columns
from penstock.core.operators.base import StreamOperator
from penstock.core.operators.watermarks import LATE_RECORDS
from penstock.core.records import MIN_TIMESTAMP, Batch
from penstock.table.data.logical_types import DataType
from penstock.table.streaming.rows.row_keys import RowKeys
from penstock.table.streaming.rows.row_tuples import batch_of, tuples_of
from penstock.table.streaming.rows.sessions import StreamSession
from penstock.table.streaming.windows.window_ends import WindowEnds
from penstock.table.streaming.windows.window_times import WindowTime

#: The state.
SESSIONS: Final = "sessions"
START, END, ROWS = 0, 1, 2
_MILLISECOND_NS: Final = 1_000_000


class SessionTableOperator(StreamOperator):
    """See the module's text.

    Args:
        partition: the places of the columns each of whose values have sessions of their own.
        time: the time attribute.
        gap: after which a session ends, in ms.
        types: of the columns that it gives; `names`: theirs.
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
        self._names = list(names)
        self._session = session
        self._watermark = MIN_TIMESTAMP

    def open(self) -> None:
        """Find the sessions, and when they are due."""
        self._ends = WindowEnds(self._time.zone_of(self._session))
        table = self.context.keyed.table(SESSIONS)
        self._entries, self._mark = table.entries(None), table.mark
        #: (when it is due, number, partition): entries of sessions that have grown are looked at too early, and again
        self._due: list[tuple[int, int, Any]] = []
        self._number = 0
        for key, sessions in self._entries.items():
            for one in sessions:
                self._wait(key, one[END])
        heapify(self._due)

    def _wait(self, key: Any, end: int) -> None:
        self._number += 1
        heappush(self._due, (self._ends.due_ms(end), self._number, key))

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Take rows in."""
        taken, times = self._time.clock(as_columns(batch, self.context.operator_name), self._session, self.context)
        keys = self._partition.of(taken.columns)
        kinds = taken.kinds or bytes(len(taken))
        late = 0
        changed = set()
        for key, time, kind, row in zip(keys, times.tolist(), kinds, tuples_of(taken, self._types), strict=True):
            if self._add(key, time, (kind, row)):
                changed.add(key)
            else:
                late += 1
        self._mark(None, changed)
        if late:
            self.context.count(LATE_RECORDS, late)

    def _add(self, key: Any, time: int, row: tuple[int, tuple[Any, ...]]) -> bool:
        """Add a row to the session that it belongs to; False if that is over."""
        start, end = time, time + self._gap
        sessions = self._entries.get(key, [])
        met = [one for one in sessions if one[START] <= end and start <= one[END]]
        if met:
            start, end = min(start, met[0][START]), max(end, met[-1][END])
        is_over = not self._time.is_processing and self._ends.due_ms(end) <= self._watermark
        if is_over:
            return False
        if len(met) == 1:
            (one,) = met
            has_grown = end > one[END]
            one[START], one[END] = start, end
            one[ROWS].append(row)
        else:
            has_grown = True
            rows = [held for one in met for held in one[ROWS]]
            others = [one for one in sessions if one not in met] if met else sessions
            self._entries[key] = sorted([*others, [start, end, [*rows, row]]], key=lambda one: one[START])
        if has_grown:
            self._wait(key, end)
        return True

    # --- time ---------------------------------------------------------------------------------------------------------

    def process_watermark(self, timestamp: int) -> None:
        """Send the sessions that are over."""
        if not self._time.is_processing:
            self._advance(timestamp)
        self.output.emit_watermark(timestamp)

    def next_timer_ms(self) -> int | None:
        """See `StreamOperator`."""
        return self._due[0][0] + 1 if self._time.is_processing and self._due else None

    def on_processing_time(self, now_ms: int) -> None:
        """Send the sessions of processing time that are over."""
        if self._time.is_processing:
            self._advance(now_ms - 1)

    def _advance(self, timestamp: int) -> None:
        self._watermark = timestamp
        over: list[tuple[int, list[Any]]] = []
        changed = set()
        while self._due and self._due[0][0] <= timestamp:
            _, number, key = heappop(self._due)
            sessions = self._entries.get(key, [])
            gone = [one for one in sessions if self._ends.due_ms(one[END]) <= timestamp]
            if gone:
                over += [(number, one) for one in gone]
                changed.add(key)
                rest = [one for one in sessions if one not in gone]
                if rest:
                    self._entries[key] = rest
                else:
                    del self._entries[key]
        self._mark(None, changed)
        if over:
            self._send([one for _, one in over])

    def _send(self, sessions: list[Any]) -> None:
        rows, kinds = [], []
        for start, end, held in sessions:
            edges = (start * _MILLISECOND_NS, end * _MILLISECOND_NS, self._ends.time_ms(end) * _MILLISECOND_NS)
            rows += [(*row, *edges) for _, row in held]
            kinds += [kind for kind, _ in held]
        rowtimes = np.repeat(
            [self._ends.time_ms(end) for _, end, _ in sessions], [len(held) for _, _, held in sessions]
        ).astype(np.int64)
        self.output.collect(batch_of(rows, self._types, self._names, rowtimes, kinds))
