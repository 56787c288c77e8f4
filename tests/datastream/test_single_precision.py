"""`Types.FLOAT()` is single precision, as PyFlink's serializer makes it: in what is emitted, and in state."""

from __future__ import annotations

import math
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
from tests.datastream.environments import collect, local_environment

from penstock.base.declared_values import rounding, single
from penstock.base.time import Time
from penstock.common import Row, Types
from penstock.datastream import AsyncDataStream
from penstock.datastream.functions import (
    AggregateFunction,
    BroadcastProcessFunction,
    CoMapFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    ProcessFunction,
    ProcessWindowFunction,
)
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)

FLOAT, STRING = Types.FLOAT(), Types.STRING()
RATES = MapStateDescriptor("rates", STRING, FLOAT)
TENTH = 0.10000000149011612  # the single nearest to 0.1
SUM = float(np.float32(TENTH) + np.float32(np.float32(0.2)))  # 0.1 + 0.2 in single precision


def test_a_float_is_rounded_as_by_a_serializer_of_four_bytes() -> None:
    """A2: the nearest single as a Python float; ints become floats, what is too large infinite, None stays."""
    assert single(0.1) == TENTH
    assert single(1) == 1.0
    assert type(single(1)) is float
    assert (single(1e300), single(-1e300)) == (math.inf, -math.inf)
    assert math.isnan(single(math.nan))
    assert single(None) is None
    assert single(np.float64(0.1)) == TENTH
    assert type(single(np.float32(0.1))) is float
    assert single("no number") == "no number"  # nothing checks declared types


Pair = namedtuple("Pair", ["word", "share"])

NESTED: list[tuple[Any, Any, Any]] = [
    (FLOAT, 0.1, TENTH),
    (Types.TUPLE([STRING, FLOAT]), ("a", 0.1), ("a", TENTH)),
    (Types.TUPLE([STRING, FLOAT]), Pair("a", 0.1), Pair("a", TENTH)),
    (Types.ROW([STRING, FLOAT]), Row("a", 0.1), Row("a", TENTH)),
    (Types.ROW_NAMED(["w", "x"], [STRING, FLOAT]), Row(w="a", x=0.1), Row(w="a", x=TENTH)),
    (Types.ROW([STRING, FLOAT]), Row("a", None), Row("a", None)),
    (Types.LIST(FLOAT), [0.1, 1], [TENTH, 1.0]),
    (Types.PRIMITIVE_ARRAY(FLOAT), [0.1], [TENTH]),
    (Types.BASIC_ARRAY(FLOAT), [0.1, None], [TENTH, None]),
    (Types.OBJECT_ARRAY(Types.TUPLE([FLOAT])), [(0.1,)], [(TENTH,)]),
    (Types.MAP(STRING, FLOAT), {"a": 0.1}, {"a": TENTH}),
    (Types.ROW([Types.LIST(Types.ROW([FLOAT]))]), Row([Row(0.1)]), Row([Row(TENTH)])),
]


@pytest.mark.parametrize(("declared", "value", "rounded"), NESTED, ids=str)
def test_floats_within_other_types_are_rounded_too(declared: Any, value: Any, rounded: Any) -> None:
    """A2: wherever the declared type says FLOAT; the value that the program holds is not changed."""
    before = repr(value)
    made = rounding(declared)
    assert made is not None
    assert made(value) == rounded
    assert repr(value) == before
    assert collect(local_environment().from_collection([value], declared)) == [rounded]
    assert collect(local_environment().from_collection([value]).map(lambda v: v, declared)) == [rounded]


@pytest.mark.parametrize("declared", [Types.DOUBLE(), Types.ROW([STRING, Types.DOUBLE()]), Types.LIST(STRING)])
def test_where_no_float_is_declared_nothing_is_added(declared: Any) -> None:
    """A2: no wrapper, no cost."""
    assert rounding(declared) is None


class Tenths(FlatMapFunction):
    def flat_map(self, value: Any) -> Any:
        return [0.1]


