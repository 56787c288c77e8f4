"""Event-time windows over columns, aggregated by kernels: tumbling, sliding, cumulative, and session windows.

`ColumnarWindowBase` is their shared base: partials that are merged from time to time, late records, and the state.

`ColumnarWindowOperator` divides time into *panes*, the longest intervals that lie in the same windows as a whole: a
tumbling window is one pane, a sliding window several. The operator keeps a row of partials for each key and pane, so a
record counts once, however many windows contain it. A window that fires merges the partials of its panes.

Sliding and cumulative windows share panes, and some windows of a pane may have fired when a snapshot is taken. So the
snapshot has a column with the watermark up to which they have fired. Without it they would fire again after a recovery,
where event time begins again.

`ColumnarSessionOperator` keeps a row of partials for each session, with its start and end. Sessions of a key that
overlap or touch are one session. The operator finds the sessions of a batch by sorting it, and joins them to its
existing sessions when it merges partials.

The operator judges the records of a batch together. A record that would be late alone is not late if it belongs to a
session that is not late, whether the session's other records came before it or with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from penstock.base.errors import UnsupportedError, WrongTypeError
from penstock.runtime import columns
from penstock.runtime.operators.base import StreamOperator, UserCodeError
from penstock.runtime.operators.watermarks import LATE_RECORDS
from penstock.runtime.operators.window.kept_windows import ALL_SLOTS, FIRED_WINDOWS, OPEN_WINDOWS, SESSIONS, has_windows
from penstock.runtime.records import MIN_TIMESTAMP, Batch
from penstock.runtime.windowing import assigners
from penstock.state.errors import StateError
from penstock.state.key_columns import ColumnsCapture, distinct_keys
from penstock.state.snapshot import StateCapture

#: Partials are merged when they have more rows than this, and than twice the rows after the last merge.
PARTIALS_MAX: Final = 1 << 16
#: The number of records that are grouped at once: with fewer, a call's overhead takes most of the time.
_RECORDS_AT_ONCE: Final = 1 << 14
#: State of the operators that keep windows record by record.
_BY_RECORD: Final = (OPEN_WINDOWS, FIRED_WINDOWS, SESSIONS, *ALL_SLOTS)


class ColumnarWindowBase(StreamOperator):
    """Keeps tables of partials: the key columns, the window columns and the aggregate columns.

    In batch execution its input need not come key by key, because it holds a row for each group and not the records.
    """

    state_name: ClassVar[str]

    def __init__(self, key: columns.ColumnKey, aggregates: Sequence[columns.Aggregate], late_tag: str | None) -> None:
        self.key = key
        self.aggregates = columns.Aggregates(aggregates)
        self._late_tag = late_tag
        #: names that no user column has
        self.key_names = [f"key.{index}" for index in range(len(key.names))]
        self.watermark = MIN_TIMESTAMP
        #: tables of records that have not become partials yet
        self._waiting: list[pa.Table] = []
        self._records_waiting = 0
        self._schema_waiting: pa.Schema | None = None
        self._group: list[str] = []
        self._parts: list[pa.Table] = []
        self._rows = 0
        self._merged_rows = 0
        self._schema: pa.Schema | None = None

    def late_outputs(self) -> tuple[str, ...]:
        """Return the tag of the operator's late output, if it has one."""
        return () if self._late_tag is None else (self._late_tag,)

    def about(self) -> str:
        """Describe the state, see `ColumnStates`."""
        raise NotImplementedError

    def merge(self, parts: list[pa.Table]) -> pa.Table:
        """Merge partials into one row for each group."""
        raise NotImplementedError

    # --- the table -------------------------------------------------------------------------------------------------

    def initialize_state(self) -> None:
        """Restore the table."""
        restored = self.context.columns.take(self.state_name, self.about())
        for name in _BY_RECORD:
            if has_windows(self.context.keyed, name):
                raise StateError(
                    f"{self.context.operator_name}: the snapshot holds windows that were kept record by record (state "
                    f"{name!r}). Restore the operator's previous definition, or give it a new uid to start without "
                    "windows"
                )
        if restored is not None and restored.num_rows:
            self._schema = restored.schema
            self.put([restored])

    def take(self, records: columns.ColumnBatch, group: dict[str, Any]) -> None:
        """Take records with the columns of their groups. They become partials once there are many, or when needed."""
        arguments = self._by_kernel(len(records), lambda: self.aggregates.build_arguments(group, records.columns))
        is_other = arguments.schema != self._schema_waiting
        if is_other:
            self._settle()
            self._schema_waiting, self._group = arguments.schema, list(group)
        self._waiting.append(arguments)
        self._records_waiting += len(records)
        if is_other or self._records_waiting >= _RECORDS_AT_ONCE:
            self._settle()

    def _settle(self) -> None:
        """Turn the waiting records into partials."""
        if self._waiting:
            tables, self._waiting, self._records_waiting = self._waiting, [], 0
            together = pa.concat_tables(tables) if len(tables) > 1 else tables[0]
            self.add(self._by_kernel(together.num_rows, lambda: self.grouped(together, self._group)))

    def _by_kernel(self, records: int, compute: Callable[[], pa.Table]) -> pa.Table:
        try:
            return compute()
        except columns.KERNEL_ERRORS as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {records} records") from error

    def grouped(self, arguments: pa.Table, group: list[str]) -> pa.Table:
        """Return the partials of records, see `Aggregates`."""
        return self.aggregates.grouped(arguments, group)

    def add(self, partials: pa.Table) -> None:
        """Add partials; merge all of them once there are many."""
        if not partials.num_rows:
            return
        if self._schema is None:
            self._schema = partials.schema
        elif partials.schema != self._schema:
            partials = self._cast(partials)
        self._parts.append(partials)
        self._rows += partials.num_rows
        if self._rows > max(PARTIALS_MAX, 2 * self._merged_rows):
            self.put([self.table()])

    def _cast(self, partials: pa.Table) -> pa.Table:
        try:
            return partials.cast(self._schema)
        except (pa.ArrowException, ValueError) as error:
            raise WrongTypeError(
                f"{self.context.operator_name}: the types of columns changed from {_types(self._schema)} to "
                f"{_types(partials.schema)}, and their values do not fit: {error}"
            ) from error

    def table(self) -> pa.Table | None:
        """Return all partials, merged; None if the operator holds nothing."""
        self._settle()
        if len(self._parts) > 1:
            self.put([self.merge(self._parts)])
        return self._parts[0] if self._parts else None

    def put(self, parts: list[pa.Table]) -> None:
        """Replace all partials with these merged ones."""
        self._parts = [part for part in parts if part.num_rows]
        self._rows = self._merged_rows = sum(part.num_rows for part in self._parts)

    def take_due(self, name: str, last: int) -> pa.Table:
        """Remove the partials whose value in a time column is at most `last`, at least one, and return them merged.

        The others stay unmerged: while one source is ahead of another there are many, and they would be merged again at
        every watermark.
        """
        self._waiting, still_waiting = _split(self._waiting, name, last)
        self._settle()
        self._waiting, self._records_waiting = still_waiting, sum(table.num_rows for table in still_waiting)
        near, far = _split(self._parts, name, last)
        self._parts, self._rows = far, sum(part.num_rows for part in far)
        self._merged_rows = min(self._merged_rows, self._rows)
        return self.merge(near) if len(near) > 1 else near[0]

    def put_back(self, part: pa.Table) -> None:
        """Add these merged partials again; all others are later."""
        if part.num_rows:
            self._parts.insert(0, part)
            self._rows += part.num_rows
            self._merged_rows += part.num_rows

    @property
    def parts(self) -> list[pa.Table]:
        """The partials, unmerged."""
        self._settle()
        return self._parts

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        """Capture all state, including the merged table."""
        captures = super().snapshot_state(checkpoint_id)
        table = self.table()
        if table is None and self._schema is not None:
            table = self._schema.empty_table()
        if table is not None:
            names = tuple(self.key_names)
            captures.append(ColumnsCapture(self.state_name, self.to_capture(table), names, self.about()))
        return captures

    def to_capture(self, table: pa.Table) -> pa.Table:
        """Return the table in the form that a snapshot holds."""
        return table

    # --- records ---------------------------------------------------------------------------------------------------

    def to_column_batch(self, batch: Batch) -> columns.ColumnBatch:
        """Return the batch as columns, with timestamps."""
        records = columns.as_columns(batch, self.context.operator_name)
        if records.kinds is not None:
            raise UnsupportedError(
                f"{self.context.operator_name}: windows of columns accept inserts only, but these records update or "
                "delete others"
            )
        if records.rowtimes is None:
            raise WrongTypeError(
                f"{self.context.operator_name}: event-time windows need timestamps, but these records have none; give "
                "the source a WatermarkStrategy with_timestamp_column, or call assign_timestamps_and_watermarks"
            )
        return records

    def compute_partials(self, records: columns.ColumnBatch, group: dict[str, Any]) -> pa.Table:
        """Return the partials of records by group."""
        return self._by_kernel(len(records), lambda: self.aggregates.compute_partials(group, records.columns))

    def key_columns(self, records: columns.ColumnBatch) -> dict[str, Any]:
        """Return the key columns under the names that they have here."""
        return dict(zip(self.key_names, self.key.select_columns(records.columns), strict=True))

    def late(self, records: columns.ColumnBatch) -> None:
        """Handle records that come too late for all their windows."""
        if self._late_tag is None:
            self.context.count(LATE_RECORDS, len(records))
        else:
            self.output.collect_side(self._late_tag, records)

    def emit(self, partials: pa.Table, starts: Any, ends: Any) -> None:
        """Emit the results of windows, one row for each."""
        self.context.fired_timers += len(partials)
        keys = [columns.full(partials.column(name), 0) for name in self.key_names]
        arrays = [*keys, pa.array(starts), pa.array(ends), *self.aggregates.results(partials)[: self.shown]]
        names = [*self.key.names, "window_start", "window_end", *self.aggregates.names[: self.shown]]
        self.output.collect(columns.ColumnBatch(pa.RecordBatch.from_arrays(arrays, names), ends - 1))

    @property
    def shown(self) -> int:
        """The number of aggregates that the user asked for."""
        return len(self.aggregates.names)

    def end_keys(self) -> None:
        """Fire all windows."""
        super().end_keys()
        self.watermark = MIN_TIMESTAMP


