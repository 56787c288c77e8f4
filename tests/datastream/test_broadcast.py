"""Broadcast state and operator state in whole jobs: local driver, failures, savepoints at another parallelism."""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.failing import FailsOnce

from penstock.codecs.serialization import Encoder
from penstock.common import Configuration, RestartStrategies, WatermarkStrategy
from penstock.connectors.file.buckets import BucketAssigner
from penstock.connectors.file.sink import FileSink
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import (
    BroadcastConnectedStream,
    BroadcastProcessFunction,
    BroadcastStream,
    CheckpointedFunction,
    DataStream,
    FlatMapFunction,
    KeyedBroadcastProcessFunction,
    MapFunction,
    OutputTag,
    StreamExecutionEnvironment,
    data_stream,
)
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor

RULES = MapStateDescriptor("rules")
WAITING = ListStateDescriptor("waiting")
KEYS = 7


def environment(parallelism: int, **options: Any) -> StreamExecutionEnvironment:
    settings = {"execution.target": "local", **options}
    configuration = Configuration.from_dict({key: str(value) for key, value in settings.items()})
    return StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(parallelism)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Any:
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
    assert set(threading.enumerate()) <= before


# --- one job --------------------------------------------------------------------------------------------------------


class Factors(KeyedBroadcastProcessFunction):
    """(key, number, number * the key's factor); numbers wait for the factor of their key, and know how many came."""

    def open(self, runtime_context: Any) -> None:
        self.waiting = runtime_context.get_list_state(WAITING)
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: int, ctx: Any) -> Iterable[Any]:
        count = self.count.value() or 0
        self.count.update(count + 1)
        factor = ctx.get_broadcast_state(RULES).get(value % KEYS)
        if factor is None:
            self.waiting.add((value, count))
        else:
            yield value, count, value * factor

    def process_broadcast_element(self, value: tuple[int, int], ctx: Any) -> Iterable[Any]:
        key, factor = value
        ctx.get_broadcast_state(RULES).put(key, factor)
        released: list[Any] = []

        def release(waiting_key: int, state: Any) -> None:
            if waiting_key == key:
                released.extend((number, count, number * factor) for number, count in state.get())
                state.clear()

        ctx.apply_to_key_state(WAITING, release)
        return released


def factor_of(key: int) -> int:
    return 100 + key


def build_factors(env: StreamExecutionEnvironment, count: int, rate: float | None = None) -> DataStream:
    source: DataGeneratorSource[int] = DataGeneratorSource(lambda i: i, count, rate)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers").set_parallelism(1)
    rules = env.from_collection([(key, factor_of(key)) for key in range(KEYS)]).uid("rules")
    factors = numbers.key_by(lambda n: n % KEYS).connect(rules.broadcast(RULES)).process(Factors())
    return factors.name("factors").uid("factors")


def expected_factors(count: int) -> list[Any]:
    return [(n, n // KEYS, n * factor_of(n % KEYS)) for n in range(count)]


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_keyed_stream_beside_a_broadcast_one(parallelism: int) -> None:
    """A1, D2: every key finds its rule, whichever of the two came first."""
    stream = build_factors(environment(parallelism), 500)
    assert sorted(stream.execute_and_collect()) == expected_factors(500)


UNKNOWN = OutputTag("unknown")


class Known(BroadcastProcessFunction):
    """Tells how many rules each subtask has got, and sends numbers to a side output."""

    def open(self, runtime_context: Any) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        yield UNKNOWN, value

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        rules = ctx.get_broadcast_state(RULES)
        rules.put(value, value)
        yield self.subtask, len(rules)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_the_broadcast_side_reaches_every_subtask(parallelism: int) -> None:
    """A1, B3: every subtask gets all broadcast records, and each of the others goes where it went before."""
    env = environment(parallelism)
    stream = env.from_collection(range(20)).connect(env.from_collection("abcd").broadcast(RULES)).process(Known())
    both = stream.union(stream.get_side_output(UNKNOWN).map(lambda n: (-1, n)))
    counts = [(subtask, n) for subtask in range(parallelism) for n in (1, 2, 3, 4)]
    assert sorted(both.execute_and_collect()) == [*((-1, n) for n in range(20)), *counts]


@pytest.mark.parametrize("unaligned", ["false", "true"])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_through_a_failure(parallelism: int, unaligned: str, store_directory: Path) -> None:
    """G8, D2: after a failure broadcast and keyed state are those of the checkpoint."""
    options = {"execution.checkpointing.unaligned.enabled": unaligned, "penstock.source.batch-records": 16}
    env = environment(parallelism, **options)
    env.enable_checkpointing(2)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 1))
    stream = build_factors(env, 1_000, 5_000).map(FailsOnce(store_directory / "marker", 100))
    assert sorted(stream.execute_and_collect()) == expected_factors(1_000)
    assert (store_directory / "marker").exists()


