"""`nexmark`: the auction events of the Nexmark benchmark, with the options of Flink's `nexmark` connector.

The columns of the table are event_type (0, 1, 2) and one ROW each for persons, auctions and bids, only one of them not
NULL.

From an event's number, the module computes which persons and auctions exist at the event (`last_person`,
`last_auction`). Random texts are generated for many events at once: the texts of a chunk of events lie side by side in
a pool of letters that is generated once. A column is a slice of the pool, with the offsets of its texts, so no letter
is copied. `person_columns`, `auction_columns` and `bid_columns` generate the events in batches.

`NexmarkColumnsSource` emits columns, in time order within each subtask (G8: a position is an event's number).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.errors import UnsupportedError
from penstock.connectors.split_reader import PositionedReader, RateLimiter, RateLimiterStrategy, SeriesQueue
from penstock.runtime import connector
from penstock.runtime.columns import ColumnBatch
from penstock.runtime.records import Batch
from penstock.sql.connectors.datagen import Chance, Integers
from penstock.sql.data.arrow import arrow_type, logical_type
from penstock.sql.data.errors import ValidationError
from penstock.sql.logical.nodes import Scan
from penstock.sql.tables.connector import TableConnector, TableOptions
from penstock.sql.tables.tables import NestedPushDown, Path, ProjectionPushDown, TableReader, TableScan, column_names

#: 2015-07-15 00:00 UTC
FIRST_EVENT_MS: Final = 1_436_918_400_000
#: the first id of persons and auctions, high enough that queries also match in small streams
FIRST_ID: Final = 1_000
FIRST_CATEGORY: Final = 10
CATEGORIES: Final = 5
#: the average number of open auctions, and the number of active people
OPEN_AUCTIONS: Final = 100
ACTIVE_PEOPLE: Final = 1_000
#: ids that may be chosen before their events
ID_LEAD: Final = 10
#: one in this many consecutive ids is hot
HOT_STEP: Final = 100


@dataclass(frozen=True, slots=True)
class NexmarkSettings:
    """The number, kinds and sizes of the events.

    Attributes:
        events: the number of events; None for an unbounded stream.
        rate: events per second of event time.
        persons: the persons in each cycle of `persons + auctions + bids` events; they come first.
        auctions: the auctions in each cycle; they follow the persons.
        bids: the bids in each cycle; they follow the auctions.
        hot_auctions: one in this many bids goes to any open auction, the others to a hot one.
        hot_bidders: one in this many bids is by any active person, the others by a hot bidder.
        hot_sellers: one in this many auctions is by any active person, the others by a hot seller.
        person_bytes: the average size of a person, padded by an extra text.
        auction_bytes: the average size of an auction, padded likewise.
        bid_bytes: the average size of a bid, padded likewise.
        seed: other seeds generate other events.
    """

    events: int | None = None
    rate: int = 10_000
    persons: int = 1
    auctions: int = 3
    bids: int = 46
    hot_auctions: int = 2
    hot_bidders: int = 4
    hot_sellers: int = 4
    person_bytes: int = 200
    auction_bytes: int = 500
    bid_bytes: int = 100
    seed: int = 0

    @property
    def cycle(self) -> int:
        """The number of events after which the kinds repeat."""
        return self.persons + self.auctions + self.bids


def last_person(settings: NexmarkSettings, numbers: Integers) -> Integers:
    """Return the number of the latest person, from 0, including the event's own; -1 if none exists yet."""
    cycles, positions = numbers // settings.cycle, numbers % settings.cycle
    return cycles * settings.persons + np.minimum(positions, settings.persons - 1)


def last_auction(settings: NexmarkSettings, numbers: Integers) -> Integers:
    """Return the number of the latest auction, from 0, including the event's own; -1 if none exists yet."""
    cycles, positions = numbers // settings.cycle, numbers % settings.cycle
    return cycles * settings.auctions + np.clip(positions - settings.persons, -1, settings.auctions - 1)


def any_person(settings: NexmarkSettings, numbers: Integers, chance: Chance, lane: int) -> Integers:
    """Return the number of a random person who is active or about to appear."""
    people = last_person(settings, numbers) + 1
    active = np.minimum(people, ACTIVE_PEOPLE)
    return people - active + chance.below(active + ID_LEAD, lane)


