"""A generator of auction events modelled on the Nexmark benchmark, for demos, tests and measurements.

Of 50 consecutive events the first is a new person, the next three are new auctions, and 46 are bids. Every field is
computed from the seed and the event's index by a mixing function, so an event is the same wherever and whenever it is
generated (G8).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.base.errors import ConfigurationError
from penstock.connectors.split_reader import SeriesQueue, SeriesReader
from penstock.runtime import connector
from penstock.runtime.records import Batch

CYCLE = 50
AUCTIONS_PER_CYCLE = 3
HOT_KEYS = 10_000
CHUNK_EVENTS = 1_000
CHANNELS = ("Apple", "Baidu", "Facebook", "Google")
CITIES = ("Boise", "Kent", "Phoenix", "Portland", "Redmond", "Seattle", "San Francisco", "Palo Alto")
FIRST_EVENT_MS = 1_436_918_400_000  # 2015-07-15 00:00 UTC
_ZIPF_EXPONENT = 1.0
_MASK = 2**64 - 1

Integers: TypeAlias = npt.NDArray[np.uint64]


class Person(NamedTuple):
    """A person who registered at `date_time` (ms)."""

    id: int
    name: str
    city: str
    date_time: int


class Auction(NamedTuple):
    """An item for sale from `date_time` to `expires` (ms)."""

    id: int
    seller: int
    category: int
    initial_bid: int
    date_time: int
    expires: int


class Bid(NamedTuple):
    """An offer at `date_time` (ms) by a bidder for an auction."""

    auction: int
    bidder: int
    price: int
    channel: str
    date_time: int


@dataclass(frozen=True, slots=True)
class NexmarkSplit:
    """Every `step`-th chunk of events, starting with `chunk`, after its first `position` events."""

    chunk: int
    step: int
    position: int = 0

    @property
    def number(self) -> int:
        """The number of the series, independent of the chunk."""
        return self.chunk % self.step


class NexmarkSource(connector.Source[Person | Auction | Bid, NexmarkSplit]):
    """Emits `Person`, `Auction` and `Bid` events with event times, in order within each subtask (G8).

    Bids go to one of 10,000 auctions by Zipf's law: the most popular one draws a tenth of all bids.

    Args:
        events: the number of events; None for no end.
        seed: different seeds give different events.
        events_per_second: how many events share a second of event time; it does not limit the speed of the source.
        bids_only: omit persons and auctions (they still count as events).

    Raises:
        ConfigurationError: if the number of events is negative or the rate is not positive.
    """

    def __init__(
        self, events: int | None = None, seed: int = 0, events_per_second: int = 10_000, bids_only: bool = False
    ) -> None:
        if events is not None and events < 0:
            raise ConfigurationError(f"the number of events must not be negative: {events}")
        if events_per_second <= 0:
            raise ConfigurationError(f"events_per_second must be positive: {events_per_second}")
        self._events = events
        self._seed = seed
        self._events_per_second = events_per_second
        self._bids_only = bids_only

    @property
    def boundedness(self) -> connector.Boundedness:
        """Bounded if the number of events is given."""
        return connector.Boundedness.CONTINUOUS_UNBOUNDED if self._events is None else connector.Boundedness.BOUNDED

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[NexmarkSplit], restored: Any | None
    ) -> connector.SplitEnumerator[NexmarkSplit]:
        """Return an enumerator that assigns one series of chunks to each subtask."""
        step = context.parallelism
        return SeriesQueue(context, [NexmarkSplit(i, step) for i in range(step)], restored, lambda split: split.number)

    def create_reader(
        self, context: connector.SourceReaderContext
    ) -> connector.SourceReader[Person | Auction | Bid, NexmarkSplit]:
        """Return a new reader."""
        return _NexmarkReader(context, self)

    def chunk(self, number: int) -> Batch:
        """Return the events of a chunk, at most `CHUNK_EVENTS`; none after the end."""
        first = number * CHUNK_EVENTS
        stop = first + CHUNK_EVENTS if self._events is None else min(first + CHUNK_EVENTS, self._events)
        if stop <= first:
            return Batch([], [])
        indexes = np.arange(first, stop, dtype=np.uint64)
        times = (FIRST_EVENT_MS + indexes.astype(np.int64) * 1_000 // self._events_per_second).tolist()
        values: list[Any] = self._bids(indexes, times)
        if self._bids_only:
            bid_indexes = [i for i in range(len(values)) if (first + i) % CYCLE > AUCTIONS_PER_CYCLE]
            return Batch([values[i] for i in bid_indexes], [times[i] for i in bid_indexes])
        for i in range(-first % CYCLE, len(values), CYCLE):
            values[i] = self._person(first + i, times[i])
        for offset in range(1, AUCTIONS_PER_CYCLE + 1):
            for i in range((offset - first) % CYCLE, len(values), CYCLE):
                values[i] = self._auction(first + i, times[i])
        return Batch(values, times)

    def _bids(self, indexes: Integers, times: list[int]) -> list[Any]:
        auctions = np.searchsorted(_zipf_bounds(), self._unit(indexes, 1)).tolist()
        bidders = (self._mix(indexes, 2) % np.uint64(HOT_KEYS)).tolist()
        prices = np.rint(10.0 ** (self._unit(indexes, 3) * 6.0 + 2.0)).astype(np.int64).tolist()
        channels = [CHANNELS[i] for i in (self._mix(indexes, 4) % np.uint64(len(CHANNELS))).tolist()]
        return list(map(Bid._make, zip(auctions, bidders, prices, channels, times, strict=True)))

    def _person(self, index: int, time_ms: int) -> Person:
        number = index // CYCLE
        return Person(number, f"person-{number}", CITIES[self._one(index, 5) % len(CITIES)], time_ms)

    def _auction(self, index: int, time_ms: int) -> Auction:
        number = index // CYCLE * AUCTIONS_PER_CYCLE + index % CYCLE - 1
        seller = self._one(index, 6) % (index // CYCLE + 1)
        category = 10 + self._one(index, 7) % 5
        expires = time_ms + 1_000 + self._one(index, 8) % 60_000
        return Auction(number, seller, category, 100 + self._one(index, 9) % 10_000, time_ms, expires)

    def _one(self, index: int, lane: int) -> int:
        """Return the value of `_mix` for one index."""
        x = (index * 0x9E3779B97F4A7C15 + self._salt(lane)) & _MASK
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
        return x ^ (x >> 31)

    def _unit(self, indexes: Integers, lane: int) -> npt.NDArray[np.float64]:
        """Return numbers from 0 up to, but excluding, 1."""
        return (self._mix(indexes, lane) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def _mix(self, indexes: Integers, lane: int) -> Integers:
        """Return well-mixed 64-bit numbers, one per index, that differ by lane and seed (SplitMix64's finaliser)."""
        x = indexes * np.uint64(0x9E3779B97F4A7C15) + np.uint64(self._salt(lane))
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))

    def _salt(self, lane: int) -> int:
        return (self._seed * 0x9E3779B97F4A7C15 + lane * 0xD1B54A32D192ED03) & _MASK


