"""Connected streams on the local driver."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from penstock.common import Configuration, WatermarkStrategy
from penstock.datastream import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    DataStream,
    KeyedCoProcessFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor

ORDERS = [(f"k{n % 5}", n) for n in range(40)]
RATES = [(f"k{n}", n * 100) for n in range(5)]


def environment(parallelism: int) -> StreamExecutionEnvironment:
    configuration = Configuration()
    configuration.set_string("execution.target", "local")
    return StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(parallelism)


class JoinByKey(KeyedCoProcessFunction):
    """Orders with the rate of their key; orders that come first wait for it."""

    def open(self, runtime_context: Any) -> None:
        self.rate = runtime_context.get_state(ValueStateDescriptor("rate"))
        self.waiting = runtime_context.get_list_state(ListStateDescriptor("waiting"))

    def process_element1(self, value: tuple[str, int], ctx: Any) -> Iterable[Any]:
        rate = self.rate.value()
        if rate is None:
            self.waiting.add(value[1])
        else:
            yield ctx.get_current_key(), value[1] + rate

    def process_element2(self, value: tuple[str, int], ctx: Any) -> Iterable[Any]:
        self.rate.update(value[1])
        for order in self.waiting.get():
            yield ctx.get_current_key(), order + value[1]
        self.waiting.clear()


@pytest.mark.parametrize("parallelism", [1, 2, 4])
def test_two_keyed_streams_share_state(parallelism: int) -> None:
    """A1, A2, D1: records of both streams with one key meet in one subtask, whichever comes first."""
    env = environment(parallelism)
    orders, rates = env.from_collection(ORDERS), env.from_collection(RATES)
    joined = orders.connect(rates).key_by(lambda o: o[0], lambda r: r[0]).process(JoinByKey())
    rate_of = dict(RATES)
    assert sorted(joined.execute_and_collect()) == sorted((k, n + rate_of[k]) for k, n in ORDERS)


class AtTheEnd(KeyedCoProcessFunction):
    """Counts the records of both streams until time has passed both."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element1(self, value: int, ctx: Any) -> None:
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(1_000)

    process_element2 = process_element1

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield ctx.get_current_key(), self.count.value()


def test_event_time_is_the_lower_one_of_both_inputs() -> None:
    """C2: a timer fires when both streams have passed it, so it sees all records of both."""
    env = environment(2)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda n: n)
    one, other = (
        env.from_collection(range(offset, 1_000, 2)).assign_timestamps_and_watermarks(strategy) for offset in (0, 1)
    )
    counts = one.connect(other).key_by(lambda n: n % 3, lambda n: n % 3).process(AtTheEnd())
    assert sorted(counts.execute_and_collect()) == [(0, 334), (1, 333), (2, 333)]


class Numbered(CoMapFunction, CoFlatMapFunction):
    """Records with their number among all of their key, from either stream."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def number(self, value: int) -> tuple[int, int]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        return value % 3, count

    def map1(self, value: int) -> tuple[int, int]:
        return self.number(value)

    def map2(self, value: int) -> tuple[int, int]:
        return self.number(value)

    def flat_map1(self, value: int) -> Iterable[Any]:
        yield self.number(value)

    def flat_map2(self, value: int) -> Iterable[Any]:
        yield self.number(value)


@pytest.mark.parametrize("method", ["map", "flat_map"])
def test_functions_of_keys_without_timers(method: str) -> None:
    """A2, D1: a map or flat map of two keyed streams has its key's state, and passes event time on."""
    env = environment(2)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda n: n)
    one, other = (env.from_collection(range(30)).assign_timestamps_and_watermarks(strategy) for _ in range(2))
    connected = one.connect(other).key_by(lambda n: n % 3, lambda n: n % 3)
    stream: DataStream = getattr(connected, method)(Numbered())
    assert sorted(stream.execute_and_collect()) == [(key, n) for key in range(3) for n in range(1, 21)]


class Label(CoMapFunction):
    def map1(self, value: int) -> str:
        return f"one {value}"

    def map2(self, value: str) -> str | None:
        return None if value == "skip" else f"two {value}"


class Repeat(CoFlatMapFunction):
    def flat_map1(self, value: int) -> Iterable[Any]:
        return [value] * value

    def flat_map2(self, value: str) -> Iterable[Any]:
        yield value.upper()


class Tell(CoProcessFunction):
    def process_element1(self, value: int, ctx: Any) -> Iterable[Any]:
        yield value, ctx.timestamp()

    def process_element2(self, value: str, ctx: Any) -> None:
        return None


@pytest.mark.parametrize(
    ("method", "function", "expected"),
    [
        ("map", Label(), ["one 1", "one 2", "two a"]),
        ("flat_map", Repeat(), ["1", "2", "2", "A", "SKIP"]),
        ("process", Tell(), ["(1, None)", "(2, None)"]),
    ],
)
def test_functions_without_keys(method: str, function: Any, expected: list[str]) -> None:
    """A2: each record is handled by the method for its stream."""
    env = environment(1)
    connected = env.from_collection([1, 2]).connect(env.from_collection(["a", "skip"]))
    stream: DataStream = getattr(connected, method)(function)
    assert sorted(map(str, stream.execute_and_collect())) == expected


@pytest.mark.parametrize(
    ("method", "function", "expected"),
    [("map", Label(), ["one 1", "one 2", "two a"]), ("flat_map", Repeat(), ["1", "2", "2", "A", "SKIP"])],
)
def test_the_same_functions_on_keyed_streams(method: str, function: Any, expected: list[str]) -> None:
    """A2: they set no timers, and event time passes them all the same."""
    env = environment(2)
    ones, twos = env.from_collection([1, 2]).key_by(str), env.from_collection(["a", "skip"]).key_by(str)
    stream: DataStream = getattr(ones.connect(twos), method)(function)
    assert sorted(map(str, stream.execute_and_collect())) == expected
