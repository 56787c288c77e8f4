"""The workloads: each as a Penstock program and as the bare single-threaded loop that does the same work a record.

Both sides read the same list of events and call the same user functions, so what differs is the engine alone. An event
is `(key, value, timestamp_ms)`: 10,000 keys with a Zipf-like skew, timestamps in order but for up to 2 s.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from penstock.common import Duration, WatermarkStrategy
from penstock.connectors.collection import CollectionSource
from penstock.datastream import AggregateFunction, DataStream, KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows

Event = tuple[int, int, int]
KEYS = 10_000
WINDOW_MS = 10_000
OUT_OF_ORDER_MS = 2_000


def make_events(count: int, seed: int = 1) -> list[Event]:
    """`count` events, the same for the same seed."""
    chance = random.Random(seed)
    uniform = chance.random
    events = []
    for index in range(count):
        key = int(KEYS ** uniform()) - 1
        events.append((key, index & 1023, index // 10 + int(uniform() * OUT_OF_ORDER_MS)))
    return events


def enrich(event: Event) -> Event:
    return (event[0], event[1] * 3 + 1, event[2])


def is_even(event: Event) -> bool:
    return event[1] & 1 == 0


def key_of(event: Event) -> int:
    return event[0]


def time_of(event: Event) -> int:
    return event[2]


def add(one: Event, other: Event) -> Event:
    return (one[0], one[1] + other[1], other[2])


class Count(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Event, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class CountWithTimer(KeyedProcessFunction):
    """Counts a key's events in a value state; a timer at the end of each second's slot reports the count."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: Event, ctx: Any) -> None:
        count = self.count
        seen = count.value()
        count.update(1 if seen is None else seen + 1)
        ctx.timer_service().register_event_time_timer(value[2] // 1000 * 1000 + 999)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        return ((ctx.get_current_key(), self.count.value(), timestamp),)


# --- bare loops ------------------------------------------------------------------------------------------------------


def bare_map_filter(events: list[Event], emit: Callable[[Any], None]) -> None:
    for event in events:
        event = enrich(event)
        if is_even(event):
            emit(event)


def bare_keyed_reduce(events: list[Event], emit: Callable[[Any], None]) -> None:
    state: dict[int, Event] = {}
    for event in events:
        key = key_of(event)
        reduced = state.get(key)
        if reduced is not None:
            event = add(reduced, event)
        state[key] = event
        emit(event)


def bare_tumbling_count(events: list[Event], emit: Callable[[Any], None]) -> None:
    count = Count()
    windows: dict[int, dict[int, int]] = {}
    watermark = -(2**63)
    highest = -(2**63)
    for event in events:
        timestamp = time_of(event)
        start = timestamp - timestamp % WINDOW_MS
        if start + WINDOW_MS - 1 <= watermark:
            continue
        window = windows.get(start)
        if window is None:
            window = windows[start] = {}
        key = key_of(event)
        accumulator = window.get(key)
        window[key] = count.add(event, count.create_accumulator() if accumulator is None else accumulator)
        if timestamp > highest:
            highest = timestamp
            watermark = timestamp - OUT_OF_ORDER_MS - 1
            for due in [s for s in windows if s + WINDOW_MS - 1 <= watermark]:
                for result in windows.pop(due).values():
                    emit(count.get_result(result))
    for start in sorted(windows):
        for result in windows[start].values():
            emit(count.get_result(result))


def bare_process_with_timer(events: list[Event], emit: Callable[[Any], None]) -> None:
    state: dict[int, int] = {}
    timers: list[tuple[int, int]] = []
    registered: set[tuple[int, int]] = set()
    highest = -(2**63)
    for event in events:
        key = key_of(event)
        state[key] = state.get(key, 0) + 1
        timestamp = time_of(event)
        timer = (timestamp // 1000 * 1000 + 999, key)
        if timer not in registered:
            registered.add(timer)
            heapq.heappush(timers, timer)
        if timestamp > highest:
            highest = timestamp
            while timers and timers[0][0] <= timestamp - OUT_OF_ORDER_MS - 1:
                due = heapq.heappop(timers)
                registered.remove(due)
                emit((due[1], state[due[1]], due[0]))
    while timers:
        due = heapq.heappop(timers)
        emit((due[1], state[due[1]], due[0]))


# --- Penstock --------------------------------------------------------------------------------------------------------


def _source(env: StreamExecutionEnvironment, events: list[Event], with_time: bool) -> DataStream:
    strategy = WatermarkStrategy.no_watermarks()
    if with_time:
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(
            Duration.of_millis(OUT_OF_ORDER_MS)
        ).with_timestamp_assigner(lambda event, _: event[2])
    return env.from_source(SharedEvents(len(events)), strategy, "events")


def map_filter(env: StreamExecutionEnvironment, events: list[Event]) -> DataStream:
    return _source(env, events, False).map(enrich).filter(is_even)


def keyed_reduce(env: StreamExecutionEnvironment, events: list[Event]) -> DataStream:
    return _source(env, events, False).key_by(key_of).reduce(add)


def tumbling_count(env: StreamExecutionEnvironment, events: list[Event]) -> DataStream:
    window = TumblingEventTimeWindows.of(WINDOW_MS)
    return _source(env, events, True).key_by(key_of).window(window).aggregate(Count())


def process_with_timer(env: StreamExecutionEnvironment, events: list[Event]) -> DataStream:
    return _source(env, events, True).key_by(key_of).process(CountWithTimer())


#: Set before a job is built, and inherited by forked workers: the events do not travel with the job.
EVENTS: list[Event] = []


class SharedEvents(CollectionSource[Event]):
    """The module's `EVENTS`, found again by the reader instead of being pickled into the job."""

    def __init__(self, count: int) -> None:
        super().__init__(())
        self._count = count

    def create_reader(self, context: Any) -> Any:
        if len(EVENTS) != self._count:
            EVENTS[:] = make_events(self._count)
        return CollectionSource(EVENTS).create_reader(context)


@dataclass(frozen=True)
class Workload:
    """One line of the table."""

    name: str
    bare: Callable[[list[Event], Callable[[Any], None]], None]
    build: Callable[[StreamExecutionEnvironment, list[Event]], DataStream]


WORKLOADS = {
    "W1": Workload("map + filter", bare_map_filter, map_filter),
    "W2": Workload("keyed reduce", bare_keyed_reduce, keyed_reduce),
    "W3": Workload("10 s tumbling count", bare_tumbling_count, tumbling_count),
    "W4": Workload("keyed process, state and timer", bare_process_with_timer, process_with_timer),
}
