"""The functions of random programs. Most of them hand on what they, or their state, still hold, and change it later.

The interpreter (`oracle`) has the same functions again, over plain values of its own.
"""

from __future__ import annotations

from typing import Any

from penstock.common import Types
from penstock.datastream.functions import (
    AggregateFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessWindowFunction,
    ReduceFunction,
)
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)

#: a key and a list of numbers; both lists may be changed by whoever has them
Record = list[Any]


def select_key(record: Record) -> int:
    key: int = record[0]
    return key


# --- steps without key ------------------------------------------------------------------------------------------------


class ChangesAndReturns(MapFunction):
    def map(self, value: Record) -> Record:
        value[1].append(-1)
        return value


class ChangesBetween(FlatMapFunction):
    def flat_map(self, value: Record) -> Any:
        yield value
        value[1].append(len(value[1]))
        yield value


class OwnBuffer(MapFunction):
    """Hands on one list of its own, for each key."""

    def __init__(self) -> None:
        self._buffers: dict[int, Record] = {}

    def map(self, value: Record) -> Record:
        buffer = self._buffers.setdefault(value[0], [value[0], []])
        buffer[1].extend(value[1])
        del buffer[1][:-5]
        return buffer


PLAIN = {
    "changes and returns": lambda stream: stream.map(ChangesAndReturns()),
    "changes between": lambda stream: stream.flat_map(ChangesBetween()),
    "drops some": lambda stream: stream.filter(lambda record: sum(record[1]) % 3 != 1),
    "own buffer": lambda stream: stream.map(OwnBuffer()),
}


# --- process functions ------------------------------------------------------------------------------------------------


class _Process(KeyedProcessFunction):
    def __init__(self, delay_ms: int, count: int) -> None:
        self.delay_ms = delay_ms
        self.count = count


class OfValue(_Process):
    """Hands on the object that its state has."""

    def open(self, runtime_context: Any) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("value"))

    def process_element(self, value: Record, ctx: Any) -> Any:
        held = self.state.value() or []
        held.extend(value[1])
        del held[:-4]
        self.state.update(held)
        yield [value[0], held]
        yield [value[0], self.state.value()]


class OfList(_Process):
    def open(self, runtime_context: Any) -> None:
        self.state = runtime_context.get_list_state(ListStateDescriptor("list"))

    def process_element(self, value: Record, ctx: Any) -> Any:
        self.state.add(value[1])
        yield [value[0], [len(one) for one in self.state.get()]]
        for one in self.state.get():
            yield [value[0], one]
        if sum(value[1]) % 4 == 0:
            self.state.update([[1], [2, 3]])
        elif sum(value[1]) % 7 == 0:
            self.state.clear()


class OfListTwice(_Process):
    """Reads its list twice, and adds it to itself."""

    def open(self, runtime_context: Any) -> None:
        self.state = runtime_context.get_list_state(ListStateDescriptor("twice"))

    def process_element(self, value: Record, ctx: Any) -> Any:
        for number in value[1]:
            self.state.add(number)
        numbers = self.state.get()
        total = sum(numbers)
        yield [value[0], [total, sum(1 for _ in numbers), *list(self.state.get())[:3]]]
        if total % 3 == 0 and sum(1 for _ in self.state.get()) < 32:
            self.state.add_all(self.state.get())
        if sum(1 for _ in self.state.get()) > 8:
            self.state.update([number for number in self.state.get() if number % 2])


class OfMap(_Process):
    def open(self, runtime_context: Any) -> None:
        self.state = runtime_context.get_map_state(MapStateDescriptor("map"))

    def process_element(self, value: Record, ctx: Any) -> Any:
        name = sum(value[1]) % 3
        held = self.state.get(name) or []
        held.append(len(held))
        self.state.put(name, held)
        values = self.state.values()
        sizes = [sum(map(len, values)), sum(1 for _ in values)]
        yield [value[0], [*sizes, *sorted(self.state.keys()), *sorted(key for key, _ in self.state.items())]]
        yield [value[0], held]
        if len(held) > 3:
            self.state.remove(name)
        yield [value[0], [int(self.state.contains(name)), int(self.state.is_empty())]]


class OfMapWhileRead(_Process):
    """Removes entries that it has read, after a list of them was made."""

    def open(self, runtime_context: Any) -> None:
        self.state = runtime_context.get_map_state(MapStateDescriptor("read"))

    def process_element(self, value: Record, ctx: Any) -> Any:
        for number in value[1]:
            self.state.put(number % 5, number)
        for name in list(self.state.keys()):
            if name % 2:
                self.state.remove(name)
        yield [value[0], sorted(held for _, held in self.state.items())]


class _Extends(ReduceFunction):
    def reduce(self, value1: Any, value2: Any) -> Any:
        value1.extend(value2)
        del value1[:-6]
        return value1


class OfReducing(_Process):
    def open(self, runtime_context: Any) -> None:
        descriptor = ReducingStateDescriptor("reducing", _Extends(), Types.PICKLED_BYTE_ARRAY())
        self.state = runtime_context.get_reducing_state(descriptor)

    def process_element(self, value: Record, ctx: Any) -> Any:
        self.state.add(value[1])
        yield [value[0], self.state.get()]
        if len(self.state.get()) > 5:
            self.state.clear()


class Collected(AggregateFunction):
    """Its result is its accumulator."""

    def create_accumulator(self) -> Any:
        return [None, []]

    def add(self, value: Any, accumulator: Any) -> Any:
        accumulator[0] = value[0]
        accumulator[1].extend(value[1])
        accumulator[1].sort()
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return self.add(acc_b, acc_a)


