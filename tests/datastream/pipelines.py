"""Random pipelines whose result no execution mode of execution changes, and the steps that they are made of.

What a program may not depend on, because batch execution defines it otherwise, is kept out:

- Late records: in batch there are none. The watermarks here are late enough for every record.
- The order of records: streaming gives none between subtasks, batch the order of time. Functions here add up.
- State that a timer finds beyond its own time: in batch a key's timers fire when all of its records have come, and in
  streaming some of them are still to come. Timers here look at what lies before them.
- A broadcast that is half read: in batch it comes first. Only timers behind the end of all records look at it here.
- Results that run: a reduce gives its last value only, at the end of time. It is the last step, and of what streaming
  gives the last value of each key counts.
- Timers of processing time, which in batch fire at the end of a key.
- Records that lie exactly a session's gap apart: they are of one session, unless the first was over before the second
  came. Records, timers, and the ends of windows each have their own place within a `UNIT_MS`, and sessions a gap that
  leads from none of these places to another.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from penstock.base.output_tag import OutputTag
from penstock.common import Duration, Time, Types, WatermarkStrategy
from penstock.connectors.collection import CollectionSource
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.functions import (
    AggregateFunction,
    AllWindowFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    ProcessWindowFunction,
)
from penstock.datastream.join_functions import JoinFunction, ProcessJoinFunction
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.datastream.window import (
    EventTimeSessionWindows,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)

Record = tuple[int, int]  # key, value
Timed = list[tuple[Record, int]]
UNIT_MS = 100
RECORD_MS, TIMER_MS, GAP_MS = 50, 25, 40  # the places within a unit; windows end at 0
BUCKET_MS = 40 * UNIT_MS
END_MS = 10**6 + TIMER_MS
SIDE = OutputTag("side", Types.PICKLED_BYTE_ARRAY())
RULES = MapStateDescriptor("rules", Types.INT(), Types.INT())


def select_key(record: Record) -> int:
    return record[0]


def sum_of(one: Record, other: Record) -> Record:
    return one[0], one[1] + other[1]


def largest_of(one: Record, other: Record) -> Record:
    return one[0], max(one[1], other[1])


def behind_bucket(timestamp: int) -> int:
    return timestamp // BUCKET_MS * BUCKET_MS + BUCKET_MS + TIMER_MS


class Split(ProcessFunction):
    def process_element(self, value: Record, ctx: Any) -> Any:
        yield (SIDE, value) if value[1] % 3 == 0 else value


class Extent(AggregateFunction):
    """How many there are, and how far they lie apart."""

    def create_accumulator(self) -> Any:
        return 0, 10**9, -(10**9)

    def add(self, value: Record, accumulator: Any) -> Any:
        count, least, largest = accumulator
        return count + 1, min(least, value[1]), max(largest, value[1])

    def get_result(self, accumulator: Any) -> int:
        count, least, largest = accumulator
        return int(count * 11 + largest - least)

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a[0] + acc_b[0], min(acc_a[1], acc_b[1]), max(acc_a[2], acc_b[2])


class BucketSums(KeyedProcessFunction):
    """The sum and the largest of each key and bucket, by map, list and reducing state; one timer is deleted again."""

    def open(self, runtime_context: Any) -> None:
        self.sums = runtime_context.get_map_state(MapStateDescriptor("sums"))
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen"))
        self.least = runtime_context.get_reducing_state(ReducingStateDescriptor("least", min, Types.INT()))

    def process_element(self, value: Record, ctx: Any) -> Any:
        due = behind_bucket(ctx.timestamp())
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
        largest = max(value for time, value in self.seen.get() if behind_bucket(time) == timestamp)
        yield ctx.get_current_key(), self.sums.get(timestamp) * 7 + largest


class Totals(KeyedProcessFunction):
    """When all have come: a key's extent and count, by aggregating and value state; the count goes to the side."""

    def open(self, runtime_context: Any) -> None:
        self.extent = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("extent", Extent(), Types.PICKLED_BYTE_ARRAY())
        )
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element(self, value: Record, ctx: Any) -> Any:
        self.extent.add(value)
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(END_MS)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        key = ctx.get_current_key()
        yield key, self.extent.get()
        yield SIDE, (key, self.count.value())
        self.extent.clear()


