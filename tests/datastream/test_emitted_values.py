"""What a function has emitted stays as it was, whatever the function does with the object afterwards."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.datastream.environments import collect, local_environment

from penstock.base.output_tag import OutputTag
from penstock.base.types import Row
from penstock.common import Time, Types, WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import AsyncDataStream
from penstock.datastream.functions import (
    AggregateFunction,
    AsyncFunction,
    BroadcastProcessFunction,
    CoMapFunction,
    CoProcessFunction,
    FlatMapFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    ProcessWindowFunction,
)
from penstock.datastream.join_functions import ProcessJoinFunction
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.datastream.window import (
    CountEvictor,
    CountTrigger,
    CumulativeEventTimeWindows,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)

RECORDS = [("a", 1), ("a", 2), ("a", 3), ("a", 4)]
#: of each record the numbers so far
GROWING = [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4]]
SIDE = OutputTag("side")
BACKENDS = ("hashmap", "rocksdb")
MODES = ("STREAMING", "MICRO_BATCH", "BATCH")
RUNNING_MODES = ("STREAMING", "MICRO_BATCH")
Build = Callable[[Any], Any]


@dataclass
class Gathered:
    numbers: list[int]


def select_key(record: Any) -> Any:
    return record[0]


def build_stream(records: list[Any], chained: bool = True, **options: Any) -> Any:
    """The records with their second field as event time."""
    env = local_environment(**options)
    if not chained:
        env.disable_operator_chaining()
    return timed(env, records)


def timed(env: Any, records: list[Any]) -> Any:
    by_time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda record, _: record[1])
    return env.from_collection(records).assign_timestamps_and_watermarks(by_time)


class Gather(AggregateFunction):
    """The result is the accumulator."""

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: Any, accumulator: list[int]) -> list[int]:
        accumulator.append(value[1])
        return accumulator

    def get_result(self, accumulator: list[int]) -> list[int]:
        return accumulator

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        acc_a.extend(acc_b)
        return acc_a


def extend(one: Any, other: Any) -> Any:
    one["numbers"].extend(other["numbers"])
    return one


# --- keyed state ------------------------------------------------------------------------------------------------------


class OfState(KeyedProcessFunction):
    """Emits the object that its state has, in a shape."""

    def __init__(self, shape: Callable[[Any], Any] = lambda numbers: numbers, timers: bool = False) -> None:
        self.shape = shape
        self.timers = timers

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        if self.timers:
            ctx.timer_service().register_event_time_timer(value[1])
            return
        yield self.changed(value[1])

    def changed(self, number: int) -> Any:
        seen = self.seen.value() or []
        seen.append(number)
        self.seen.update(seen)
        return self.shape(seen)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield self.changed(timestamp)


class OfRow(OfState):
    """Its state is a row, which it changes."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        row = self.seen.value() or Row(total=0)
        row["total"] += value[1]
        self.seen.update(row)
        return [row]


