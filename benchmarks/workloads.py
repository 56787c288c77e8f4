"""The workloads: each as a Penstock program and as the single-threaded twin that does the same work a record.

Both sides read the same events and call the same user functions, so what differs is the engine alone. The twin is a
bare Python loop, but for W8 (a loop over rocksdict and pickle) and W5 (DuckDB).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.events import OUT_OF_ORDER_MS, Event, EventsSpec, SharedEvents, get_events
from penstock.common import Duration, WatermarkStrategy
from penstock.datastream import AggregateFunction, DataStream, KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows

Emit = Callable[[Any], None]
WINDOW_MS = 10_000
START = -(2**63)


@dataclass(frozen=True)
class Workload:
    """One line of the table."""

    name: str
    #: (input, emit): gives each result to `emit`, or returns how many there were
    twin: Callable[[Any, Emit], int | None]
    build: Callable[[StreamExecutionEnvironment, EventsSpec], DataStream]
    twin_name: str = "bare loop"
    #: how much of the events it reads, for what is slow
    share: float = 1.0
    options: Mapping[str, str] = field(default_factory=dict)
    #: what the twin reads
    input_of: Callable[[EventsSpec], Any] = get_events
    #: what its events have of their own, as fields of `EventsSpec`
    shape: Mapping[str, Any] = field(default_factory=dict)

    def spec(self, events: EventsSpec) -> EventsSpec:
        """The events for this workload."""
        return replace(events, count=max(1, int(events.count * self.share)), **self.shape)


# --- what both sides do to a record ----------------------------------------------------------------------------------


def enrich(event: Event) -> Event:
    return (event[0], event[1] * 3 + 1, event[2])


def is_even(event: Event) -> bool:
    return event[1] & 1 == 0


def select_key(event: Event) -> int:
    return event[0]


def get_event_time(event: Event) -> int:
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
        return [(ctx.get_current_key(), self.count.value(), timestamp)]


# --- bare loops ------------------------------------------------------------------------------------------------------


def bare_map_filter(events: list[Event], emit: Emit) -> None:
    for event in events:
        event = enrich(event)
        if is_even(event):
            emit(event)


def bare_keyed_reduce(events: Iterable[Event], emit: Emit) -> None:
    state: dict[int, Event] = {}
    for event in events:
        key = select_key(event)
        reduced = state.get(key)
        if reduced is not None:
            event = add(reduced, event)
        state[key] = event
        emit(event)


def bare_tumbling_count(events: Iterable[Event], emit: Emit, out_of_order_ms: int = OUT_OF_ORDER_MS) -> None:
    count = Count()
    windows: dict[int, dict[int, int]] = {}
    watermark = highest = START
    for event in events:
        timestamp = get_event_time(event)
        start = timestamp - timestamp % WINDOW_MS
        if start + WINDOW_MS - 1 <= watermark:
            continue
        window = windows.get(start)
        if window is None:
            window = windows[start] = {}
        key = select_key(event)
        accumulator = window.get(key)
        window[key] = count.add(event, count.create_accumulator() if accumulator is None else accumulator)
        if timestamp > highest:
            highest = timestamp
            watermark = timestamp - out_of_order_ms - 1
            for due in [s for s in windows if s + WINDOW_MS - 1 <= watermark]:
                for result in windows.pop(due).values():
                    emit(count.get_result(result))
    for start in sorted(windows):
        for result in windows[start].values():
            emit(count.get_result(result))


def bare_process_with_timer(events: Iterable[Event], emit: Emit, out_of_order_ms: int = OUT_OF_ORDER_MS) -> None:
    state: dict[int, int] = {}
    timers: list[tuple[int, int]] = []
    registered: set[tuple[int, int]] = set()
    highest = START
    for event in events:
        key = select_key(event)
        state[key] = state.get(key, 0) + 1
        timestamp = get_event_time(event)
        timer = (timestamp // 1000 * 1000 + 999, key)
        if timer not in registered:
            registered.add(timer)
            heapq.heappush(timers, timer)
        if timestamp > highest:
            highest = timestamp
            while timers and timers[0][0] <= timestamp - out_of_order_ms - 1:
                due = heapq.heappop(timers)
                registered.remove(due)
                emit((due[1], state[due[1]], due[0]))
    while timers:
        due = heapq.heappop(timers)
        emit((due[1], state[due[1]], due[0]))


# --- Penstock --------------------------------------------------------------------------------------------------------


def without_time() -> WatermarkStrategy:
    """No watermarks."""
    return WatermarkStrategy.no_watermarks()


def with_time() -> WatermarkStrategy:
    """Event time, out of order by up to 2 s."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(OUT_OF_ORDER_MS))
    return strategy.with_timestamp_assigner(lambda event, _: event[2])


def map_filter(env: StreamExecutionEnvironment, spec: EventsSpec) -> DataStream:
    return env.from_source(SharedEvents(spec), without_time(), "events").map(enrich).filter(is_even)


def keyed_reduce(env: StreamExecutionEnvironment, spec: EventsSpec) -> DataStream:
    return env.from_source(SharedEvents(spec), without_time(), "events").key_by(select_key).reduce(add)


def tumbling_count(env: StreamExecutionEnvironment, spec: EventsSpec) -> DataStream:
    keyed = env.from_source(SharedEvents(spec), with_time(), "events").key_by(select_key)
    return keyed.window(TumblingEventTimeWindows.of(WINDOW_MS)).aggregate(Count())


def process_with_timer(env: StreamExecutionEnvironment, spec: EventsSpec) -> DataStream:
    return env.from_source(SharedEvents(spec), with_time(), "events").key_by(select_key).process(CountWithTimer())
