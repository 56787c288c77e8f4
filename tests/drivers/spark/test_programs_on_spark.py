"""Programs of the DataStream API whose parts behave in their own way on Spark: slots, files, accumulators, caches."""

from __future__ import annotations

import importlib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from penstock.base.accumulators import IntCounter
from penstock.connectors.split_reader import NumberSequenceSource
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.datastream.functions import KeyedProcessFunction, MapFunction
from penstock.drivers.spark.handle import SparkHandle

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

MODES = [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH]


def environment(mode: RuntimeExecutionMode = RuntimeExecutionMode.STREAMING) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment().set_parallelism(2).set_runtime_mode(mode)


def collect(stream: Any) -> list[Any]:
    with stream.execute_and_collect() as results:
        return sorted(results)


class Where(MapFunction):
    def open(self, runtime_context: Any) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()
        self.greeting = runtime_context.get_job_parameter("greeting", "none")

    def map(self, value: Any) -> Any:
        return value, self.greeting, self.subtask


@pytest.mark.parametrize("mode", MODES)
def test_partitionings_and_slot_sharing_groups(mode: RuntimeExecutionMode) -> None:
    """B3, E3: edges go where they should between workers of different groups, and in batch execution too."""
    env = environment(mode)
    env.get_config().set_global_job_parameters({"greeting": "hello"})
    numbers = env.add_source(NumberSequenceSource(0, 99)).map(lambda v: v).slot_sharing_group("first")
    by_parity = numbers.partition_custom(lambda key, n: key % n, lambda v: v).map(Where()).slot_sharing_group("second")
    received = collect(by_parity.rescale().map(lambda v: v).set_parallelism(4))
    assert received == [(n, "hello", n % 2) for n in range(100)]


@pytest.mark.parametrize("mode", MODES)
def test_python_files_go_along(mode: RuntimeExecutionMode, tmp_path: Path) -> None:
    """E1: a module that only the workers import is shipped to them."""
    name = f"shipped_module_{mode.name.lower()}"
    (tmp_path / f"{name}.py").write_text("ANSWER = 42\n")
    env = environment(mode)
    env.add_python_file(str(tmp_path / f"{name}.py"))
    assert collect(env.from_collection([1]).map(lambda _: importlib.import_module(name).ANSWER)) == [42]


@pytest.mark.parametrize("mode", MODES)
def test_archives_go_along(mode: RuntimeExecutionMode, tmp_path: Path) -> None:
    """E1: what lies in an archive is at hand, unpacked, under the name that the program gave its directory."""
    target = f"data_{mode.name.lower()}"
    archive = tmp_path / f"{target}.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("words.txt", "one two")
    env = environment(mode)
    env.add_python_archive(archive_path=str(archive), target_dir=target)

    def words(_: Any) -> str:
        from pyspark import SparkFiles

        return Path(SparkFiles.get(target), "words.txt").read_text()

    assert collect(env.from_collection([1]).map(words)) == ["one two"]


class Counts(MapFunction):
    def __init__(self, name: str = "seen") -> None:
        self.name = name

    def open(self, runtime_context: Any) -> None:
        self.seen = IntCounter()
        runtime_context.add_accumulator(self.name, self.seen)

    def map(self, value: Any) -> Any:
        self.seen.add(1)
        return value


class CountsKeyed(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        runtime_context.add_accumulator("keyed", IntCounter())
        self.context = runtime_context

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.context.get_accumulator("keyed").add(1)
        yield value


@pytest.mark.parametrize("mode", MODES)
def test_accumulators_come_to_the_client(mode: RuntimeExecutionMode) -> None:
    """A1: from all workers; in batch execution when the job has ended."""
    env = environment(mode)
    env.add_source(NumberSequenceSource(1, 50)).rebalance().map(Counts()).print()
    assert env.execute().get_accumulator_result("seen") == 50


@pytest.mark.parametrize("parallelism", [1, 3])
def test_accumulators_come_to_the_client_from_everywhere_in_a_batch(parallelism: int) -> None:
    """A1: also from a task without a sink, past keyed tasks and such as are read twice: with the records."""
    env = environment(RuntimeExecutionMode.BATCH).set_parallelism(parallelism)
    counted = env.add_source(NumberSequenceSource(1, 50)).map(Counts()).rebalance()
    keyed = counted.map(Counts("rebalanced")).key_by(lambda n: n % 7).process(CountsKeyed())
    keyed.rebalance().map(lambda v: v).print()
    counted.broadcast().map(lambda v: v).print()
    results = env.execute().get_all_accumulator_results()
    assert results == {"seen": 50, "rebalanced": 50, "keyed": 50}


@pytest.mark.parametrize("mode", MODES)
def test_a_cached_stream_is_computed_once(mode: RuntimeExecutionMode, tmp_path: Path) -> None:
    """A2: workers write it, and workers of a later job read it."""
    marks = tmp_path / "marks"

    def marked(value: int) -> int:
        with marks.open("a") as file:
            file.write("x")
        return value * 10

    env = environment(mode)
    cached = env.add_source(NumberSequenceSource(1, 4)).map(marked).cache()
    assert collect(cached) == collect(cached) == [10, 20, 30, 40]
    assert marks.read_text() == "xxxx"
    env.close()


def test_a_handle_sends_a_file_once(spark: SparkHandle) -> None:
    """E1: a session keeps what it was sent."""
    assert spark._to_send("a.py,b.py") == ["a.py", "b.py"]
    assert spark._to_send("b.py,c.py") == ["c.py"]
    assert spark._to_send(None) == []