class OfObject(OfState):
    """Its state is an object of a class of the program's."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        gathered = self.seen.value() or Gathered([])
        gathered.numbers.append(value[1])
        self.seen.update(gathered)
        yield "object", gathered


class OfLists(KeyedProcessFunction):
    """Emits an item of its list, and changes it later."""

    def open(self, runtime_context: Any) -> None:
        self.lists = runtime_context.get_list_state(ListStateDescriptor("lists"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        held = list(self.lists.get()) or [[]]
        held[0].append(value[1])
        self.lists.update(held)
        return self.lists.get()


class OfMap(KeyedProcessFunction):
    """Emits the values of its map, and changes them later."""

    def open(self, runtime_context: Any) -> None:
        self.map = runtime_context.get_map_state(MapStateDescriptor("map"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        held = self.map.get("x") or []
        held.append(value[1])
        self.map.put("x", held)
        return self.map.values()


class OfReducing(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.sum = runtime_context.get_reducing_state(ReducingStateDescriptor("sum", extend))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.sum.add({"numbers": [value[1]]})
        yield self.sum.get()


class OfAggregating(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.all = runtime_context.get_aggregating_state(AggregatingStateDescriptor("all", Gather()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.all.add(value)
        yield self.all.get()


class MapOfState(MapFunction):
    """A map with keyed state."""

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen"))

    def map(self, value: Any) -> Any:
        seen = self.seen.value() or []
        seen.append(value[1])
        self.seen.update(seen)
        return seen


class OfBothInputs(KeyedCoProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen"))

    def process_element1(self, value: Any, ctx: Any) -> Any:
        seen = self.seen.value() or []
        seen.append(value[1])
        self.seen.update(seen)
        yield seen

    def process_element2(self, value: Any, ctx: Any) -> Any:
        return None


KEYED: dict[str, tuple[Build, list[Any]]] = {
    "value": (lambda keyed: keyed.process(OfState()), GROWING),
    "value in a tuple": (lambda keyed: keyed.process(OfState(lambda n: ("x", n))), [("x", n) for n in GROWING]),
    "value in a dict": (lambda keyed: keyed.process(OfState(lambda n: {"x": (n,)})), [{"x": (n,)} for n in GROWING]),
    "value in a side output": (
        lambda keyed: keyed.process(OfState(lambda numbers: (SIDE, numbers))).get_side_output(SIDE),
        GROWING,
    ),
    "in timers": (lambda keyed: keyed.process(OfState(timers=True)), GROWING),
    "row": (lambda keyed: keyed.process(OfRow()), [Row(total=total) for total in (1, 3, 6, 10)]),
    "object": (lambda keyed: keyed.process(OfObject()), [("object", Gathered(numbers)) for numbers in GROWING]),
    "list": (lambda keyed: keyed.process(OfLists()), GROWING),
    "map": (lambda keyed: keyed.process(OfMap()), GROWING),
    "reducing": (lambda keyed: keyed.process(OfReducing()), [{"numbers": numbers} for numbers in GROWING]),
    "aggregating": (lambda keyed: keyed.process(OfAggregating()), GROWING),
    "map function": (lambda keyed: keyed.map(MapOfState()), GROWING),
    "two inputs": (lambda keyed: keyed.connect(keyed).process(OfBothInputs()), GROWING),
    "aggregate": (
        lambda keyed: keyed.window(GlobalWindows.create()).trigger(CountTrigger.of(1)).aggregate(Gather()),
        GROWING,
    ),
}


@pytest.mark.parametrize("chained", [True, False], ids=["chained", "unchained"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", ["STREAMING", "MICRO_BATCH", "BATCH"])
@pytest.mark.parametrize("kind", KEYED)
def test_what_state_has_and_a_function_emitted(kind: str, mode: str, backend: str, chained: bool) -> None:
    """K1: a result is what it was when it was emitted, though state has the object and changes it."""
    build, results = KEYED[kind]
    stream = build_stream(RECORDS, chained, execution__runtime_mode=mode, state__backend__type=backend)
    assert collect(build(stream.key_by(select_key))) == results


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", RUNNING_MODES)
def test_a_reduce_may_change_its_first_argument(mode: str, backend: str) -> None:
    """A2, K1: each result of a running reduce is the value at that time."""
    stream = build_stream(RECORDS, execution__runtime_mode=mode, state__backend__type=backend)
    dicts = stream.map(lambda record: {"numbers": [record[1]]})
    assert collect(dicts.key_by(lambda _: 1).reduce(extend)) == [{"numbers": numbers} for numbers in GROWING]


class CountsAndLists(KeyedProcessFunction):
    """Gives numbers for long, and then what its state has, in a tuple."""

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen"))
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        if value[0] == "plain":
            self.count.update((self.count.value() or 0) + 1)
            return [("count", self.count.value())]
        held = list(self.seen.get()) or [[]]
        held[0].append(value[1])
        self.seen.update(held)
        return [("list", held[0])] if value[1] > 1 else [("first", 0)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_function_that_comes_to_lists_after_many_results(backend: str) -> None:
    """A1, K1: a function that has emitted only numbers and tuples for long may still come to lists."""
    records = [("plain", 1)] * 9000 + [("lists", 1)] + [("plain", 1)] * 999 + [("lists", 2), ("lists", 3), ("lists", 4)]
    env = local_environment(state__backend__type=backend, penstock__source__batch_records="1000")
    results = collect(env.from_collection(records).key_by(select_key).process(CountsAndLists()))
    assert [result[1] for result in results if result[0] == "list"] == GROWING[1:]


def test_a_reduce_whose_records_become_mutable_after_many() -> None:
    """A2: a reduce that has given only numbers and tuples for long may still come to lists."""
    records = [("plain", 1)] * 5000 + [("lists", [1]), ("lists", [2]), ("lists", [3])]
    env = local_environment(penstock__source__batch_records="1000")
    reduced = env.from_collection(records).key_by(select_key).reduce(_add_in_place)
    assert collect(reduced)[-3:] == [("lists", [1]), ("lists", [1, 2]), ("lists", [1, 2, 3])]


def _add_in_place(one: Any, other: Any) -> Any:
    if isinstance(one[1], int):
        return (one[0], one[1] + other[1])
    one[1].extend(other[1])
    return one


@pytest.mark.parametrize("mode", RUNNING_MODES)
def test_what_follows_may_change_what_it_is_handed(mode: str) -> None:
    """K1: the state of a running aggregate is not changed by the operators that get its results."""
    stream = build_stream(RECORDS, execution__runtime_mode=mode).map(lambda record: [record[0], record[1], ["x"]])
    summed = stream.key_by(select_key).sum(1).map(_emptied)
    assert collect(summed) == [["a", total, []] for total in (1, 3, 6, 10)]
    best = stream.key_by(select_key).max_by(1).map(_emptied)
    assert collect(best) == [["a", number, []] for number in (1, 2, 3, 4)]


def _emptied(record: list[Any]) -> list[Any]:
    assert record[2] == ["x"]
    record[2].clear()
    return record


# --- functions without keyed state ------------------------------------------------------------------------------------


class OwnList(MapFunction, FlatMapFunction, ProcessFunction):
    """Emits one list of its own, which grows."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def map(self, value: Any) -> list[int]:
        self.numbers.append(value[1])
        return self.numbers

    def flat_map(self, value: Any) -> Any:
        return [self.map(value)]

    def process_element(self, value: Any, ctx: Any) -> Any:
        return [self.map(value)]


