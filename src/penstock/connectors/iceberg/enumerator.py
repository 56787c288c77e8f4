"""Finds the data files of a table, once or repeatedly, and assigns them to readers."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TypedDict

from penstock.connectors.iceberg import planning
from penstock.connectors.iceberg.planning import Followed
from penstock.connectors.iceberg.scanned import IcebergSplit, Scanned
from penstock.core.connector import SplitEnumerator, SplitEnumeratorContext


class IcebergEnumeratorState(TypedDict):
    """The state of an enumerator: unassigned splits, whether it has listed the table, and the last snapshot read."""

    pending: list[IcebergSplit]
    has_begun: bool
    last: int | None


class IcebergEnumerator(SplitEnumerator[IcebergSplit]):
    """Assigns splits in snapshot order, each to the next reader that asks (G8).

    A failed listing fails the job, because the error is raised in the job master's turn.
    """

    def __init__(
        self,
        context: SplitEnumeratorContext[IcebergSplit],
        scanned: Scanned,
        restored: IcebergEnumeratorState | None,
    ) -> None:
        self._context = context
        self._scanned = scanned
        self._pending: deque[IcebergSplit] = deque(restored["pending"] if restored else ())
        self._has_begun = restored is not None and restored["has_begun"]
        self._last = restored["last"] if restored else None
        self._waiting: dict[int, None] = {}  # an ordered set of subtasks

    def start(self) -> None:
        """Start listing the table's files."""
        if not self._has_begun or self._scanned.follows:
            self._look_after(0)

    def handle_split_request(self, subtask_index: int) -> None:
        """Assign the next split, as soon as there is one."""
        self._waiting[subtask_index] = None
        self._assign()

    def add_splits_back(self, splits: Sequence[IcebergSplit], subtask_index: int) -> None:
        """Return splits to their places in the queue."""
        self._waiting.pop(subtask_index, None)
        self._pending = deque(sorted([*splits, *self._pending], key=lambda split: split.order))
        self._assign()

    def snapshot_state(self, checkpoint_id: int) -> IcebergEnumeratorState:
        """Return the pending splits and the last snapshot read."""
        return IcebergEnumeratorState(pending=list(self._pending), has_begun=self._has_begun, last=self._last)

    def _look_after(self, delay_ms: int) -> None:
        scanned, has_begun, last = self._scanned, self._has_begun, self._last

        def look() -> Followed:
            with scanned.loader.opened() as table:
                if not scanned.follows:
                    return Followed(planning.scan(table, scanned), None)
                return planning.follow(table, scanned, last) if has_begun else planning.begin(table, scanned)

        self._context.call_async(look, self._on_found, delay_ms)

    def _on_found(self, discovered: Followed | None, error: BaseException | None) -> None:
        if error is not None:
            raise error
        assert discovered is not None
        self._pending += discovered.splits
        self._has_begun, self._last = True, discovered.last
        self._assign()
        if self._scanned.follows:
            self._look_after(self._scanned.interval_ms)

    def _assign(self) -> None:
        while self._waiting and self._pending:
            subtask_index = next(iter(self._waiting))
            del self._waiting[subtask_index]
            self._context.assign_split(self._pending.popleft(), subtask_index)
        if self._has_begun and not self._scanned.follows and not self._pending:
            for subtask_index in self._waiting:
                self._context.signal_no_more_splits(subtask_index)
            self._waiting.clear()
