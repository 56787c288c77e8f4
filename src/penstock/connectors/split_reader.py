"""Readers for sources that make a split's records from a position: collections, numbers, generators."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from penstock.connectors.rate_limiter import RateLimiter
from penstock.core.columns.batch import ColumnBatch, SplitColumnBatch
from penstock.core.connector import InputStatus, SourceReader, SourceReaderContext, SplitBatch
from penstock.core.records import Batch

SplitT = TypeVar("SplitT")


class PositionedReader(SourceReader[Any, SplitT], Generic[SplitT]):
    """Works through splits in order; a split is immutable and holds its own position (G8)."""

    #: of a reader that keeps to a rate
    _limit: RateLimiter | None = None

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
            self.end_split(self._splits.popleft())
        if self._no_more:
            return InputStatus.END_OF_INPUT
        if not self._requested:
            self._requested = True
            self._context.request_split()
        return InputStatus.NOTHING_AVAILABLE

    def allowance(self, max_records: int) -> int:
        """How many records may be handed out now: at most as many as the rate allows."""
        if self._limit is None or not self._splits:
            return max_records
        return min(max_records, self._limit.allowance(self._context.now_ms()))

    def retry_after_ms(self) -> int:
        """When the rate allows a record again; without a rate see `SourceReader`."""
        return super().retry_after_ms() if self._limit is None else self._limit.retry_after_ms()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Some rates are a number of records a checkpoint."""
        if self._limit is not None:
            self._limit.notify_checkpoint_complete()

    def held_back_ms(self) -> int | None:
        """See `SourceReader`."""
        return None if self._limit is None or not self._splits else self._limit.retry_after_ms()

    def begin_at(self, time_ms: int) -> None:
        """See `SourceReader`."""
        if self._limit is not None:
            self._limit.begin_at(time_ms)

    def end_split(self, split: SplitT) -> None:
        """A hook: the split has no more records."""

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


class SeriesReader(PositionedReader[SplitT], Generic[SplitT]):
    """Reads all its splits side by side; the split with the lowest place comes first.

    The splits are series of one source that makes records 0, 1, 2 and on, and they share its event time. Subtask i of n
    yields the series i, i + n, i + 2n and on. After a restore at another parallelism a subtask may have several series.
    Each has a watermark of its own, so none is late because another one is ahead.
    """

    def __init__(self, context: SourceReaderContext) -> None:
        super().__init__(context)
        self._paused: frozenset[str] = frozenset()

    @abstractmethod
    def name_of(self, split: SplitT) -> str:
        """The name of the series, whatever its position."""

    @abstractmethod
    def step_of(self, split: SplitT) -> int:
        """The distance between two records of the series: the number of all series of its source."""

    @abstractmethod
    def place_of(self, split: SplitT) -> Any:
        """How far the series has come; comparable with the places of the others."""

    def part_of(self, max_records: int) -> int:
        """The share of `max_records` of one series, at least 1, so that no series runs far ahead of the others."""
        return max(1, max_records // len(self._splits))

    def add_splits(self, splits: Sequence[SplitT]) -> None:
        """See `PositionedReader`."""
        super().add_splits(splits)
        if self._limit is not None:
            self._limit.share(sum(1 / self.step_of(split) for split in self._splits) * self._context.parallelism)
        for split in splits:
            self._context.open_split(self.name_of(split))

    def end_split(self, split: SplitT) -> None:
        """See `PositionedReader`."""
        self._context.close_split(self.name_of(split))

    def poll_next(self, max_records: int) -> Batch | InputStatus:
        """Records of the series with the lowest place that is not paused."""
        if not self._requested and not self._no_more:
            # There may be another one for this subtask, which would never come if it was asked for at their ends.
            self._requested = True
            self._context.request_split()
        if len(self._splits) > 1 or self._paused:
            self._splits = deque(sorted(self._splits, key=self._urgency_of))
            if self._splits and self.name_of(self._splits[0]) in self._paused:
                return InputStatus.NOTHING_AVAILABLE
        found = super().poll_next(max_records)
        if not isinstance(found, Batch):
            return found
        name = self.name_of(self._splits[0])
        if isinstance(found, ColumnBatch):
            return SplitColumnBatch(found, name)
        return SplitBatch(found.values, found.timestamps, name, found.kinds)

    def _urgency_of(self, split: SplitT) -> tuple[bool, Any]:
        return self.name_of(split) in self._paused, self.place_of(split)

    def pause_or_resume_splits(self, splits_to_pause: Sequence[str], splits_to_resume: Sequence[str]) -> None:
        """See `SourceReader`."""
        self._paused = (self._paused | {*splits_to_pause}) - {*splits_to_resume}
