"""The source of Nexmark events: columns, in time order within each subtask (G8: a position is an event's number)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.connectors.rate_limiter import RateLimiter, RateLimiterStrategy
from penstock.connectors.split_queue import SeriesQueue
from penstock.connectors.split_reader import PositionedReader
from penstock.core.columns.batch import ColumnBatch
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
from penstock.table.connectors.chance import Integers
from penstock.table.connectors.nexmark import auctions, bids, persons
from penstock.table.connectors.nexmark.settings import FIRST_EVENT_MS, NexmarkSettings
from penstock.table.connectors.tables import column_names

#: Events per chunk. Texts depend on where chunks begin, so other sizes would generate other events.
CHUNK_EVENTS: Final = 16_384

Fields = tuple[tuple[str, pa.DataType], ...]
Maker = Callable[[NexmarkSettings, Integers, pa.Array], Mapping[str, Callable[[], pa.Array]]]
#: the columns of kinds 0, 1 and 2
KINDS: Final[dict[str, tuple[int, Fields, Maker]]] = {
    "person": (0, persons.FIELDS, persons.person_columns),
    "auction": (1, auctions.FIELDS, auctions.auction_columns),
    "bid": (2, bids.FIELDS, bids.bid_columns),
}
EVENT_TYPE: Final = "event_type"
#: all columns, with their Arrow types
COLUMNS: Final[dict[str, pa.DataType]] = {
    EVENT_TYPE: pa.int32(),
    **{name: pa.struct(list(fields)) for name, (_, fields, _) in KINDS.items()},
}


@dataclass(frozen=True, slots=True)
class NexmarkSplit:
    """Every `step`-th chunk of events, starting at `chunk`, of whose events the first `position` were emitted."""

    chunk: int
    step: int
    position: int = 0


class NexmarkColumnsSource(Source[Any, NexmarkSplit]):
    """Emits events as columns named c0, c1 and so on. Subtask i of n generates the chunks i, i + n, i + 2n and so on.

    Args:
        settings: the settings of the stream.
        columns: the requested columns of `COLUMNS`, in order, or fields such as `bid.price`; others are not generated.
        is_limited: whether to limit the events per second to the rate; if not, emit as many as possible.
    """

    def __init__(self, settings: NexmarkSettings, columns: tuple[str, ...], is_limited: bool = False) -> None:
        self._settings = settings
        self._columns = columns
        limit = RateLimiterStrategy.per_second(settings.rate) if is_limited else RateLimiterStrategy.no_op()
        self._limit = limit
        #: the number of events per chunk
        self.chunk_events = CHUNK_EVENTS

    @property
    def boundedness(self) -> Boundedness:
        """Unbounded unless the number of events is set."""
        return Boundedness.CONTINUOUS_UNBOUNDED if self._settings.events is None else Boundedness.BOUNDED

    def create_enumerator(
        self, context: SplitEnumeratorContext[NexmarkSplit], restored: Any | None
    ) -> SplitEnumerator[NexmarkSplit]:
        """Return an enumerator that assigns one series of chunks to each subtask."""
        step = context.parallelism
        splits = [NexmarkSplit(chunk, step) for chunk in range(step)]
        return SeriesQueue(context, splits, restored, attrgetter("chunk"))

    def create_reader(self, context: SourceReaderContext) -> SourceReader[Any, NexmarkSplit]:
        """Create a reader."""
        limiter = self._limit.create_rate_limiter(context.parallelism, context.now_ms())
        return _NexmarkReader(context, self, limiter)

    def chunk(self, number: int) -> ColumnBatch | None:
        """Return the events of a chunk; None past the end."""
        settings = self._settings
        first = number * CHUNK_EVENTS
        stop = first + CHUNK_EVENTS if settings.events is None else min(first + CHUNK_EVENTS, settings.events)
        if stop <= first:
            return None
        numbers = np.arange(first, stop, dtype=np.int64)
        times = FIRST_EVENT_MS + numbers * 1_000 // settings.rate
        positions = numbers % settings.cycle
        kinds = (positions >= settings.persons).astype(np.int32) + (positions >= settings.persons + settings.auctions)
        arrays = [
            pa.array(kinds.astype(np.int32)) if name == EVENT_TYPE else self._events(name, kinds, numbers, times)
            for name in self._columns
        ]
        return ColumnBatch(pa.RecordBatch.from_arrays(arrays, column_names(len(arrays))))

    def _events(self, name: str, kinds: Any, numbers: Integers, times: Integers) -> pa.Array:
        """Return the events of one kind, or one of their fields; NULL for events of other kinds."""
        name, _, field = name.partition(".")
        kind, fields, make = KINDS[name]
        has_kind = kinds == kind
        indices = np.flatnonzero(has_kind)
        if not len(indices):
            return pa.nulls(len(kinds), dict(fields)[field] if field else COLUMNS[name])
        of_kind = make(self._settings, numbers[indices], pa.array(times[indices]).view(pa.timestamp("ms")))
        if field:
            rows = of_kind[field]()
        else:
            rows = pa.StructArray.from_arrays(
                [of_kind[field_name]() for field_name, _ in fields], fields=list(COLUMNS[name])
            )
        if len(indices) == len(kinds):
            return rows
        positions = pa.array(np.cumsum(has_kind) - 1, mask=~has_kind)
        return rows.take(positions)


class _NexmarkReader(PositionedReader[NexmarkSplit]):
    """Emits whole chunks unless a rate limits it: columns are fast only in large batches."""

    def __init__(self, context: SourceReaderContext, source: NexmarkColumnsSource, limit: RateLimiter | None) -> None:
        super().__init__(context)
        self._source = source
        self._limit = limit
        self._number = -1
        self._chunk: ColumnBatch | None = None

    def allowance(self, max_records: int) -> int:
        """Return how many events the rate allows; a whole chunk without a rate."""
        return super().allowance(self._source.chunk_events if self._limit is None or not self._splits else max_records)

    def poll_next(self, max_records: int) -> Batch | InputStatus:
        """Return events in time order across series: after a recovery, a subtask may have several."""
        if len(self._splits) > 1:
            self._splits = deque(sorted(self._splits, key=lambda split: (split.chunk, split.position)))
        return super().poll_next(max_records)

    def read(self, split: NexmarkSplit, max_records: int) -> tuple[ColumnBatch, NexmarkSplit] | None:
        """Return the next events of the split's chunk."""
        if split.chunk != self._number:
            self._number, self._chunk = split.chunk, self._source.chunk(split.chunk)
        if self._chunk is None or split.position >= len(self._chunk):
            return None
        first, size = split.position, len(self._chunk)
        stop = min(first + max_records, size)
        if self._limit is not None:
            self._limit.spend(stop - first)
        following = (
            NexmarkSplit(split.chunk + split.step, split.step)
            if stop == self._source.chunk_events
            else replace(split, position=stop)
        )
        return self._chunk if stop - first == size else self._chunk.slice(first, stop), following
