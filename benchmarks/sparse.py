"""S1 to S8: little happens at a time, and much to each record; functions as users write them, in classes.

One bid a millisecond instead of ten, so a window of 10 s has few records for each of thousands of auctions, and a
result comes for every three or four records; timers that fire all the time; keys that come and go; wide keys and
records; batches of 64 records. All but the word count have event time. The twins look at it after as many records as a
batch has, as Penstock does, so both sides do the same work and give the same results (a test compares them).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from benchmarks.events import BLOCK_EVENTS, OUT_OF_ORDER_MS, Bid, EventsSpec, SharedEvents, Word
from benchmarks.workloads import WINDOW_MS, Emit, Workload, without_time
from penstock.common import Duration, WatermarkStrategy
from penstock.datastream import (
    AggregateFunction,
    DataStream,
    FilterFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessWindowFunction,
    ReduceFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import TimeWindow, TumblingEventTimeWindows

#: Silence that ends a session.
GAP_MS: Final = 10_000
#: How long an auction is watched from its first bid on.
WATCHED_MS: Final = 5_000
SMALL_BATCH: Final = 64
END: Final = 2**63 - 1
_BIDS: Final = {"fields": 6, "per_ms": 1}


# --- what both sides do to a record ----------------------------------------------------------------------------------


def auction_of(bid: Bid) -> int:
    return bid[0]


def wide_key_of(bid: Bid) -> tuple[str, str, int]:
    return bid[3], bid[4], bid[0]


def get_event_time(bid: Bid) -> int:
    return bid[5]


class Enrich(MapFunction):
    def map(self, value: Bid) -> Bid:
        auction, bidder, price, channel, address, timestamp = value
        return auction, bidder, price * 3 + 1, channel, address, timestamp


class EvenPrices(FilterFunction):
    def filter(self, value: Bid) -> bool:
        return value[2] & 1 == 0


class Highest(ReduceFunction):
    def reduce(self, value1: Bid, value2: Bid) -> Bid:
        return value1 if value1[2] >= value2[2] else value2


class CountAndSum(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: Bid, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + 1, accumulator[1] + value[2]

    def get_result(self, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class WithWindow(ProcessWindowFunction[tuple[int, int], Any, Any, TimeWindow]):
    """Says whose and of which window a result is."""

    def process(self, key: Any, context: Any, elements: Iterable[tuple[int, int]]) -> Iterator[Any]:
        window = context.window()
        for count, total in elements:
            yield key, window.start, window.end, count, total


class Sessions(KeyedProcessFunction):
    """A session is `(bids, time of the last one)`; its timer looks whether the last bid is long enough ago."""

    def open(self, runtime_context: Any) -> None:
        self.session = runtime_context.get_state(ValueStateDescriptor("session"))

    def process_element(self, value: Bid, ctx: Any) -> None:
        timestamp = ctx.timestamp()
        session = self.session.value()
        if session is None:
            self.session.update((1, timestamp))
            ctx.timer_service().register_event_time_timer(timestamp + GAP_MS)
        else:
            self.session.update((session[0] + 1, max(session[1], timestamp)))

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        count, last = self.session.value()
        if last + GAP_MS > timestamp:
            ctx.timer_service().register_event_time_timer(last + GAP_MS)
        else:
            self.session.clear()
            yield ctx.get_current_key(), count, last


class Watched(KeyedProcessFunction):
    """Counts an auction's bids for a while, tells, and forgets it."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: Bid, ctx: Any) -> None:
        count = self.count.value()
        if count is None:
            count = 0
            ctx.timer_service().register_event_time_timer(value[5] + WATCHED_MS)
        self.count.update(count + 1)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), self.count.value(), timestamp
        self.count.clear()


# --- bare loops ------------------------------------------------------------------------------------------------------


def bare_map_filter(bids: list[Bid], emit: Emit) -> None:
    enrich, is_even = Enrich().map, EvenPrices().filter
    for batch, _ in in_batches(bids, BLOCK_EVENTS):
        for bid in batch:
            bid = enrich(bid)
            if is_even(bid):
                emit(bid)


def bare_reduce(bids: list[Bid], emit: Emit) -> None:
    reduce = Highest().reduce
    highest: dict[int, Bid] = {}
    for batch, _ in in_batches(bids, BLOCK_EVENTS):
        for bid in batch:
            auction = auction_of(bid)
            so_far = highest.get(auction)
            if so_far is not None:
                bid = reduce(so_far, bid)
            highest[auction] = bid
            emit(bid)


def bare_word_count(words: list[Word], emit: Emit) -> None:
    counts: dict[str, Word] = {}
    for word in words:
        name = word[0]
        count = counts.get(name)
        word = (name, 1) if count is None else (name, count[1] + 1)
        counts[name] = word
        emit(word)


def in_batches(bids: list[Bid], size: int) -> Iterator[tuple[list[Bid], int]]:
    """The bids a batch at a time, each with the watermark behind it; at the end the end of time."""
    highest = 0
    for start in range(0, len(bids), size):
        batch = bids[start : start + size]
        highest = max(highest, max(map(get_event_time, batch)))
        yield batch, highest - OUT_OF_ORDER_MS - 1
    yield [], END