def _split(tables: Sequence[pa.Table], name: str, last: int) -> tuple[list[pa.Table], list[pa.Table]]:
    """Return the rows whose value in a time column is at most `last`, and the other rows."""
    near: list[pa.Table] = []
    far: list[pa.Table] = []
    for table in tables:
        is_near = read_times(table, name) <= last
        rows = int(np.count_nonzero(is_near))
        if rows in (0, len(is_near)):
            (near if rows else far).append(table)
        elif is_near[:rows].all():  # rows mostly come in the order of their times
            near.append(table.slice(0, rows))
            far.append(table.slice(rows))
        else:
            near.append(table.filter(pa.array(is_near)))
            far.append(table.filter(pa.array(~is_near)))
    return near, far


def read_times(table: pa.Table, name: str) -> Any:
    """Return a column of integers as a numpy array."""
    return columns.full(table.column(name), 0).to_numpy(zero_copy_only=False)


def lowest(parts: Sequence[pa.Table], name: str) -> int | None:
    """Return the least value of a column of integers; None without rows."""
    return min((int(np.min(read_times(part, name))) for part in parts if part.num_rows), default=None)


def _types(schema: pa.Schema) -> str:
    return ", ".join(str(field.type) for field in schema)


PANE: Final = "pane"
#: Up to this number, panes are looked up one by one, which is faster than finding the distinct panes of a batch.
_LOOKED_FOR_MAX: Final = 32


