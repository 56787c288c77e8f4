"""Functions of batch programs, in a module that Spark's workers can import."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from penstock.base.output_tag import OutputTag
from penstock.common import Row, Types
from penstock.datastream.functions import (
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    ProcessWindowFunction,
)
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor

ODD = OutputTag("odd", Types.INT())


class Prices(KeyedCoProcessFunction):
    """The price in force for each order."""

    def open(self, runtime_context: Any) -> None:
        self.price = runtime_context.get_state(ValueStateDescriptor("price"))

    def process_element1(self, value: Any, ctx: Any) -> Any:
        yield value[0], value[1], self.price.value() or 0

    def process_element2(self, value: Any, ctx: Any) -> Any:
        self.price.update(value[2])


class Rules(KeyedBroadcastProcessFunction):
    RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value[0], value[1] * (ctx.get_broadcast_state(self.RULES).get(value[0]) or 0)

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(self.RULES).put(value[0], value[1])


class Split(ProcessFunction):
    """Odd numbers go to the side."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield (ODD, value) if value % 2 else value


class Slowly(MapFunction):
    """Touches a file, and takes its time."""

    def __init__(self, path: str) -> None:
        self.path = path

    def map(self, value: int) -> int:
        Path(self.path).touch()
        time.sleep(0.01)
        return value


def divide(number: int) -> str:
    return str(1 // (50 - number))


class CountOfKey(KeyedProcessFunction):
    """(key, how many, time of the first), when all have come."""

    def open(self, runtime_context: Any) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("state"))

    def process_element(self, value: Any, ctx: Any) -> None:
        count, first = self.state.value() or (0, ctx.timestamp())
        self.state.update((count + 1, first))
        ctx.timer_service().register_event_time_timer(10**12)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield (ctx.get_current_key(), *self.state.value())


def total_of(row: Any) -> Row:
    return Row(row.name, row.amount * 10.0) if row.name == "oat" else Row(row.name, float(row.at))


def negative(number: int) -> int:
    return -number


def failing(sale: tuple[str, int, int]) -> int:
    return 100 // (sale[1] - 1)


class Numbered(KeyedProcessFunction):
    """Numbers the records of each key of `n % 7`."""

    def open(self, runtime_context: Any) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        count = (self.state.value() or 0) + 1
        self.state.update(count)
        yield f"{ctx.get_current_key()} {count}"


class SumOfWindow(ProcessWindowFunction):
    """The sum of the amounts of a key's rows in a window, as text."""

    def process(self, key: str, context: Any, elements: Any) -> Any:
        yield f"{key} {context.window().start} {sum(row.amount for row in elements)}"


class Seen(KeyedProcessFunction):
    """(key, subtask, [(second field, timestamp)] in the order in which they came) at the end of time."""

    def open(self, runtime_context: Any) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen"))

    def process_element(self, value: Any, ctx: Any) -> None:
        self.seen.update([*(self.seen.value() or ()), (value[1], ctx.timestamp())])
        ctx.timer_service().register_event_time_timer(10**15)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), self.subtask, self.seen.value()
