"""Transformations of the DataStream API beyond map and reduce, as whole programs on the local driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.datastream.environments import collect, local_environment

from penstock.base.errors import UserFunctionError
from penstock.base.output_tag import OutputTag
from penstock.base.restart_strategy import RestartStrategies
from penstock.base.typeinfo import Types
from penstock.base.types import Row
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.collect import DiscardingSink
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import CloseableIterator, KeyedStream
from penstock.datastream.functions import (
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    MapFunction,
    Partitioner,
    ProcessWindowFunction,
)
from penstock.datastream.state import MapStateDescriptor
from penstock.runtime.operators.keyed.aggregates import AccumulateType

PAIRS = [("a", 5), ("b", 1), ("a", 2), ("b", 7)]


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("sum", [("a", 5), ("a", 7), ("b", 1), ("b", 8)]),
        ("min", [("a", 2), ("a", 5), ("b", 1), ("b", 1)]),
        ("max", [("a", 5), ("a", 5), ("b", 1), ("b", 7)]),
        ("min_by", [("a", 2), ("a", 5), ("b", 1), ("b", 1)]),
        ("max_by", [("a", 5), ("a", 5), ("b", 1), ("b", 7)]),
    ],
)
def test_running_aggregates_of_keyed_streams(method: str, expected: list[Any]) -> None:
    """A2: each record gives its key's aggregate so far."""
    pairs = local_environment(2).from_collection(PAIRS).key_by(lambda v: v[0])
    assert sorted(collect(getattr(pairs, method)(1))) == expected


def test_aggregates_by_name() -> None:
    """A2: fields of rows by name, and positions that make no sense."""
    rows = local_environment().from_collection(PAIRS, Types.ROW_NAMED(["key", "n"], [Types.STRING(), Types.INT()]))
    keyed = rows.key_by(lambda row: row.key)
    assert [row.n for row in collect(keyed.sum("n"))] == [5, 1, 7, 8]
    with pytest.raises(ValueError, match="-1"):
        keyed.sum(-1)
    assert KeyedStream.AccumulateType is AccumulateType


def test_project() -> None:
    """A2: fields by position, of tuples and rows; the type follows."""
    env = local_environment()
    assert collect(env.from_collection([(1, "a", 0.5)]).project(2, 0)) == [(0.5, 1)]
    typed = env.from_collection(
        [(1, "a", 0.5)], Types.ROW_NAMED(["n", "s", "x"], [Types.INT(), Types.STRING(), Types.FLOAT()])
    )
    projected = typed.project(2, 0)
    assert projected.get_type() == Types.ROW_NAMED(["x", "n"], [Types.FLOAT(), Types.INT()])
    assert collect(projected) == [Row(x=0.5, n=1)]
    with pytest.raises(ValueError, match="3 fields, so there is none at position 3"):
        typed.project(3)
    with pytest.raises(ValueError, match="positions of fields"):
        typed.project()


# --- partitioning ---------------------------------------------------------------------------------------------------


class Where(MapFunction):
    """Adds the index of the subtask."""

    def open(self, runtime_context: Any) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def map(self, value: Any) -> Any:
        return value, self.subtask


def numbers(env: Any, count: int) -> Any:
    source: DataGeneratorSource[int] = DataGeneratorSource(lambda i: i, count)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")


@pytest.mark.parametrize("mode", ["STREAMING", "BATCH", "MICRO_BATCH"])
@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2), (3, 3), (2, 3)])
def test_rescale_keeps_to_its_group(before: int, after: int, mode: str) -> None:
    """B3: each sending subtask reaches its own neighbours alone, and all records arrive, in every execution mode."""
    sent = numbers(local_environment(execution__runtime_mode=mode), 400).map(Where()).set_parallelism(before)
    received = collect(sent.rescale().map(Where()).set_parallelism(after))
    assert sorted(value for (value, _), _ in received) == list(range(400))
    routes = {(sender, receiver) for (_, sender), receiver in received}
    assert routes <= {(p, c) for p in range(before) for c in range(after) if p * after // before <= c or after < before}
    assert all(abs(p / before - c / after) < 1 / min(before, after) for p, c in routes)


@pytest.mark.parametrize("way", ["rescale", "shuffle"])
@pytest.mark.parametrize("unaligned", [False, True])
def test_nothing_is_lost_on_a_rescaled_or_shuffled_edge_when_the_job_fails(
    way: str, unaligned: bool, tmp_path: Path
) -> None:
    """B3, G8: the new edges carry barriers, ends and records through a recovery."""
    marker = tmp_path / "marker"

    def fails_once(value: Any) -> Any:
        if value == 1_500 and not marker.exists():
            marker.write_text("failed")
            raise RuntimeError("once")
        return value

    env = local_environment(2, penstock__source__batch_records=16)
    env.enable_checkpointing(2)
    env.get_checkpoint_config().enable_unaligned_checkpoints(unaligned)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(5, 1))
    stream = getattr(numbers(env, 2_000).map(lambda v: v), way)()
    assert sorted(collect(stream.map(fails_once).set_parallelism(3))) == list(range(2_000))
    assert marker.exists()


