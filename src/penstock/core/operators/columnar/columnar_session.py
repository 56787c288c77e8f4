"""Event-time session windows over columns, aggregated by kernels.

The operator keeps a row of partials for each session, with its start and end. Sessions of a key that overlap or touch
are one session. The operator finds the sessions of a batch by sorting it, and joins them to its existing sessions when
it merges partials.

The operator judges the records of a batch together. A record that would be late alone is not late if it belongs to a
session that is not late, whether the session's other records came before it or with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.core.columns.batch import ColumnBatch
from penstock.core.columns.expressions import Aggregate
from penstock.core.columns.keys import ColumnKey
from penstock.core.operators.columnar.columnar_window_base import ColumnarWindowBase, lowest, read_times
from penstock.core.records import Batch
from penstock.core.windowing.session_windows import EventTimeSessionWindows, time_of_sessions
from penstock.state.key_columns import distinct_keys

START: Final = "start"
END: Final = "end"
_SESSION: Final = "session"


class ColumnarSessionOperator(ColumnarWindowBase):
    """Aggregates session windows over columns; see the module docstring."""

    state_name = "_penstock_column_sessions"

    def __init__(
        self,
        key: ColumnKey,
        assigner: EventTimeSessionWindows,
        aggregates: Sequence[Aggregate],
        late_tag: str | None = None,
    ) -> None:
        super().__init__(key, aggregates, late_tag)
        self._gap_ms = assigner.gap_ms

    def about(self) -> str:
        """Describe the windows and aggregates."""
        return f"sessions of {self._gap_ms} ms of {self.aggregates.describe()} by {len(self.key_names)} columns"

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Add the sessions of the batch's records."""
        records = self.to_column_batch(batch)
        partials, sessions = self._assign_sessions(records)
        if int(read_times(partials, END).min()) - 1 <= self.watermark:
            late = self._late_among(partials)
            if late.any():
                is_late = late[sessions]
                self.late(records.where(is_late))
                partials = partials.filter(pa.array(~late))
        self.add(partials)

    def _assign_sessions(self, records: ColumnBatch) -> tuple[pa.Table, Any]:
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
        timestamp = time_of_sessions(timestamp)
        self.fire_until(timestamp)
        self.output.emit_watermark(timestamp)

    def fire_until(self, timestamp: int) -> None:
        """Fire the sessions that end at or before a time."""
        self.watermark = timestamp
        least = lowest(self.parts, END)
        if least is not None and least - 1 <= timestamp:
            # A due session may touch another that begins right at the watermark, but none that begins later.
            table = self.take_due(START, timestamp + 1)
            starts, ends = read_times(table, START), read_times(table, END)
            due = np.flatnonzero(ends - 1 <= timestamp)
            if len(due):
                due = due[np.argsort(ends[due], kind="stable")]
                self.emit(table.take(pa.array(due)), starts[due], ends[due])
            self.put_back(table.filter(pa.array(ends - 1 > timestamp)))
