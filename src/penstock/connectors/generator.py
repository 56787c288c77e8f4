"""Generating sources: `DataGeneratorSource` calls a function with each index; `NumberSequenceSource` emits integers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar

from penstock.base.errors import ConfigurationError
from penstock.connectors.split_reader import (
    PositionedReader,
    RateLimiter,
    RateLimiterStrategy,
    SeriesQueue,
    SeriesReader,
    SplitQueue,
)
from penstock.runtime import connector
from penstock.runtime.operators.results import holds_objects, with_copies
from penstock.runtime.records import Batch

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GeneratorSplit:
    """The indexes `position`, `position + step`, … below `stop` (None: unbounded)."""

    position: int
    step: int
    stop: int | None

    @property
    def number(self) -> int:
        """The number of the series, independent of the position."""
        return self.position % self.step


class DataGeneratorSource(connector.Source[T, GeneratorSplit]):
    """Emits `function(0)`, `function(1)`, …, distributed over all subtasks (G8: the position is an index).

    Subtask i of n emits the series i, i + n, i + 2n, …, so that all subtasks advance together. After a restore at
    another parallelism a subtask may own several series: it reads them side by side, each with its own watermark, and
    gets their shares of the rate.

    Args:
        function: returns the record of an index; it must return the same record for the same index at every call. It
            may reuse an object: its records are copied if it holds mutable objects.
        count: the number of records; None for no end.
        rate_per_second: records per second over all subtasks; None for no limit.
        timestamps: returns the event time (ms) of an index; None for no event times.
        rate_limiter_strategy: another way to limit the rate, or the number of records per checkpoint.

    Raises:
        ConfigurationError: if the count is negative, the rate is not positive, or the rate is given both ways.

    Examples:
        >>> from penstock.common import WatermarkStrategy
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.connectors.datagen import DataGeneratorSource
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> source = DataGeneratorSource(lambda index: f"cup {index}", count=3)
        >>> env.from_source(source, WatermarkStrategy.no_watermarks(), "cups").collect()
        ['cup 0', 'cup 1', 'cup 2']
    """

    def __init__(
        self,
        function: Callable[[int], T],
        count: int | None = None,
        rate_per_second: float | None = None,
        timestamps: Callable[[int], int] | None = None,
        rate_limiter_strategy: RateLimiterStrategy | None = None,
    ) -> None:
        if count is not None and count < 0:
            raise ConfigurationError(f"the count must not be negative: {count}")
        if rate_per_second is not None:
            if rate_limiter_strategy is not None:
                raise ConfigurationError("give rate_per_second or rate_limiter_strategy, not both")
            rate_limiter_strategy = RateLimiterStrategy.per_second(rate_per_second)
        self._function = function
        self._count = count
        self._strategy = rate_limiter_strategy or RateLimiterStrategy.no_op()
        self._timestamps = timestamps

    @property
    def boundedness(self) -> connector.Boundedness:
        """Bounded if a count is given."""
        return connector.Boundedness.CONTINUOUS_UNBOUNDED if self._count is None else connector.Boundedness.BOUNDED

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[GeneratorSplit], restored: Any | None
    ) -> connector.SplitEnumerator[GeneratorSplit]:
        """Return an enumerator that assigns one series of indexes to each subtask."""
        step = context.parallelism
        splits = [GeneratorSplit(i, step, self._count) for i in range(step)]
        return SeriesQueue(context, splits, restored, lambda split: split.number)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[T, GeneratorSplit]:
        """Return a new reader."""
        limiter = self._strategy.create_rate_limiter(context.parallelism, context.now_ms())
        return _GeneratorReader(context, self._function, self._timestamps, limiter)


class _GeneratorReader(SeriesReader[GeneratorSplit]):
    def __init__(
        self,
        context: connector.SourceReaderContext,
        function: Callable[[int], Any],
        timestamps: Callable[[int], int] | None,
        limit: RateLimiter | None,
    ) -> None:
        super().__init__(context)
        self._function = with_copies(function) if holds_objects(function) else function
        self._timestamps = timestamps
        self._limit = limit

    def get_series_name(self, split: GeneratorSplit) -> str:
        return f"{split.number} of {split.step}"

    def get_series_position(self, split: GeneratorSplit) -> int:
        return split.position

    def get_series_step(self, split: GeneratorSplit) -> int:
        return split.step

    def read(self, split: GeneratorSplit, max_records: int) -> tuple[Batch, GeneratorSplit] | None:
        stop = split.position + self.compute_series_share(max_records) * split.step
        indexes = range(split.position, stop if split.stop is None else min(stop, split.stop), split.step)
        if not indexes:
            return None
        if self._limit is not None:
            self._limit.spend(len(indexes))
        timestamps = (
            None
            if self._timestamps is None
            else connector.call_each(self._timestamps, indexes, "the function of timestamps")
        )
        following = replace(split, position=split.position + len(indexes) * split.step)
        return Batch(connector.call_each(self._function, indexes, "the generator function"), timestamps), following


@dataclass(frozen=True, slots=True)
class NumberSplit:
    """The numbers from `position` up to, but excluding, `stop`."""

    position: int
    stop: int


class NumberSequenceSource(connector.Source[int, NumberSplit]):
    """Emits the integers from `start` to `end`, both included, distributed over all subtasks (G8).

    There is one contiguous range for each subtask, emitted in order.

    Raises:
        ConfigurationError: if `end` is less than `start`.

    Examples:
        >>> from penstock.common import WatermarkStrategy
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.connectors import NumberSequenceSource
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> source = NumberSequenceSource(1, 3)
        >>> env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").collect()
        [1, 2, 3]
    """

    def __init__(self, start: int, end: int) -> None:
        if end < start:
            raise ConfigurationError(f"the end of a sequence must not be before its start: {start} to {end}")
        self._start = start
        self._stop = end + 1

    @property
    def boundedness(self) -> connector.Boundedness:
        """Bounded."""
        return connector.Boundedness.BOUNDED

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[NumberSplit], restored: Any | None
    ) -> connector.SplitEnumerator[NumberSplit]:
        """Return an enumerator with one range for each subtask."""
        return SplitQueue(context, even_ranges(self._start, self._stop, context.parallelism), restored)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[int, NumberSplit]:
        """Return a new reader."""
        return _NumberReader(context)


class _NumberReader(PositionedReader[NumberSplit]):
    def read(self, split: NumberSplit, max_records: int) -> tuple[Batch, NumberSplit] | None:
        stop = min(split.position + max_records, split.stop)
        if stop <= split.position:
            return None
        return Batch(list(range(split.position, stop))), replace(split, position=stop)


def even_ranges(start: int, stop: int, count: int) -> list[NumberSplit]:
    """Cut a range into at most `count` non-empty ranges whose lengths differ by at most one."""
    total = stop - start
    bounds = [start + total * i // count for i in range(count + 1)]
    return [NumberSplit(low, high) for low, high in pairwise(bounds) if low < high]
