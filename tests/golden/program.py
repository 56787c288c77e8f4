"""A small program with every kind of state, of which savepoints are kept as test data: never change what it stores."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.spec.virtual_job import LedgerSink

from penstock.common.time import Time
from penstock.common.typeinfo import Types
from penstock.common.types import Row
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.split_reader import NumberSequenceSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import AggregateFunction, KeyedBroadcastProcessFunction, KeyedProcessFunction
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows

COUNT = 120
KEYS = 5
END_MS = 10**9


class Visit(NamedTuple):
    key: int
    number: int


@dataclass
class Summary:
    visits: int
    last: int


class Extremes(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return COUNT, -1

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return min(value, accumulator[0]), max(value, accumulator[1])

    def get_result(self, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return min(acc_a[0], acc_b[0]), max(acc_a[1], acc_b[1])


def add(one: int, other: int) -> int:
    return one + other


def remembered() -> ValueStateDescriptor:
    descriptor = ValueStateDescriptor("remembered", Types.LONG())
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.days(3650)).build())
    return descriptor


class Everything(KeyedProcessFunction):
    """One state of each kind; a timer at the end of the input tells what they hold."""

    def open(self, runtime_context: Any) -> None:
        self.summary = runtime_context.get_state(ValueStateDescriptor("summary"))
        self.row = runtime_context.get_state(
            ValueStateDescriptor("row", Types.ROW_NAMED(["n", "text"], [Types.LONG(), Types.STRING()]))
        )
        self.numbers = runtime_context.get_list_state(ListStateDescriptor("numbers", Types.LONG()))
        self.squares = runtime_context.get_map_state(MapStateDescriptor("squares", Types.LONG(), Types.LONG()))
        self.total = runtime_context.get_reducing_state(ReducingStateDescriptor("total", add, Types.LONG()))
        self.extremes = runtime_context.get_aggregating_state(AggregatingStateDescriptor("extremes", Extremes()))
        self.remembered = runtime_context.get_state(remembered())

    def process_element(self, value: Visit, ctx: Any) -> Any:
        before = self.summary.value() or Summary(0, -1)
        self.summary.update(Summary(before.visits + 1, value.number))
        self.row.update(Row(n=value.number, text=str(value.number)))
        self.numbers.add(value.number)
        self.squares.put(value.number, value.number**2)
        self.total.add(value.number)
        self.extremes.add(value.number)
        self.remembered.update((self.remembered.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(END_MS)
        yield from ()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        summary, row = self.summary.value(), self.row.value()
        yield (
            "state",
            ctx.get_current_key(),
            (summary.visits, summary.last, row["n"], row["text"]),
            (sorted(self.numbers.get()), sum(self.squares.values()), self.total.get(), self.extremes.get()),
            self.remembered.value(),
        )


RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())


class Rules(KeyedBroadcastProcessFunction):
    """Each key's count, with the number of rules that it knew at the end of the input."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: Visit, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(END_MS)
        yield from ()

    def process_broadcast_element(self, value: int, ctx: Any) -> Any:
        ctx.get_broadcast_state(RULES).put(f"rule {value}", value)
        yield from ()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        rules = ctx.get_broadcast_state(RULES)
        yield "rules", ctx.get_current_key(), self.count.value(), sum(value for _, value in rules.items())


def build(env: StreamExecutionEnvironment) -> None:
    """The program; operators have uids, so that later versions find their state."""
    timed = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda number, _: number * 1_000)
    numbers = env.from_source(NumberSequenceSource(0, COUNT - 1), timed, "numbers").uid("numbers")
    visits = numbers.map(lambda number: Visit(number % KEYS, number), Types.PICKLED_BYTE_ARRAY()).uid("visits")
    keyed = visits.key_by(lambda visit: visit.key)
    few = env.from_source(NumberSequenceSource(1, 9), timed, "few").uid("few")
    outputs = [
        keyed.process(Everything()).uid("everything"),
        keyed.window(TumblingEventTimeWindows.of(Time.seconds(50)))
        .reduce(lambda one, other: Visit(one.key, one.number + other.number))
        .uid("tumbling")
        .map(lambda visit: ("tumbling", visit.key, visit.number)),
        keyed.window(EventTimeSessionWindows.with_gap(Time.seconds(100)))
        .reduce(lambda one, other: Visit(one.key, one.number + other.number))
        .uid("session")
        .map(lambda visit: ("session", visit.key, visit.number)),
        keyed.connect(few.broadcast(RULES)).process(Rules()).uid("rules"),
    ]
    for index, output in enumerate(outputs):
        output.sink_to(LedgerSink("golden")).uid(f"sink {index}")


def expected() -> Counter[Any]:
    """What the program gives in all."""
    found: Counter[Any] = Counter()
    for key in range(KEYS):
        mine = list(range(key, COUNT, KEYS))
        last = mine[-1]
        folded = (mine, sum(n * n for n in mine), sum(mine), (mine[0], last))
        found[repr(("state", key, (len(mine), last, last, str(last)), folded, len(mine)))] += 1
        found[repr(("session", key, sum(mine)))] += 1
        found[repr(("rules", key, len(mine), sum(range(1, 10))))] += 1
        for start in range(0, COUNT, 50):
            found[repr(("tumbling", key, sum(n for n in mine if start <= n < start + 50)))] += 1
    return found
