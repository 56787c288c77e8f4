"""Deduplication: keeps the last row of each partition, the first one by event time, or the first ones by arrival.

`LastRowOperator` emits the last row immediately, and later rows update it.

`FirstRowOperator` emits the first row by event time when the watermark reaches it. No earlier row can arrive then, so
the output is append-only.

`FirstRowsOperator` emits the first rows of each partition in arrival order: LIMIT without ORDER BY, and top-N by
processing time. Its state is the number of rows so far for each partition, counted up to the end of the range.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.runtime.columns import ColumnBatch, as_columns
from penstock.runtime.operators.watermarks import LATE_RECORDS
from penstock.runtime.records import MIN_TIMESTAMP, Batch
from penstock.sql.data.arrow import milliseconds
from penstock.sql.data.row_data import RowData, RowLayout
from penstock.sql.data.types import DataType
from penstock.sql.logical.nodes import INSERT, UPDATE_AFTER, UPDATE_BEFORE
from penstock.sql.stream.rows.row_log import RowsTakenOver
from penstock.sql.stream.rows.rows import RowEquality, RowKeys, build_batch, pack_kinds, to_tuples
from penstock.sql.stream.rows.state_ttl import ExpiringOperator
from penstock.state.snapshot import StateCapture

#: The state of the operators that keep rows by key: the row of each partition.
ROWS: Final = "rows"
#: The state of `IndexedLastRowOperator`, in columns.
LAST_ROWS: Final = "last_rows"


def about_last_rows(keys: Sequence[int]) -> str:
    """Return the description of `LAST_ROWS`, see `ColumnStates`."""
    return f"the last rows by {len(keys)} columns"


class LastRowOperator(ExpiringOperator):
    """See the module docstring. The input is append-only.

    Args:
        partition: the indexes of the partition columns.
        time: the index of the event time that orders rows; of rows with the same time, the one that arrives later is
            the last. None for arrival order.
        types: the types of the columns.
        names: the names of the columns.
        sends_before: whether updates include the previous row (UPDATE_BEFORE).
    """

    def __init__(
        self,
        partition: Sequence[int],
        time: int | None,
        types: Sequence[DataType],
        names: Sequence[str],
        sends_before: bool,
    ) -> None:
        self._partition = RowKeys(partition)
        self._time = time
        self._types = tuple(types)
        self._equality = RowEquality(types)
        self._names = list(names)
        self._layout = RowLayout(names, types)
        self._sends_before = sends_before

    def initialize_state(self) -> None:
        """Take over the rows of an `IndexedLastRowOperator`."""
        super().initialize_state()
        positions = self._partition.places
        self._taken = RowsTakenOver(self.context, LAST_ROWS, about_last_rows(positions), positions)
        table = self.context.keyed.table(ROWS)
        for records in self._taken.move(table):
            keys = self._partition.of(records.columns)
            table.entries(None).update(zip(keys, to_tuples(records, self._types), strict=True))
            table.mark(None, set(keys))

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        """Capture the rows by key, and the columns that they were taken from, which are empty now."""
        return [*super().snapshot_state(checkpoint_id), *self._taken.capture()]

    def open(self) -> None:
        """Look up the state."""
        table = self.context.keyed.table(ROWS)
        self._entries, self._mark = table.entries(None), table.mark
        self._expire(self._entries, table.mark)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Emit the rows that are later than the last ones so far."""
        records = as_columns(batch, self.context.operator_name)
        keys = self._partition.of(records.columns)
        self._look(set(keys))
        self._process_rows(keys, to_tuples(records, self._types))

    def _process_rows(self, keys: list[Any], new_rows: list[tuple[Any, ...]]) -> None:
        """Emit the rows that are later than the last ones of their keys so far."""
        entries, time, changed = self._entries, self._time, set()
        kinds: list[int] = []
        rows: list[tuple[Any, ...]] = []
        for key, row in zip(keys, new_rows, strict=True):
            before = entries.get(key)
            if before is None:
                kinds.append(INSERT)
            elif row[time] < before[time] if time is not None else not self.ttl_ms and self._equality.same(before, row):
                # If state expires, unchanged rows are sent again to keep downstream state alive.
                continue
            else:
                if self._sends_before:
                    kinds.append(UPDATE_BEFORE)
                    rows.append(before)
                kinds.append(UPDATE_AFTER)
            rows.append(row)
            entries[key] = row
            changed.add(key)
        self._mark(None, changed)
        self._written(changed)
        if rows:
            self.output.collect(ColumnBatch(RowData(self._layout, rows), None, pack_kinds(kinds)))


