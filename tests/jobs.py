"""Programs with their answers in plain Python, to be run on every driver at every parallelism.

Each job is a pair: `build(env)` makes the program's last stream, `expected()` works the same out with loops and
dictionaries. Results are compared sorted: the order between keys is nobody's promise.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from penstock.base.time import Duration
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.collection import CollectionSource
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.functions import AggregateFunction, KeyedProcessFunction, ProcessWindowFunction
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import EventTimeSessionWindows

Build = Callable[[StreamExecutionEnvironment], DataStream]


@dataclass(frozen=True)
class Job:
    """A program and its answer."""

    name: str
    build: Build
    expected: Callable[[], list[Any]]


# --- word count -----------------------------------------------------------------------------------------------------

LINES = [
    "the stream goes on and on",
    "and the table is the stream at rest",
    "",
    "a barrier goes with the stream",
    "on and on goes the barrier",
] * 40


def split_words(line: str) -> list[tuple[str, int]]:
    return [(word, 1) for word in line.split()]


def word_of(pair: tuple[str, int]) -> str:
    return pair[0]


def add_counts(one: tuple[str, int], other: tuple[str, int]) -> tuple[str, int]:
    return one[0], one[1] + other[1]


def build_word_count(env: StreamExecutionEnvironment) -> DataStream:
    """Running counts: each occurrence of a word gives (word, how often so far)."""
    lines = env.from_collection(LINES).rebalance()
    return lines.flat_map(split_words).name("split").key_by(word_of).reduce(add_counts).name("count").uid("count")


def expected_word_count() -> list[Any]:
    counts = Counter(word for line in LINES for word in line.split())
    return sorted((word, n) for word, total in counts.items() for n in range(1, total + 1))


# --- clicks ---------------------------------------------------------------------------------------------------------

OUT_OF_ORDER_MS = 2_000
START_MS = -20_000  # some of it before 1970


def _pseudo_random(count: int, below: int) -> Iterator[int]:
    state = 12345
    for _ in range(count):
        state = (1103515245 * state + 12345) % 2**31
        yield (state >> 8) % below


#: (user, event time in ms), out of order by less than OUT_OF_ORDER_MS
CLICKS: list[tuple[str, int]] = [
    (f"user-{user}", START_MS + 150 * n - jitter)
    for n, user, jitter in zip(
        range(1_500), _pseudo_random(1_500, 40), _pseudo_random(1_500, OUT_OF_ORDER_MS), strict=True
    )
]


def user_of(click: tuple[str, int]) -> str:
    return click[0]


def get_event_time(click: tuple[str, int]) -> int:
    return click[1]


def same(value: Any) -> Any:
    return value


def clicks(env: StreamExecutionEnvironment) -> DataStream:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(OUT_OF_ORDER_MS))
    source: CollectionSource[Any] = CollectionSource(CLICKS)
    return env.from_source(source, strategy.with_timestamp_assigner(get_event_time), "clicks").rebalance().map(same)


SESSION_GAP_MS = 6_000


class Count(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class WithWindow(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        for count in elements:
            yield key, context.window().start, context.window().end, count


def build_sessions(env: StreamExecutionEnvironment) -> DataStream:
    """(user, start, end, clicks) of each session."""
    windows = clicks(env).key_by(user_of).window(EventTimeSessionWindows.with_gap(Duration.of_millis(SESSION_GAP_MS)))
    return windows.aggregate(Count(), WithWindow()).name("sessions").uid("sessions")


def expected_sessions() -> list[Any]:
    times = defaultdict(list)
    for user, time in CLICKS:
        times[user].append(time)
    result = []
    for user, all_times in times.items():
        session: list[int] = []
        for time in sorted(all_times):
            if session and time > session[-1] + SESSION_GAP_MS:
                result.append((user, session[0], session[-1] + SESSION_GAP_MS, len(session)))
                session = []
            session.append(time)
        result.append((user, session[0], session[-1] + SESSION_GAP_MS, len(session)))
    return sorted(result)


BUCKET_MS = 10_000


class Buckets(KeyedProcessFunction):
    """Per user and ten seconds: how many clicks, the latest, and how many such buckets came before.

    Uses value, list and map state and event-time timers, also one that is deleted again.
    """

    def open(self, runtime_context: Any) -> None:
        self.before = runtime_context.get_state(ValueStateDescriptor("before"))
        self.counts = runtime_context.get_map_state(MapStateDescriptor("counts"))
        self.times = runtime_context.get_list_state(ListStateDescriptor("times"))

    def process_element(self, value: tuple[str, int], ctx: Any) -> Any:
        end = ctx.timestamp() // BUCKET_MS * BUCKET_MS + BUCKET_MS - 1
        self.counts.put(end, (self.counts.get(end) or 0) + 1)
        self.times.add(ctx.timestamp())
        service = ctx.timer_service()
        service.register_event_time_timer(end)
        service.register_event_time_timer(end)
        service.register_event_time_timer(end + 1)
        service.delete_event_time_timer(end + 1)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        before = self.before.value() or 0
        self.before.update(before + 1)
        times = list(self.times.get())
        self.times.update([t for t in times if t > timestamp])
        count = self.counts.get(timestamp)
        self.counts.remove(timestamp)
        yield ctx.get_current_key(), timestamp, count, max(t for t in times if t <= timestamp), before


def build_buckets(env: StreamExecutionEnvironment) -> DataStream:
    """(user, end, clicks, latest, buckets before)."""
    return clicks(env).key_by(user_of).process(Buckets()).name("buckets").uid("buckets")


def expected_buckets() -> list[Any]:
    buckets = defaultdict(list)
    for user, time in CLICKS:
        buckets[user, time // BUCKET_MS * BUCKET_MS + BUCKET_MS - 1].append(time)
    before: Counter[str] = Counter()
    result = []
    for (user, end), times in sorted(buckets.items(), key=lambda item: item[0][1]):
        result.append((user, end, len(times), max(times), before[user]))
        before[user] += 1
    return sorted(result)


WORD_COUNT = Job("word count", build_word_count, expected_word_count)
SESSIONS = Job("session windows", build_sessions, expected_sessions)
BUCKETS = Job("keyed process with timers", build_buckets, expected_buckets)
JOBS = (WORD_COUNT, SESSIONS, BUCKETS)
