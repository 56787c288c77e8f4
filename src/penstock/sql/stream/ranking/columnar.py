"""Deduplication and top-N on columns, and top-N of windows.

If state has no lifetime, `indexed_last_row` and `indexed_top_n` do the same without an object for each key. If state is
outside memory, `LastRowOperator` and `RankOperator` run instead of the two operators on columns. Each of them can
restore the others' state.

`ColumnLastRowOperator` keeps the last row of each partition, and compares the rows of a batch all at once.

`ColumnRankOperator` keeps the first rows of each partition, for append-only inputs. Only their sort keys are examined.
Most rows rank after the last kept one of their partition, and one comparison of columns discards them.

`WindowRankOperator` emits the first rows of each window and partition in some order when the watermark passes the
window's end. Its state is (start, end) -> partition -> the group that `TopN` maintains. The input is append-only; rows
of windows that have ended are late.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.runtime.columns import ColumnBatch, as_columns
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.operators.watermarks import LATE_RECORDS
from penstock.runtime.records import MIN_TIMESTAMP, Batch
from penstock.sql.data.arrow import milliseconds
from penstock.sql.data.types import BigIntType, DataType
from penstock.sql.logical.nodes import INSERT, UPDATE_AFTER, UPDATE_BEFORE, SortKey
from penstock.sql.stream.ranking.deduplicate import ROWS, LastRowOperator
from penstock.sql.stream.ranking.top_n import PARTITIONS, RowsByPartition, Sent, TopN
from penstock.sql.stream.rows.columns import (
    ROWS_GONE_MAX,
    NumberedRows,
    lists_packed,
    places_in_order,
    rows_packed,
    same_keys,
)
from penstock.sql.stream.rows.rows import (
    RowKeys,
    build_batch,
    first_sort_values,
    pack_kinds,
    sort_keys,
    sort_keys_of_columns,
    to_tuples,
)
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.stream.windows.window_aggregate import WindowEnds
from penstock.state.equality import canonical_column

_NO_ROW: Final = -1


class ColumnLastRowOperator(LastRowOperator):
    """See the module docstring, and `LastRowOperator` for the arguments."""

    def open(self) -> None:
        """Look up the state."""
        table = self.context.keyed.table(ROWS)
        self._entries, self._mark = table.entries(None), table.mark
        self._rows = NumberedRows(self._types, self._names)
        if self._entries:
            first = self._rows.restore(list(self._entries.values()))
            self._renumber(first)
        table.keep_packed(rows_packed(self._rows))
        self._expire(self._entries, table.mark)

    def _renumber(self, first: int) -> None:
        entries = self._entries
        entries.update(zip(list(entries), range(first, first + len(entries)), strict=True))

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Emit the rows that are later than the last ones so far."""
        records = as_columns(batch, self.context.operator_name)
        codes, keys = self._partition.numbered(records.columns)
        self._look(keys)
        entries = self._entries
        stored_rows = np.fromiter((entries.get(key, _NO_ROW) for key in keys), np.int64, len(keys))
        first = self._rows.add(records.columns)
        by_key = places_in_order(codes, len(keys))
        of_key = codes[by_key]
        if self._time is not None:
            later = self._later(records.columns.column(self._time), stored_rows, by_key, of_key)
            by_key, of_key = by_key[later], of_key[later]
        numbers, before = with_former(by_key + first, of_key, stored_rows)
        if self._time is None and not self.ttl_ms:
            # If state expires, unchanged rows are sent again to keep downstream state alive.
            new = self._differ(numbers, before)
            if not new.all():
                numbers, before = with_former(numbers[new], of_key[new], stored_rows)
                of_key = of_key[new]
        if len(numbers):
            self._keep(keys, of_key, numbers)
            self._send(records, numbers, before)
        if self._rows.is_wasteful(len(entries)):
            self._renumber(self._rows.keep(np.fromiter(entries.values(), np.int64, len(entries))))

    def _later(self, times: pa.Array, stored_rows: Any, by_key: Any, of_key: Any) -> Any:
        """Return a mask of the rows, ordered by key, that are at least as late as all earlier rows of their key."""
        moments = times.view(pa.int64()).to_numpy(zero_copy_only=False)
        known = np.flatnonzero(stored_rows != _NO_ROW)
        former = np.zeros(0, np.int64)
        if len(known):
            (column,) = self._rows.columns(stored_rows[known], (self._time or 0,))
            former = column.view(pa.int64()).to_numpy(zero_copy_only=False)
        # Rank the times, so that adding a base for each key puts its times above those for earlier keys.
        ranks = np.unique(np.concatenate([former, moments]), return_inverse=True)[1].reshape(-1)
        highest = np.full(len(stored_rows), _NO_ROW, np.int64)
        highest[known] = ranks[: len(known)]
        mine = ranks[len(known) :][by_key]
        base = of_key.astype(np.int64) * (len(ranks) + 1)
        so_far = np.maximum.accumulate(np.maximum(mine, highest[of_key]) + base) - base
        return mine == so_far

    def _differ(self, numbers: Any, before: Any) -> Any:
        """Return a mask of the rows that differ from the ones they replace."""
        new = np.ones(len(numbers), np.bool_)
        replaces = np.flatnonzero(before != _NO_ROW)
        if len(replaces):
            rows = self._rows
            later, earlier = (
                list(map(canonical_column, rows.columns(chosen))) for chosen in (numbers[replaces], before[replaces])
            )
            new[replaces] = ~same_keys(later, earlier)
        return new

    def _keep(self, keys: list[Any], of_key: Any, numbers: Any) -> None:
        """Keep the last row of each key."""
        is_last = np.append(of_key[1:] != of_key[:-1], True)
        changed = [keys[code] for code in of_key[is_last].tolist()]
        self._entries.update(zip(changed, numbers[is_last].tolist(), strict=True))
        self._mark(None, changed)
        self._written(changed)

    def _send(self, records: ColumnBatch, numbers: Any, before: Any) -> None:
        """Emit rows in arrival order, each after the row that it replaces if previous rows are sent."""
        order = np.argsort(numbers)
        numbers, before = numbers[order], before[order]
        replaces = before != _NO_ROW
        kinds = np.where(replaces, UPDATE_AFTER, INSERT).astype(np.uint8)
        if self._sends_before and replaces.any():
            ends = np.cumsum(1 + replaces) - 1
            sent, of_sent = np.empty(int(ends[-1]) + 1, np.int64), np.full(int(ends[-1]) + 1, UPDATE_BEFORE, np.uint8)
            sent[ends], of_sent[ends] = numbers, kinds
            sent[ends[replaces] - 1] = before[replaces]
            numbers, kinds = sent, of_sent
        sent_kinds = kinds.tobytes() if kinds.any() else None
        if len(numbers) == len(records) and not self._sends_before:
            # All rows of the batch, in arrival order.
            columns = pa.RecordBatch.from_arrays(records.columns.columns[: len(self._types)], self._names)
            self.output.collect(ColumnBatch(columns, None, sent_kinds))
        else:
            self.output.collect(self._rows.batch(numbers, sent_kinds))


