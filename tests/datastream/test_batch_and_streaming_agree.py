"""Random pipelines over random keyed, out-of-order data come to the same result in streaming and in batch (I1).

What a program may not depend on, because batch execution defines it otherwise, is kept out of the pipelines:

- Late records: in batch there are none. The watermarks here are late enough for every record.
- The order of records: streaming gives none between subtasks, batch the order of time. Functions here add up.
- State that a timer finds beyond its own time: in batch a key's timers fire when all of its records have come, and in
  streaming some of them are still to come. Timers here look at what lies before them.
- A broadcast that is half read: in batch it comes first. Only timers behind the end of all records look at it here.
- Results that run: a reduce gives its last value only, at the end of time. It is the last step, and of what streaming
  gives the last value of each key counts.
- Timers of processing time, which in batch fire at the end of a key.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from penstock.common import Configuration, Duration, Types, WatermarkStrategy
from penstock.common.output_tag import OutputTag
from penstock.connectors.collection import CollectionSource
from penstock.core.batch.rows import Rows
from penstock.core.batch.task import BatchTask
from penstock.datastream import DataStream, RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.datastream.functions import (
    CoMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    ProcessWindowFunction,
)
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ReducingStateDescriptor
from penstock.datastream.window import EventTimeSessionWindows, SlidingEventTimeWindows, TumblingEventTimeWindows

Record = tuple[int, int]  # key, value
BUCKET_MS = 40
END_MS = 10**6
SIDE = OutputTag("side", Types.PICKLED_BYTE_ARRAY())
RULES = MapStateDescriptor("rules", Types.INT(), Types.INT())


def key_of(record: Record) -> int:
    return record[0]


def sum_of(one: Record, other: Record) -> Record:
    return one[0], one[1] + other[1]


class Split(ProcessFunction):
    def process_element(self, value: Record, ctx: Any) -> Any:
        yield (SIDE, value) if value[1] % 3 == 0 else value


class BucketSums(KeyedProcessFunction):
    """The sum and the largest of each key and bucket, by map, list and reducing state; one timer is deleted again."""

    def open(self, runtime_context: Any) -> None:
        self.sums = runtime_context.get_map_state(MapStateDescriptor("sums"))
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen"))
        self.least = runtime_context.get_reducing_state(ReducingStateDescriptor("least", min, Types.INT()))

    def process_element(self, value: Record, ctx: Any) -> Any:
        due = ctx.timestamp() // BUCKET_MS * BUCKET_MS + BUCKET_MS
        self.sums.put(due, (self.sums.get(due) or 0) + value[1])
        self.seen.add((ctx.timestamp(), value[1]))
        self.least.add(value[1])
        ctx.timer_service().register_event_time_timer(due)
        ctx.timer_service().register_event_time_timer(due + 1)
        ctx.timer_service().delete_event_time_timer(due + 1)
        ctx.timer_service().register_event_time_timer(END_MS)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        if timestamp == END_MS:
            yield ctx.get_current_key(), self.least.get()
            return
        largest = max(value for time, value in self.seen.get() if timestamp - BUCKET_MS <= time < timestamp)
        yield ctx.get_current_key(), self.sums.get(timestamp) * 7 + largest


class BothSides(KeyedCoProcessFunction):
    """For each bucket of a key, the sum of one side times that of the other."""

    def open(self, runtime_context: Any) -> None:
        self.sums = runtime_context.get_map_state(MapStateDescriptor("sums"))

    def _add(self, side: int, value: Record, ctx: Any) -> None:
        due = ctx.timestamp() // BUCKET_MS * BUCKET_MS + BUCKET_MS
        sums = self.sums.get(due) or (0, 0)
        self.sums.put(due, (sums[0] + value[1] * (not side), sums[1] + value[1] * side))
        ctx.timer_service().register_event_time_timer(due)

    def process_element1(self, value: Record, ctx: Any) -> Any:
        self._add(0, value, ctx)

    def process_element2(self, value: Record, ctx: Any) -> Any:
        self._add(1, value, ctx)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        one, other = self.sums.get(timestamp)
        yield ctx.get_current_key(), one * 3 + other * 5


class Tagged(CoMapFunction):
    def map1(self, value: Record) -> Record:
        return value[0], value[1] * 2

    def map2(self, value: Record) -> Record:
        return value[0] + 1, value[1]


class ByRule(KeyedBroadcastProcessFunction):
    """The sum of a key's records times the rule for the key, when all have come."""

    def open(self, runtime_context: Any) -> None:
        self.sum = runtime_context.get_reducing_state(ReducingStateDescriptor("sum", lambda a, b: a + b, Types.INT()))

    def process_element(self, value: Record, ctx: Any) -> Any:
        self.sum.add(value[1])
        ctx.timer_service().register_event_time_timer(END_MS)

    def process_broadcast_element(self, value: Record, ctx: Any) -> Any:
        ctx.get_broadcast_state(RULES).put(value[0], value[1])

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        key = ctx.get_current_key()
        yield key, self.sum.get() * (ctx.get_broadcast_state(RULES).get(key % 3) or 1)


class OfWindow(ProcessWindowFunction):
    def process(self, key: int, context: Any, elements: Any) -> Any:
        values = [value for _, value in elements]
        window = context.window()
        yield key, sum(values) + max(values) * 3 + (window.start * 5 + window.end) % 97


WINDOWS = {
    "tumbling": TumblingEventTimeWindows.of(30),
    "sliding": SlidingEventTimeWindows.of(50, 20),
    "hopping": SlidingEventTimeWindows.of(10, 25),
    "session": EventTimeSessionWindows.with_gap(Duration.of_millis(15)),
}


