"""A reader for sources that make a split's records from a position: collections, numbers, generators."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from penstock.core.connector import InputStatus, SourceReader, SourceReaderContext
from penstock.core.records import Batch

SplitT = TypeVar("SplitT")


class PositionedReader(SourceReader[Any, SplitT], Generic[SplitT]):
    """Works through splits in order; a split is immutable and holds its own position (G8)."""

    def __init__(self, context: SourceReaderContext) -> None:
        self._context = context
        self._splits: deque[SplitT] = deque()
        self._requested = False
        self._no_more = False

    @abstractmethod
    def read(self, split: SplitT, max_records: int) -> tuple[Batch, SplitT] | InputStatus | None:
        """The next records, at least one, and the split after them; None when the split has no more.

        NOTHING_AVAILABLE when it has none yet.
        """

    def poll_next(self, max_records: int) -> Batch | InputStatus:
        """At most `max_records` records, or why there are none."""
        max_records = self.allowance(max_records)
        if max_records <= 0:
            return InputStatus.NOTHING_AVAILABLE
        while self._splits:
            found = self.read(self._splits[0], max_records)
            if isinstance(found, InputStatus):
                return found
            if found is not None:
                batch, self._splits[0] = found
                return batch
            self._splits.popleft()
        if self._no_more:
            return InputStatus.END_OF_INPUT
        if not self._requested:
            self._requested = True
            self._context.request_split()
        return InputStatus.NOTHING_AVAILABLE

    def allowance(self, max_records: int) -> int:
        """How many records may be handed out now; a hook for sources that keep to a rate."""
        return max_records

    def add_splits(self, splits: Sequence[SplitT]) -> None:
        """Splits to read from now on."""
        self._splits.extend(splits)
        self._requested = False

    def no_more_splits(self) -> None:
        """No further split will come."""
        self._no_more = True

    def snapshot_state(self, checkpoint_id: int) -> list[SplitT]:
        """The splits with their positions."""
        return list(self._splits)