class BothSides(KeyedCoProcessFunction):
    """For each bucket of a key, the sum of one side times that of the other."""

    def open(self, runtime_context: Any) -> None:
        self.sums = runtime_context.get_map_state(MapStateDescriptor("sums"))

    def _add(self, side: int, value: Record, ctx: Any) -> None:
        due = behind_bucket(ctx.timestamp())
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


class Unequal(CoFlatMapFunction):
    def flat_map1(self, value: Record) -> Any:
        return [value] if value[1] % 2 else []

    def flat_map2(self, value: Record) -> Any:
        return [value, (value[0], -value[1])]


class SidesApart(CoProcessFunction):
    """One input goes to the main output, what is odd of the other to the side."""

    def process_element1(self, value: Record, ctx: Any) -> Any:
        yield value

    def process_element2(self, value: Record, ctx: Any) -> Any:
        if value[1] % 2:
            yield SIDE, value


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


class OfExtent(ProcessWindowFunction):
    def process(self, key: int, context: Any, elements: Any) -> Any:
        (extent,) = elements
        yield key, extent + context.window().end % 89


class OfAllKeys(AllWindowFunction):
    def apply(self, window: Any, inputs: Any) -> Any:
        keys, values = zip(*inputs, strict=True)
        yield max(keys), sum(values) + len(values)


class Near(ProcessJoinFunction):
    def process_element(self, left: Record, right: Record, ctx: Any) -> Any:
        yield left[0], left[1] * 2 + right[1] + ctx.get_left_timestamp() - ctx.get_right_timestamp()


class Pair(JoinFunction):
    def join(self, first: Record, second: Record) -> Record:
        return first[0], first[1] - second[1]


def gap_ms(units: int) -> int:
    return units * UNIT_MS + GAP_MS


class GapOfKey(SessionWindowTimeGapExtractor):
    def extract(self, element: Record) -> int:
        return gap_ms(10 + element[0] % 3 * 5)


TUMBLING = TumblingEventTimeWindows.of(30 * UNIT_MS)
WINDOWS = {
    "tumbling": TUMBLING,
    "sliding": SlidingEventTimeWindows.of(50 * UNIT_MS, 20 * UNIT_MS),
    "hopping": SlidingEventTimeWindows.of(10 * UNIT_MS, 25 * UNIT_MS),
    "session": EventTimeSessionWindows.with_gap(Duration.of_millis(gap_ms(15))),
    "session of its own gap": EventTimeSessionWindows.with_dynamic_gap(GapOfKey()),
}

Step = Callable[[DataStream, DataStream, DataStream], DataStream]


def process_windows(assigner: Any) -> Step:
    return lambda stream, other, rules: stream.key_by(select_key).window(assigner).process(OfWindow())


def both_of_split(stream: DataStream, other: DataStream, rules: DataStream) -> DataStream:
    split = stream.process(Split())
    return split.map(lambda record: (record[0], -record[1])).union(split.get_side_output(SIDE))


def totals(stream: DataStream, other: DataStream, rules: DataStream) -> DataStream:
    found = stream.key_by(select_key).process(Totals())
    return found.union(found.get_side_output(SIDE))


def sides_apart(stream: DataStream, other: DataStream, rules: DataStream) -> DataStream:
    found = stream.connect(other).process(SidesApart())
    return found.union(found.get_side_output(SIDE))


def near(stream: DataStream, other: DataStream, rules: DataStream) -> DataStream:
    joined = stream.key_by(select_key).interval_join(other.key_by(select_key))
    return joined.between(Time.milliseconds(-8 * UNIT_MS), Time.milliseconds(5 * UNIT_MS)).process(Near())


