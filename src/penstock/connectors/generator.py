"""A source that makes its records by a function of their index."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from penstock.common.errors import ConfigurationError
from penstock.connectors.split_queue import SplitQueue
from penstock.connectors.split_reader import PositionedReader
from penstock.core.connector import (
    Boundedness,
    Source,
    SourceReader,
    SourceReaderContext,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from penstock.core.records import Batch

T = TypeVar("T")
# What a source held back by its host may catch up with, in ms of its rate.
_CATCH_UP_MS = 1_000


@dataclass(frozen=True, slots=True)
class GeneratorSplit:
    """The indexes `position`, `position + step`, … below `stop` (None: for ever)."""

    position: int
    step: int
    stop: int | None


class RateLimit:
    """How many records may go out at a rate, by a clock that the caller reads.

    Args:
        per_second: records a second.
        now_ms: the time at which counting begins.
    """

    def __init__(self, per_second: float, now_ms: int) -> None:
        self._per_ms = per_second / 1_000
        self._credit = 0.0
        self._credited_ms = now_ms

    def allowance(self, now_ms: int) -> int:
        """Records that may go out now; unused ones of the last second are kept."""
        self._credit += max(now_ms - self._credited_ms, 0) * self._per_ms
        self._credit = min(self._credit, max(self._per_ms * _CATCH_UP_MS, 1.0))
        self._credited_ms = max(now_ms, self._credited_ms)
        return int(self._credit)

    def spend(self, records: int) -> None:
        """Takes account of records that went out."""
        self._credit -= records

    def retry_after_ms(self) -> int:
        """How long until a record may go out, in ms, at least 1."""
        return max(int((1.0 - self._credit) / self._per_ms) + 1, 1)


class DataGeneratorSource(Source[T, GeneratorSplit]):
    """Yields `function(0)`, `function(1)`, … shared by all subtasks (G8: the position is an index).

    Subtask i of n yields the indexes i, i + n, i + 2n, …, so that all subtasks advance together.

    Args:
        function: makes the record of an index; it must give the same record for the same index at every call.
        count: how many records; None for no end.
        rate_per_second: records a second of all subtasks together; None for as many as can be taken.
        timestamps: gives the event time (ms) of an index; None for none.

    Raises:
        ConfigurationError: if the count is negative or the rate not positive.
    """

    def __init__(
        self,
        function: Callable[[int], T],
        count: int | None = None,
        rate_per_second: float | None = None,
        timestamps: Callable[[int], int] | None = None,
    ) -> None:
        if count is not None and count < 0:
            raise ConfigurationError(f"the count must not be negative: {count}")
        if rate_per_second is not None and rate_per_second <= 0:
            raise ConfigurationError(f"the rate must be positive: {rate_per_second}")
        self._function = function
        self._count = count
        self._rate_per_second = rate_per_second
        self._timestamps = timestamps

    @property
    def boundedness(self) -> Boundedness:
        """Unbounded without a count."""
        return Boundedness.CONTINUOUS_UNBOUNDED if self._count is None else Boundedness.BOUNDED

    def create_enumerator(
        self, context: SplitEnumeratorContext[GeneratorSplit], restored: Any | None
    ) -> SplitEnumerator[GeneratorSplit]:
        """Hands out one series of indexes for each subtask."""
        step = context.parallelism
        return SplitQueue(context, [GeneratorSplit(i, step, self._count) for i in range(step)], restored)

    def create_reader(self, context: SourceReaderContext) -> SourceReader[T, GeneratorSplit]:
        """A new reader."""
        share = None if self._rate_per_second is None else self._rate_per_second / context.parallelism
        return _GeneratorReader(context, self._function, self._timestamps, share)


class _GeneratorReader(PositionedReader[GeneratorSplit]):
    def __init__(
        self,
        context: SourceReaderContext,
        function: Callable[[int], Any],
        timestamps: Callable[[int], int] | None,
        rate_per_second: float | None,
    ) -> None:
        super().__init__(context)
        self._function = function
        self._timestamps = timestamps
        self._limit = None if rate_per_second is None else RateLimit(rate_per_second, context.now_ms())

    def read(self, split: GeneratorSplit, max_records: int) -> tuple[Batch, GeneratorSplit] | None:
        stop = split.position + max_records * split.step
        indexes = range(split.position, stop if split.stop is None else min(stop, split.stop), split.step)
        if not indexes:
            return None
        if self._limit is not None:
            self._limit.spend(len(indexes))
        timestamps = None if self._timestamps is None else list(map(self._timestamps, indexes))
        following = replace(split, position=split.position + len(indexes) * split.step)
        return Batch(list(map(self._function, indexes)), timestamps), following

    def allowance(self, max_records: int) -> int:
        if self._limit is None or not self._splits:
            return max_records
        return min(max_records, self._limit.allowance(self._context.now_ms()))

    def retry_after_ms(self) -> int:
        return 10 if self._limit is None else self._limit.retry_after_ms()