class OfAggregating(_Process):
    def open(self, runtime_context: Any) -> None:
        descriptor = AggregatingStateDescriptor("aggregating", Collected(), Types.PICKLED_BYTE_ARRAY())
        self.state = runtime_context.get_aggregating_state(descriptor)

    def process_element(self, value: Record, ctx: Any) -> Any:
        self.state.add(value)
        yield self.state.get()
        if len(self.state.get()[1]) > 6:
            self.state.clear()


class WithTimers(_Process):
    """Collects what comes until a timer."""

    def open(self, runtime_context: Any) -> None:
        self.held = runtime_context.get_list_state(ListStateDescriptor("held"))

    def process_element(self, value: Record, ctx: Any) -> Any:
        self.held.add((ctx.timestamp(), sum(value[1])))
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + self.delay_ms)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        due = [pair for pair in self.held.get() if pair[0] <= timestamp - self.delay_ms]
        self.held.update([pair for pair in self.held.get() if pair[0] > timestamp - self.delay_ms])
        yield [ctx.get_current_key(), [timestamp, *(number for _, number in due)]]


class WithTimersInTimers(_Process):
    """Each timer sets the next one, `count` times."""

    def open(self, runtime_context: Any) -> None:
        self.left = runtime_context.get_map_state(MapStateDescriptor("left"))

    def process_element(self, value: Record, ctx: Any) -> Any:
        due = ctx.timestamp() + self.delay_ms
        self.left.put(due, self.count)
        ctx.timer_service().register_event_time_timer(due)
        yield [value[0], value[1]]

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        left = self.left.get(timestamp)
        self.left.remove(timestamp)
        if left:
            due = timestamp + self.delay_ms
            self.left.put(due, max(left - 1, self.left.get(due) or 0))
            ctx.timer_service().register_event_time_timer(due)
        yield [ctx.get_current_key(), [timestamp, left]]


class WithDeletedTimers(_Process):
    """A record moves its key's timer."""

    def open(self, runtime_context: Any) -> None:
        self.due = runtime_context.get_state(ValueStateDescriptor("due"))

    def process_element(self, value: Record, ctx: Any) -> Any:
        due = self.due.value()
        if due is not None:
            ctx.timer_service().delete_event_time_timer(due)
        due = ctx.timestamp() + self.delay_ms
        self.due.update(due)
        ctx.timer_service().register_event_time_timer(due)
        ctx.timer_service().register_event_time_timer(due)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield [ctx.get_current_key(), [timestamp, self.due.value()]]
        self.due.clear()


class ProcessChangesBetween(_Process):
    """Hands one list on several times, and changes it in between."""

    def process_element(self, value: Record, ctx: Any) -> Any:
        record = [value[0], []]
        for number in value[1][:3]:
            record[1].append(number)
            yield record


PROCESS: dict[str, type[_Process]] = {
    "value": OfValue,
    "list": OfList,
    "list twice": OfListTwice,
    "map": OfMap,
    "map while read": OfMapWhileRead,
    "reducing": OfReducing,
    "aggregating": OfAggregating,
    "timers": WithTimers,
    "timers in timers": WithTimersInTimers,
    "deleted timers": WithDeletedTimers,
    "changes between": ProcessChangesBetween,
}


# --- reduce, and windows ----------------------------------------------------------------------------------------------


class ReduceThatChanges(ReduceFunction):
    """Adds to its first argument; sorted, because merged windows come in no order."""

    def reduce(self, value1: Record, value2: Record) -> Record:
        value1[1].extend(value2[1])
        value1[1].sort()
        return value1


def reduce_to_new(value1: Record, value2: Record) -> Record:
    return [value1[0], sorted([*value1[1], *value2[1]])]


class Labelled(ProcessWindowFunction):
    def process(self, key: int, context: Any, elements: Any) -> Any:
        for record in elements:
            yield [key, [context.window().max_timestamp() % 1000, *record[1]]]
            record[1].append(3)


class Pops(ProcessWindowFunction):
    def process(self, key: int, context: Any, elements: Any) -> Any:
        rows = list(elements)
        numbers = sorted(number for _, values in rows for number in values)
        rows[0][1].append(55)
        if hasattr(elements, "pop"):
            elements.pop()
        yield [key, numbers]


class GivesElements(ProcessWindowFunction):
    """Hands on the records themselves."""

    def process(self, key: int, context: Any, elements: Any) -> Any:
        ordered = sorted(elements, key=lambda record: record[1])
        for record in ordered:
            yield record
            record[1].append(8)


class Twice(ProcessWindowFunction):
    """Looks at its elements twice."""

    def process(self, key: int, context: Any, elements: Any) -> Any:
        yield [key, [sum(len(record[1]) for record in elements), sum(1 for _ in elements)]]


WINDOW = {
    "reduce that changes first": lambda windows: windows.reduce(ReduceThatChanges()),
    "reduce": lambda windows: windows.reduce(reduce_to_new),
    "aggregate that gives its accumulator": lambda windows: windows.aggregate(Collected()),
    "aggregate and process": lambda windows: windows.aggregate(Collected(), Labelled()),
    "process that pops": lambda windows: windows.process(Pops()),
    "process that gives its elements": lambda windows: windows.process(GivesElements()),
    "process twice": lambda windows: windows.process(Twice()),
}
