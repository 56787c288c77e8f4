"""The enumerators of sources whose splits are known from the start."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from penstock.core.connector import SplitEnumerator, SplitEnumeratorContext

SplitT = TypeVar("SplitT")


class SplitQueue(SplitEnumerator[SplitT], Generic[SplitT]):
    """Hands out a fixed list of splits, each to the reader that asks next; its state is the splits left (G8)."""

    def __init__(self, context: SplitEnumeratorContext[SplitT], splits: Iterable[SplitT], restored: Any | None) -> None:
        self._context = context
        self._splits: deque[SplitT] = deque(splits if restored is None else restored)

    def start(self) -> None:
        """Does nothing, because the splits are known."""

    def handle_split_request(self, subtask_index: int) -> None:
        """Assigns the next split, or says that there is none."""
        if self._splits:
            self._context.assign_split(self._splits.popleft(), subtask_index)
        else:
            self._context.signal_no_more_splits(subtask_index)

    def add_splits_back(self, splits: Sequence[SplitT], subtask_index: int) -> None:
        """Puts splits back, to be handed out first."""
        self._splits.extendleft(reversed(splits))

    def snapshot_state(self, checkpoint_id: int) -> list[SplitT]:
        """The splits left."""
        return list(self._splits)


class SeriesQueue(SplitQueue[SplitT]):
    """Keeps each split for one subtask: another one that has read its own would read it too late for its event time.

    Args:
        context: of the enumerator.
        splits: one for each subtask.
        restored: what `snapshot_state` gave.
        number_of: the number of a split; subtask i of n has those with the numbers i, i + n, i + 2n and on.
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
        """Assigns the next split of the subtask, or says that it has none."""
        for split in self._splits:
            if self._number_of(split) % self._context.parallelism == subtask_index:
                self._splits.remove(split)
                self._context.assign_split(split, subtask_index)
                return
        self._context.signal_no_more_splits(subtask_index)
