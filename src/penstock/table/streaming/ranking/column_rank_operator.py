"""Keeps the first rows of each partition as columns, for append-only inputs. Only their sort keys are examined.

Most rows rank after the last kept one of their partition, and one comparison of columns discards them. If state is
outside memory, `RankOperator` runs instead. Either one can restore the other's state.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.records import Batch
from penstock.table.data.logical_types import DataType
from penstock.table.plan.logical import SortKey
from penstock.table.streaming.ranking.rank_operator import PARTITIONS
from penstock.table.streaming.ranking.top_n import Sent, TopN
from penstock.table.streaming.rows.numbered_rows import ROWS_GONE_MAX, NumberedRows, lists_packed
from penstock.table.streaming.rows.ordering import first_sort_values, sort_keys_of_columns
from penstock.table.streaming.rows.row_keys import RowKeys
from penstock.table.streaming.rows.row_tuples import pack_kinds
from penstock.table.streaming.rows.state_times import ExpiringOperator


class ColumnRankOperator(ExpiringOperator):
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
