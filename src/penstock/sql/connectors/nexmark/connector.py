"""The `nexmark` connector: a table of Nexmark benchmark events, with the options of Flink's `nexmark` connector.

Its columns are event_type (0, 1, 2) and one ROW each for persons, auctions and bids, only one of them not NULL.

The source of Nexmark events: columns, in time order within each subtask (G8: a position is an event's number).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.errors import UnsupportedError
from penstock.connectors.rate_limiter import RateLimiter, RateLimiterStrategy
from penstock.connectors.split_reader import PositionedReader, SeriesQueue
from penstock.runtime.columns.batch import ColumnBatch
from penstock.runtime.connector import (
    Boundedness,
    InputStatus,
    Source,
    SourceReader,
    SourceReaderContext,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from penstock.runtime.records import Batch
from penstock.sql.connectors.nexmark import events as auctions
from penstock.sql.connectors.nexmark import events as bids
from penstock.sql.connectors.nexmark import events as persons
from penstock.sql.connectors.nexmark.events import FIRST_EVENT_MS, NexmarkSettings
from penstock.sql.data.arrow import arrow_type, logical_type
from penstock.sql.data.errors import ValidationError
from penstock.sql.logical.nodes import Scan
from penstock.sql.tables.connector import TableConnector, TableOptions
from penstock.sql.tables.counter_rng import Integers
from penstock.sql.tables.tables import NestedPushDown, Path, ProjectionPushDown, TableReader, TableScan, column_names

#: Events per chunk. Texts depend on where chunks begin, so other sizes would generate other events.
CHUNK_EVENTS: Final = 16_384

Fields = tuple[tuple[str, pa.DataType], ...]
Maker = Callable[[NexmarkSettings, Integers, pa.Array], Mapping[str, Callable[[], pa.Array]]]
#: the columns of kinds 0, 1 and 2
KINDS: Final[dict[str, tuple[int, Fields, Maker]]] = {
    "person": (0, persons.PERSON_FIELDS, persons.person_columns),
    "auction": (1, auctions.AUCTION_FIELDS, auctions.auction_columns),
    "bid": (2, bids.BID_FIELDS, bids.bid_columns),
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


def _number(key: str, default: int, description: str) -> ConfigOption[int]:
    return ConfigOptions.key(key).int_type().default_value(default).with_description(description)


def _size(key: str, default: int, description: str) -> ConfigOption[int]:
    return ConfigOptions.key(key).memory_type().default_value(default).with_description(description)


EVENTS: Final = _number("events.num", 0, "The number of events; 0 for an unbounded table.")
FIRST_RATE: Final = _number("first-event.rate", 10_000, "The number of events per second of event time.")
NEXT_RATE: Final = _number("next-event.rate", 10_000, "The same; a different rate is not supported.")
IS_LIMITED: Final = (
    ConfigOptions.key("rate.limited")
    .boolean_type()
    .default_value(False)
    .with_description("Whether events are emitted at that rate instead of as fast as possible.")
)
SEED: Final = _number("seed", 0, "The random seed; a different seed generates different events.")
PERSONS: Final = _number("person.proportion", 1, "The proportion of persons among persons, auctions and bids.")
AUCTIONS: Final = _number("auction.proportion", 3, "The proportion of auctions.")
BIDS: Final = _number("bid.proportion", 46, "The proportion of bids.")
HOT_AUCTIONS: Final = _number("bid.hot-ratio.auctions", 2, "With a ratio of n, one in n bids is not for a hot auction.")
HOT_BIDDERS: Final = _number("bid.hot-ratio.bidders", 4, "With a ratio of n, one in n bids is not by a hot bidder.")
HOT_SELLERS: Final = _number(
    "auction.hot-ratio.sellers", 4, "With a ratio of n, one in n auctions is not by a hot seller."
)
PERSON_BYTES: Final = _size("person.avg-size", 200, "The average size of a person.")
AUCTION_BYTES: Final = _size("auction.avg-size", 500, "The average size of an auction.")
BID_BYTES: Final = _size("bid.avg-size", 100, "The average size of a bid.")
_POSITIVE: Final = (FIRST_RATE, HOT_AUCTIONS, HOT_BIDDERS, HOT_SELLERS)
_NOT_NEGATIVE: Final = (EVENTS, PERSONS, AUCTIONS, BIDS)


@dataclass(frozen=True, slots=True)
class NexmarkScan(TableScan, ProjectionPushDown, NestedPushDown):
    """Generates only the requested columns and fields."""

    settings: NexmarkSettings
    columns: tuple[str, ...]
    is_limited: bool

    def reader(self) -> TableReader:
        """See `TableScan`."""
        return TableReader(NexmarkColumnsSource(self.settings, self.columns, self.is_limited))

    def with_columns(self, columns: Sequence[int]) -> NexmarkScan:
        """See `ProjectionPushDown`."""
        return replace(self, columns=tuple(self.columns[index] for index in columns))

    def with_leaves(self, paths: Sequence[Path]) -> NexmarkScan:
        """See `NestedPushDown`."""
        return replace(self, columns=tuple(_leaf(self.columns[path[0]], path[1:]) for path in paths))


def _leaf(column: str, fields: Path) -> str:
    if not fields:
        return column
    (index,) = fields
    return f"{column}.{KINDS[column][1][index][0]}"


class NexmarkConnector(TableConnector):
    """See the module docstring."""

    name = "nexmark"
    optional_options = (
        EVENTS,
        FIRST_RATE,
        NEXT_RATE,
        IS_LIMITED,
        SEED,
        PERSONS,
        AUCTIONS,
        BIDS,
        HOT_AUCTIONS,
        HOT_BIDDERS,
        HOT_SELLERS,
        PERSON_BYTES,
        AUCTION_BYTES,
        BID_BYTES,
    )

    def scan(self, scan: Scan, options: TableOptions) -> TableScan:
        """Return the scan; raise `ValidationError` for columns that events do not have."""
        for option in _POSITIVE:
            _at_least(options, option, 1)
        for option in _NOT_NEGATIVE:
            _at_least(options, option, 0)
        if NEXT_RATE.key() in options and options.read(NEXT_RATE) != options.read(FIRST_RATE):
            raise UnsupportedError(
                f"table {options.title}: '{NEXT_RATE.key()}' must be the same as '{FIRST_RATE.key()}': the rate does "
                "not change"
            )
        settings = NexmarkSettings(
            events=options.read(EVENTS) or None,
            rate=options.read(FIRST_RATE),
            persons=options.read(PERSONS),
            auctions=options.read(AUCTIONS),
            bids=options.read(BIDS),
            hot_auctions=options.read(HOT_AUCTIONS),
            hot_bidders=options.read(HOT_BIDDERS),
            hot_sellers=options.read(HOT_SELLERS),
            person_bytes=options.read(PERSON_BYTES),
            auction_bytes=options.read(AUCTION_BYTES),
            bid_bytes=options.read(BID_BYTES),
            seed=options.read(SEED),
        )
        if not settings.cycle:
            raise options.wrong(BIDS.key(), "one of the proportions must be above 0")
        _check_columns(scan, options)
        return NexmarkScan(settings, tuple(scan.schema.names), options.read(IS_LIMITED))


def _at_least(options: TableOptions, option: ConfigOption[Any], least: int) -> None:
    if options.read(option) < least:
        raise options.wrong(option.key(), f"it must be at least {least}, not {options.read(option)}")


def _check_columns(scan: Scan, options: TableOptions) -> None:
    for column in scan.schema:
        kind = COLUMNS.get(column.name)
        if kind is None:
            raise ValidationError(
                f"Table {options.title} of connector 'nexmark' cannot have a column '{column.name}'. Its columns are "
                f"{', '.join(COLUMNS)}"
            )
        if arrow_type(column.type) != kind:
            raise ValidationError(
                f"Column '{column.name}' of table {options.title} must be of type {logical_type(kind)} for connector "
                f"'nexmark', not {column.type}"
            )