def bare_windows(key_of: Callable[[Bid], Any], size: int = BLOCK_EVENTS) -> Callable[[list[Bid], Emit], None]:
    """Of no record is the window late: it is out of order by less than the watermark waits."""

    def loop(bids: list[Bid], emit: Emit) -> None:
        function = CountAndSum()
        add, create, get_result = function.add, function.create_accumulator, function.get_result
        windows: dict[int, dict[Any, tuple[int, int]]] = {}
        for batch, watermark in in_batches(bids, size):
            for bid in batch:
                timestamp = get_event_time(bid)
                start = timestamp - timestamp % WINDOW_MS
                window = windows.get(start)
                if window is None:
                    window = windows[start] = {}
                key = key_of(bid)
                accumulator = window.get(key)
                window[key] = add(bid, create() if accumulator is None else accumulator)
            for start in sorted(windows):
                end = start + WINDOW_MS
                if end - 1 > watermark:
                    break
                for key, accumulator in windows.pop(start).items():
                    count, total = get_result(accumulator)
                    emit((key, start, end, count, total))

    return loop


def bare_sessions(bids: list[Bid], emit: Emit) -> None:
    sessions: dict[int, tuple[int, int]] = {}
    timers: list[tuple[int, int]] = []
    for batch, watermark in in_batches(bids, BLOCK_EVENTS):
        for bid in batch:
            auction, timestamp = auction_of(bid), get_event_time(bid)
            session = sessions.get(auction)
            if session is None:
                sessions[auction] = (1, timestamp)
                heapq.heappush(timers, (timestamp + GAP_MS, auction))
            else:
                sessions[auction] = (session[0] + 1, max(session[1], timestamp))
        while timers and timers[0][0] <= watermark:
            due, auction = heapq.heappop(timers)
            count, last = sessions[auction]
            if last + GAP_MS > due:
                heapq.heappush(timers, (last + GAP_MS, auction))
            else:
                del sessions[auction]
                emit((auction, count, last))


def bare_watched(bids: list[Bid], emit: Emit) -> None:
    counts: dict[int, int] = {}
    timers: list[tuple[int, int]] = []
    for batch, watermark in in_batches(bids, BLOCK_EVENTS):
        for bid in batch:
            auction = auction_of(bid)
            count = counts.get(auction)
            if count is None:
                count = 0
                heapq.heappush(timers, (get_event_time(bid) + WATCHED_MS, auction))
            counts[auction] = count + 1
        while timers and timers[0][0] <= watermark:
            due, auction = heapq.heappop(timers)
            emit((auction, counts.pop(auction), due))


# --- Penstock --------------------------------------------------------------------------------------------------------


def bids_of(env: StreamExecutionEnvironment, spec: EventsSpec) -> DataStream:
    """With event time, out of order by up to 2 s."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(OUT_OF_ORDER_MS))
    return env.from_source(SharedEvents(spec), strategy.with_timestamp_assigner(lambda bid, _: bid[5]), "bids")


def map_filter(env: StreamExecutionEnvironment, spec: EventsSpec) -> DataStream:
    return bids_of(env, spec).map(Enrich()).filter(EvenPrices())


def keyed_reduce(env: StreamExecutionEnvironment, spec: EventsSpec) -> DataStream:
    return bids_of(env, spec).key_by(auction_of).reduce(Highest())


def word_count(env: StreamExecutionEnvironment, spec: EventsSpec) -> DataStream:
    words = env.from_source(SharedEvents(spec), without_time(), "words").map(lambda word: (word[0], 1))
    return words.key_by(lambda word: word[0]).reduce(lambda one, other: (one[0], one[1] + other[1]))


def windows(key_of: Callable[[Bid], Any]) -> Callable[[StreamExecutionEnvironment, EventsSpec], DataStream]:
    def build(env: StreamExecutionEnvironment, spec: EventsSpec) -> DataStream:
        keyed = bids_of(env, spec).key_by(key_of)
        return keyed.window(TumblingEventTimeWindows.of(WINDOW_MS)).aggregate(CountAndSum(), WithWindow())

    return build


def sessions(env: StreamExecutionEnvironment, spec: EventsSpec) -> DataStream:
    return bids_of(env, spec).key_by(auction_of).process(Sessions())


def watched(env: StreamExecutionEnvironment, spec: EventsSpec) -> DataStream:
    return bids_of(env, spec).key_by(auction_of).process(Watched())


SPARSE: dict[str, Workload] = {
    "S1": Workload("map + filter, six fields", bare_map_filter, map_filter, shape=_BIDS),
    "S2": Workload("keyed reduce, six fields", bare_reduce, keyed_reduce, shape=_BIDS),
    "S3": Workload("sparse 10 s windows", bare_windows(auction_of), windows(auction_of), shape=_BIDS),
    "S4": Workload("sessions by timer, fire often", bare_sessions, sessions, shape=_BIDS),
    "S5": Workload("word count, two fields", bare_word_count, word_count, shape={"fields": 2}),
    "S6": Workload("sparse windows, wide keys", bare_windows(wide_key_of), windows(wide_key_of), shape=_BIDS),
    "S7": Workload(
        "sparse windows, batches of 64",
        bare_windows(auction_of, SMALL_BATCH),
        windows(auction_of),
        shape={**_BIDS, "block": SMALL_BATCH},
    ),
    "S8": Workload("keys that come and go", bare_watched, watched, shape={**_BIDS, "are_passing": True}),
}