class FirstRowOperator(ExpiringOperator):
    """See the module docstring. The input is append-only; rows before the watermark are late.

    State: (time in ms, row) of each partition with a pending row, None if the row has been emitted.

    Args:
        partition: the indexes of the partition columns.
        time: the index of the event time.
        types: the types of the columns.
        names: the names of the columns.
    """

    def __init__(self, partition: Sequence[int], time: int, types: Sequence[DataType], names: Sequence[str]) -> None:
        self._partition = RowKeys(partition)
        self._time = time
        self._types = tuple(types)
        self._names = list(names)
        self._watermark = MIN_TIMESTAMP
        self._numbers = count()

    def open(self) -> None:
        """Look up the state and its pending rows."""
        table = self.context.keyed.table(ROWS)
        self._entries, self._mark = table.entries(None), table.mark
        waiting = [(entry[0], key) for key, entry in self._entries.items() if entry is not None]
        self._due = [(time, next(self._numbers), key) for time, key in waiting]
        heapify(self._due)
        self._begin_lifetimes(self._entries, self._forget)

    def _forget(self, key: Any) -> bool:
        """Drop an expired row and return True. A pending row stays, because it has not been emitted yet."""
        if self._entries.get(key) is not None:
            return False
        if key in self._entries:
            del self._entries[key]
            self._mark(None, (key,))
        return True

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Keep the rows that are earlier than the first ones so far."""
        records = as_columns(batch, self.context.operator_name)
        keys = self._partition.of(records.columns)
        times = milliseconds(records.columns.column(self._time)).tolist()
        self._look(set(keys))
        entries, changed = self._entries, set()
        late = 0
        for key, time, row in zip(keys, times, to_tuples(records, self._types), strict=True):
            if time < self._watermark:
                late += 1
                continue
            if key in entries:
                entry = entries[key]
                if entry is None or time >= entry[0]:
                    continue
            entries[key] = (time, row)
            heappush(self._due, (time, next(self._numbers), key))
            changed.add(key)
        self._mark(None, changed)
        self._written(changed)
        if late:
            self.context.count(LATE_RECORDS, late)

    def process_watermark(self, timestamp: int) -> None:
        """Emit the rows that the watermark has reached."""
        self._watermark = timestamp
        entries, due = self._entries, self._due
        times, rows, keys = [], [], []
        while due and due[0][0] <= timestamp:
            time, _, key = heappop(due)
            entry = entries.get(key)
            if entry is not None and entry[0] == time:
                times.append(time)
                rows.append(entry[1])
                keys.append(key)
                entries[key] = None
        if rows:
            self._mark(None, set(keys))
            self._written(keys)
            self.output.collect(build_batch(rows, self._types, self._names, np.array(times, np.int64)))
        self.output.emit_watermark(timestamp)


#: The name of the state.
COUNTS: Final = "counts"


class FirstRowsOperator(ExpiringOperator):
    """See the module docstring. The input is append-only.

    Args:
        partition: the indexes of the partition columns.
        start: the first row number to emit, from 1.
        end: the last row number to emit.
        names: the names of the output columns: the input columns, and the row number if it is output.
        shows_number: whether the row number is output.
    """

    def __init__(
        self, partition: Sequence[int], start: int, end: int, names: Sequence[str], shows_number: bool = False
    ) -> None:
        self._partition = RowKeys(partition)
        self._start = start
        self._end = end
        self._names = list(names)
        self._shows_number = shows_number

    def open(self) -> None:
        """Look up the state."""
        table = self.context.keyed.table(COUNTS)
        self._entries, self._mark = table.entries(None), table.mark
        self._expire(self._entries, table.mark)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Emit the rows within the range."""
        records = as_columns(batch, self.context.operator_name)
        keys = self._partition.of(records.columns)
        self._look(set(keys))
        entries, start, end = self._entries, self._start, self._end
        rows: list[int] = []
        numbers: list[int] = []
        changed = set()
        for row, key in enumerate(keys):
            count = entries.get(key, 0)
            if count == end:
                continue
            count = entries[key] = count + 1
            changed.add(key)
            if count >= start:
                rows.append(row)
                numbers.append(count)
        self._mark(None, changed)
        self._written(changed)
        if rows:
            self.output.collect(self._first(records, rows, numbers))

    def _first(self, records: ColumnBatch, rows: list[int], numbers: list[int]) -> ColumnBatch:
        selected = records if len(rows) == len(records) else records.take(np.array(rows))
        if not self._shows_number:
            return selected
        arrays = [*selected.columns.columns, pa.array(numbers, pa.int64())]
        return ColumnBatch(pa.RecordBatch.from_arrays(arrays, self._names), selected.rowtimes)
