"""A rate-limited source, so that a small input lasts as long as a stream would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from penstock.connectors.rate_limiter import RateLimit
from penstock.core.connector import (
    Boundedness,
    InputStatus,
    Source,
    SourceReader,
    SourceReaderContext,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from penstock.core.records import Batch

T = TypeVar("T")
SplitT = TypeVar("SplitT")

#: The interval at which a reader emits the records that its rate allows.
_PERIOD_MS: Final = 50


class PacedSource(Source[T, SplitT]):
    """Limits the rate of another source, whose positions and splits it uses; no thread sleeps.

    Args:
        source: the source to slow down.
        per_second: records per second of all subtasks together.
    """

    def __init__(self, source: Source[T, SplitT], per_second: float) -> None:
        self._source = source
        self._per_second = per_second

    @property
    def boundedness(self) -> Boundedness:
        """The boundedness of the other source."""
        return self._source.boundedness

    def create_enumerator(
        self, context: SplitEnumeratorContext[SplitT], restored: Any | None
    ) -> SplitEnumerator[SplitT]:
        """Return the enumerator of the other source."""
        return self._source.create_enumerator(context, restored)

    def create_reader(self, context: SourceReaderContext) -> SourceReader[T, SplitT]:
        """Return a reader of the other source, limited to this subtask's share of the rate."""
        return _PacedReader(self._source.create_reader(context), context, self._per_second / context.parallelism)

    def max_parallelism(self) -> int | None:
        """Return the maximum parallelism of the other source."""
        return self._source.max_parallelism()


class _PacedReader(SourceReader[T, SplitT]):
    def __init__(self, reader: SourceReader[T, SplitT], context: SourceReaderContext, per_second: float) -> None:
        self._reader = reader
        self._context = context
        self._limit = RateLimit(per_second, context.now_ms())
        self._records_min = max(1, int(per_second * _PERIOD_MS / 1000))
        self._held_back = False

    def start(self) -> None:
        self._reader.start()

    def poll_next(self, max_records: int) -> Batch | InputStatus:
        allowed = self._limit.allowance(self._context.now_ms())
        self._held_back = allowed < self._records_min
        if self._held_back:
            return InputStatus.NOTHING_AVAILABLE
        polled = self._reader.poll_next(min(max_records, allowed))
        if isinstance(polled, Batch):
            self._limit.spend(len(polled))
        return polled

    def retry_after_ms(self) -> int:
        return _PERIOD_MS if self._held_back else self._reader.retry_after_ms()

    def held_back_ms(self) -> int | None:
        return _PERIOD_MS if self._held_back else self._reader.held_back_ms()

    def begin_at(self, time_ms: int) -> None:
        self._limit.begin_at(time_ms)
        self._reader.begin_at(time_ms)

    def add_splits(self, splits: Sequence[SplitT]) -> None:
        self._reader.add_splits(splits)

    def no_more_splits(self) -> None:
        self._reader.no_more_splits()

    def snapshot_state(self, checkpoint_id: int) -> list[SplitT]:
        return self._reader.snapshot_state(checkpoint_id)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._reader.notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._reader.notify_checkpoint_aborted(checkpoint_id)

    def close(self) -> None:
        self._reader.close()