class _NexmarkReader(SeriesReader[NexmarkSplit]):
    def __init__(self, context: connector.SourceReaderContext, source: NexmarkSource) -> None:
        super().__init__(context)
        self._source = source
        self._number = -1
        self._chunk = Batch([], [])

    def get_series_name(self, split: NexmarkSplit) -> str:
        return f"{split.number} of {split.step}"

    def get_series_step(self, split: NexmarkSplit) -> int:
        return split.step

    def get_series_position(self, split: NexmarkSplit) -> tuple[int, int]:
        return split.chunk, split.position

    def read(self, split: NexmarkSplit, max_records: int) -> tuple[Batch, NexmarkSplit] | None:
        if split.chunk != self._number:
            self._number, self._chunk = split.chunk, self._source.chunk(split.chunk)
        stop = min(split.position + max_records, len(self._chunk))
        if stop <= split.position:
            return None
        if stop == len(self._chunk):
            following = replace(split, chunk=split.chunk + split.step, position=0)
        else:
            following = replace(split, position=stop)
        return self._chunk.slice(split.position, stop), following


@lru_cache(maxsize=1)
def _zipf_bounds() -> npt.NDArray[np.float64]:
    """Return the upper bound of each key's share of the unit interval."""
    weights = 1.0 / np.arange(1, HOT_KEYS + 1, dtype=np.float64) ** _ZIPF_EXPONENT
    bounds: npt.NDArray[np.float64] = np.cumsum(weights) / weights.sum()
    bounds[-1] = 1.0
    return bounds