class ColumnarWindowOperator(ColumnarWindowBase):
    """Aggregates tumbling, sliding and cumulative windows over columns; see the module docstring."""

    state_name = "_penstock_column_panes"

    def __init__(
        self,
        key: columns.ColumnKey,
        assigner: assigners.AlignedAssigner,
        aggregates: Sequence[columns.Aggregate],
        late_tag: str | None = None,
    ) -> None:
        self._is_tumbling = isinstance(assigner, assigners.TumblingEventTimeWindows)
        self._shown = len(aggregates)
        if not self._is_tumbling:
            aggregates = [*aggregates, columns.Aggregate("max", columns.Literal(MIN_TIMESTAMP), "fired")]
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
        self.watermark = timestamp

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
        return isinstance(assigner, assigners.SlidingEventTimeWindows) and assigner.slide_ms > assigner.size_ms

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


def _pane_ms(assigner: assigners.AlignedAssigner) -> int:
    if isinstance(assigner, assigners.CumulativeEventTimeWindows):
        return assigner.step_ms
    if isinstance(assigner, assigners.SlidingEventTimeWindows):
        return math.gcd(assigner.size_ms, assigner.slide_ms)
    return assigner.size_ms


START: Final = "start"
END: Final = "end"
_SESSION: Final = "session"


