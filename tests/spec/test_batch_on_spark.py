"""Batch execution as Spark jobs: the same programs, the same answers, Spark's shuffle between the vertices (I1, I2)."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from tests.jobs import JOBS, WORD_COUNT, Job
from tests.spec.batch_programs import ODD, Prices, Rules, Slowly, Split, divide

from penstock.base.errors import JobExecutionError, UserFunctionError
from penstock.base.job import JobStatus
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.common import Configuration, Encoder
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSink
from penstock.drivers.spark.batch_job import slots
from penstock.drivers.spark.session import hand_back, obtain_spark

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def batch(parallelism: int = 1) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    return env.set_parallelism(parallelism).set_runtime_mode(RuntimeExecutionMode.BATCH)


def collect(stream: Any) -> list[Any]:
    with stream.execute_and_collect() as results:
        return sorted(results)


@pytest.mark.parametrize("parallelism", [1, 4])
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_program_gives_the_answer_of_plain_python(job: Job, parallelism: int) -> None:
    """I1, I2: windows, timers and state; a running reduce gives the last value of each key only."""
    expected = sorted(dict(sorted(job.expected())).items()) if job is WORD_COUNT else job.expected()
    assert collect(job.build(batch(parallelism))) == expected


def test_two_keyed_inputs_meet_in_order_of_time() -> None:
    """I2, A2: Spark sorts the records of both inputs together."""
    env = batch(2)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value: value[1])
    orders = [("tea", 1), ("tea", 15), ("tea", 25), ("rye", 30)]
    prices = [("tea", 10, 5), ("tea", 20, 6), ("rye", 40, 1)]
    left = env.from_collection(orders).assign_timestamps_and_watermarks(strategy).key_by(lambda v: v[0])
    right = env.from_collection(prices).assign_timestamps_and_watermarks(strategy).key_by(lambda v: v[0])
    found = collect(left.connect(right).process(Prices()))
    assert found == [("rye", 30, 0), ("tea", 1, 0), ("tea", 15, 5), ("tea", 25, 6)]


def test_a_broadcast_side_comes_first_in_every_task() -> None:
    """I2, A1: every record finds all rules."""
    env = batch(3)
    rules = env.from_collection([("a", 10), ("b", 100)]).broadcast(Rules.RULES)
    values = env.from_collection([("a", n) for n in range(20)] + [("b", 1)]).key_by(lambda value: value[0])
    assert collect(values.connect(rules).process(Rules())) == [*(("a", n * 10) for n in range(20)), ("b", 100)]


def lines_below(directory: Path) -> list[str]:
    return sorted(line for file in directory.rglob("part-*") for line in file.read_text().splitlines())


def test_side_outputs_unions_and_several_sinks(tmp_path: Path) -> None:
    """I2, A2, G9: one Spark job; what is read twice reaches both readers, and each file has each record once."""
    env = batch(2)
    numbers = env.from_collection(list(range(100))).rebalance()
    split = numbers.process(Split())
    both = split.map(lambda n: ("even", n)).union(split.get_side_output(ODD).map(lambda n: ("odd", n)))
    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder()).build()
    both.map(lambda pair: f"{pair[0]} {pair[1]}").sink_to(sink)
    expected = [("odd" if n % 2 else "even", n) for n in range(100)]
    assert collect(both.union(numbers.map(lambda n: ("all", n)))) == sorted(
        [*(("all", n) for n in range(100)), *expected]
    )
    assert lines_below(tmp_path / "out") == sorted(f"{kind} {n}" for kind, n in expected)


def test_a_users_error_comes_with_its_place_and_nothing_is_committed(tmp_path: Path) -> None:
    """I2, G9: operator, subtask and record, as in streaming, and no Java."""
    env = batch(2)
    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder()).build()
    numbers = env.from_collection(list(range(100))).rebalance()
    numbers.map(divide).name("divide").sink_to(sink)
    with pytest.raises(UserFunctionError, match="ZeroDivisionError") as caught:
        env.execute("dividing")
    assert "'divide', subtask" in str(caught.value)
    assert "record: 50\n" in str(caught.value)
    assert "java" not in str(caught.value).lower()
    assert lines_below(tmp_path) == []


def test_cancel(tmp_path: Path) -> None:
    """E5: the Spark job ends, and gives nothing."""
    mark = str(tmp_path / "running")

    env = batch()
    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder()).build()
    env.from_collection(list(range(100_000))).map(Slowly(mark)).map(str).sink_to(sink)
    job = env.execute_async()
    patience = threading.Event()
    while not Path(mark).exists():
        patience.wait(0.05)
    job.cancel().result(10)
    with pytest.raises(JobExecutionError, match="cancelled"):
        job.wait()
    assert job.get_job_status().result() is JobStatus.CANCELED
    assert lines_below(tmp_path) == []


def test_spark_sends_every_slot_to_its_partition() -> None:
    """I2: the numbers that exchanges are partitioned by are those that Spark's own hash sends where they belong."""
    from pyspark.sql import functions as f

    spark = obtain_spark({}, 1)
    try:
        for partitions in (1, 2, 3, 7, 16, 50):
            numbers = slots(partitions)
            assert len(numbers) == partitions
        # A shuffle for each number of partitions would take long; what it computes is this.
        rows = [(n, number, i) for n in range(1, 51) for i, number in enumerate(slots(n))]
        frame = spark.session.createDataFrame(rows, "partitions INT, slot INT, partition INT")
        assert frame.where(f.expr("pmod(hash(slot), partitions) != partition")).count() == 0
        for partitions in (1, 4, 50):
            numbers = slots(partitions)
            sent = spark.session.createDataFrame([(s,) for s in numbers], "slot INT").repartition(partitions, "slot")
            where = {row[0]: row[1] for row in sent.select("slot", f.spark_partition_id()).collect()}
            assert [where[slot] for slot in numbers] == list(range(partitions))
    finally:
        hand_back(spark, 1)


def test_every_task_that_runs_again_gets_its_rows_in_the_same_order() -> None:
    """I2: it deals them out by their order, and some of what it dealt out the first time may have been read."""
    stream = batch(2).from_collection(list(range(9))).rebalance().map(divide).rebalance().map(divide)
    frame = stream.key_by(str).map(divide).to_dataframe("n STRING")
    plan = str(frame._jdf.queryExecution().executedPlan().toString())
    exchanges = [line for line in plan.splitlines() if "Exchange hashpartitioning(slot" in line]
    sorts = [line for line in plan.splitlines() if "Sort [place" in line and "sequence" in line]
    assert len(exchanges) == len(sorts) == 3