class Process(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield 0.1


class Keyed(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield 0.1


class Windows(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield 0.1


class Both(CoMapFunction):
    def map1(self, value: Any) -> Any:
        return 0.1

    map2 = map1


async def look_up(value: Any) -> list[Any]:
    return [0.1]


STEPS: dict[str, Any] = {
    "map": lambda s: s.map(lambda v: 0.1, FLOAT),
    "flat_map": lambda s: s.flat_map(Tenths(), FLOAT),
    "process": lambda s: s.process(Process(), FLOAT),
    "keyed process": lambda s: s.key_by(abs).process(Keyed(), FLOAT),
    "windows": lambda s: s.key_by(abs).count_window(1).process(Windows(), FLOAT),
    "connected": lambda s: s.connect(s.filter(lambda v: False)).map(Both(), FLOAT),
    "async": lambda s: AsyncDataStream.ordered_wait(s, look_up, Time.seconds(5), output_type=FLOAT),
    "reduce": lambda s: s.map(lambda v: 0.1, FLOAT).key_by(lambda v: 0).reduce(max),
}


@pytest.mark.parametrize("kind", STEPS)
def test_what_operators_of_every_kind_emit_is_rounded(kind: str) -> None:
    """A2: by `output_type`, or by the type that a reduce keeps."""
    assert set(collect(STEPS[kind](local_environment().from_collection([1])))) == {TENTH}


@pytest.mark.parametrize("add", [lambda s: s.reduce(lambda a, b: a + b), lambda s: s.sum(0)], ids=["reduce", "sum"])
def test_running_aggregates_of_floats_add_up_in_single_precision(add: Any) -> None:
    """A2, D1: what is kept between two records is a single as well."""
    floats = local_environment().from_collection([0.1, 0.2, 0.7], FLOAT)
    steps = list(np.cumsum(np.array([0.1, 0.2, 0.7], dtype=np.float32), dtype=np.float32))
    assert collect(add(floats.key_by(lambda v: 0))) == [float(step) for step in steps]


def test_a_windows_reduce_adds_up_in_single_precision() -> None:
    """A2, C1: each step, not only the end."""
    floats = local_environment().from_collection([0.1, 0.2, 0.7], FLOAT)
    steps = np.cumsum(np.array([0.1, 0.2, 0.7], dtype=np.float32), dtype=np.float32)
    summed = floats.key_by(lambda v: 0).count_window(3).reduce(lambda a, b: a + b)
    assert collect(summed) == [float(steps[-1])]


class Sums(AggregateFunction):
    def create_accumulator(self) -> Any:
        return 0.0

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator + value

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a + acc_b


class States(KeyedProcessFunction):
    """Puts 0.1 and 0.2 into states of every kind, and emits what it reads."""

    def __init__(self, ttl: bool) -> None:
        self.ttl = ttl

    def open(self, runtime_context: Any) -> None:
        descriptors = {
            "value": ValueStateDescriptor("value", FLOAT),
            "list": ListStateDescriptor("list", FLOAT),
            "map": MapStateDescriptor("map", STRING, FLOAT),
            "reducing": ReducingStateDescriptor("reducing", lambda a, b: a + b, FLOAT),
            "aggregating": AggregatingStateDescriptor("aggregating", Sums(), FLOAT),
        }
        if self.ttl:
            for descriptor in descriptors.values():
                descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.days(1)).build())
        self.value = runtime_context.get_state(descriptors["value"])
        self.list = runtime_context.get_list_state(descriptors["list"])
        self.map = runtime_context.get_map_state(descriptors["map"])
        self.reducing = runtime_context.get_reducing_state(descriptors["reducing"])
        self.aggregating = runtime_context.get_aggregating_state(descriptors["aggregating"])

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.value.update(0.1)
        self.list.add(0.1)
        self.list.add_all([0.1])
        self.map["a"] = 0.1
        self.map.put("b", 0.1)
        self.map.put_all({"c": 0.1})
        yield self.value.value(), list(self.list), dict(self.map.items()), self.map["a"], len(self.map), "a" in self.map
        self.list.update([0.1])
        for state in (self.reducing, self.aggregating):
            state.add(0.1)
            state.add(0.2)
        yield list(self.list.get()), self.reducing.get(), self.aggregating.get()
        for state in (self.value, self.list, self.map, self.reducing, self.aggregating):
            state.clear()
        yield self.value.value(), list(self.list), self.map.is_empty(), self.reducing.get(), self.aggregating.get()


@pytest.mark.parametrize("ttl", [False, True])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_state_of_a_declared_float_is_single(backend: str, ttl: bool) -> None:
    """D1, A2: every kind of state, with and without time-to-live, in every backend."""
    keyed = local_environment(state__backend__type=backend).from_collection([1]).key_by(abs)
    assert collect(keyed.process(States(ttl))) == [
        (TENTH, [TENTH, TENTH], {"a": TENTH, "b": TENTH, "c": TENTH}, TENTH, 3, True),
        ([TENTH], SUM, SUM),
        (None, [], True, None, None),
    ]


class Labels(KeyedProcessFunction):
    """Puts labels of 0.1 and 0.2 into a map and looks for them under the same numbers."""

    def open(self, runtime_context: Any) -> None:
        self.labels = runtime_context.get_map_state(MapStateDescriptor("labels", FLOAT, STRING))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.labels.put(0.1, "low")
        self.labels.put_all({0.2: "high"})
        yield dict(self.labels.items()), self.labels[0.1], self.labels.get(TENTH), self.labels.contains(0.2)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_keys_of_a_map_are_single_where_its_values_are_no_floats(backend: str) -> None:
    """D1, A2: what is asked for is rounded, too."""
    keyed = local_environment(state__backend__type=backend).from_collection([1]).key_by(abs)
    labels = {TENTH: "low", float(np.float32(0.2)): "high"}
    assert collect(keyed.process(Labels())) == [(labels, "low", "low", True)]


class Rules(BroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        return None

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        state = ctx.get_broadcast_state(RATES)
        state.put("tea", 0.1)
        yield state["tea"]


def test_broadcast_state_is_single_too() -> None:
    """D2: by its descriptor."""
    env = local_environment()
    stream = env.from_collection([1]).connect(env.from_collection([2]).broadcast(RATES)).process(Rules())
    assert collect(stream) == [TENTH]


class WindowStates(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        for store in (context.window_state(), context.global_state()):
            state = store.get_state(ValueStateDescriptor("share", FLOAT))
            state.update(0.1)
            yield state.value()

    def clear(self, context: Any) -> None:
        context.window_state().get_state(ValueStateDescriptor("share", FLOAT)).clear()


def test_states_of_windows_are_single_too() -> None:
    """C1, D1: of one window and of all."""
    assert collect(local_environment().from_collection([1]).key_by(abs).count_window(1).process(WindowStates())) == [
        TENTH,
        TENTH,
    ]


def test_rows_and_floats_are_both_made() -> None:
    """A2: tuples and dicts that a function emits become rows of singles."""
    declared = Types.ROW_NAMED(["word", "share"], [STRING, FLOAT])
    stream = local_environment().from_collection([("a", 0.1), {"word": "a", "share": 0.1}, Row("a", 0.1)])
    rows = collect(stream.map(lambda v: v, declared))
    assert rows == [Row(word="a", share=TENTH)] * 3
