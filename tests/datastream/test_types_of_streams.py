"""What a stream becomes is known to type checkers, and so to editors: mypy reads the types here that the tests see."""

from __future__ import annotations

from typing import assert_type

from penstock.base.configuration import Configuration
from penstock.base.time import Time
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.collection import CollectionSource
from penstock.datastream import (
    AllWindowedStream,
    BroadcastConnectedStream,
    BroadcastStream,
    CachedDataStream,
    CoGroupedStreams,
    ConnectedStreams,
    DataStream,
    DeltaIteration,
    IntervalJoin,
    IntervalJoined,
    IterativeStream,
    JoinedStreams,
    KeyedStream,
    OutputTag,
    StreamExecutionEnvironment,
    WindowedStream,
)
from penstock.datastream.functions import BroadcastProcessFunction, CoMapFunction
from penstock.runtime.windowing.assigners import TumblingEventTimeWindows
from penstock.state.states import MapStateDescriptor

WINDOWS = TumblingEventTimeWindows.of(Time.seconds(1))


def environment() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment(Configuration())


def kind(value: object) -> str:
    return type(value).__name__


class Both(CoMapFunction):
    def map1(self, value: int) -> int:
        return value

    def map2(self, value: int) -> int:
        return value


class Beside(BroadcastProcessFunction):
    def process_element(self, value: int, ctx: BroadcastProcessFunction.ReadOnlyContext) -> None:
        pass

    def process_broadcast_element(self, value: int, ctx: BroadcastProcessFunction.Context) -> None:
        pass


def test_an_environment_gives_streams_that_know_it() -> None:
    env = environment()
    assert kind(assert_type(env.set_parallelism(1).set_buffer_timeout(10), StreamExecutionEnvironment)) == kind(env)
    source = CollectionSource([1])
    assert (
        kind(assert_type(env.from_source(source, WatermarkStrategy.no_watermarks(), "s"), DataStream)) == "DataStream"
    )
    stream = assert_type(env.from_collection([1]), DataStream)
    assert assert_type(stream.get_execution_environment(), StreamExecutionEnvironment) is env
    keyed = stream.key_by(str)
    assert assert_type(keyed.window(WINDOWS).get_execution_environment(), StreamExecutionEnvironment) is env
    assert assert_type(stream.window_all(WINDOWS).get_execution_environment(), StreamExecutionEnvironment) is env
    assert assert_type(stream.iterate(1).get_execution_environment(), StreamExecutionEnvironment) is env


def test_steps_give_streams() -> None:
    stream = environment().from_collection([1])
    assert kind(assert_type(stream.map(str).rebalance().global_().name("last"), DataStream)) == "DataStream"
    assert kind(assert_type(stream.broadcast(), DataStream)) == "DataStream"
    assert kind(assert_type(stream.process(str).get_side_output(OutputTag("other")), DataStream)) == "DataStream"
    assert kind(assert_type(stream.cache(), CachedDataStream)) == "CachedDataStream"
    keyed = assert_type(stream.key_by(str), KeyedStream)
    assert kind(assert_type(keyed.key_by(int), KeyedStream)) == kind(keyed) == "KeyedStream"
    for given in (keyed.map(str), keyed.reduce(max), keyed.sum(), keyed.min_by(), keyed.process(str)):
        assert kind(assert_type(given, DataStream)) == "DataStream"


def test_windows_give_streams() -> None:
    stream = environment().from_collection([1])
    windowed = assert_type(stream.key_by(str).window(WINDOWS), WindowedStream)
    assert assert_type(windowed.allowed_lateness(1), WindowedStream) is windowed
    assert kind(assert_type(windowed.reduce(max), DataStream)) == "DataStream"
    at_once = assert_type(stream.count_window_all(2), AllWindowedStream)
    assert kind(assert_type(at_once.reduce(max), DataStream)) == "DataStream"


def test_two_streams_give_one() -> None:
    env = environment()
    stream, other = env.from_collection([1]), env.from_collection([2])
    connected = assert_type(stream.connect(other), ConnectedStreams)
    assert assert_type(connected.stream2, DataStream) is other
    assert kind(assert_type(connected.key_by(str, str), ConnectedStreams)) == "ConnectedStreams"
    assert kind(assert_type(connected.map(Both()), DataStream)) == "DataStream"
    rules = assert_type(stream.broadcast(MapStateDescriptor("rules")), BroadcastStream)
    beside = assert_type(other.connect(rules), BroadcastConnectedStream)
    assert assert_type(beside.non_broadcast_stream, DataStream) is other
    assert kind(assert_type(beside.process(Beside()), DataStream)) == "DataStream"
    joined = assert_type(stream.join(other), JoinedStreams).where(str).equal_to(str)
    assert kind(assert_type(joined.window(WINDOWS).apply(max), DataStream)) == "DataStream"
    grouped = assert_type(stream.co_group(other), CoGroupedStreams).where(str).equal_to(str)
    assert kind(assert_type(grouped.apply(max), DataStream)) == "DataStream"
    pairs = assert_type(stream.key_by(str).interval_join(other.key_by(str)), IntervalJoin)
    near = assert_type(pairs.in_event_time().between(0, 1), IntervalJoined)
    assert assert_type(near.side_output_left_late_data(OutputTag("late")), IntervalJoined) is near
    assert kind(assert_type(near.process(max), DataStream)) == "DataStream"


def test_loops_give_streams() -> None:
    env = environment()
    stream, other = env.from_collection([1]), env.from_collection([2])
    bulk = assert_type(stream.iterate(1), IterativeStream)
    assert assert_type(bulk.name("loop"), IterativeStream) is bulk
    assert kind(assert_type(bulk.close_with(bulk.map(str)), DataStream)) == "DataStream"
    delta = assert_type(stream.iterate_delta(other, 1, str), DeltaIteration)
    assert assert_type(delta.get_initial_solution_set(), DataStream) is stream
    assert assert_type(delta.get_initial_workset(), DataStream) is other
    assert kind(assert_type(delta.solution_set, DataStream)) == "DataStream"
    assert kind(assert_type(delta.close_with(delta.workset, delta.workset), DataStream)) == "DataStream"
