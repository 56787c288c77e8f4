"""The events of all workloads, and the source that hands them to a job without putting them into it.

An event is a bid in the manner of Nexmark, `(auction, price, timestamp_ms)`: 10,000 auctions drawn by Zipf's law, ten
events a millisecond of event time, out of order by up to 2 s. Other specifications have other fields, keys and times
(`sparse`). There is one list of them, `EVENTS`, which both sides read, and which workers in other processes make again
for themselves.
"""

from __future__ import annotations

import gc
import marshal
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.connectors.split_reader import PositionedReader, SplitQueue
from penstock.runtime.connector import Boundedness, Source, SplitEnumerator
from penstock.runtime.records import Batch

Event = tuple[int, int, int]
#: auction, bidder, price, channel, address, timestamp (ms)
Bid = tuple[int, int, int, str, str, int]
#: a word and a number
Word = tuple[str, int]
KEYS = 10_000
OUT_OF_ORDER_MS = 2_000
EVENTS_PER_MS = 10
#: Subtasks take turns in blocks of so many events.
BLOCK_EVENTS = 4096
CHANNELS = ("apple", "google", "facebook", "baidu")
#: An auction that comes and goes is bid for among so many others.
AT_A_TIME = 10_000


@dataclass(frozen=True)
class EventsSpec:
    """Says which events there are; the same specification always gives the same ones."""

    count: int
    keys: int = KEYS
    #: every key as often as any other, rather than by Zipf's law
    is_uniform: bool = False
    seed: int = 1
    #: 3 of an `Event`, 6 of a `Bid`, 2 of a `Word`
    fields: int = 3
    per_ms: int = EVENTS_PER_MS
    #: every auction comes, has two bids on average, and goes; there are half as many as events
    are_passing: bool = False
    #: records that the source gives at a time
    block: int = BLOCK_EVENTS

    def columns(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Auctions, prices and timestamps (ms)."""
        chance = np.random.default_rng(self.seed)
        index = np.arange(self.count, dtype=np.int64)
        if self.are_passing:
            auctions = (index + chance.integers(0, 2 * AT_A_TIME, self.count)) // 2
        elif self.is_uniform:
            auctions = chance.integers(0, self.keys, self.count)
        else:
            auctions = (self.keys ** chance.random(self.count)).astype(np.int64) - 1
        return auctions, index & 1023, index // self.per_ms + chance.integers(0, OUT_OF_ORDER_MS, self.count)

    def make(self) -> list[Any]:
        """The events."""
        auctions, prices, times = (column.tolist() for column in self.columns())
        if self.fields == 2:
            words = {auction: f"word-{auction:05d}" for auction in set(auctions)}
            return [(words[auction], price) for auction, price in zip(auctions, prices, strict=True)]
        if self.fields == 3:
            return list(zip(auctions, prices, times, strict=True))
        addresses = {auction: f"https://www.nexmark.com/item.htm?query={auction}" for auction in set(auctions)}
        return [
            (auction, auction ^ price, price, CHANNELS[price & 3], addresses[auction], timestamp)
            for auction, price, timestamp in zip(auctions, prices, times, strict=True)
        ]


def make_events(count: int) -> list[Event]:
    """So many events."""
    return EventsSpec(count).make()


EVENTS: list[Any] = []
_made: EventsSpec | None = None


def share_of(make: Callable[[int], list[Any]], count: int, index: int, shares: int) -> list[Any]:
    """The events index, index + shares, index + 2 shares, … of `make(count)`, out of the garbage collector's sight.

    Through bytes: dropping the other events leaves holes all over the memory, and what is allocated later would fall
    into these, far from each other.
    """
    share = marshal.dumps(make(count)[index::shares])
    gc.collect()
    events: list[Any] = marshal.loads(share)
    del share
    gc.collect()
    gc.freeze()
    return events


def get_events(spec: EventsSpec) -> list[Any]:
    """The one list, holding what the specification says; out of the garbage collector's sight."""
    global _made
    if _made != spec:
        gc.unfreeze()
        EVENTS.clear()
        gc.disable()  # which would look at them again and again while they are made
        EVENTS.extend(spec.make())
        gc.enable()
        gc.collect()
        gc.freeze()
        _made = spec
    return EVENTS


@dataclass(frozen=True, slots=True)
class Blocks:
    """Every `step`-th block of events from `position` on."""

    position: int
    step: int


class SharedEvents(Source[Any, Blocks]):
    """`EVENTS`; of each `modulo` events only the first (`is_first`), or all but that one; all with `modulo` 1."""

    def __init__(self, spec: EventsSpec, modulo: int = 1, is_first: bool = True) -> None:
        self.spec = spec
        self.modulo = modulo
        self.is_first = is_first

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def create_enumerator(self, context: Any, restored: Any | None) -> SplitEnumerator[Blocks]:
        block = self.spec.block
        step = context.parallelism * block
        return SplitQueue(context, [Blocks(i * block, step) for i in range(context.parallelism)], restored)

    def create_reader(self, context: Any) -> Any:
        return _Reader(context, self)


class _Reader(PositionedReader[Blocks]):
    def __init__(self, context: Any, source: SharedEvents) -> None:
        super().__init__(context)
        self._events = get_events(source.spec)
        self._modulo, self._is_first, self._block = source.modulo, source.is_first, source.spec.block

    def read(self, split: Blocks, max_records: int) -> tuple[Batch, Blocks] | None:
        position = split.position
        if position >= len(self._events):
            return None
        block = self._events[position : position + self._block]
        if self._modulo > 1:
            first = -position % self._modulo
            if self._is_first:
                block = block[first :: self._modulo]
            else:
                del block[first :: self._modulo]
        return Batch(block), replace(split, position=position + split.step)
