"""The enumerator of sources whose splits are known from the start."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
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