class OwnLater(MapFunction):
    """Has its list from the first record on."""

    def map(self, value: Any) -> list[int]:
        if not hasattr(self, "numbers"):
            self.numbers: list[int] = []
        self.numbers.append(value[1])
        return self.numbers


class ChangesBetween(FlatMapFunction, ProcessFunction):
    """Emits a list several times, and changes it in between."""

    def flat_map(self, value: Any) -> Any:
        numbers: list[int] = []
        for number in range(1, value[1] + 1):
            numbers.append(number)
            yield numbers

    def process_element(self, value: Any, ctx: Any) -> Any:
        for numbers in self.flat_map(value):
            yield "x", numbers


class OfTwo(CoProcessFunction):
    def __init__(self) -> None:
        self.numbers: list[int] = []

    def process_element1(self, value: Any, ctx: Any) -> Any:
        self.numbers.append(value[1])
        yield self.numbers

    def process_element2(self, value: Any, ctx: Any) -> Any:
        return None


class Asynchronous(AsyncFunction):
    def __init__(self, returned: Callable[[list[Any]], Any] = lambda results: results) -> None:
        self.numbers: list[int] = []
        self.returned = returned

    async def async_invoke(self, value: Any) -> Any:
        self.numbers.append(value[1])
        return self.returned([self.numbers])


