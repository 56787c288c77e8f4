"""Deduplication whose keys are numbers in an index, instead of entries of a dictionary, for state without a lifetime.

The rows are in a `RowLog`, and a `KeyIndex` finds the last row of each key. So a batch is processed by kernels alone, a
checkpoint writes the rows that are new, and with RocksDB all of it may be larger than memory.

For a batch of a few rows, kernels cost more than Python. Its rows become entries of a small dictionary, on top of the
log: `LastRowOperator` looks up and changes these. They join the log before a large batch and before a checkpoint.

State that one of the other operators kept by key is taken over, and they take over the rows of this one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.runtime.columns import ColumnBatch, as_columns
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.records import Batch
from penstock.sql.data.arrow import arrow_type
from penstock.sql.stream.ranking.columnar import ColumnLastRowOperator, with_former
from penstock.sql.stream.ranking.deduplicate import LAST_ROWS, ROWS, about_last_rows
from penstock.sql.stream.rows.columns import build_key_hash, places_in_order, same_keys
from penstock.sql.stream.rows.key_index import (
    ABSENT,
    Groups,
    KeyIndex,
    find_first_rows,
    group_distinct_rows,
    group_rows,
)
from penstock.sql.stream.rows.row_log import RowLog, label
from penstock.sql.stream.rows.rows import TupleKeys, to_tuples
from penstock.state.equality import canonical_column
from penstock.state.key_columns import RowMeaning
from penstock.state.snapshot import StateCapture

#: Batches of at most this many rows are processed in Python.
FEW_ROWS: Final = 512
#: The number of entries at which they join the log.
_ENTRIES_MAX: Final = 1 << 12
#: This many keys or fewer are looked up one by one.
_ONE_BY_ONE_MAX: Final = 8
#: State of another operator is taken over this many rows at a time.
_ROWS_AT_ONCE: Final = 1 << 14


class IndexedLastRowOperator(ColumnLastRowOperator):
    """See the module docstring, and `LastRowOperator` for the arguments. There is at least one partition column.

    `labels`: what users call the columns, for readers of the state.
    """

    def __init__(self, *arguments: Any, labels: Sequence[str] = ()) -> None:
        super().__init__(*arguments)
        self._labels = tuple(labels)

    def initialize_state(self) -> None:
        """Load the restored rows."""
        StreamOperator.initialize_state(self)
        keys = self._partition.places
        meaning = RowMeaning(tuple(map(str, keys)), labels=label(self._labels))
        about = about_last_rows(keys)
        self._rows: RowLog = RowLog(self.context, LAST_ROWS, about, keys, self._types, self._names, meaning)
        self._build_index()
        if self.context.keyed.has_restored(ROWS):
            rows: list[tuple[Any, ...]] = []
            for row in self.context.keyed.table(ROWS).drop(None).values():
                rows.append(row)
                if len(rows) >= _ROWS_AT_ONCE:
                    self._take_over(rows)
                    rows = []
            if rows:
                self._take_over(rows)

    def open(self) -> None:
        """Begin without entries on top of the log."""
        #: the last rows of some keys, and the keys whose rows are not in the log yet
        self._entries: dict[Any, tuple[Any, ...]] = {}
        self._changed: set[Any] = set()
        self._mark = self._mark_changed
        positions = self._partition.places
        kinds = [self._types[position] for position in positions]
        self._keys = TupleKeys(positions, kinds)
        #: computes the hash of a key; None if only kernels do
        self._hash = build_key_hash([arrow_type(kind) for kind in kinds])
        self._is_several = len(positions) > 1

    def _mark_changed(self, namespace: None, keys: Collection[Any]) -> None:
        self._changed.update(keys)

    def _process_few(self, rows: list[tuple[Any, ...]]) -> None:
        keys = self._keys.of(rows)
        first_of_key = find_first_rows(keys, self._entries)
        if first_of_key:
            self._load(rows, first_of_key)
        self._process_rows(keys, rows)
        if len(self._entries) > _ENTRIES_MAX:
            self._put_entries_into_log()

    def _load(self, rows: list[tuple[Any, ...]], first_of_key: dict[Any, int]) -> None:
        """Read the last rows of keys from the log. `first_of_key` maps each key to a row of the batch with this key."""
        if self._hash is not None and len(first_of_key) <= _ONE_BY_ONE_MAX:
            hashes = [self._hash(key if self._is_several else (key,)) for key in first_of_key]
            if all(self._index.find_hash(hashed) == ABSENT for hashed in hashes):
                return
        firsts = [rows[index] for index in first_of_key.values()]
        keys = [canonical_column(self._layout.column(index, firsts)) for index in self._partition.places]
        numbers, _ = self._find(group_distinct_rows(keys), keys)
        known = np.flatnonzero(numbers != ABSENT)
        if len(known):
            stored = pa.RecordBatch.from_arrays(self._rows.columns(numbers[known]), self._names)
            keys_in_order = list(first_of_key)
            names = [keys_in_order[index] for index in known.tolist()]
            self._entries.update(zip(names, to_tuples(ColumnBatch(stored), self._types), strict=True))

    def _put_entries_into_log(self) -> None:
        """Add the rows that changed to the log, and forget the entries."""
        entries, changed, self._changed = self._entries, self._changed, set()
        if changed:
            self._take_over([entries[key] for key in entries if key in changed])
            self._compact_if_worthwhile()
        entries.clear()

    def _build_index(self) -> None:
        """Index the rows of the log. Of the rows of a key, the last one stays."""
        self._index = KeyIndex(self.context.keyed.allocate)
        self._may_share_hash = False
        numbers = self._rows.kept_numbers()
        for begin in range(0, len(numbers), _ROWS_AT_ONCE):
            self._add_to_index(numbers[begin : begin + _ROWS_AT_ONCE])

    def _take_over(self, rows: list[tuple[Any, ...]]) -> None:
        first = self._rows.restore(rows)
        self._add_to_index(np.arange(first, self._rows.end))

    def _add_to_index(self, numbers: Any) -> None:
        """Let these rows of the log, in their order, be the last ones of their keys."""
        keys = self._key_columns(numbers)
        groups = group_rows(keys)
        before, slots = self._find(groups, keys)
        last = np.zeros(len(groups), np.int64)
        np.maximum.at(last, groups.codes, np.arange(len(numbers)))
        is_superseded = np.ones(len(numbers), np.bool_)
        is_superseded[last] = False
        self._rows.release(numbers[is_superseded])
        self._put(groups, before, slots, numbers[last])

    def _key_columns(self, numbers: Any) -> list[pa.Array]:
        return list(map(canonical_column, self._rows.columns(numbers, self._partition.places)))

    def _find(self, groups: Groups, keys: Sequence[pa.Array]) -> tuple[Any, Any]:
        """Return the last row of each group's key, and its slot in the index."""
        self._may_share_hash |= not groups.is_exact

        def same(positions: Any, numbers: Any) -> Any:
            mine = pa.array(groups.first[positions])
            return same_keys([key.take(mine) for key in keys], self._key_columns(numbers))

        return self._index.find(groups.hashes, same if self._may_share_hash else None)

    def _put(self, groups: Groups, before: Any, slots: Any, numbers: Any) -> None:
        """Let `numbers` be the last rows of the groups' keys, and release the former ones."""
        is_new = before == ABSENT
        self._rows.release(before[~is_new])
        self._index.replace(slots[~is_new], numbers[~is_new])
        if is_new.any():
            self._index.insert(groups.hashes[is_new], numbers[is_new])

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Emit the rows that are later than the last ones so far."""
        records = as_columns(batch, self.context.operator_name)
        if len(records) <= FEW_ROWS:
            self._process_few(to_tuples(records, self._types))
            return
        self._put_entries_into_log()
        columns = records.columns
        keys = [canonical_column(columns.column(index)) for index in self._partition.places]
        groups = group_rows(keys)
        stored, slots = self._find(groups, keys)
        first = self._rows.add(columns)
        by_key = places_in_order(groups.codes, len(groups))
        of_key = groups.codes[by_key]
        if self._time is not None:
            later = self._later(columns.column(self._time), stored, by_key, of_key)
            by_key, of_key = by_key[later], of_key[later]
        numbers, before = with_former(by_key + first, of_key, stored)
        if self._time is None:
            is_new = self._differ(numbers, before)
            if not is_new.all():
                of_key = of_key[is_new]
                numbers, before = with_former(numbers[is_new], of_key, stored)
        is_last = np.append(of_key[1:] != of_key[:-1], True) if len(of_key) else np.zeros(0, np.bool_)
        is_superseded = np.ones(len(columns), np.bool_)
        is_superseded[numbers[is_last] - first] = False
        self._rows.release(np.flatnonzero(is_superseded) + first)
        if not len(numbers):
            self._compact_if_worthwhile()
            return
        changed = of_key[is_last]
        kept = Groups(groups.codes, groups.first[changed], groups.hashes[changed], groups.is_exact)
        self._put(kept, stored[changed], slots[changed], numbers[is_last])
        self._send(records, numbers, before)
        self._compact_if_worthwhile()

    def _compact_if_worthwhile(self) -> None:
        if self._rows.must_compact:
            self._rows.compact()
            self._build_index()

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        """Capture the rows that are not in the last completed checkpoint."""
        self._put_entries_into_log()
        return [*StreamOperator.snapshot_state(self, checkpoint_id), *self._rows.capture(checkpoint_id)]
