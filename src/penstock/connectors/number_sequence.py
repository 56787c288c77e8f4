"""A source of consecutive integers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from penstock.base.errors import ConfigurationError
from penstock.connectors.split_reader import PositionedReader, SplitQueue
from penstock.runtime.connector import (
    Boundedness,
    Source,
    SourceReader,
    SourceReaderContext,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from penstock.runtime.records import Batch


@dataclass(frozen=True, slots=True)
class NumberSplit:
    """The numbers from `position` up to, but excluding, `stop`."""

    position: int
    stop: int


class NumberSequenceSource(Source[int, NumberSplit]):
    """Emits the integers from `start` to `end`, both included, distributed over all subtasks (G8).

    There is one contiguous range for each subtask, emitted in order.

    Raises:
        ConfigurationError: if `end` is less than `start`.
    """

    def __init__(self, start: int, end: int) -> None:
        if end < start:
            raise ConfigurationError(f"the end of a sequence must not be before its start: {start} to {end}")
        self._start = start
        self._stop = end + 1

    @property
    def boundedness(self) -> Boundedness:
        """Bounded."""
        return Boundedness.BOUNDED

    def create_enumerator(
        self, context: SplitEnumeratorContext[NumberSplit], restored: Any | None
    ) -> SplitEnumerator[NumberSplit]:
        """Return an enumerator with one range for each subtask."""
        return SplitQueue(context, even_ranges(self._start, self._stop, context.parallelism), restored)

    def create_reader(self, context: SourceReaderContext) -> SourceReader[int, NumberSplit]:
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