def test_shuffle_reaches_every_subtask() -> None:
    """B3: records go everywhere."""
    received = collect(numbers(local_environment(), 300).shuffle().map(Where()).set_parallelism(3))
    assert sorted(value for value, _ in received) == list(range(300))
    assert {subtask for _, subtask in received} == {0, 1, 2}


class ByParity(Partitioner):
    def open(self, runtime_context: Any) -> None:
        self.name = runtime_context.get_task_name()

    def partition(self, key: int, num_partitions: int) -> int:
        assert self.name
        assert num_partitions == 2
        return key % 2


@pytest.mark.parametrize("partitioner", [ByParity(), lambda key, n: key % n])
def test_custom_partitioning(partitioner: Any) -> None:
    """B3: the function says where a key goes; it is opened where the records are sent."""
    stream = numbers(local_environment(2), 100).partition_custom(partitioner, lambda v: v)
    assert all(value % 2 == subtask for value, subtask in collect(stream.map(Where())))


def test_custom_partitioning_to_nowhere() -> None:
    """B3: a subtask that is not there fails the job, with the key and what is allowed."""
    stream = numbers(local_environment(2), 10).partition_custom(lambda key, n: 7, lambda v: v)
    with pytest.raises(UserFunctionError, match=r"returned 7 for key \d: not in 0 to 1"):
        collect(stream.map(lambda v: v))


@pytest.mark.parametrize("call", ["rebalance", "rescale", "shuffle", "forward", "global_", "broadcast"])
def test_a_keyed_stream_is_partitioned_by_its_keys(call: str) -> None:
    """B3: another partitioning would break the promise that a key's records meet."""
    keyed = local_environment().from_collection(PAIRS).key_by(lambda v: v[0])
    with pytest.raises(TypeError, match="a keyed stream is partitioned by its keys"):
        getattr(keyed, call)()
    assert keyed.get_name() == "Collection Source"


@pytest.mark.parametrize(
    ("setting", "value"),
    [("name", "n"), ("uid", "u"), ("set_parallelism", 2), ("set_max_parallelism", 2), ("set_description", "d")],
)
def test_a_keyed_stream_is_no_operator_to_be_set_up(setting: str, value: Any) -> None:
    """A2: an operator's settings stand before key_by, or after the next operator."""
    keyed = local_environment().from_collection(PAIRS).key_by(lambda v: v[0])
    with pytest.raises(TypeError, match="before key_by"):
        getattr(keyed, setting)(value)
    with pytest.raises(TypeError, match="before key_by"):
        keyed.cache()
    after = getattr(keyed.map(lambda v: v), setting)(value)
    assert sorted(collect(after)) == sorted(PAIRS)


# --- types ----------------------------------------------------------------------------------------------------------


def test_types_are_what_the_program_says() -> None:
    """A2: get_type tells the declared type, which passes through what does not change records."""
    env = local_environment()
    anything = Types.PICKLED_BYTE_ARRAY()
    typed = env.from_collection([1], Types.INT())
    assert typed.filter(bool).key_by(lambda v: v).reduce(max).union(typed).rebalance().get_type() == Types.INT()
    assert typed.key_by(lambda v: v).sum().get_type() == Types.INT()
    assert typed.map(str).get_type() == anything
    assert typed.map(str, Types.STRING()).get_type() == Types.STRING()
    assert typed.get_side_output(OutputTag("t", Types.LONG())).get_type() == Types.LONG()
    assert typed.get_side_output(OutputTag("t")).get_type() == anything
    assert typed.get_execution_config().get_parallelism() == 1


def test_declared_rows_are_rows() -> None:
    """A2: where a program says ROW, tuples, lists and dicts that a function emits have become rows."""
    named = Types.ROW_NAMED(["word", "n"], [Types.STRING(), Types.INT()])
    env = local_environment()
    words = env.from_collection([("a", 1), {"word": "b", "n": 2}, Row("c", 3)], named)
    assert collect(words.map(lambda row: (row[0].upper(), row[1]), named).map(lambda row: row.word)) == ["A", "B", "C"]
    plain = Types.ROW([Types.STRING(), Types.INT()])
    assert collect(env.from_collection([1]).map(lambda n: ("x", n), plain)) == [Row("x", 1)]
    assert collect(env.from_collection([1]).flat_map(lambda n: [["x", n]], named)) == [Row(word="x", n=1)]