def any_auction(settings: NexmarkSettings, numbers: Integers, chance: Chance, lane: int) -> Integers:
    """Return the number of a random auction that is likely open or about to begin."""
    last = last_auction(settings, numbers)
    first = np.maximum(last - OPEN_AUCTIONS, 0)
    return first + chance.below(last - first + 1 + ID_LEAD, lane)


def find_hot(last: Integers, behind: int = 0) -> Integers:
    """Return the latest hot number. `behind`: an offset that gives sellers and bidders different hot persons."""
    return np.maximum(last, 0) // HOT_STEP * HOT_STEP + behind


def choose(chance: Chance, lane: int, ratio: int, hot_ones: Integers, others: Integers) -> Integers:
    """Pick the hot number, except one time in `ratio`."""
    return np.where(chance.below(ratio, lane) > 0, hot_ones, others)


_POOL_BYTES: Final = 16 << 20
_SPACES: Final = 13


def words(chance: Chance, lane: int, below: int) -> pa.Array:
    """Return texts of letters and occasional spaces, with lengths from 3 to below `below`."""
    return _texts(chance, lane, 3 + chance.below(below - 3, lane), has_spaces=True)


def filling(chance: Chance, lane: int, sizes: Integers, average: int) -> pa.Array:
    """Return texts that pad sizes to an average, plus or minus a fifth. Empty if the size is already reached."""
    room = np.maximum(average - sizes, 0)
    spread = np.rint(room * 0.2).astype(np.int64)
    return _texts(chance, lane, room - spread + chance.below(np.maximum(2 * spread, 1), lane), has_spaces=False)


