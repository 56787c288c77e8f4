"""Keeps the last row of each partition as columns, and compares the rows of a batch all at once.

If state is outside memory, `LastRowOperator` runs instead. Either one can restore the other's state.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.records import Batch
from penstock.state.equality import canonical_column
from penstock.table.plan.changes import INSERT, UPDATE_AFTER, UPDATE_BEFORE
from penstock.table.streaming.ranking.deduplicate_operator import ROWS, LastRowOperator
from penstock.table.streaming.rows.key_hashes import same_keys
from penstock.table.streaming.rows.numbered_rows import NumberedRows, rows_packed
from penstock.table.streaming.rows.small_numbers import places_in_order

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
        numbers, before = _with_former(by_key + first, of_key, stored_rows)
        if self._time is None and not self.ttl_ms:
            # If state expires, unchanged rows are sent again to keep downstream state alive.
            new = self._differ(numbers, before)
            if not new.all():
                numbers, before = _with_former(numbers[new], of_key[new], stored_rows)
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


def _with_former(numbers: Any, of_key: Any, stored_rows: Any) -> tuple[Any, Any]:
    """Return rows ordered by key, and the previous row of each one's key, which may be the kept row."""
    before = np.empty(len(numbers), np.int64)
    if len(numbers):
        before[1:] = numbers[:-1]
        begins = np.append(True, of_key[1:] != of_key[:-1])
        before[begins] = stored_rows[of_key[begins]]
    return numbers, before