# --- from parallelism to parallelism ----------------------------------------------------------------------------------


def read_committed_lines(directory: Path) -> list[Any]:
    """What was committed so far."""
    parts = [path for path in directory.glob("*") if not path.name.startswith(".")]
    return [ast.literal_eval(line) for path in parts for line in path.read_text().splitlines()]


def in_turns(build: Any, parallelisms: Iterable[int], directory: Path, taken: int) -> list[Any]:
    """All results of a job that stops with a savepoint after so many results and goes on at the next parallelism."""
    parallelisms, out = list(parallelisms), directory / "out"
    options: dict[str, Any] = {
        "execution.checkpointing.savepoint-dir": directory / "savepoints",
        "penstock.source.batch-records": 16,  # so that the last records reach every subtask
    }
    sink = FileSink.for_row_format(str(out), Encoder.simple_string_encoder()).with_bucket_assigner(
        BucketAssigner.base_path_bucket_assigner()
    )
    for turn, parallelism in enumerate(parallelisms, start=1):
        env = environment(parallelism, **options)
        env.enable_checkpointing(20)
        # Slow until the last turn, so that each stops amid its records.
        build(env, 250 if turn < len(parallelisms) else None).sink_to(sink.build()).uid("out")
        job = env.execute_async()
        if turn < len(parallelisms):
            while len(read_committed_lines(out)) < turn * taken:
                threading.Event().wait(0.01)
            options["execution.state-recovery.path"] = job.stop_with_savepoint(False).result(30)
        job.get_job_execution_result().result(60)
    return read_committed_lines(out)


@pytest.mark.parametrize("parallelisms", [(1, 3, 2), (3, 1, 3), (2, 2)])
def test_broadcast_state_at_another_parallelism(parallelisms: tuple[int, ...], store_directory: Path) -> None:
    """D2, D4, H2: the broadcast stream ended in the first turn, and every subtask of all others knows its rules."""
    count = 3_000
    results = in_turns(lambda env, rate: build_factors(env, count, rate), parallelisms, store_directory, 150)
    assert sorted(results) == expected_factors(count)


class Batches(FlatMapFunction, CheckpointedFunction):
    """Numbers by the ten; from `last` on at once. Every number is in state, or was emitted."""

    def __init__(self, last: int) -> None:
        self.last = last

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.state = store.get_list_state(ListStateDescriptor("buffered"))
        self.total = store.get_union_list_state(ListStateDescriptor("emitted"))
        self.buffer = list(self.state.get())
        self.emitted, self.emitted_before = 0, sum(self.total.get())

    def open(self, runtime_context: Any) -> None:
        self.first = runtime_context.get_index_of_this_subtask() == 0

    def snapshot_state(self, context: Any) -> None:
        self.state.update(self.buffer)
        # What all had emitted before is kept by one of them.
        self.total.update([self.emitted + (self.emitted_before if self.first else 0)])

    def flat_map(self, value: int) -> list[Any]:
        self.buffer.append(value)
        if len(self.buffer) < 10 and value < self.last:
            return []
        self.emitted += len(self.buffer)
        batch, self.buffer = self.buffer, []
        return [(number, self.emitted_before) for number in batch]