class ColumnarSessionOperator(ColumnarWindowBase):
    """Aggregates session windows over columns; see the module docstring."""

    state_name = "_penstock_column_sessions"

    def __init__(
        self,
        key: columns.ColumnKey,
        assigner: assigners.EventTimeSessionWindows,
        aggregates: Sequence[columns.Aggregate],
        late_tag: str | None = None,
    ) -> None:
        super().__init__(key, aggregates, late_tag)
        self._gap_ms = assigner.gap_ms
        #: No session ends before this time. None without sessions.
        self.least_end: int | None = None

    def initialize_state(self) -> None:
        """Restore the table, and find when its next session is due."""
        super().initialize_state()
        self.least_end = lowest(self.parts, END)

    def about(self) -> str:
        """Describe the windows and aggregates."""
        return f"sessions of {self._gap_ms} ms of {self.aggregates.describe()} by {len(self.key_names)} columns"

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Add the sessions of the batch's records."""
        records = self.to_column_batch(batch)
        partials, sessions = self._assign_sessions(records)
        least_end = int(read_times(partials, END).min())
        if least_end - 1 <= self.watermark:
            late = self._late_among(partials)
            if late.any():
                is_late = late[sessions]
                self.late(records.where(is_late))
                partials = partials.filter(pa.array(~late))
                if not partials.num_rows:
                    return
                least_end = int(read_times(partials, END).min())
        self.note_end(least_end)
        self.add(partials)

    def note_end(self, end: int) -> None:
        """Note that a session ends at or after this time."""
        if self.least_end is None or end < self.least_end:
            self.least_end = end

    def _assign_sessions(self, records: columns.ColumnBatch) -> tuple[pa.Table, Any]:
        """Return the sessions of these records alone, and the session number of each record."""
        keys, times = self.key_columns(records), records.rowtimes
        codes, _ = distinct_keys(list(keys.values()))
        order = np.lexsort((times, codes))
        of_key, at = codes[order], times[order]
        begins = np.flatnonzero(np.r_[True, (of_key[1:] != of_key[:-1]) | (at[1:] - at[:-1] > self._gap_ms)])
        numbers = np.zeros(len(order), np.int64)
        numbers[begins[1:]] = 1
        sessions = np.empty(len(order), np.int64)
        sessions[order] = np.cumsum(numbers)
        partials = self.compute_partials(records, {_SESSION: sessions})
        ends = np.r_[at[begins[1:] - 1], at[-1]] + self._gap_ms
        return self._finished(partials, keys, order[begins], at[begins], ends), sessions

    def _finished(self, partials: pa.Table, keys: dict[str, Any], rows: Any, starts: Any, ends: Any) -> pa.Table:
        """Return partials in the order of their session numbers, with key, start and end."""
        partials = partials.take(pa.array(np.argsort(read_times(partials, _SESSION)))).drop_columns([_SESSION])
        key_columns = {name: column.take(pa.array(rows)) for name, column in keys.items()}
        partial_columns = {name: partials.column(name) for name in self.aggregates.partial_columns}
        return pa.table({START: starts, END: ends, **key_columns, **partial_columns})

    def _late_among(self, partials: pa.Table) -> Any:
        """Return which of these sessions are late even when merged with the sessions in the state."""
        ends = read_times(partials, END)
        together = [*self.parts, partials.cast(self.parts[0].schema)] if self.parts else [partials]
        table = pa.concat_tables(together).combine_chunks()
        groups = self._groups(table)
        last = np.full(int(groups.max()) + 1, np.iinfo(np.int64).min)
        np.maximum.at(last, groups, read_times(table, END))
        late: Any = last[groups[-len(ends) :]] - 1 <= self.watermark
        return late

    def _groups(self, table: pa.Table) -> Any:
        """Return the number of the merged session that each row belongs to, numbered by key and start."""
        codes, _ = distinct_keys([table.column(name) for name in self.key_names])
        starts, ends = read_times(table, START), read_times(table, END)
        order = np.lexsort((starts, codes))
        of_key, begin, end = codes[order].astype(np.int64), starts[order], ends[order]
        # The highest end so far within each key: ends become ranks, and an offset separates the keys.
        unique, ranks = np.unique(end, return_inverse=True)
        so_far = np.maximum.accumulate(of_key * len(unique) + ranks) - of_key * len(unique)
        is_new = np.r_[True, (of_key[1:] != of_key[:-1]) | (begin[1:] > unique[so_far[:-1]])]
        groups = np.empty(len(order), np.int64)
        groups[order] = np.cumsum(is_new) - 1
        return groups

    def merge(self, parts: list[pa.Table]) -> pa.Table:
        """Merge the sessions that overlap or touch."""
        table = pa.concat_tables(parts).combine_chunks()
        groups = self._groups(table)
        starts, ends = read_times(table, START), read_times(table, END)
        limits, count = np.iinfo(np.int64), int(groups.max()) + 1
        first, last = np.full(count, limits.max), np.full(count, limits.min)
        np.minimum.at(first, groups, starts)
        np.maximum.at(last, groups, ends)
        rows = np.empty(count, np.int64)
        rows[groups] = np.arange(len(groups))
        keys = {name: table.column(name).combine_chunks() for name in self.key_names}
        merged = self.aggregates.merged([table.append_column(_SESSION, pa.array(groups))], [_SESSION])
        return self._finished(merged, keys, rows, first, last)

    def process_watermark(self, timestamp: int) -> None:
        """Fire the sessions that event time has passed, and pass the watermark on."""
        timestamp = assigners.time_of_sessions(timestamp)
        self.fire_until(timestamp)
        self.output.emit_watermark(timestamp)

    def fire_until(self, timestamp: int) -> None:
        """Fire the sessions that end at or before a time."""
        self.watermark = timestamp
        if self.least_end is not None and self.least_end - 1 <= timestamp:
            # A due session may touch another that begins right at the watermark, but none that begins later.
            table = self.take_due(START, timestamp + 1)
            starts, ends = read_times(table, START), read_times(table, END)
            due = np.flatnonzero(ends - 1 <= timestamp)
            if len(due):
                due = due[np.argsort(ends[due], kind="stable")]
                self.emit(table.take(pa.array(due)), starts[due], ends[due])
            self.put_back(table.filter(pa.array(ends - 1 > timestamp)))
            self.least_end = lowest(self.parts, END)