def in_closure() -> Callable[[Any], Any]:
    numbers: list[int] = []

    def gather(record: Any) -> Any:
        numbers.append(record[1])
        return numbers

    return gather


GLOBAL: list[int] = []


def in_global(record: Any) -> list[int]:
    return _gathered(record)


def _gathered(record: Any) -> list[int]:
    if record[1] == 1:
        GLOBAL.clear()
    GLOBAL.append(record[1])
    return GLOBAL


class InClass(MapFunction):
    """Has its list in the class."""

    numbers: list[int] = []  # noqa: RUF012 - the class shares it

    def map(self, value: Any) -> list[int]:
        if value[1] == 1:
            self.numbers.clear()
        self.numbers.append(value[1])
        return self.numbers


class InSlot(MapFunction):
    __slots__ = ("numbers",)

    def open(self, runtime_context: Any) -> None:
        self.numbers: list[int] = []

    def map(self, value: Any) -> list[int]:
        self.numbers.append(value[1])
        return self.numbers


def in_other_class(record: Any) -> list[int]:
    return InClass().map(record)


def in_module(record: Any) -> list[int]:
    return sys.modules[__name__]._gathered(record)  # type: ignore[no-any-return]


def in_globals(record: Any) -> list[int]:
    numbers = globals()["GLOBAL"]
    if record[1] == 1:
        numbers.clear()
    numbers.append(record[1])
    return numbers  # type: ignore[no-any-return]


UNKEYED: dict[str, Build] = {
    "map": lambda stream: stream.map(OwnList()),
    "map after map": lambda stream: stream.map(lambda record: record).map(OwnList()),
    "map, later": lambda stream: stream.map(OwnLater()),
    "map, closure": lambda stream: stream.map(in_closure()),
    "map, global": lambda stream: stream.map(in_global),
    "map, class": lambda stream: stream.map(InClass()),
    "map, slot": lambda stream: stream.map(InSlot()),
    "map, other class": lambda stream: stream.map(in_other_class),
    "map, module": lambda stream: stream.map(in_module),
    "map, globals()": lambda stream: stream.map(in_globals),
    "flat map": lambda stream: stream.flat_map(OwnList()),
    "process": lambda stream: stream.process(OwnList()),
    "two inputs": lambda stream: stream.connect(stream).process(OfTwo()),
    "async": lambda stream: AsyncDataStream.ordered_wait(stream, Asynchronous(), Time.seconds(60), 1),
    "async, calls at once": lambda stream: AsyncDataStream.ordered_wait(stream, Asynchronous(), Time.seconds(60), 10),
    "async, unordered": lambda stream: AsyncDataStream.unordered_wait(stream, Asynchronous(), Time.seconds(60), 10),
    "async, iterator": lambda stream: AsyncDataStream.ordered_wait(stream, Asynchronous(iter), Time.seconds(60), 10),
}


@pytest.mark.parametrize("chained", [True, False], ids=["chained", "unchained"])
@pytest.mark.parametrize("mode", ["STREAMING", "BATCH"])
@pytest.mark.parametrize("kind", UNKEYED)
def test_what_a_function_has_in_itself(kind: str, mode: str, chained: bool) -> None:
    """K1: an object that a function keeps in itself is emitted as it is at that time."""
    stream = build_stream(RECORDS, chained, execution__runtime_mode=mode)
    assert collect(UNKEYED[kind](stream)) == GROWING


def test_what_a_function_changes_between_two_results() -> None:
    """K1: each result of one call is what it was at its `yield`."""
    stream = build_stream([("a", 3)])
    assert collect(stream.flat_map(ChangesBetween())) == [[1], [1, 2], [1, 2, 3]]
    stream = build_stream([("a", 3)])
    assert collect(stream.process(ChangesBetween())) == [("x", [1]), ("x", [1, 2]), ("x", [1, 2, 3])]


