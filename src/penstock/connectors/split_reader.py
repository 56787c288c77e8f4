"""Readers for sources that generate a split's records from a position: collections, numbers, generators."""

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
    """Reads splits in order; a split is immutable and holds its own position (G8)."""

    #: set by readers with a rate limit
    _limit: RateLimiter | None = None

    def __init__(self, context: SourceReaderContext) -> None:
        self._context = context
        self._splits: deque[SplitT] = deque()
        self._requested = False
        self._no_more = False

    @abstractmethod
    def read(self, split: SplitT, max_records: int) -> tuple[Batch, SplitT] | InputStatus | None:
        """Return the next records, at least one, and the split after them; None at the end of the split.

        Return NOTHING_AVAILABLE if no record is ready yet.
        """

    def poll_next(self, max_records: int) -> Batch | InputStatus:
        """Return at most `max_records` records, or a status if no record is ready."""
        max_records = self.allowance(max_records)
        if max_records <= 0:
            return InputStatus.NOTHING_AVAILABLE
        while self._splits:
            result = self.read(self._splits[0], max_records)
            if isinstance(result, InputStatus):
                return result
            if result is not None:
                batch, self._splits[0] = result
                return batch
            self.end_split(self._splits.popleft())
        if self._no_more:
            return InputStatus.END_OF_INPUT
        if not self._requested:
            self._requested = True
            self._context.request_split()
        return InputStatus.NOTHING_AVAILABLE

    def allowance(self, max_records: int) -> int:
        """Return how many records may be emitted now: at most as many as the rate allows."""
        if self._limit is None or not self._splits:
            return max_records
        return min(max_records, self._limit.allowance(self._context.now_ms()))

    def retry_after_ms(self) -> int:
        """Return the time until the rate allows a record; without a rate, see `SourceReader`."""
        return super().retry_after_ms() if self._limit is None else self._limit.retry_after_ms()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Notify the rate limiter, because some rates are per checkpoint."""
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
        """Called when the split has no more records; a hook."""

    def add_splits(self, splits: Sequence[SplitT]) -> None:
        """Add splits to read."""
        self._splits.extend(splits)
        self._requested = False

    def no_more_splits(self) -> None:
        """Note that no further splits will come."""
        self._no_more = True

    def snapshot_state(self, checkpoint_id: int) -> list[SplitT]:
        """Return the splits with their positions."""
        return list(self._splits)


class SeriesReader(PositionedReader[SplitT], Generic[SplitT]):
    """Reads all its splits side by side; the split at the lowest place comes first.

    The splits are series of one source that generates records 0, 1, 2 and so on, and they share its event time. Subtask
    i of n reads the series i, i + n, i + 2n and so on. After a restore at another parallelism, a subtask may have
    several series. Each has its own watermark, so no series is late because another one is ahead.
    """

    def __init__(self, context: SourceReaderContext) -> None:
        super().__init__(context)
        self._paused: frozenset[str] = frozenset()

    @abstractmethod
    def get_series_name(self, split: SplitT) -> str:
        """Return the name of the series, regardless of its position."""

    @abstractmethod
    def get_series_step(self, split: SplitT) -> int:
        """Return the distance between two records of the series: the number of all series of its source."""

    @abstractmethod
    def get_series_position(self, split: SplitT) -> Any:
        """Return how far the series has come, as a value comparable across series."""

    def compute_series_share(self, max_records: int) -> int:
        """Return one series' share of `max_records`, at least 1, so that no series runs far ahead of the others."""
        return max(1, max_records // len(self._splits))

    def add_splits(self, splits: Sequence[SplitT]) -> None:
        """See `PositionedReader`."""
        super().add_splits(splits)
        if self._limit is not None:
            self._limit.share(
                sum(1 / self.get_series_step(split) for split in self._splits) * self._context.parallelism
            )
        for split in splits:
            self._context.open_split(self.get_series_name(split))

    def end_split(self, split: SplitT) -> None:
        """See `PositionedReader`."""
        self._context.close_split(self.get_series_name(split))

    def poll_next(self, max_records: int) -> Batch | InputStatus:
        """Return records of the series with the lowest place that is not paused."""
        if not self._requested and not self._no_more:
            # This subtask may have another split; requested only when the current ones end, it would never arrive.
            self._requested = True
            self._context.request_split()
        if len(self._splits) > 1 or self._paused:
            self._splits = deque(sorted(self._splits, key=self._get_priority))
            if self._splits and self.get_series_name(self._splits[0]) in self._paused:
                return InputStatus.NOTHING_AVAILABLE
        result = super().poll_next(max_records)
        if not isinstance(result, Batch):
            return result
        name = self.get_series_name(self._splits[0])
        if isinstance(result, ColumnBatch):
            return SplitColumnBatch(result, name)
        return SplitBatch(result.values, result.timestamps, name, result.kinds)

    def _get_priority(self, split: SplitT) -> tuple[bool, Any]:
        return self.get_series_name(split) in self._paused, self.get_series_position(split)

    def pause_or_resume_splits(self, splits_to_pause: Sequence[str], splits_to_resume: Sequence[str]) -> None:
        """See `SourceReader`."""
        self._paused = (self._paused | {*splits_to_pause}) - {*splits_to_resume}
