"""Writes the last of the query's rows for each primary key: ON CONFLICT DO DEDUPLICATE.

When the last row is retracted, the one before it is written again. When all rows are retracted, the key is deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.core.columns.batch import as_columns
from penstock.core.records import Batch
from penstock.table.data.logical_types import DataType
from penstock.table.plan.changes import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from penstock.table.streaming.rows.held_rows import to_canonical_rows
from penstock.table.streaming.rows.row_keys import RowKeys
from penstock.table.streaming.rows.state_times import ExpiringOperator
from penstock.table.streaming.sinks.upserts import Identity, sent_batch

#: State: primary key -> the rows of the query, in arrival order.
ROWS: Final = "rows"


class LastUpsertOperator(ExpiringOperator):
    """See the module docstring.

    Args:
        key: the indexes of the primary key columns.
        own: the indexes of the columns that identify the rows of the query; None if only all columns do.
        types: the types of all columns.
        names: the names of all columns.
    """

    def __init__(
        self, key: Sequence[int], own: Sequence[int] | None, types: Sequence[DataType], names: Sequence[str]
    ) -> None:
        self._keys = RowKeys(key)
        self._identity = Identity(own, types)
        self._types = tuple(types)
        self._names = list(names)

    def open(self) -> None:
        """Look up the state."""
        table = self.context.keyed.table(ROWS)
        self._rows, self._mark = table.entries(None), table.mark
        self._expire(self._rows, table.mark)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Process changes and emit the rows to write."""
        records = as_columns(batch, self.context.operator_name)
        keys, kinds = self._keys.of(records.columns), records.kinds
        distinct = set(keys)
        self._look(distinct)
        rows = to_canonical_rows(records.columns.columns, self._types, len(records))
        sent: list[tuple[int, tuple[Any, ...]]] = []
        for index, (key, row) in enumerate(zip(keys, rows, strict=True)):
            kind = INSERT if kinds is None else kinds[index]
            key_rows = self._rows.setdefault(key, [])
            if kind in (UPDATE_BEFORE, DELETE):
                self._remove(key_rows, row, sent)
            else:
                sent.append((UPDATE_AFTER if key_rows else INSERT, row))
                at = self._identity.find(key_rows, row) if self._identity.is_known else None
                if at is None:
                    key_rows.append(row)
                else:
                    key_rows[at] = row
            if not key_rows:
                del self._rows[key]
        self._mark(None, distinct)
        self._written([key for key in distinct if key in self._rows])
        if sent:
            self.output.collect(sent_batch(sent, self._types, self._names))

    def _remove(
        self, key_rows: list[tuple[Any, ...]], row: tuple[Any, ...], sent: list[tuple[int, tuple[Any, ...]]]
    ) -> None:
        at = self._identity.find(key_rows, row)
        if at is None:
            return
        removed = key_rows.pop(at)
        if not key_rows:
            sent.append((DELETE, removed))
        elif at == len(key_rows):
            sent.append((UPDATE_AFTER, key_rows[-1]))