class FillsLater(AsyncFunction):
    """Goes on with the list after it has returned it."""

    async def async_invoke(self, value: Any) -> Any:
        numbers = [value[1]]
        asyncio.get_running_loop().call_soon(numbers.clear)
        return [numbers]


class KeepsAtTimeOut(AsyncFunction):
    def __init__(self) -> None:
        self.numbers: list[int] = []

    async def async_invoke(self, value: Any) -> Any:
        await asyncio.sleep(3600)

    def timeout(self, value: Any) -> Any:
        self.numbers.append(value[1])
        return iter([self.numbers])


@pytest.mark.parametrize("mode", MODES)
def test_what_an_asynchronous_function_has_returned(mode: str) -> None:
    """K1: results count as they were when the call returned, or when its time was over."""
    stream = build_stream(RECORDS, execution__runtime_mode=mode)
    assert collect(AsyncDataStream.ordered_wait(stream, FillsLater(), Time.seconds(60), 10)) == [[1], [2], [3], [4]]
    timed_out = AsyncDataStream.ordered_wait(stream, KeepsAtTimeOut(), Time.milliseconds(1), 10)
    assert collect(timed_out) == GROWING


# --- windows ----------------------------------------------------------------------------------------------------------


class Drains(ProcessWindowFunction):
    """Gives the elements themselves, changes them, and takes them out."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield sorted(element[2][0] for element in elements)
        while elements:
            element = elements.pop()
            element[2][0] = -1
            yield element
            element[2].append("changed")


class Labels(ProcessWindowFunction):
    """Changes an aggregate that it is handed."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        (numbers,) = elements
        yield key, numbers
        numbers.append("changed")


LISTS = [["a", 1, [1]], ["a", 3, [2]], ["a", 12, [3]]]
LATE = [["a", 1, [1]], ["a", 3, [2]], ["a", 30, [9]], ["a", 4, [3]]]


def windowed(records: list[Any], assigner: Any, backend: str, mode: str = "STREAMING") -> Any:
    options: dict[str, Any] = {"penstock__source__batch_records": "1"}
    options |= {"state__backend__type": backend, "execution__runtime_mode": mode}
    return timed(local_environment(**options), records).key_by(select_key).window(assigner)