def test_functions_of_two_streams_and_of_windows_declare_types_too() -> None:
    """A2: `output_type` of connected, broadcast and windowed streams is told by get_type, and makes rows."""
    named = Types.ROW_NAMED(["word", "n"], [Types.STRING(), Types.INT()])
    env = local_environment()
    pairs = env.from_collection([("a", 1)], Types.TUPLE([Types.STRING(), Types.INT()]))
    keyed, other = pairs.key_by(lambda v: v[0]), env.from_collection(["b"])
    rules = other.broadcast(MapStateDescriptor("rules", Types.STRING(), Types.INT()))
    windows = keyed.count_window(1)
    all_windows = pairs.count_window_all(1)
    assert windows.get_input_type() == all_windows.get_input_type() == pairs.get_type()
    assert windows.get_execution_environment() is all_windows.get_execution_environment() is env
    streams = [
        pairs.connect(other).map(Both(), output_type=named),
        pairs.connect(other).flat_map(Both(), output_type=named),
        pairs.connect(other).process(Both(), output_type=named),
        pairs.connect(rules).process(BesideRules(), output_type=named),
        windows.reduce(max, lambda key, window, values: values, output_type=named),
        windows.apply(lambda key, window, values: values, output_type=named),
        windows.process(FirstOfWindow(), output_type=named),
        all_windows.apply(lambda window, values: values, output_type=named),
        keyed.count_window(1).reduce(max, output_type=named),
    ]
    for stream in streams:
        assert stream.get_type() == named
        assert Row(word="a", n=1) in stream.execute_and_collect(limit=2)
    assert windows.reduce(max).get_type() == pairs.get_type()
    assert windows.apply(lambda key, window, values: values).get_type() == Types.PICKLED_BYTE_ARRAY()
    assert pairs.connect(other).map(Both()).get_type() == Types.PICKLED_BYTE_ARRAY()


class Both(CoMapFunction, CoFlatMapFunction, CoProcessFunction):
    def map1(self, value: Any) -> Any:
        return value

    def map2(self, value: Any) -> Any:
        return None

    def flat_map1(self, value: Any) -> Any:
        yield value

    def flat_map2(self, value: Any) -> Any:
        return []

    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Any:
        yield value

    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Any:
        return None


class BesideRules(BroadcastProcessFunction):
    def process_element(self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Any:
        yield value

    def process_broadcast_element(self, value: Any, ctx: BroadcastProcessFunction.Context) -> Any:
        return None


class FirstOfWindow(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: ProcessWindowFunction.Context, elements: Any) -> Any:
        yield next(iter(elements))


# --- printing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "type_info", "lines"),
    [
        ([("a", 1), None, True], None, "('a', 1)\nNone\nTrue\n"),
        ([Row("a", None)], None, "+I[a, null]\n"),
        ([("a", 1)], Types.ROW([Types.STRING(), Types.INT()]), "+I[a, 1]\n"),
        ([("a", None)], Types.TUPLE([Types.STRING(), Types.INT()]), "(a,null)\n"),
        ([True], Types.BOOLEAN(), "true\n"),
        ([[("a", 1.5)]], Types.LIST(Types.TUPLE([Types.STRING(), Types.FLOAT()])), "[(a,1.5)]\n"),
        ([{"a": [1, 2]}], Types.MAP(Types.STRING(), Types.BASIC_ARRAY(Types.INT())), "{a=[1, 2]}\n"),
        (
            [(1, ("x", False))],
            Types.ROW([Types.INT(), Types.ROW([Types.STRING(), Types.BOOLEAN()])]),
            "+I[1, +I[x, false]]\n",
        ),
    ],
)
def test_print_shows_records_as_flink_does(
    values: list[Any], type_info: Any, lines: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A2: a declared type says how a record looks; without one, `str` does."""
    env = local_environment()
    env.from_collection(values, type_info).print()
    env.execute()
    assert capsys.readouterr().out == lines


# --- sinks and results ----------------------------------------------------------------------------------------------


def test_add_sink_takes_sinks_only() -> None:
    """A2: the older name of sink_to; anything else says what to do."""
    stream = local_environment().from_collection([1])
    stream.add_sink(DiscardingSink())
    with pytest.raises(TypeError, match="is not a Sink"):
        stream.add_sink(print)  # type: ignore[arg-type]


def test_results_one_by_one() -> None:
    """A2: next() and next(results) are the same."""
    results = local_environment().from_collection([1, 2]).execute_and_collect()
    assert isinstance(results, CloseableIterator)
    with results:
        assert [results.next(), next(results)] == [1, 2]
        with pytest.raises(StopIteration):
            results.next()