def with_former(numbers: Any, of_key: Any, stored_rows: Any) -> tuple[Any, Any]:
    """Return rows ordered by key, and the previous row of each one's key, which may be the kept row."""
    before = np.empty(len(numbers), np.int64)
    if len(numbers):
        before[1:] = numbers[:-1]
        begins = np.append(True, of_key[1:] != of_key[:-1])
        before[begins] = stored_rows[of_key[begins]]
    return numbers, before


class ColumnRankOperator(RowsByPartition):
    """See the module docstring.

    Args:
        partition: the indexes of the partition columns.
        order: the sort keys; equal rows stay in arrival order.
        end: the last row number of the range.
        top: maintains the rows of a partition; it gets numbers instead of rows (see `NumberedRows`), and must not
            look at their values.
        types: the types of the input columns.
        names: the names of the output columns: the input columns, and the row number if it is output.
    """

    def __init__(
        self,
        partition: Sequence[int],
        order: Sequence[SortKey],
        end: int,
        top: TopN,
        types: Sequence[DataType],
        names: Sequence[str],
    ) -> None:
        self._partition = RowKeys(partition)
        self._order = tuple(order)
        self._end = end
        self._top = top
        self._types = tuple(types)
        self._names = list(names)
        self._shows_number = len(self._names) > len(self._types)

    def open(self) -> None:
        """Look up the state."""
        table = self.context.keyed.table(PARTITIONS)
        self._entries, self._mark = table.entries(None), table.mark
        self._rows = NumberedRows(self._types, self._names)
        numbers = list(chain.from_iterable(group[1] for group in self._entries.values()))
        #: the number of stored rows at which removed ones are next discarded
        self._count_at = 2 * len(numbers) + ROWS_GONE_MAX
        if numbers:
            self._renumber(self._rows.restore(numbers))
        table.keep_packed(lists_packed(self._rows))
        self._expire(self._entries, table.mark)

    def _renumber(self, first: int) -> None:
        """Number the rows of all partitions consecutively."""
        for group in self._entries.values():
            end = first + len(group[1])
            group[1][:] = range(first, end)
            first = end

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Process rows and emit the resulting changes."""
        records = as_columns(batch, self.context.operator_name)
        codes, keys = self._partition.numbered(records.columns)
        self._look(keys)
        if self.ttl_ms:
            # Any row keeps its partition alive, even if it is not among the first.
            self._written(keys)
        near = self._near(records.columns, codes, keys)
        if near is not None and not len(near):
            return
        rows = records.columns if near is None else records.columns.take(pa.array(near))
        of_rows = (codes if near is None else codes[near]).tolist()
        sent = Sent()
        self._rank_rows(keys, of_rows, rows, sent)
        self._mark(None, [keys[code] for code in set(of_rows)])
        if sent.rows:
            self.output.collect(self._changes(sent))
        if len(self._rows) >= self._count_at:
            self._throw_out()

    def _throw_out(self) -> None:
        """Discard removed rows if they outnumber the others."""
        numbers = list(chain.from_iterable(group[1] for group in self._entries.values()))
        if self._rows.is_wasteful(len(numbers)):
            self._renumber(self._rows.keep(np.array(numbers, np.int64)))
        # Counting visits all partitions, so wait until the number of rows has grown by half.
        self._count_at = len(self._rows) * 3 // 2 + ROWS_GONE_MAX

    def _near(self, columns: pa.RecordBatch, codes: Any, keys: list[Any]) -> Any:
        """Return the indexes of the rows that may rank before the last kept ones, as a NumPy array; None for all.

        Only the first sort keys are compared, as floats, so some of these rows do not rank before them.
        """
        values = first_sort_values(self._order, self._types, columns)
        if values is None:
            return None
        get, end, is_one = self._entries.get, self._end, len(self._order) == 1
        full = [group[0][-1] if group is not None and len(group[0]) == end else None for group in map(get, keys)]
        last = [math.inf if key is None else key if is_one else key[0] for key in full]
        near = values <= np.array(last, np.float64)[codes]
        return None if near.all() else np.flatnonzero(near)

    def _rank_rows(self, keys: list[Any], of_rows: list[int], rows: pa.RecordBatch, sent: Sent) -> None:
        entries, top, end = self._entries, self._top, self._end
        order_keys, first = sort_keys_of_columns(self._order, self._types, rows), self._rows.add(rows)
        groups: list[Any] = list(map(entries.get, keys))
        add = top.add
        for number, (code, order_key) in enumerate(zip(of_rows, order_keys, strict=True), first):
            group = groups[code]
            if group is None:
                group = groups[code] = entries[keys[code]] = top.create(end)
            add(group, order_key, number, sent)

    def _changes(self, sent: Sent) -> ColumnBatch:
        numbers = np.array(sent.rows, np.int64)
        number_columns = (pa.array(sent.numbers, pa.int64()),) if self._shows_number else ()
        return self._rows.batch(numbers, pack_kinds(sent.kinds), *number_columns)


#: The name of the state.
WINDOWS: Final = "windows"
_NUMBER: Final = BigIntType(False)


class WindowRankOperator(StreamOperator):
    """See the module docstring.

    Args:
        partition: the indexes of the partition columns other than the window's.
        edges: the indexes of the window's start and end.
        is_moment: whether the time attribute is an instant (TIMESTAMP_LTZ), so that windows end in the session's time
            zone.
        order: the sort keys.
        numbers: the first and the last row number to emit.
        top: maintains the rows of a partition.
        types: the types of the input columns.
        names: the names of the output columns: the input columns, and the row number if it is output.
    """

    is_keyed = True

    def __init__(
        self,
        partition: Sequence[int],
        edges: tuple[int, int],
        is_moment: bool,
        order: Sequence[SortKey],
        numbers: tuple[int, int],
        top: TopN,
        types: Sequence[DataType],
        names: Sequence[str],
        session: StreamSession,
    ) -> None:
        self._partition = RowKeys(partition)
        self._edges = edges
        self._is_moment = is_moment
        self._order = tuple(order)
        self._numbers = numbers
        self._top = top
        self._types = tuple(types)
        self._names = list(names)
        self._shows_number = len(self._names) > len(self._types)
        self._session = session
        self._watermark = MIN_TIMESTAMP

    def open(self) -> None:
        """Look up the windows and when they are due."""
        self._ends = WindowEnds(self._session.zone if self._is_moment else None)
        self._table = self.context.keyed.table(WINDOWS)
        self._due = [(self._ends.due_ms(window[1]), window) for window in self._table.panes]
        heapify(self._due)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Add rows to their windows."""
        records = as_columns(batch, self.context.operator_name)
        starts, ends = (milliseconds(records.columns.column(edge)).tolist() for edge in self._edges)
        keys = self._partition.of(records.columns)
        rows = to_tuples(records, self._types)
        order_keys = sort_keys(self._order, self._types, rows)
        marks: dict[tuple[int, int], set[Any]] = {}
        unheard = Sent()
        late = 0
        for window, key, order_key, row in zip(zip(starts, ends, strict=True), keys, order_keys, rows, strict=True):
            if window not in marks:
                due = self._ends.due_ms(window[1])
                if due <= self._watermark:
                    late += 1
                    continue
                if window not in self._table.panes:
                    heappush(self._due, (due, window))
                marks[window] = set()
            entries = self._table.entries(window)
            if key not in entries:
                entries[key] = self._top.create(self._numbers[1])
            self._top.add(entries[key], order_key, row, unheard)
            marks[window].add(key)
        for window, changed in marks.items():
            self._table.mark(window, changed)
        if late:
            self.context.count(LATE_RECORDS, late)

    def process_watermark(self, timestamp: int) -> None:
        """Emit the rows of the windows that have ended, in order of time."""
        self._watermark = max(self._watermark, timestamp)
        while self._due and self._due[0][0] <= timestamp:
            _, window = heappop(self._due)
            self._fire(list(self._table.drop(window).values()))
        self.output.emit_watermark(timestamp)

    def _fire(self, partitions: list[Any]) -> None:
        first, last = self._numbers
        numbered = [
            (*row, number) if self._shows_number else row
            for group in partitions
            for number, row in enumerate(group[1][first - 1 : last], first)
        ]
        if numbered:
            types = (*self._types, _NUMBER) if self._shows_number else self._types
            self.output.collect(build_batch(numbered, types, self._names))
