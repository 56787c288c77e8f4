"""Group aggregates whose state and whose keys are columns, on every state backend, for state without a lifetime.

No key becomes a Python object: `IndexedGroups` numbers the keys of a batch by kernels. With RocksDB the columns may be
larger than memory, and on every backend a checkpoint writes the columns of what changed. All calls are computed by
kernels; others, and state that expires, are up to the other operators.

Groups that one of the other operators kept by key are taken over, and they take over the groups of this one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.runtime.columns import ColumnBatch
from penstock.runtime.operators.base import StreamOperator
from penstock.sql.stream.groups import columnar
from penstock.sql.stream.groups.columnar import ColumnGroupAggregateOperator, GroupsOfFewRows
from penstock.sql.stream.groups.columns import IndexedGroups
from penstock.sql.stream.groups.operators import GROUPS
from penstock.sql.stream.rows.key_index import ABSENT, find_first_rows, group_distinct_rows
from penstock.state.snapshot import StateCapture


class IndexedGroupAggregateOperator(ColumnGroupAggregateOperator):
    """See the module docstring, and `GroupAggregateOperator` for the arguments."""

    _state: IndexedGroups

    def initialize_state(self) -> None:
        """Load the restored groups."""
        StreamOperator.initialize_state(self)
        self._state = IndexedGroups(self.context, self._groups.places, self._calls, self._types, self._retracts)
        if self.context.keyed.has_restored(GROUPS):
            self._state.take_over(self.context.keyed.table(GROUPS).drop(None).items())

    def _open_groups(self) -> None:
        self._few = None if self._state.views else self._build_few()

    def process_rows(self, records: ColumnBatch) -> None:
        """Process rows and emit the changes."""
        if not len(records):
            return
        if self._few is not None:
            if len(records) < columnar.FEW_ROWS:
                groups, keys = self._groups.numbered(records.columns)
                self._process_few(self._few, records, groups, keys)
                return
            self._put_few_into_columns()
        groups, numbers = self._state.number(self._state.read_keys(records.columns))
        rows = self._process_groups(records, groups, numbers)
        self._state.note_changes(numbers, rows.goes is not None)
        self._state.compact_if_worthwhile()

    def _load_few(self, few: GroupsOfFewRows, records: ColumnBatch, groups: Any, keys: list[Any]) -> None:
        """Read the groups of these keys that are not entries yet."""
        first_of_key = find_first_rows(keys, few.known)
        if not first_of_key:
            return
        few.known.update(first_of_key)
        first_rows = np.array([groups.tolist().index(group) for group in first_of_key.values()])
        columns = [key.take(pa.array(first_rows)) for key in self._state.read_keys(records.columns)]
        numbers = self._state.find(group_distinct_rows(columns), columns)
        there = (numbers != ABSENT).nonzero()[0]
        there = there[~self._state.are_spent(numbers[there])]
        if len(there):
            names = list(first_of_key)
            states = self._state.pack(numbers[there]).unpack()
            few.groups.update(zip([names[index] for index in there.tolist()], states, strict=True))

    def _put_few_into_columns(self) -> None:
        """Let the groups that changed replace those of the columns, and forget the entries."""
        few = self._few
        if few is None:
            return
        groups, changed = few.take()
        if changed:
            states = [groups[key] if key in groups else few.build_state() for key in changed]
            self._state.replace(changed, states, self._retracts)
        self._state.compact_if_worthwhile()

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        """Capture the groups that are not in the last completed checkpoint."""
        self._put_few_into_columns()
        return [*StreamOperator.snapshot_state(self, checkpoint_id), *self._state.capture(checkpoint_id)]
