"""Micro-batch execution as Spark jobs, and one state for it and for streaming (I1, G8, H4)."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from tests.jobs import BUCKETS, SESSIONS, Job
from tests.spec.batch_programs import Numbered, divide

from penstock.base.errors import UserFunctionError
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.common import Configuration, Encoder
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSink
from penstock.drivers.spark.handle import SparkHandle

pytestmark = [pytest.mark.spark, pytest.mark.slow]
MICRO, STREAMING = RuntimeExecutionMode.MICRO_BATCH, RuntimeExecutionMode.STREAMING
RECORDS = 20_000


def environment(parallelism: int, mode: RuntimeExecutionMode, **options: Any) -> StreamExecutionEnvironment:
    configuration = Configuration()
    for key, value in options.items():
        configuration.set_string(key, str(value))
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    return env.set_parallelism(parallelism).set_runtime_mode(mode)


@pytest.mark.parametrize("job", [SESSIONS, BUCKETS], ids=lambda job: job.name)
def test_a_program_gives_the_answer_of_plain_python(job: Job) -> None:
    """I1: windows, timers and state, over several epochs."""
    env = environment(2, MICRO, **{"execution.micro-batch.max-records": 800})
    assert sorted(job.build(env).execute_and_collect()) == job.expected()


def test_neighbours_talk_to_each_other_only() -> None:
    """B3: forward edges between vertices and edges to neighbours, at other parallelisms on both sides."""
    env = environment(4, MICRO).disable_operator_chaining()
    numbers = env.from_collection(list(range(100))).rebalance().map(abs).map(abs)
    assert sorted(numbers.rescale().map(abs).set_parallelism(2).execute_and_collect()) == list(range(100))


@pytest.mark.parametrize("shares", [True, False])
def test_readers_of_one_stream_read_the_same_records(shares: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """I1: in place, by key, at another parallelism and with another stream; in one shuffle, or as Spark keeps them."""
    monkeypatch.setattr(SparkHandle, "shares_shuffles", shares)
    env = environment(2, MICRO, **{"execution.micro-batch.max-records": 20}).disable_operator_chaining()
    drawn = env.from_collection(range(100)).rebalance().map(lambda number: (number, random.random()))
    more = env.from_collection(range(100, 150)).map(lambda number: (number, 0.0))
    in_place = drawn.map(lambda pair: ("in place", *pair))
    by_key = drawn.key_by(lambda pair: pair[0] % 7).map(lambda pair: ("by key", *pair))
    apart = drawn.rebalance().map(lambda pair: ("apart", *pair)).set_parallelism(3)
    joined = drawn.union(more).key_by(lambda pair: pair[0] % 5).map(lambda pair: ("joined", *pair))
    found: dict[str, set[tuple[int, float]]] = defaultdict(set)
    for reader, number, value in in_place.union(by_key, apart, joined).execute_and_collect():
        assert (number, value) not in found[reader]
        found[reader].add((number, value))
    assert [len(found[reader]) for reader in ("in place", "by key", "apart", "joined")] == [100, 100, 100, 150]
    assert found["in place"] == found["by key"] == found["apart"] == {pair for pair in found["joined"] if pair[0] < 100}


def test_every_vertex_tells_its_records() -> None:
    """A1, I1: also those whose rows for the client others hand on, and one that two vertices read."""
    env = environment(2, MICRO, **{"execution.micro-batch.max-records": 60}).disable_operator_chaining()
    numbers = env.from_collection(list(range(100))).rebalance().map(abs).name("both read it")
    numbers.map(abs).name("one").union(numbers.filter(bool).name("other")).print()
    job = env.execute_async()
    job.wait()
    progress = job.get_progress().result(10)
    assert [(v.records_in, v.records_out) for v in progress.vertices] == [
        (100, 100),
        (100, 200),
        (100, 100),
        (100, 99),
        (199, 0),
    ]
    assert progress.checkpoints_completed >= 3


def test_a_users_error_has_its_place() -> None:
    """E1, J: as in the other execution modes."""
    env = environment(2, MICRO)
    env.from_collection([1, 50]).map(divide).name("divide").print()
    with pytest.raises(UserFunctionError, match="'divide'"):
        env.execute()


def lines_below(directory: Path) -> list[str]:
    return sorted(line for file in directory.rglob("part-*") for line in file.read_text().splitlines())


def test_one_state_for_both_execution_modes(store_directory: Path) -> None:
    """H4, I1: a job goes from epochs to streaming and back to its end, at another parallelism each time; its files hold
    what one run would have written."""

    def start(parallelism: int, mode: RuntimeExecutionMode, savepoint: str | None) -> Any:
        options: dict[str, Any] = {"execution.checkpointing.interval": "200 ms", "penstock.source.batch-records": 2}
        if savepoint is not None:
            options["execution.state-recovery.path"] = savepoint
        if mode is MICRO and savepoint is None:
            options["execution.micro-batch.max-records"] = 500
        env = environment(parallelism, mode, **options)
        source: Any = DataGeneratorSource(lambda n: n, RECORDS)
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
        counted = numbers.key_by(lambda n: n % 7).process(Numbered()).uid("counter")
        sink = FileSink.for_row_format(str(store_directory / "out"), Encoder.simple_string_encoder()).build()
        counted.sink_to(sink).uid("files")
        return env.execute_async()

    savepoint: str | None = None
    for parallelism, mode in [(2, MICRO), (1, STREAMING)]:
        job = start(parallelism, mode, savepoint)
        savepoint = job.stop_with_savepoint(False, str(store_directory / "savepoints")).result(120)
        job.wait()
        assert lines_below(store_directory / "out")
    start(3, MICRO, savepoint).wait()
    assert lines_below(store_directory / "out") == sorted(f"{n % 7} {n // 7 + 1}" for n in range(RECORDS))
