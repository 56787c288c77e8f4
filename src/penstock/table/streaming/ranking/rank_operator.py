"""Keeps the first rows of each partition in some order (ROW_NUMBER with an upper bound, ORDER BY with LIMIT).

State: the group that `TopN` maintains for each partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.records import Batch
from penstock.table.data.logical_types import BigIntType, DataType
from penstock.table.plan.changes import DELETE, UPDATE_BEFORE
from penstock.table.plan.logical import SortKey
from penstock.table.streaming.ranking.top_n import Sent, TopN
from penstock.table.streaming.rows.held_rows import RowEquality
from penstock.table.streaming.rows.ordering import sort_keys
from penstock.table.streaming.rows.row_keys import RowKeys
from penstock.table.streaming.rows.row_tuples import build_batch, to_tuples
from penstock.table.streaming.rows.state_times import ExpiringOperator

#: The name of the state.
PARTITIONS: Final = "partitions"
_NUMBER: Final = BigIntType(False)


class RankOperator(ExpiringOperator):
    """See the module docstring.

    Args:
        partition: the indexes of the partition columns.
        order: the sort keys; equal rows stay in arrival order.
        end: the last row number of the range, or the index of the column that holds it in a partition's first row.
        ends_in_column: whether `end` is a column index.
        top: maintains the rows of a partition.
        types: the types of the input columns.
        names: the names of the output columns: the input columns, and the row number if it is output.
    """

    def __init__(
        self,
        partition: Sequence[int],
        order: Sequence[SortKey],
        end: int,
        ends_in_column: bool,
        top: TopN,
        types: Sequence[DataType],
        names: Sequence[str],
    ) -> None:
        self._partition = RowKeys(partition)
        self._order = tuple(order)
        self._end = end
        self._ends_in_column = ends_in_column
        self._top = top
        top.equality = RowEquality(types)
        self._types = tuple(types)
        self._names = list(names)
        self._shows_number = len(self._names) > len(self._types)

    def open(self) -> None:
        """Look up the state."""
        table = self.context.keyed.table(PARTITIONS)
        self._entries, self._mark = table.entries(None), table.mark
        self._expire(self._entries, table.mark)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Process rows and emit the resulting changes."""
        records = as_columns(batch, self.context.operator_name)
        keys = self._partition.of(records.columns)
        rows = to_tuples(records, self._types)
        sent = Sent()
        distinct = set(keys)
        self._look(distinct)
        self._rank_rows(keys, rows, records.kinds, sent)
        self._mark(None, distinct)
        self._written(distinct)
        if sent.rows:
            self.output.collect(self._changes(sent))

    def _rank_rows(self, keys: list[Any], rows: list[tuple[Any, ...]], kinds: bytes | None, sent: Sent) -> None:
        entries, top, end = self._entries, self._top, self._end
        order_keys = sort_keys(self._order, self._types, rows)
        for index, row in enumerate(rows):
            key = keys[index]
            group = entries.get(key)
            if group is None:
                group = entries[key] = top.create((row[end] or 0) if self._ends_in_column else end)
            elif type(group) is list:
                group = entries[key] = top.resumed(group)
            if kinds is not None and kinds[index] in (UPDATE_BEFORE, DELETE):
                top.remove(group, order_keys[index], row, sent, owes=not self.ttl_ms)
            else:
                top.add(group, order_keys[index], row, sent)
            # The end that a partition's first row sets stays valid after that row is removed.
            if not group[1] and top.is_empty(group) and not self._ends_in_column:
                del entries[key]

    def _changes(self, sent: Sent) -> ColumnBatch:
        if not self._shows_number:
            return build_batch(sent.rows, self._types, self._names, None, sent.kinds)
        rows = [(*row, number) for row, number in zip(sent.rows, sent.numbers, strict=True)]
        return build_batch(rows, (*self._types, _NUMBER), self._names, None, sent.kinds)
