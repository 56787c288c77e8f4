"""Enumerators for sources whose splits are known from the start."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from penstock.core.connector import SplitEnumerator, SplitEnumeratorContext

SplitT = TypeVar("SplitT")


class SplitQueue(SplitEnumerator[SplitT], Generic[SplitT]):
    """Assigns a fixed list of splits, each to the next reader that asks; its state is the remaining splits (G8)."""

    def __init__(self, context: SplitEnumeratorContext[SplitT], splits: Iterable[SplitT], restored: Any | None) -> None:
        self._context = context
        self._splits: deque[SplitT] = deque(splits if restored is None else restored)

    def start(self) -> None:
        """Do nothing, because the splits are known."""

    def handle_split_request(self, subtask_index: int) -> None:
        """Assign the next split, or signal that no splits are left."""
        if self._splits:
            self._context.assign_split(self._splits.popleft(), subtask_index)
        else:
            self._context.signal_no_more_splits(subtask_index)

    def add_splits_back(self, splits: Sequence[SplitT], subtask_index: int) -> None:
        """Put splits back, to be assigned first."""
        self._splits.extendleft(reversed(splits))

    def snapshot_state(self, checkpoint_id: int) -> list[SplitT]:
        """Return the remaining splits."""
        return list(self._splits)


class SeriesQueue(SplitQueue[SplitT]):
    """Reserves each split for one subtask: read by another one after its own, it would be too late for its event time.

    Args:
        context: the enumerator's context.
        splits: one for each subtask.
        restored: the result of `snapshot_state`.
        number_of: returns the number of a split; subtask i of n reads the numbers i, i + n, i + 2n and so on.
    """

    def __init__(
        self,
        context: SplitEnumeratorContext[SplitT],
        splits: Iterable[SplitT],
        restored: Any | None,
        number_of: Callable[[SplitT], int],
    ) -> None:
        super().__init__(context, splits, restored)
        self._number_of = number_of

    def handle_split_request(self, subtask_index: int) -> None:
        """Assign the subtask's next split, or signal that it has no more."""
        for split in self._splits:
            if self._number_of(split) % self._context.parallelism == subtask_index:
                self._splits.remove(split)
                self._context.assign_split(split, subtask_index)
                return
        self._context.signal_no_more_splits(subtask_index)
