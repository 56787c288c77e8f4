"""W7: a keyed join of two streams. Every tenth event opens an auction, the others are bids for one.

A bid is emitted with what opened its auction; one that comes ahead of that waits in a list. So the output is the same
in whatever order the two streams are read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.events import Event, EventsSpec, SharedEvents
from benchmarks.workloads import Emit, Workload, select_key, without_time
from penstock.datastream import DataStream, KeyedCoProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor

OPENS_EVERY = 10


def joined(auction: Event, bid: Event) -> tuple[int, int, int]:
    return (bid[0], bid[1], auction[1])


def bare_join(events: list[Event], emit: Emit) -> None:
    auctions: dict[int, Event] = {}
    waiting: dict[int, list[Event]] = {}
    for index, event in enumerate(events):
        key = select_key(event)
        if index % OPENS_EVERY == 0:
            auctions[key] = event
            for bid in waiting.pop(key, ()):
                emit(joined(event, bid))
        else:
            auction = auctions.get(key)
            if auction is not None:
                emit(joined(auction, event))
            else:
                waiting.setdefault(key, []).append(event)


class Join(KeyedCoProcessFunction):
    """The first input opens auctions, the second one bids."""

    def open(self, runtime_context: Any) -> None:
        self.auction = runtime_context.get_state(ValueStateDescriptor("auction"))
        self.waiting = runtime_context.get_list_state(ListStateDescriptor("waiting"))

    def process_element1(self, value: Event, ctx: Any) -> Iterable[Any] | None:
        self.auction.update(value)
        bids = list(self.waiting.get())
        if not bids:
            return None
        self.waiting.clear()
        return [joined(value, bid) for bid in bids]

    def process_element2(self, value: Event, ctx: Any) -> Iterable[Any] | None:
        auction = self.auction.value()
        if auction is not None:
            return [joined(auction, value)]
        self.waiting.add(value)
        return None


def join(env: StreamExecutionEnvironment, spec: EventsSpec) -> DataStream:
    opened = env.from_source(SharedEvents(spec, OPENS_EVERY), without_time(), "auctions")
    bids = env.from_source(SharedEvents(spec, OPENS_EVERY, is_first=False), without_time(), "bids")
    return opened.key_by(select_key).connect(bids.key_by(select_key)).process(Join())


JOIN = Workload("keyed join of two streams", bare_join, join)