#: By name, what a step makes of a stream, of a second one of records, and of a few rules.
STEPS: dict[str, Step] = {
    **{name: process_windows(assigner) for name, assigner in WINDOWS.items()},
    "reduce of window": lambda s, _, __: s.key_by(select_key).window(TUMBLING).reduce(sum_of),
    "aggregate of window": lambda s, _, __: (
        s.key_by(select_key).window(WINDOWS["session"]).aggregate(Extent(), OfExtent())
    ),
    "window of all keys": lambda s, _, __: s.window_all(TUMBLING).apply(OfAllKeys()),
    "map": lambda s, _, __: s.map(lambda record: (record[0], record[1] * 2 + 1)),
    "another key": lambda s, _, __: s.map(lambda record: ((record[0] + record[1]) % 5, record[1])),
    "filter": lambda s, _, __: s.filter(lambda record: record[1] % 4 != 0),
    "flat map": lambda s, _, __: s.flat_map(lambda r: [(r[0], r[1] + i) for i in range(r[1] % 3)]),
    "rebalance": lambda s, _, __: s.rebalance().map(lambda record: record),
    "rescale": lambda s, _, __: s.rescale().map(lambda record: record),
    "shrink": lambda s, _, __: s.map(lambda record: record).set_parallelism(1),
    "by hand": lambda s, _, __: s.partition_custom(lambda key, count: (key + 1) % count, select_key).map(lambda r: r),
    "main of split": lambda s, _, __: s.process(Split()),
    "side of split": lambda s, _, __: s.process(Split()).get_side_output(SIDE),
    "both of split": both_of_split,
    "union": lambda s, other, _: s.union(other),
    "union with itself": lambda s, _, __: s.union(s.filter(lambda record: record[1] % 2 == 0)),
    "connect": lambda s, other, _: s.connect(other).map(Tagged()),
    "connect unequally": lambda s, other, _: s.connect(other).flat_map(Unequal()),
    "connect to the side": sides_apart,
    "keyed connect": lambda s, other, _: s.connect(other).key_by(select_key, select_key).process(BothSides()),
    "interval join": near,
    "window join": lambda s, other, _: (
        s.join(other)
        .where(select_key)
        .equal_to(select_key)
        .window(TumblingEventTimeWindows.of(10 * UNIT_MS))
        .apply(Pair())
    ),
    "process": lambda s, _, __: s.key_by(select_key).process(BucketSums()),
    "process to the end": totals,
    "broadcast": lambda s, _, rules: s.key_by(select_key).connect(rules.broadcast(RULES)).process(ByRule()),
}
#: Only as the last step: in streaming they give a result for each record.
RUNNING = {"sum": sum_of, "largest": largest_of}


def at(units: int) -> int:
    return units * UNIT_MS + RECORD_MS


def many_records(seed: int) -> Timed:
    chance = random.Random(seed)
    return [
        ((chance.randint(-1, 3), chance.randint(-5, 20)), at(3 * i + chance.randint(-60, 20)))
        for i in range(chance.randint(10, 60))
    ]


def source(env: StreamExecutionEnvironment, records: Timed, name: str) -> DataStream:
    """The records with their times; the watermark lags as far as the records are out of order, and no more."""
    times = [time for _, time in records]
    highest = [max(times[: i + 1]) for i in range(len(times))]
    lag = max((high - time for high, time in zip(highest, times, strict=True)), default=0)
    collection: Any = CollectionSource([record for record, _ in records], times)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(lag))
    return env.from_source(collection, strategy, name)


def build(env: StreamExecutionEnvironment, steps: list[str], one: Timed, other: Timed, ends: str | None) -> DataStream:
    """A pipeline over the first records; steps that need a second stream read the others."""
    stream, second = source(env, one, "one"), source(env, other, "other")
    rules = env.from_collection([(0, 2), (1, 3)])
    for step in steps:
        stream = STEPS[step](stream, second, rules)
    return stream if ends is None else stream.key_by(select_key).reduce(RUNNING[ends])
