"""Joins of rows whose times lie within an interval of each other, in event time or processing time.

A left and a right row match if `lower <= left time - right time <= upper`. Rows wait in the state of their key until no
further match is possible. An outer side then emits its unmatched rows padded with NULL. Input and output are
append-only.

State is scanned only from time to time, so an unmatched row may be emitted up to half an interval later than necessary.
The emitted watermark is delayed so that none of these rows is late.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.runtime.columns import ColumnBatch, as_columns
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.operators.watermarks import TimerQueue
from penstock.runtime.records import MAX_WATERMARK, MIN_TIMESTAMP, Batch
from penstock.sql.data.arrow import arrow_type
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.data.types import DataType
from penstock.sql.expressions.evaluator import Evaluator
from penstock.sql.logical.nodes import INSERT, JoinType
from penstock.sql.optimizer.pushdown import Interval
from penstock.sql.stream.joins.regular import Sent, take_rows
from penstock.sql.stream.joins.sides import PairCondition, SideKeys
from penstock.sql.stream.rows.rows import build_columns, to_canonical_rows
from penstock.sql.stream.rows.state_ttl import EvaluatingOperator, StreamSession
from penstock.sql.typed import Typed

#: The states: key -> [rows of both sides by time, next scan time of each side]; and timers.
ROWS: Final = "rows"
TIMERS: Final = "timers"
#: Fields of a waiting row.
_VALUES, _HAS_MATCH = 0, 1
#: The approximate maximum number of pairs to process at once.
_PAIRS_MAX: Final = 1 << 16


class SqlIntervalJoinOperator(EvaluatingOperator):
    """INNER, LEFT, RIGHT and FULL. See the module docstring, and `JoiningOperator` for the other arguments."""

    is_keyed = True

    def __init__(
        self,
        join_type: JoinType,
        interval: Interval,
        keys: tuple[Sequence[int], Sequence[int]],
        nulls_match: Sequence[bool],
        condition: Typed | None,
        types: tuple[Sequence[DataType], Sequence[DataType]],
        names: Sequence[str],
        session: StreamSession,
    ) -> None:
        self._keeps = join_type.keeps_left, join_type.keeps_right
        self._interval = interval
        self._times = interval.left_time, interval.right_time
        #: how long after the time of a row of each side its matches may occur
        self._waits = -interval.lower, interval.upper
        self._clean_up_ms = max(0, interval.upper - interval.lower) // 2
        alone = [self._waits[side] + self._clean_up_ms + 1 for side in (0, 1) if self._keeps[side]]
        #: the maximum delay of an output row after the time of any of its rows
        self._delay_ms = max(0, *self._waits, *alone)
        self._keys = keys
        self._nulls_match = tuple(nulls_match)
        self._condition = condition
        self._types = types
        self._names = list(names)
        self._session = session
        self._watermark = MIN_TIMESTAMP
        #: rows of each side up to this time have expired and need no lookup
        self._expired = [MIN_TIMESTAMP, MIN_TIMESTAMP]

    def open(self) -> None:
        """Open the state and build the condition's evaluator."""
        table = self.context.keyed.table(ROWS)
        self._entries, self._mark = table.entries(None), table.mark
        self._timers = TimerQueue(self.context.keyed.table(TIMERS))
        self._finders = [SideKeys(indices, self._nulls_match) for indices in self._keys]
        self._where: PairCondition | None = None
        if self._condition is not None:
            session = self.running(self._session)
            self._where = PairCondition(self._condition, len(self._types[0]), Evaluator([self._condition], session))

    # --- rows ---------------------------------------------------------------------------------------------------------

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Match the rows with the waiting rows of the other side, then let them wait for later matches."""
        records = self._with_times(as_columns(batch, self.context.operator_name), input_index)
        columns, types = records.columns, self._types[input_index]
        keys = self._finders[input_index].of(columns)
        rows = to_canonical_rows(columns.columns[: len(types)], types, len(records))
        try:
            times = self._read_times(columns, input_index)
            start = 0
            while start < len(records):
                candidates = self._candidates(keys, times, start, input_index)
                if self._where is not None and any(candidates.matches):
                    numbers = np.arange(start, start + len(candidates.matches))
                    other = build_columns(candidates.rows, self._types[1 - input_index])
                    candidates.matches = self._where.kept(
                        numbers, candidates.matches, columns.columns, other, input_index == 0
                    )
                self._join_rows(columns, keys, rows, times, candidates, input_index)
                start += len(candidates.matches)
        except TableRuntimeError as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(records)} rows") from error
        self._mark(None, set(keys))

    def _with_times(self, records: ColumnBatch, side: int) -> ColumnBatch:
        """Return the rows that have a time. Rows without a time match nothing; an outer side emits them with NULL."""
        times = records.columns.column(self._times[side])
        if not self._interval.is_event_time or not times.null_count:
            return records
        if self._keeps[side]:
            alone = records.columns.filter(times.is_null())
            mine = alone.columns[: len(self._types[side])]
            nulls = [pa.nulls(len(alone), arrow_type(kind)) for kind in self._types[1 - side]]
            self._collect([*mine, *nulls] if side == 0 else [*nulls, *mine])
        return records.take(np.flatnonzero(times.is_valid().to_numpy(zero_copy_only=False)))

    def _read_times(self, columns: pa.RecordBatch, side: int) -> list[int]:
        if not self._interval.is_event_time:
            return [self.context.now_ms()] * columns.num_rows
        column = columns.column(self._times[side])
        times: list[int] = column.cast(pa.timestamp("ms", column.type.tz), safe=False).view(pa.int64()).to_pylist()
        return times

    def _now(self) -> int:
        return self._watermark if self._interval.is_event_time else self.context.now_ms()

    def _expiration(self, side: int) -> int:
        """Return the time up to which rows can have no further match."""
        now = self._now()
        return now if now == MAX_WATERMARK else now - self._waits[side] - 1

    def _candidates(self, keys: list[Any], times: list[int], start: int, side: int) -> _Found:
        """Find the candidates of the rows from `start` on, up to about `_PAIRS_MAX` pairs."""
        candidates, other = _Found(start), 1 - side
        earlier, later = self._waits[other], self._waits[side]
        total = 0
        for row in range(start, len(keys)):
            key, time = keys[row], times[row]
            entry = self._entries.get(key)
            positions: list[int] = []
            removed: list[int] = []
            if entry is not None and self._expired[other] < time + later:
                expired = self._expired[other] = self._expiration(other)
                waiting = entry[0][other]
                refused = self._finders[side].matches_nothing(key)
                for at in list(waiting):
                    if time - earlier <= at <= time + later and not refused:
                        positions.extend(candidates.places(key, at, waiting[at]))
                    if at <= expired:
                        removed.extend(candidates.places(key, at, waiting[at]))
                        del waiting[at]
            candidates.matches.append(positions)
            candidates.gone.append(removed)
            total += len(positions)
            if total > _PAIRS_MAX:
                break
        return candidates

    def _join_rows(
        self,
        columns: pa.RecordBatch,
        keys: list[Any],
        rows: list[tuple[Any, ...]],
        times: list[int],
        candidates: _Found,
        side: int,
    ) -> None:
        sent, other, now = Sent(), 1 - side, self._now()
        keeps_mine, keeps_other = self._keeps[side], self._keeps[other]
        is_empty = self._interval.lower > self._interval.upper
        for row, (positions, removed) in enumerate(
            zip(candidates.matches, candidates.gone, strict=True), candidates.start
        ):
            for position in positions:
                candidates.entries[position][_HAS_MATCH] = True
                sent.add(row, position, INSERT)
            for position in removed if keeps_other else ():
                if not candidates.entries[position][_HAS_MATCH]:
                    sent.add(None, position, INSERT)
            key, time = keys[row], times[row]
            if not is_empty and now < time + self._waits[side]:
                if keeps_mine or not self._finders[side].matches_nothing(key):
                    self._let_wait(key, time, rows[row], bool(positions), side)
            elif keeps_mine and not positions:
                sent.add(row, None, INSERT)
        if sent.kinds:
            width = len(self._types[side])
            mine = take_rows(columns.columns[:width], sent.mine)
            theirs = take_rows(build_columns(candidates.rows, self._types[other]), sent.other)
            self._collect([*mine, *theirs] if side == 0 else [*theirs, *mine])

    def _let_wait(self, key: Any, time: int, row: tuple[Any, ...], has_match: bool, side: int) -> None:
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = [[{}, {}], [None, None]]
        entry[0][side].setdefault(time, []).append([row, has_match])
        due = entry[1][side]
        if due is None or (self._keeps[side] and self._due(time, side) < due):
            self._set_timer(entry, key, time, side)

    def _due(self, time: int, side: int) -> int:
        """Return the latest time at which a row of this time is scanned."""
        return time + self._waits[side] + self._clean_up_ms + 1

    def _set_timer(self, entry: Any, key: Any, time: int, side: int) -> None:
        entry[1][side] = self._due(time, side)
        self._timers.register(entry[1][side], key)

    def _collect(self, arrays: list[Any]) -> None:
        self.output.collect(ColumnBatch(pa.RecordBatch.from_arrays(arrays, self._names)))

    # --- time ---------------------------------------------------------------------------------------------------------

    def process_watermark(self, timestamp: int) -> None:
        """Remove rows that can have no further match, and emit the watermark minus the maximum output delay."""
        self._watermark = timestamp
        if self._interval.is_event_time:
            self._fire(timestamp)
            delay_ms = 0 if timestamp == MAX_WATERMARK else self._delay_ms
            timestamp = max(MIN_TIMESTAMP, timestamp - delay_ms)
        self.output.emit_watermark(timestamp)

    def next_timer_ms(self) -> int | None:
        """See `EvaluatingOperator`."""
        return None if self._interval.is_event_time else self._timers.next_timestamp()

    def on_processing_time(self, now_ms: int) -> None:
        """Remove rows that can have no further match."""
        if not self._interval.is_event_time:
            self._fire(now_ms)

    def quiesce_timers(self) -> None:
        """Drop the processing-time timers."""
        if not self._interval.is_event_time:
            self._timers.clear()

    def end_keys(self) -> None:
        """See `EvaluatingOperator`."""
        before, expired = self._watermark, list(self._expired)
        super().end_keys()
        self._watermark, self._expired = before, expired

    def _fire(self, up_to: int) -> None:
        """Scan the rows of the keys whose timers are due."""
        left: tuple[list[Any], list[Any]] = ([], [])
        for timestamp, key in self._timers.due(up_to):
            entry = self._entries.get(key)
            if entry is None:
                continue
            for side in (0, 1):
                if entry[1][side] == timestamp:
                    left[side].extend(self._leaving(entry, key, side))
            if not any(entry[0]):
                del self._entries[key]
            self._mark(None, (key,))
        for side, rows in enumerate(left):
            if rows:
                mine = build_columns(rows, self._types[side])
                nulls = [pa.nulls(len(rows), arrow_type(kind)) for kind in self._types[1 - side]]
                self._collect([*mine, *nulls] if side == 0 else [*nulls, *mine])

    def _leaving(self, entry: Any, key: Any, side: int) -> Iterator[tuple[Any, ...]]:
        """Remove rows that can have no further match, and yield the unmatched rows of an outer side."""
        expired = self._expired[side] = self._expiration(side)
        waiting, entry[1][side] = entry[0][side], None
        for at in [at for at in waiting if at <= expired]:
            for row in waiting.pop(at):
                if self._keeps[side] and not row[_HAS_MATCH]:
                    yield row[_VALUES]
        if waiting:
            self._set_timer(entry, key, min(waiting), side)


class _Found:
    """The matches of the rows of a batch from `start` on, and the rows of the other side that expire after each."""

    __slots__ = ("_places", "entries", "gone", "matches", "rows", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.rows: list[tuple[Any, ...]] = []
        self.entries: list[list[Any]] = []
        self.matches: list[Sequence[int]] = []
        self.gone: list[Sequence[int]] = []
        self._places: dict[Any, range] = {}

    def places(self, key: Any, time: int, entries: list[list[Any]]) -> range:
        """Return the positions of a key's rows of one time among all rows, adding them on first use."""
        positions = self._places.get((key, time))
        if positions is None:
            begin = len(self.rows)
            self.rows.extend([entry[_VALUES] for entry in entries])
            self.entries.extend(entries)
            positions = self._places[key, time] = range(begin, len(self.rows))
        return positions
