"""A job with every kind of state, whose contents follow from the events it has read: a model says what they must be."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from penstock.base.configuration import Configuration
from penstock.base.time import Duration
from penstock.base.types import Row
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.collect import CollectSink
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import AggregateFunction, KeyedProcessFunction
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from penstock.drivers.running_job import RunningJob
from penstock.state_processor import SavepointReader

COUNT = 400
USERS = 7
STEP_MS = 250
HOUR_MS = 3_600_000
FAR_MS = 4_000_000_000_000
WINDOW_MS = 30_000
GAP_MS = 60_000
PATIENCE_S = 60


class Event(NamedTuple):
    user: str
    number: int
    time_ms: int


def event(index: int) -> Event | None:
    """The event at an index; None beyond the last, so a job may idle there."""
    return Event(f"user-{(5 * index + index // 9) % USERS}", index, index * STEP_MS) if index < COUNT else None


def compute_time(index: int) -> int:
    return min(index, COUNT - 1) * STEP_MS


EVENTS: list[Event] = [e for e in map(event, range(COUNT)) if e is not None]
WATERMARK_MS = compute_time(COUNT) - 1


def is_event(value: Any) -> bool:
    return value is not None


def user_of(value: Any) -> Any:
    return value[0]


@dataclass
class Profile:
    name: str
    visits: int
    last_ms: int | None


class Mean(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + 1, accumulator[1] + value

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[1] / accumulator[0]

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


def add(one: int, other: int) -> int:
    return one + other


VISITS = ValueStateDescriptor("visits")
PROFILE = ValueStateDescriptor("profile")
ODD = ValueStateDescriptor("odd")
NUMBERS = ListStateDescriptor("numbers")
BY_REST = MapStateDescriptor("by rest")
TOTAL = ReducingStateDescriptor("total", add)
MEAN = AggregatingStateDescriptor("mean", Mean())


class Remember(KeyedProcessFunction):
    """Keeps something of every kind, and gives (user, visits) for each event."""

    def open(self, runtime_context: Any) -> None:
        self.visits = runtime_context.get_state(VISITS)
        self.profile = runtime_context.get_state(PROFILE)
        self.odd = runtime_context.get_state(ODD)
        self.numbers = runtime_context.get_list_state(NUMBERS)
        self.by_rest = runtime_context.get_map_state(BY_REST)
        self.total = runtime_context.get_reducing_state(TOTAL)
        self.mean = runtime_context.get_aggregating_state(MEAN)

    def process_element(self, value: Event, ctx: Any) -> Any:
        visits = (self.visits.value() or 0) + 1
        self.visits.update(visits)
        self.profile.update(Profile(value.user, visits, value.time_ms))
        self.odd.update((self.odd.value() or set()) | {value.number % 3})
        self.numbers.add(value.number)
        self.by_rest.put(value.number % 5, Row(number=value.number, text=str(value.number)))
        self.total.add(value.number)
        self.mean.add(value.number)
        ctx.timer_service().register_event_time_timer(value.time_ms + HOUR_MS)
        ctx.timer_service().register_processing_time_timer(FAR_MS + value.number)
        yield value.user, visits

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield "timer of " + ctx.get_current_key(), timestamp


def first_of(pair: Any) -> Any:
    return pair[0]


def add_numbers(one: Event, other: Event) -> Event:
    return Event(one.user, one.number + other.number, other.time_ms)


def environment(parallelism: int = 1, **options: Any) -> StreamExecutionEnvironment:
    configuration = Configuration()
    configuration.set_string("execution.target", "local")
    for key, value in options.items():
        configuration.set_string(key, str(value))
    return StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(parallelism)


def build(env: StreamExecutionEnvironment, count: int | None = None, rate: float = 20_000.0) -> None:
    """The job; with a count it ends there."""
    source = DataGeneratorSource(event, count, rate, compute_time)
    stream = (
        env.from_source(source, WatermarkStrategy.for_monotonous_timestamps(), "events")
        .uid("source")
        .set_parallelism(1)
    )
    events = stream.filter(is_event).name("is event").set_parallelism(1).key_by(user_of)
    remembered = events.process(Remember()).name("remember").uid("remember")
    remembered.sink_to(CollectSink()).name("sink").uid("sink")
    events.reduce(add_numbers).name("sums").sink_to(CollectSink())
    windows = events.window(TumblingEventTimeWindows.of(Duration.of_millis(WINDOW_MS)))
    windows.aggregate(MeanOfNumbers()).name("windows").uid("windows").sink_to(CollectSink())
    sessions = events.window(EventTimeSessionWindows.with_gap(Duration.of_millis(GAP_MS)))
    sessions.reduce(add_numbers).name("sessions").uid("sessions").sink_to(CollectSink())


class MeanOfNumbers(Mean):
    def add(self, value: Any, accumulator: tuple[int, int]) -> tuple[int, int]:
        return super().add(value.number, accumulator)


def take_savepoint(directory: Path, parallelism: int = 1, **options: Any) -> str:
    """A savepoint of the job behind its last event."""
    env = environment(parallelism, **options)
    build(env)
    job = env.execute_async("everything")
    try:
        return savepoint_behind(job, directory, COUNT)
    finally:
        job.end()


def savepoint_behind(job: RunningJob, directory: Path, position: int) -> str:
    """A savepoint in which all readers of the operator `source` have come so far."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        path = job.trigger_savepoint(str(directory)).result(PATIENCE_S)
        reader = SavepointReader.read(path)
        splits = [split for _, _, split in reader.read_source_splits("source")]
        is_whole = len(splits) == reader.operator("source").parallelism
        if is_whole and min(split.position for split in splits) >= position:
            return path
        assert time.monotonic() < deadline
        time.sleep(0.02)


def by_user() -> dict[str, list[Event]]:
    events = defaultdict(list)
    for e in EVENTS:
        events[e.user].append(e)
    return dict(events)


def final_event(user: str) -> Event:
    return by_user()[user][-1]
