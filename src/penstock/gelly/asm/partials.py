"""Partial aggregates within a subtask, so that few records leave it: counts, sums and maxima of its input.

An operator passes each batch to a `Partial`, and emits the contents when they have grown, and before every checkpoint
and watermark. So it has no state, its records are never late, and the reader merges the partial aggregates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

from penstock.core.operators.base import StreamOperator
from penstock.core.records import Batch
from penstock.datastream.data_stream import DataStream

#: Maximum number of entries in a partial aggregate before it is emitted.
ENTRIES_MAX: Final = 65_536


class Partial(ABC):
    """An aggregate of one subtask's records so far."""

    @abstractmethod
    def add(self, records: Sequence[Any]) -> None:
        """Add a batch of records."""

    @abstractmethod
    def take(self) -> list[Any]:
        """Return the contents as records, and clear them."""

    def size(self) -> int:
        """Return the number of entries; 1 for an aggregate of constant size."""
        return 1


class Counts(Partial):
    """Counts how often each key occurs; its records are (key, count).

    Args:
        keys_of: returns the keys of a batch of records.
    """

    def __init__(self, keys_of: Callable[[Sequence[Any]], Iterable[Any]]) -> None:
        self._keys_of = keys_of
        self._counts: Counter[Any] = Counter()

    def add(self, records: Sequence[Any]) -> None:
        self._counts.update(self._keys_of(records))

    def take(self) -> list[Any]:
        counts = list(self._counts.items())
        self._counts.clear()
        return counts

    def size(self) -> int:
        return len(self._counts)


class Weights(Counts):
    """Sums the weights of each key, from records that represent several (key, weight)."""

    def add(self, records: Sequence[Any]) -> None:
        counts = self._counts
        for key, weight in self._keys_of(records):
            counts[key] += weight


class PartialsOperator(StreamOperator):
    """Passes records to a `Partial`, and emits its contents."""

    def __init__(self, make: Callable[[], Partial]) -> None:
        self._partial = make()

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        self._partial.add(batch.values)
        if self._partial.size() > ENTRIES_MAX:
            self._emit()

    def process_watermark(self, timestamp: int) -> None:
        self._emit()
        super().process_watermark(timestamp)

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        self._emit()

    def end_input(self, input_index: int = 0) -> None:
        self._emit()

    def _emit(self) -> None:
        records = self._partial.take()
        if records:
            self.output.collect(Batch(records))


def partials(stream: DataStream, make: Callable[[], Partial], name: str) -> DataStream:
    """Return the partial aggregates of a stream's records, a few for each subtask."""
    return stream._add(name, partial(PartialsOperator, make)).name(name)
