"""Operators on RocksDB: for every input they emit what they emit on the heap, over settling points and recoveries.

The order of what belongs to one time is not the same: the heap keeps that in which keys came, RocksDB that of its rows.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.state.rocks import CanonicalRocks

from penstock.datastream.functions import KeyedProcessFunction
from penstock.runtime.operators.keyed.aggregates import KeyedReduceOperator
from penstock.runtime.operators.record.process import KeyedProcessOperator
from penstock.runtime.operators.window.aligned import AlignedWindowOperator, SessionWindowOperator
from penstock.runtime.operators.window.base import ListContents, ReducingContents
from penstock.runtime.operators.window.general import WindowOperator
from penstock.runtime.windowing import (
    ContinuousEventTimeTrigger,
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TimeEvictor,
    TumblingEventTimeWindows,
)
from penstock.state.states import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from penstock.testing import OneInputOperatorHarness, operator_harness


def first(value: Any) -> Any:
    return value[0]


def add(one: Any, other: Any) -> Any:
    return one[0], one[1] + other[1]


class Sum:
    def reduce(self, one: Any, other: Any) -> Any:
        return add(one, other)


class Everything(KeyedProcessFunction):
    """Uses all there is, timers included."""

    def open(self, runtime_context: Any) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last"))
        self.all = runtime_context.get_list_state(ListStateDescriptor("all"))
        self.seen = runtime_context.get_map_state(MapStateDescriptor("seen"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        timers = ctx.timer_service()
        yield ctx.get_current_key(), self.last.value(), list(self.all), sorted(self.seen.items())
        self.last.update([value])
        self.all.add(value)
        self.seen.put(value[1] % 5, value)
        timers.register_event_time_timer(ctx.timestamp() + value[1])
        if value[1] % 3 == 0:
            timers.delete_event_time_timer(ctx.timestamp() + value[1] // 2)
            self.seen.remove(value[1] % 4)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield "timer", timestamp, ctx.get_current_key(), list(self.all), self.last.value()
        if timestamp % 2:
            self.all.clear()
            self.last.clear()
        else:
            ctx.timer_service().register_event_time_timer(timestamp + 3)


FACTORIES: dict[str, Callable[[], Any]] = {
    "reduce": partial(KeyedReduceOperator, Sum(), first),
    "process": lambda: KeyedProcessOperator(Everything(), first),
    "tumbling": partial(AlignedWindowOperator, first, TumblingEventTimeWindows(10), ListContents()),
    "late": partial(
        AlignedWindowOperator, first, SlidingEventTimeWindows(10, 4), ReducingContents(add), allowed_lateness_ms=7
    ),
    "general": partial(
        WindowOperator,
        first,
        SlidingEventTimeWindows(10, 4),
        PurgingTrigger(EventTimeTrigger()),
        ReducingContents(add),
        allowed_lateness_ms=7,
    ),
    "counted": partial(WindowOperator, first, EventTimeSessionWindows(5), CountTrigger(3), ListContents()),
    "continuous": partial(
        WindowOperator,
        first,
        EventTimeSessionWindows(9),
        ContinuousEventTimeTrigger(4),
        ListContents(),
        evictor=TimeEvictor(12),
    ),
    "session": partial(SessionWindowOperator, first, EventTimeSessionWindows(5), ListContents()),
    "late session": partial(
        SessionWindowOperator, first, EventTimeSessionWindows(5), ReducingContents(add), allowed_lateness_ms=6
    ),
}


@pytest.mark.parametrize("name", FACTORIES)
@pytest.mark.parametrize("seed", range(2))
def test_emits_what_the_heap_does(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """C1, D3: reduce, process functions with timers, and windows of each kind, with recoveries in between."""
    chance = random.Random(f"{name} {seed}")
    factory, watermark = FACTORIES[name], 0

    def make(on_rocks: bool, *snapshots: bytes) -> OneInputOperatorHarness:
        with monkeypatch.context() as patch:
            if on_rocks:
                patch.setattr(operator_harness, "HeapKeyedStateBackend", CanonicalRocks)
            harness = OneInputOperatorHarness(factory)
        harness.restore(*snapshots)
        harness.open()
        return harness

    both = [make(False), make(True)]
    try:
        for number in range(250):
            choice = chance.random()
            if choice < 0.7:
                count = chance.randrange(1, 6)
                values = [(chance.choice("abcdefgh"), chance.randrange(12)) for _ in range(count)]
                times = [watermark + chance.randrange(-6, 20) for _ in range(count)]
                for harness in both:
                    harness.process_batch(values, times)
            elif choice < 0.95:
                watermark += chance.randrange(8)
                for harness in both:
                    harness.watermark(watermark)
            else:
                both_ways = chance.random() < 0.3  # the heap's snapshot goes to RocksDB, and the other way round
                for harness in both:
                    harness.take_output()
                snapshots = [harness.snapshot(number) for harness in both]
                if chance.random() < 0.6:
                    for harness in both:
                        harness.close()
                    both = [make(index == 1, snapshots[(index + both_ways) % 2]) for index in range(2)]
                    for harness in both:
                        harness.watermark(watermark)  # after a recovery event time begins anew
                else:
                    for harness in both:
                        harness.notify_complete(number)
            heap, rocks = (sorted(map(repr, harness.take_output())) for harness in both)
            assert heap == rocks, number
    finally:
        for harness in both:
            harness.close()