def _texts(chance: Chance, lane: int, lengths: Integers, *, has_spaces: bool) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    total = int(offsets[-1])
    if not total:
        return pa.array([""] * len(lengths), pa.string())
    pool = _pool(has_spaces)
    # The start does not depend on how many texts follow, so a shorter stream is a prefix of a longer one.
    begin = int(chance.bits(lane + 1)[0]) % len(pool)
    if begin + total > len(pool):
        pool = pool * ((begin + total) // len(pool) + 1)
    data = pa.py_buffer(pool).slice(begin, total)
    return pa.Array.from_buffers(pa.string(), len(lengths), [None, pa.py_buffer(offsets), data])


@lru_cache(maxsize=2)
def _pool(has_spaces: bool) -> bytes:
    chance = Chance(int(has_spaces), np.arange(_POOL_BYTES // 8, dtype=np.int64))
    draws = chance.bits(0).view(np.uint8)
    letters = (draws % 26 + ord("a")).astype(np.uint8)
    if has_spaces:
        letters[chance.bits(1).view(np.uint8) % _SPACES == 0] = ord(" ")
    return letters.tobytes()


PERSON_FIELDS: Final = (
    ("id", pa.int64()),
    ("name", pa.string()),
    ("emailAddress", pa.string()),
    ("creditCard", pa.string()),
    ("city", pa.string()),
    ("state", pa.string()),
    ("dateTime", pa.timestamp("ms")),
    ("extra", pa.string()),
)
_FIRST_NAMES: Final = pa.array(
    ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"]
)
_LAST_NAMES: Final = pa.array(["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"])
_CITIES: Final = pa.array(
    [
        "Phoenix",
        "Los Angeles",
        "San Francisco",
        "Boise",
        "Portland",
        "Bend",
        "Redmond",
        "Seattle",
        "Kent",
        "Cheyenne",
    ]
)
_STATES: Final = pa.array(["AZ", "CA", "ID", "OR", "WA", "WY"])
_DIGITS: Final = pa.array([f"{number:04}" for number in range(10_000)])


def person_columns(
    settings: NexmarkSettings, numbers: Integers, times: pa.Array
) -> Mapping[str, Callable[[], pa.Array]]:
    """Return the fields of the person events with these numbers, each generated on demand."""
    chance = Chance(settings.seed, numbers)

    def pick_text(texts: pa.Array, lane: int) -> pa.Array:
        return texts.take(pa.array(chance.below(len(texts), lane)))

    @cache
    def names() -> pa.Array:
        return pc.binary_join_element_wise(pick_text(_FIRST_NAMES, 50), pick_text(_LAST_NAMES, 51), " ")

    @cache
    def addresses() -> pa.Array:
        mailboxes = pc.utf8_trim_whitespace(words(chance, 52, 7))
        hosts = pc.utf8_trim_whitespace(words(chance, 54, 5))
        return pc.binary_join_element_wise(pc.binary_join_element_wise(mailboxes, hosts, "@"), "com", ".")

    @cache
    def cards() -> pa.Array:
        return pc.binary_join_element_wise(*(pick_text(_DIGITS, lane) for lane in range(56, 60)), " ")

    @cache
    def cities() -> pa.Array:
        return pick_text(_CITIES, 60)

    @cache
    def states() -> pa.Array:
        return pick_text(_STATES, 61)

    def extra() -> pa.Array:
        texts = (names(), addresses(), cards(), cities(), states())
        sizes: Any = 8 + sum(np.asarray(pc.binary_length(column)) for column in texts)
        return filling(chance, 62, sizes, settings.person_bytes)

    return {
        "id": lambda: pa.array(last_person(settings, numbers) + FIRST_ID),
        "name": names,
        "emailAddress": addresses,
        "creditCard": cards,
        "city": cities,
        "state": states,
        "dateTime": lambda: times,
        "extra": extra,
    }


AUCTION_FIELDS: Final = (
    ("id", pa.int64()),
    ("itemName", pa.string()),
    ("description", pa.string()),
    ("initialBid", pa.int64()),
    ("reserve", pa.int64()),
    ("dateTime", pa.timestamp("ms")),
    ("expires", pa.timestamp("ms")),
    ("seller", pa.int64()),
    ("category", pa.int64()),
    ("extra", pa.string()),
)
#: six numbers and timestamps of 8 bytes each
_NUMBER_BYTES: Final = 48


def auction_columns(
    settings: NexmarkSettings, numbers: Integers, times: pa.Array
) -> Mapping[str, Callable[[], pa.Array]]:
    """Return the fields of the auction events with these numbers, each generated on demand."""
    chance = Chance(settings.seed, numbers)

    @cache
    def names() -> pa.Array:
        return pc.utf8_trim_whitespace(words(chance, 32, 20))

    @cache
    def descriptions() -> pa.Array:
        return pc.utf8_trim_whitespace(words(chance, 34, 100))

    @cache
    def first_bids() -> Any:
        return chance.price(36)

    def sellers() -> pa.Array:
        hot = find_hot(last_person(settings, numbers))
        others = any_person(settings, numbers, chance, 31)
        return pa.array(choose(chance, 30, settings.hot_sellers, hot, others) + FIRST_ID)

    def expires() -> pa.Array:
        # On average, an auction stays open until `OPEN_AUCTIONS` others have begun.
        ahead = OPEN_AUCTIONS * settings.cycle // max(settings.auctions, 1)
        horizon = ahead * 1_000 // settings.rate
        begins = np.asarray(times.view(pa.int64()))
        return pa.array(begins + 1 + chance.below(max(2 * horizon, 1), 37)).view(times.type)

    def extra() -> pa.Array:
        sizes: Any = _NUMBER_BYTES + sum(np.asarray(pc.binary_length(column)) for column in (names(), descriptions()))
        return filling(chance, 40, sizes, settings.auction_bytes)

    return {
        "id": lambda: pa.array(last_auction(settings, numbers) + FIRST_ID),
        "itemName": names,
        "description": descriptions,
        "initialBid": lambda: pa.array(first_bids()),
        "reserve": lambda: pa.array(first_bids() + chance.price(38)),
        "dateTime": lambda: times,
        "expires": expires,
        "seller": sellers,
        "category": lambda: pa.array(FIRST_CATEGORY + chance.below(CATEGORIES, 39)),
        "extra": extra,
    }


BID_FIELDS: Final = (
    ("auction", pa.int64()),
    ("bidder", pa.int64()),
    ("price", pa.int64()),
    ("channel", pa.string()),
    ("url", pa.string()),
    ("dateTime", pa.timestamp("ms")),
    ("extra", pa.string()),
)
HOT_CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple")
_CHANNELS: Final = 10_000
#: auction, bidder, price and time, 8 bytes each
_BID_NUMBER_BYTES: Final = 32


def bid_columns(settings: NexmarkSettings, numbers: Integers, times: pa.Array) -> Mapping[str, Callable[[], pa.Array]]:
    """Return the fields of the bid events with these numbers, each generated on demand."""
    chance = Chance(settings.seed, numbers)

    def auctions() -> pa.Array:
        hot = find_hot(last_auction(settings, numbers))
        others = any_auction(settings, numbers, chance, 11)
        return pa.array(choose(chance, 10, settings.hot_auctions, hot, others) + FIRST_ID)

    def bidders() -> pa.Array:
        hot = find_hot(last_person(settings, numbers), 1)
        others = any_person(settings, numbers, chance, 13)
        return pa.array(choose(chance, 12, settings.hot_bidders, hot, others) + FIRST_ID)

    @cache
    def channels() -> pa.Array:
        others = len(HOT_CHANNELS) + chance.below(_CHANNELS, 16)
        indices = np.where(chance.below(2, 14) == 0, chance.below(len(HOT_CHANNELS), 15), others)
        return pa.array(indices.astype(np.int32))

    return {
        "auction": auctions,
        "bidder": bidders,
        "price": lambda: pa.array(chance.price(17)),
        "channel": lambda: _channels()[0].take(channels()),
        "url": lambda: _channels()[1].take(channels()),
        "dateTime": lambda: times,
        "extra": lambda: filling(chance, 18, np.full(len(numbers), _BID_NUMBER_BYTES), settings.bid_bytes),
    }


@lru_cache(maxsize=1)
def _channels() -> tuple[pa.Array, pa.Array]:
    """Return the names of all channels, hot ones first, and their URLs."""
    chance = Chance(0, np.arange(len(HOT_CHANNELS) + _CHANNELS, dtype=np.int64))
    letters = [chance.below(26**4, lane).tolist() for lane in range(3)]
    has_id = (chance.below(10, 3) > 0).tolist()
    channel_ids = chance.below(2**31, 4).tolist()
    names, urls = [], []
    for index, parts in enumerate(zip(*letters, strict=True)):
        is_hot = index < len(HOT_CHANNELS)
        names.append(HOT_CHANNELS[index] if is_hot else f"channel-{index - len(HOT_CHANNELS)}")
        base = f"https://www.nexmark.com/{'/'.join(map(_letters, parts))}/item.htm?query=1"
        urls.append(base if is_hot or not has_id[index] else f"{base}&channel_id={channel_ids[index]}")
    return pa.array(names), pa.array(urls)


def _letters(number: int) -> str:
    return "".join(chr(ord("a") + number // 26**index % 26) for index in range(4))


#: Events per chunk. Texts depend on where chunks begin, so other sizes would generate other events.
CHUNK_EVENTS: Final = 16_384

Fields = tuple[tuple[str, pa.DataType], ...]
Maker = Callable[[NexmarkSettings, Integers, pa.Array], Mapping[str, Callable[[], pa.Array]]]
#: the columns of kinds 0, 1 and 2
KINDS: Final[dict[str, tuple[int, Fields, Maker]]] = {
    "person": (0, PERSON_FIELDS, person_columns),
    "auction": (1, AUCTION_FIELDS, auction_columns),
    "bid": (2, BID_FIELDS, bid_columns),
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


class NexmarkColumnsSource(connector.Source[Any, NexmarkSplit]):
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
    def boundedness(self) -> connector.Boundedness:
        """Unbounded unless the number of events is set."""
        return (
            connector.Boundedness.CONTINUOUS_UNBOUNDED
            if self._settings.events is None
            else connector.Boundedness.BOUNDED
        )

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[NexmarkSplit], restored: Any | None
    ) -> connector.SplitEnumerator[NexmarkSplit]:
        """Return an enumerator that assigns one series of chunks to each subtask."""
        step = context.parallelism
        splits = [NexmarkSplit(chunk, step) for chunk in range(step)]
        return SeriesQueue(context, splits, restored, attrgetter("chunk"))

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[Any, NexmarkSplit]:
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

    def __init__(
        self, context: connector.SourceReaderContext, source: NexmarkColumnsSource, limit: RateLimiter | None
    ) -> None:
        super().__init__(context)
        self._source = source
        self._limit = limit
        self._number = -1
        self._chunk: ColumnBatch | None = None

    def allowance(self, max_records: int) -> int:
        """Return how many events the rate allows; a whole chunk without a rate."""
        return super().allowance(self._source.chunk_events if self._limit is None or not self._splits else max_records)

    def poll_next(self, max_records: int) -> Batch | connector.InputStatus:
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
