"""The events of all workloads, and the source that hands them to a job without putting them into it.

An event is a bid in the manner of Nexmark, `(auction, price, timestamp_ms)`: 10,000 auctions drawn by Zipf's law, ten
events a millisecond of event time, out of order by up to 2 s. There is one list of them, `EVENTS`, which both sides
read, and which workers in other processes make again for themselves.
"""

from __future__ import annotations

import gc
import marshal
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.connectors.split_queue import SplitQueue
from penstock.connectors.split_reader import PositionedReader
from penstock.core.connector import Boundedness, Source, SplitEnumerator
from penstock.core.records import Batch

Event = tuple[int, int, int]
KEYS = 10_000
OUT_OF_ORDER_MS = 2_000
EVENTS_PER_MS = 10
#: Subtasks take turns in blocks of so many events.
BLOCK_EVENTS = 4096


@dataclass(frozen=True)
class EventsSpec:
    """Says which events there are; the same specification always gives the same ones."""

    count: int
    keys: int = KEYS
    #: every key as often as any other, rather than by Zipf's law
    is_uniform: bool = False
    seed: int = 1

    def columns(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Auctions, prices and timestamps (ms)."""
        chance = np.random.default_rng(self.seed)
        index = np.arange(self.count, dtype=np.int64)
        if self.is_uniform:
            auctions = chance.integers(0, self.keys, self.count)
        else:
            auctions = (self.keys ** chance.random(self.count)).astype(np.int64) - 1
        return auctions, index & 1023, index // EVENTS_PER_MS + chance.integers(0, OUT_OF_ORDER_MS, self.count)

    def make(self) -> list[Event]:
        """The events."""
        return list(zip(*(column.tolist() for column in self.columns()), strict=True))


def make_events(count: int) -> list[Event]:
    """So many events."""
    return EventsSpec(count).make()


EVENTS: list[Event] = []
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


def events_of(spec: EventsSpec) -> list[Event]:
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


class SharedEvents(Source[Event, Blocks]):
    """`EVENTS`; of each `modulo` events only the first (`is_first`), or all but that one; all with `modulo` 1."""

    def __init__(self, spec: EventsSpec, modulo: int = 1, is_first: bool = True) -> None:
        self.spec = spec
        self.modulo = modulo
        self.is_first = is_first

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def create_enumerator(self, context: Any, restored: Any | None) -> SplitEnumerator[Blocks]:
        step = context.parallelism * BLOCK_EVENTS
        return SplitQueue(context, [Blocks(i * BLOCK_EVENTS, step) for i in range(context.parallelism)], restored)

    def create_reader(self, context: Any) -> Any:
        return _Reader(context, self)


class _Reader(PositionedReader[Blocks]):
    def __init__(self, context: Any, source: SharedEvents) -> None:
        super().__init__(context)
        self._events = events_of(source.spec)
        self._modulo, self._is_first = source.modulo, source.is_first

    def read(self, split: Blocks, max_records: int) -> tuple[Batch, Blocks] | None:
        position = split.position
        if position >= len(self._events):
            return None
        block = self._events[position : position + BLOCK_EVENTS]
        if self._modulo > 1:
            first = -position % self._modulo
            if self._is_first:
                block = block[first :: self._modulo]
            else:
                del block[first :: self._modulo]
        return Batch(block), replace(split, position=position + split.step)