def apply(step: str, stream: DataStream, other: DataStream, rules: DataStream) -> DataStream:
    """One step more; `other` is a second stream of records."""
    if step in WINDOWS:
        return stream.key_by(key_of).window(WINDOWS[step]).process(OfWindow())
    if step == "reduce of window":
        return stream.key_by(key_of).window(WINDOWS["tumbling"]).reduce(sum_of)
    if step == "map":
        return stream.map(lambda record: (record[0], record[1] * 2 + 1))
    if step == "another key":
        return stream.map(lambda record: ((record[0] + record[1]) % 5, record[1]))
    if step == "filter":
        return stream.filter(lambda record: record[1] % 4 != 0)
    if step == "flat map":
        return stream.flat_map(lambda record: [(record[0], record[1] + i) for i in range(record[1] % 3)])
    if step == "rebalance":
        return stream.rebalance().map(lambda record: record)
    if step == "shrink":
        return stream.map(lambda record: record).set_parallelism(1)
    if step == "main of split":
        return stream.process(Split())
    if step == "side of split":
        return stream.process(Split()).get_side_output(SIDE)
    if step == "both of split":
        split = stream.process(Split())
        return split.map(lambda record: (record[0], -record[1])).union(split.get_side_output(SIDE))
    if step == "union":
        return stream.union(other)
    if step == "union with itself":
        return stream.union(stream.filter(lambda record: record[1] % 2 == 0))
    if step == "connect":
        return stream.connect(other).map(Tagged())
    if step == "keyed connect":
        return stream.connect(other).key_by(key_of, key_of).process(BothSides())
    if step == "process":
        return stream.key_by(key_of).process(BucketSums())
    assert step == "broadcast"
    return stream.key_by(key_of).connect(rules.broadcast(RULES)).process(ByRule())


STEPS = [
    *WINDOWS,
    "reduce of window",
    "map",
    "another key",
    "filter",
    "flat map",
    "rebalance",
    "shrink",
    "main of split",
    "side of split",
    "both of split",
    "union",
    "union with itself",
    "connect",
    "keyed connect",
    "process",
    "broadcast",
]


def many_records(seed: int) -> list[tuple[Record, int]]:
    chance = random.Random(seed)
    return [
        ((chance.randint(-1, 3), chance.randint(-5, 20)), 3 * i + chance.randint(-60, 20))
        for i in range(chance.randint(10, 60))
    ]


#: Few that shrink well, or many.
RECORDS = st.lists(
    st.tuples(st.tuples(st.integers(-1, 3), st.integers(-5, 20)), st.integers(-60, 200)), max_size=10
) | st.integers(0, 10**6).map(many_records)


def source(env: StreamExecutionEnvironment, records: list[tuple[Record, int]], name: str) -> DataStream:
    """The records with their times; the watermark lags as far as the records are out of order, and no more."""
    times = [time for _, time in records]
    highest = [max(times[: i + 1]) for i in range(len(times))]
    lag = max((high - time for high, time in zip(highest, times, strict=True)), default=0)
    collection: Any = CollectionSource([record for record, _ in records], times)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(lag))
    return env.from_source(collection, strategy, name)


def result(
    mode: RuntimeExecutionMode,
    parallelism: int,
    steps: list[str],
    one: list[tuple[Record, int]],
    other: list[tuple[Record, int]],
    is_reduced: bool,
) -> list[Record]:
    """What a pipeline comes to."""
    configuration = Configuration()
    configuration.set_string("execution.target", "local")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(parallelism).set_max_parallelism(8).set_runtime_mode(mode)
    stream, second = source(env, one, "one"), source(env, other, "other")
    rules = env.from_collection([(0, 2), (1, 3)])
    for step in steps:
        stream = apply(step, stream, second, rules)
    if is_reduced:
        stream = stream.key_by(key_of).reduce(sum_of)
    results = stream.execute_and_collect(limit=10**6)
    assert isinstance(results, list)
    return sorted(dict(results).items() if is_reduced else results)


@contextmanager
def rows_cut(size: int) -> Iterator[None]:
    """Batch tasks get their sorted rows a few at a time, as from Spark."""
    run = BatchTask.run

    def run_cut(task: BatchTask, inputs: Iterable[Rows]) -> Iterator[Rows]:
        return run(task, (part for rows in inputs for part in parts_of(rows, size)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BatchTask, "run", run_cut)
        yield


def parts_of(rows: Rows, size: int) -> Iterator[Rows]:
    for begin in range(0, len(rows), size):
        part = Rows()
        for mine, theirs in zip(rows.columns(), part.columns(), strict=True):
            theirs.extend(mine[begin : begin + size])
        yield part


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    parallelism=st.integers(1, 4),
    steps=st.lists(st.sampled_from(STEPS), min_size=1, max_size=5),
    one=RECORDS,
    other=RECORDS,
    is_reduced=st.booleans(),
    cut=st.sampled_from([1, 2, 5, 1000]),
)
def test_batch_and_streaming_agree(
    parallelism: int,
    steps: list[str],
    one: list[tuple[Record, int]],
    other: list[tuple[Record, int]],
    is_reduced: bool,
    cut: int,
) -> None:
    """I1."""
    streamed = result(RuntimeExecutionMode.STREAMING, parallelism, steps, one, other, is_reduced)
    with rows_cut(cut):
        assert result(RuntimeExecutionMode.BATCH, parallelism, steps, one, other, is_reduced) == streamed