@pytest.mark.parametrize("evicts", [False, True], ids=["", "evictor"])
@pytest.mark.parametrize("general", [False, True], ids=["fast", "general"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["tumbling", "session"])
def test_window_functions_cannot_change_the_window(kind: str, backend: str, general: bool, evicts: bool) -> None:
    """C1, K1: what a window function takes out of its elements, or changes in them, is there when it fires again."""
    assigner = {"tumbling": TumblingEventTimeWindows.of(10), "session": EventTimeSessionWindows.with_gap(5)}[kind]
    windows = windowed(LATE, assigner, backend).allowed_lateness(1000)
    if general:
        windows = windows.trigger(EventTimeTrigger.create())
    if evicts:
        windows = windows.evictor(CountEvictor.of(10))
    results = [result for result in collect(windows.process(Drains())) if "a" not in result]
    assert results == [[1, 2], [1, 2, 3], [9]]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", ["STREAMING", "BATCH"])
def test_windows_share_no_records(mode: str, backend: str) -> None:
    """C1, K1: a record is in several sliding windows, and what happens to it in one does not show in another."""
    windows = windowed(LISTS, SlidingEventTimeWindows.of(10, 5), backend, mode)
    results = [result for result in collect(windows.process(Drains())) if "a" not in result]
    assert results == [[1, 2], [1, 2], [3], [3]]
    windows = windowed(LISTS, SlidingEventTimeWindows.of(10, 5), backend, mode)
    reduced = collect(windows.reduce(_reduced_in_place))
    assert reduced == [["a", 1, [1, 2]], ["a", 1, [1, 2]], ["a", 12, [3]], ["a", 12, [3]]]


class RecordSum(AggregateFunction):
    """The accumulator is the first record, or a list that holds it."""

    def __init__(self, is_held: bool) -> None:
        self._is_held = is_held

    def create_accumulator(self) -> Any:
        return [] if self._is_held else None

    def add(self, value: Any, accumulator: Any) -> Any:
        if not accumulator:
            return [value] if self._is_held else value
        (accumulator[0] if self._is_held else accumulator)[2] += value[2]
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        return accumulator[0] if self._is_held else accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return self.add(self.get_result(acc_b), acc_a)


@pytest.mark.parametrize("is_held", [False, True], ids=["the record", "holds the record"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", ["STREAMING", "MICRO_BATCH", "BATCH"])
@pytest.mark.parametrize("kind", ["sliding", "cumulative", "general"])
def test_accumulators_share_no_records(kind: str, mode: str, backend: str, is_held: bool) -> None:
    """C1, K1: an accumulator of one window that is a record, or holds one, shows nothing of other windows."""
    records = [["a", 10, 1], ["a", 20, 2], ["a", 30, 3], ["a", 40, 4]]
    assigner: Any = SlidingEventTimeWindows.of(20, 10)
    expected = [1, 3, 5, 7, 4]
    if kind == "cumulative":
        assigner, expected = CumulativeEventTimeWindows.of(60, 20), [1, 6, 10]
    windows = windowed(records, assigner, backend, mode)
    if kind == "general":
        windows = windows.trigger(EventTimeTrigger.create())
    results = collect(windows.aggregate(RecordSum(is_held)))
    assert [record[2] for record in results] == expected


def _reduced_in_place(one: Any, other: Any) -> Any:
    one[2].extend(other[2])
    return one


@pytest.mark.parametrize("function", [None, Labels()], ids=["alone", "with a window function"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["tumbling", "session", "global"])
def test_aggregates_of_windows_that_fire_again(kind: str, backend: str, function: Any) -> None:
    """C1, K1: each firing emits the accumulator as it is then."""
    if kind == "global":
        windows = windowed(RECORDS, GlobalWindows.create(), backend).trigger(CountTrigger.of(1))
        results = GROWING
    else:
        assigner = {"tumbling": TumblingEventTimeWindows.of(10), "session": EventTimeSessionWindows.with_gap(5)}[kind]
        windows = windowed([("a", 1), ("a", 3), ("a", 30), ("a", 4), ("a", 5)], assigner, backend)
        windows = windows.allowed_lateness(1000)
        results = [[1, 3], [1, 3, 4], [1, 3, 4, 5], [30]]
    if function is None:
        assert collect(windows.aggregate(Gather())) == results
    else:
        assert collect(windows.aggregate(Gather(), function)) == [("a", numbers) for numbers in results]


class JoinInPlace(ProcessJoinFunction):
    """Gives the left record, and a list of both that it keeps."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def process_element(self, left: Any, right: Any, ctx: Any) -> Any:
        self.seen.append(right[1])
        yield self.seen


def test_joins_emit_what_they_keep() -> None:
    """A2: a result of an interval join is what it was when it was emitted."""
    env = local_environment()
    left, right = timed(env, [("a", 1)]).key_by(select_key), timed(env, RECORDS).key_by(select_key)
    joined = left.interval_join(right).between(-10, 10).process(JoinInPlace())
    assert collect(joined) == GROWING


# --- sources ----------------------------------------------------------------------------------------------------------


class Counted:
    """A record of a class of the program's, which can change."""

    def __init__(self, n: int) -> None:
        self.n = n


def one_more(record: Any) -> Any:
    record["n"] += 1
    return record


def one_more_of_object(record: Counted) -> int:
    record.n += 1
    return record.n


def added(one: Any, other: Any) -> Any:
    one["n"] += other["n"]
    return one


def with_own_number(record: Any) -> Any:
    record["tags"].append(record["n"])
    return list(record["tags"])


@pytest.mark.parametrize("mode", MODES)
def test_records_of_a_collection_are_separate(mode: str) -> None:
    """K1, K2: an object that is in a collection several times is several records, which share nothing."""
    env = local_environment(execution__runtime_mode=mode)
    shared, tags = {"k": "a", "n": 1}, [0]
    counted, pair = Counted(1), ("x", [1])
    assert collect(env.from_collection([shared] * 3).map(one_more)) == [{"k": "a", "n": 2}] * 3
    assert collect(env.from_collection([counted] * 3).map(one_more_of_object)) == [2] * 3
    assert collect(env.from_elements(pair, pair).map(lambda record: (record[1].append(2), record)[1])) == [
        ("x", [1, 2]),
        ("x", [1, 2]),
    ]
    records = [{"n": 1, "tags": tags}, {"n": 2, "tags": tags}]
    assert collect(env.from_collection(records).map(with_own_number)) == [[0, 1], [0, 2]]
    assert (shared["n"], counted.n, pair, tags) == (1, 1, ("x", [1]), [0])


@pytest.mark.parametrize("mode", RUNNING_MODES)
def test_a_reduce_may_change_a_record_of_a_collection(mode: str) -> None:
    """A2, K2: the first record of a key is the reduce's own."""
    env = local_environment(execution__runtime_mode=mode)
    keyed = env.from_collection([{"k": "a", "n": 1}] * 4).key_by(lambda record: record["k"])
    assert collect(keyed.reduce(added).map(lambda record: record["n"])) == [1, 2, 3, 4]


@pytest.mark.parametrize("mode", MODES)
def test_a_collection_is_taken_when_it_is_given(mode: str) -> None:
    """K2: the program may change its objects after it has made a stream of them, and before it runs."""
    env = local_environment(execution__runtime_mode=mode)
    record = {"n": 1}
    stream = env.from_collection([record])
    record["n"] = 100
    assert collect(stream) == [{"n": 1}]


class Buffer:
    """A generator function that uses one object again, in a shape."""

    def __init__(self, shape: Callable[[Any], Any] = lambda buffer: buffer) -> None:
        self.buffer = {"n": -1}
        self.shape = shape

    def __call__(self, index: int) -> Any:
        self.buffer["n"] = index
        return self.shape(self.buffer)


def buffer_in_global(index: int) -> list[int]:
    GLOBAL[:] = [index]
    return GLOBAL


GENERATED: dict[str, tuple[Callable[[], Callable[[int], Any]], list[Any]]] = {
    "object": (Buffer, [{"n": n} for n in range(4)]),
    "in a tuple": (lambda: Buffer(lambda buffer: (1, buffer)), [(1, {"n": n}) for n in range(4)]),
    "global": (lambda: buffer_in_global, [[n] for n in range(4)]),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", GENERATED)
def test_a_generator_function_may_use_an_object_again(kind: str, mode: str) -> None:
    """K1: a record of a generator is what it was when the function returned it."""
    make, results = GENERATED[kind]
    env = local_environment(execution__runtime_mode=mode)
    source: DataGeneratorSource[Any] = DataGeneratorSource(make(), 4)
    assert collect(env.from_source(source, WatermarkStrategy.no_watermarks(), "generator")) == results


# --- subtasks that get the same records -------------------------------------------------------------------------------


class ChangesRules(BroadcastProcessFunction):
    """Changes each rule that it receives."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        return None

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        yield one_more(value)


BROADCASTS: dict[str, Callable[[Any, Any], Any]] = {
    "records": lambda env, records: env.from_collection(records).broadcast().map(one_more),
    "rules": lambda env, records: (
        env.from_collection([])
        .connect(env.from_collection(records).broadcast(MapStateDescriptor("rules")))
        .process(ChangesRules())
    ),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", BROADCASTS)
def test_subtasks_share_no_broadcast_record(kind: str, mode: str) -> None:
    """K1: each subtask may change the records that all subtasks get."""
    env = local_environment(execution__runtime_mode=mode).set_parallelism(3)
    results = collect(BROADCASTS[kind](env, [{"n": 1}, {"n": 2}]))
    assert sorted(record["n"] for record in results) == [2, 2, 2, 3, 3, 3]


# --- operators that get the same records ------------------------------------------------------------------------------


class Both(CoMapFunction):
    """Changes the records of both inputs."""

    def map1(self, value: Any) -> Any:
        return one_more(value)

    def map2(self, value: Any) -> Any:
        return one_more(value)


class Keeps(KeyedProcessFunction):
    """Emits the number that each record had, when all records have come."""

    def open(self, runtime_context: Any) -> None:
        self.records = runtime_context.get_list_state(ListStateDescriptor("records"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.records.add(value)
        ctx.timer_service().register_event_time_timer(2**63 - 1)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield from self.records.get()


class ToSide(ProcessFunction):
    """Sends each record to a side output."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield SIDE, value


class RowOfNumber(MapFunction):
    """A row of the record's number; of columns where the stream has types."""

    def map(self, value: Any) -> Any:
        return Row(n=value["n"])


def one_more_in_row(row: Any) -> Any:
    row["n"] += 1
    return row.as_dict()


def of_number(record: Any) -> Any:
    return record["n"]


def rows_of_columns(stream: Any) -> Any:
    """The rows of a batch of columns."""
    return stream.map(RowOfNumber(), Types.ROW_NAMED(["n"], [Types.LONG()])).map(lambda row: row)


def changed_twice(stream: Any, how: Callable[[Any], Any] = lambda stream: stream) -> Any:
    """Two functions that change the records, one of them after a step in between."""
    return stream.map(one_more).union(how(stream).map(one_more))


SHARED: dict[str, Callable[[Any], Any]] = {
    "two functions": changed_twice,
    "one of them in another task": lambda stream: changed_twice(stream, lambda stream: stream.rebalance()),
    "by key": lambda stream: changed_twice(stream, lambda stream: stream.key_by(of_number)),
    "a union with itself": lambda stream: stream.union(stream).map(one_more),
    "connected with itself": lambda stream: stream.connect(stream).map(Both()),
    "a side output": lambda stream: changed_twice(stream.process(ToSide()).get_side_output(SIDE)),
    "rows": lambda stream: (
        (rows := rows_of_columns(stream)).map(one_more_in_row).union(rows.rebalance().map(one_more_in_row))
    ),
}


@pytest.mark.parametrize("chained", [True, False])
@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", SHARED)
def test_operators_share_no_record(kind: str, mode: str, parallelism: int, chained: bool) -> None:
    """K1, K2: each operator may change the records that several operators get."""
    env = local_environment(execution__runtime_mode=mode).set_parallelism(parallelism)
    if not chained:
        env.disable_operator_chaining()
    results = collect(SHARED[kind](env.from_collection([{"n": n} for n in range(1, 4)])))
    assert sorted(map(of_number, results)) == [2, 2, 3, 3, 4, 4]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("changes_first", [True, False])
def test_what_one_operator_keeps_another_cannot_change(changes_first: bool, backend: str) -> None:
    """K1: state holds the record that came, though the operator beside changes it."""
    env = local_environment(state__backend__type=backend)
    stream = env.from_collection([{"n": 1}, {"n": 2}])
    kept = None if changes_first else stream.key_by(of_number).process(Keeps())
    changed = stream.map(one_more)
    kept = stream.key_by(of_number).process(Keeps()) if kept is None else kept
    assert sorted(map(of_number, collect(kept.union(changed)))) == [1, 2, 2, 3]