@pytest.mark.parametrize("parallelisms", [(1, 3, 2), (3, 1, 2), (2, 2)])
def test_list_state_at_another_parallelism(parallelisms: tuple[int, ...], store_directory: Path) -> None:
    """D2, D4: of a list each item is restored once; of a union list all are, in every subtask."""
    count = 3_000

    def build(env: StreamExecutionEnvironment, rate: float | None) -> DataStream:
        source: DataGeneratorSource[int] = DataGeneratorSource(lambda i: i, count, rate)
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
        return numbers.set_parallelism(1).rebalance().flat_map(Batches(count - 100)).uid("batches")

    results = in_turns(build, parallelisms, store_directory, 150)
    assert sorted(number for number, _ in results) == list(range(count))
    # In each turn all subtasks knew how many had been emitted before it.
    turns: dict[int, int] = {}
    for _, before in results:
        turns[before] = turns.get(before, 0) + 1
    assert len(turns) == len(parallelisms)
    total = 0
    for before in sorted(turns):
        assert before == total
        total += turns[before]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_list_state_through_a_failure(parallelism: int, store_directory: Path) -> None:
    """G8, D2: operator state of a user's function goes back to the checkpoint, so nothing is lost or twice."""
    env = environment(parallelism, **{"penstock.source.batch-records": 16})
    env.enable_checkpointing(5)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 1))
    source: DataGeneratorSource[int] = DataGeneratorSource(lambda i: i, 1_000, 4_000)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").set_parallelism(1).rebalance()
    stream = numbers.map(FailsOnce(store_directory / "marker", 100)).flat_map(Batches(900))
    assert sorted(number for number, _ in stream.execute_and_collect()) == list(range(1_000))
    assert (store_directory / "marker").exists()


def test_a_function_with_operator_state_on_a_keyed_stream() -> None:
    """D1, D2: it runs under its record's key, so both kinds of state serve."""

    class Count(MapFunction, CheckpointedFunction):
        def initialize_state(self, context: Any) -> None:
            self.count = context.get_keyed_state_store().get_state(ValueStateDescriptor("count"))

        def snapshot_state(self, context: Any) -> None:
            pass

        def map(self, value: str) -> Any:
            self.count.update((self.count.value() or 0) + 1)
            return value, self.count.value()

    stream = environment(2).from_collection("abab").key_by(lambda v: v).map(Count())
    assert sorted(stream.execute_and_collect()) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]


# --- what is refused --------------------------------------------------------------------------------------------------


def test_the_function_must_fit_the_stream() -> None:
    """A1: keyed function and keyed stream go together."""
    env = environment(1)
    stream, rules = env.from_collection([1]), env.from_collection([1]).broadcast(RULES)
    connected = stream.connect(rules)
    assert isinstance(rules, BroadcastStream)
    assert isinstance(connected, BroadcastConnectedStream)
    with pytest.raises(TypeError, match=r"not keyed, so process\(\) takes a BroadcastProcessFunction, not a Factors"):
        connected.process(Factors())
    with pytest.raises(TypeError, match=r"is keyed, so process\(\) takes a KeyedBroadcastProcessFunction, not a Known"):
        stream.key_by(lambda n: n).connect(rules).process(Known())
    with pytest.raises(TypeError, match="not a function"):
        connected.process(lambda value: value)  # type: ignore[arg-type]


def test_descriptors_must_be_of_maps_with_names_of_their_own() -> None:
    """D2: what broadcast() cannot take it says."""
    stream = environment(1).from_collection([1])
    with pytest.raises(TypeError, match="MapStateDescriptor, not by ListStateDescriptor"):
        stream.broadcast(ListStateDescriptor("list"))  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="'rules'"):
        stream.broadcast(RULES, MapStateDescriptor("rules"))
    with pytest.raises(ValueError, match="needs a MapStateDescriptor"):
        BroadcastStream(stream, [])
    assert type(stream.broadcast()) is DataStream


def test_names_of_pyflinks_module() -> None:
    """I1: PyFlink's data_stream module has these names too."""
    assert data_stream.BroadcastStream is BroadcastStream
