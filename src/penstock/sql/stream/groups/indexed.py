"""Group aggregates whose state and whose keys are columns, on every state backend, for state without a lifetime.

No key becomes a Python object: `IndexedGroups` numbers the keys of a batch by kernels. With RocksDB the columns may be
larger than memory, and on every backend a checkpoint writes the columns of what changed. All calls are computed by
kernels; others, and state that expires, are up to the other operators.

Groups that one of the other operators kept by key are taken over, and they take over the groups of this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.runtime.columns import ColumnBatch
from penstock.runtime.operators.base import StreamOperator, UserCodeError
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.stream.groups import columnar
from penstock.sql.stream.groups.columnar import ColumnGroupAggregateOperator
from penstock.sql.stream.groups.columns import IndexedGroups
from penstock.sql.stream.groups.few_rows import FewGroups
from penstock.sql.stream.groups.operators import GROUPS
from penstock.sql.stream.rows.rows import to_tuples
from penstock.state.snapshot import StateCapture


class IndexedGroupAggregateOperator(ColumnGroupAggregateOperator):
    """See the module docstring, and `GroupAggregateOperator` for the arguments.

    `labels`: what users call the output columns, for readers of the state.
    """

    _state: IndexedGroups

    def __init__(self, *arguments: Any, labels: Sequence[str] = ()) -> None:
        super().__init__(*arguments)
        self._labels = tuple(labels)

    def initialize_state(self) -> None:
        """Load the restored groups."""
        StreamOperator.initialize_state(self)
        arguments = (self._groups.places, self._calls, self._types, self._retracts)
        self._state = IndexedGroups(self.context, *arguments, self._labels)
        if self.context.keyed.has_restored(GROUPS):
            self._state.take_over(self.context.keyed.table(GROUPS).drop(None).items())

    def _open_groups(self) -> None:
        self._few_groups = FewGroups(
            self._state,
            self._groups.places,
            self._calls,
            self._types,
            self._names,
            self._retracts,
            self._sends_before,
            self.mini_batch is not None,
        )

    def process_rows(self, records: ColumnBatch) -> None:
        """Process rows and emit the changes."""
        if not len(records):
            return
        if len(records) < columnar.FEW_ROWS:
            self._process_few_rows(records)
            return
        self._put_few_into_columns()
        self._few_groups.clear()
        groups, numbers = self._state.number(self._state.read_keys(records.columns))
        rows = self._process_groups(records, groups, numbers)
        self._state.note_changes(numbers, rows.goes is not None)
        self._state.compact_if_worthwhile()

    def _process_few_rows(self, records: ColumnBatch) -> None:
        few = self._few_groups
        try:
            changes = few.process(to_tuples(records, self._types), records.kinds)
        except TableRuntimeError as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(records)} rows") from error
        if changes is not None:
            self.output.collect(changes)
        if few.are_many:
            self._put_few_into_columns()
            few.clear()

    def _put_few_into_columns(self) -> None:
        """Put the changed groups into the columns."""
        self._few_groups.put_back()
        if self._state.compact_if_worthwhile():
            self._few_groups.clear()

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        """Capture the groups that are not in the last completed checkpoint."""
        self._put_few_into_columns()
        return [*StreamOperator.snapshot_state(self, checkpoint_id), *self._state.capture(checkpoint_id)]
