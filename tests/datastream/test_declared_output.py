"""Rows that a program declares, behind operators of every kind (A2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.datastream.environments import collect, local_environment

from penstock.common import Row, Types, WatermarkStrategy
from penstock.datastream import AsyncDataStream, DataStream, KeyedStream, ProcessJoinFunction
from penstock.datastream.functions import (
    BroadcastProcessFunction,
    CoMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    WindowFunction,
)
from penstock.datastream.state import MapStateDescriptor
from penstock.datastream.window import CountTrigger, EventTimeSessionWindows, TumblingEventTimeWindows

NAMED = Types.ROW_NAMED(["word", "n"], [Types.STRING(), Types.INT()])
BY_TIME = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda pair, _: pair[1])
RULES = MapStateDescriptor("rules")


class Pairs(WindowFunction):
    def apply(self, key, window, inputs):
        return [tuple(pair) for pair in inputs]


class Both(CoMapFunction):
    def map1(self, value):
        return value

    def map2(self, value):
        return list(value)


class Process(KeyedCoProcessFunction):
    def process_element1(self, value, ctx):
        yield value

    def process_element2(self, value, ctx):
        yield {"n": value[1], "word": value[0]}


class Nearby(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield list(left)


class Rules(BroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield value

    def process_broadcast_element(self, value, ctx):
        yield value


class KeyedRules(KeyedBroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield value

    def process_broadcast_element(self, value, ctx):
        yield value


async def answer(value):
    return [value]


def tumbling(stream: DataStream) -> Any:
    return keyed(stream).window(TumblingEventTimeWindows.of(1_000))


def at_the_same_time(pair: Any) -> Any:
    first = pair.where(lambda value: value[0])
    return first.equal_to(lambda value: value[0]).window(TumblingEventTimeWindows.of(1_000))


def keyed(stream: DataStream) -> KeyedStream:
    return stream.key_by(lambda pair: pair[0])


@pytest.mark.parametrize(
    "step",
    [
        lambda one, _: tumbling(one).apply(Pairs(), NAMED),
        lambda one, _: tumbling(one).process(lambda key, context, inputs: list(inputs), NAMED),
        lambda one, _: tumbling(one).reduce(lambda a, b: b, Pairs(), NAMED),
        lambda one, _: tumbling(one).trigger(CountTrigger.of(1)).apply(Pairs(), output_type=NAMED),
        lambda one, _: keyed(one).window(EventTimeSessionWindows.with_gap(5)).apply(Pairs(), NAMED),
        lambda one, _: one.window_all(TumblingEventTimeWindows.of(9)).apply(lambda window, inputs: inputs, NAMED),
        lambda one, other: one.connect(other).map(Both(), NAMED),
        lambda one, _: AsyncDataStream.ordered_wait(one, answer, 1_000, output_type=NAMED),
        lambda one, other: keyed(one).connect(keyed(other)).process(Process(), output_type=NAMED),
        lambda one, other: keyed(one).interval_join(keyed(other)).between(-9, 9).process(Nearby(), NAMED),
        lambda one, other: at_the_same_time(one.join(other)).apply(lambda first, second: first, NAMED),
        lambda one, other: at_the_same_time(one.co_group(other)).apply(lambda first, second: first, NAMED),
        lambda one, other: one.connect(other.broadcast(RULES)).process(Rules(), NAMED),
        lambda one, other: keyed(one).connect(other.broadcast(RULES)).process(KeyedRules(), NAMED),
    ],
)
def test_what_is_declared_a_row_is_one(step: Callable[[DataStream, DataStream], DataStream]) -> None:
    """A2: tuples, lists and dicts have become rows behind windows, connected and broadcast streams too."""
    env = local_environment()
    one, other = (env.from_collection([("a", n)]).assign_timestamps_and_watermarks(BY_TIME) for n in (1, 2))
    made = step(one, other)
    assert made.get_type() == NAMED
    rows = collect(made)
    assert Row(word="a", n=1) in rows
    assert all(row in (Row(word="a", n=1), Row(word="a", n=2)) for row in rows)


def test_rows_without_names_get_those_that_are_declared() -> None:
    """A2: as PyFlink's serializers give them; what was emitted stays as it was."""
    emitted: list[Row] = [Row("a", 1), Row(n=2, word="b")]
    env = local_environment()
    rows = collect(env.from_collection([0, 1]).map(lambda n: emitted[n], output_type=NAMED).map(lambda row: (row, 0)))
    assert [row for row, _ in rows] == [Row(word="a", n=1), Row(word="b", n=2)]
    assert not emitted[0].has_field_names
