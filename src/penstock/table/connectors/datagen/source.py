"""A source of columns that a function generates from row numbers (G8: a position is a number)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.connectors.rate_limiter import RateLimiter, RateLimiterStrategy
from penstock.connectors.split_queue import SeriesQueue
from penstock.connectors.split_reader import SeriesReader
from penstock.core.columns.batch import ColumnBatch
from penstock.core.connector import (
    Boundedness,
    Source,
    SourceReader,
    SourceReaderContext,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from penstock.table.connectors.chance import Integers

#: builds columns named c0, c1 and so on from row numbers and the times (ms since 1970) at which the rows are due
MakeColumns = Callable[[Integers, Integers], pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class RowsSplit:
    """The rows `position`, `position + step`, … below `stop` (None: unbounded). `begun_ms`: when row 0 was due."""

    position: int
    step: int
    stop: int | None
    begun_ms: int

    @property
    def series(self) -> str:
        """The name of the series, regardless of the position."""
        return f"{self.position % self.step} of {self.step}"


class GeneratedColumnsSource(Source[Any, RowsSplit]):
    """Emits rows 0, 1, 2 and so on at a given total rate. A subtask with several series of rows reads them at once.

    A row's time is that of the first row plus its offset at this rate, so rows generated again after a restore are the
    same.

    Args:
        make: generates the columns.
        count: the number of rows; None if unbounded.
        rows_per_second: the total rate of all subtasks.
        now_ms: returns the time when a job begins.
    """

    def __init__(
        self,
        make: MakeColumns,
        count: int | None,
        rows_per_second: int,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        self._make = make
        self._count = count
        self._rows_per_second = rows_per_second
        self._now_ms = now_ms

    @property
    def boundedness(self) -> Boundedness:
        """Unbounded without a count."""
        return Boundedness.CONTINUOUS_UNBOUNDED if self._count is None else Boundedness.BOUNDED

    def create_enumerator(
        self, context: SplitEnumeratorContext[RowsSplit], restored: Any | None
    ) -> SplitEnumerator[RowsSplit]:
        """Create an enumerator that assigns one series of rows to each subtask."""
        begun_ms = time.time_ns() // 1_000_000 if self._now_ms is None else self._now_ms()
        step = context.parallelism
        splits = [RowsSplit(subtask, step, self._count, begun_ms) for subtask in range(step)]
        return SeriesQueue(context, splits, restored, lambda split: split.position % split.step)

    def create_reader(self, context: SourceReaderContext) -> SourceReader[Any, RowsSplit]:
        """Create a reader."""
        strategy = RateLimiterStrategy.per_second(self._rows_per_second)
        limiter = strategy.create_rate_limiter(context.parallelism, context.now_ms())
        assert limiter is not None
        return _RowsReader(context, self._make, self._rows_per_second, limiter)


class _RowsReader(SeriesReader[RowsSplit]):
    _limit: RateLimiter

    def __init__(
        self, context: SourceReaderContext, make: MakeColumns, rows_per_second: int, limit: RateLimiter
    ) -> None:
        super().__init__(context)
        self._make = make
        self._rows_per_second = rows_per_second
        self._limit = limit

    def get_series_name(self, split: RowsSplit) -> str:
        return split.series

    def get_series_position(self, split: RowsSplit) -> int:
        return split.position

    def get_series_step(self, split: RowsSplit) -> int:
        return split.step

    def read(self, split: RowsSplit, max_records: int) -> tuple[ColumnBatch, RowsSplit] | None:
        stop = split.position + self.compute_series_share(max_records) * split.step
        numbers = np.arange(split.position, stop if split.stop is None else min(stop, split.stop), split.step)
        if not len(numbers):
            return None
        self._limit.spend(len(numbers))
        columns = self._make(numbers, split.begun_ms + numbers * 1_000 // self._rows_per_second)
        return ColumnBatch(columns), replace(split, position=split.position + len(numbers) * split.step)
