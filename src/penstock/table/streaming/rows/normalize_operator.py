"""Upserts as changes: the last row of each key is kept, so that an update can be sent with the row as it was before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.core.columns.batch import as_columns
from penstock.core.records import Batch
from penstock.table.data.logical_types import DataType
from penstock.table.plan.changes import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from penstock.table.streaming.rows.row_keys import RowKeys
from penstock.table.streaming.rows.row_tuples import batch_of, tuples_of
from penstock.table.streaming.rows.state_times import ExpiringOperator

#: The state: key -> values of its row.
ROWS: Final = "rows"


class ChangelogNormalizeOperator(ExpiringOperator):
    """Takes rows by key, and deletions that may have only the key; gives inserts, updates and deletes of whole rows.

    A row that is the same as before sends nothing, nor does the deletion of a key that is not there. Where state
    expires the same row is sent again, so that it lives on in the steps behind.

    Args:
        keys: the places of the columns of the key.
        types: of all columns.
        names: of all columns.
        sends_before: whether an update sends the row as it was, too.
    """

    def __init__(
        self, keys: Sequence[int], types: Sequence[DataType], names: Sequence[str], sends_before: bool
    ) -> None:
        self._keys = RowKeys(keys)
        self._types = tuple(types)
        self._names = list(names)
        self._sends_before = sends_before

    def open(self) -> None:
        """Look up the state."""
        table = self.context.keyed.table(ROWS)
        self._rows, self._mark = table.entries(None), table.mark
        self._expire(self._rows, table.mark)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Compare each row with the last one of its key."""
        taken = as_columns(batch, self.context.operator_name)
        keys = self._keys.of(taken.columns)
        distinct = set(keys)
        self._look(distinct)
        kept, kinds = self._rows, taken.kinds
        found: list[tuple[Any, ...]] = []
        found_kinds = bytearray()
        for row, (key, values) in enumerate(zip(keys, tuples_of(taken, self._types), strict=True)):
            kind = INSERT if kinds is None else kinds[row]
            before = kept.get(key)
            if kind in (UPDATE_BEFORE, DELETE):
                if before is not None and kind == DELETE:
                    found.append(before)
                    found_kinds.append(DELETE)
                    del kept[key]
                continue
            if before == values and not self.ttl_ms:
                continue
            if before is not None and self._sends_before:
                found.append(before)
                found_kinds.append(UPDATE_BEFORE)
            found.append(values)
            found_kinds.append(INSERT if before is None else UPDATE_AFTER)
            kept[key] = values
        self._mark(None, distinct)
        self._written([key for key in distinct if key in kept])
        if found:
            self.output.collect(batch_of(found, self._types, self._names, kinds=found_kinds))
