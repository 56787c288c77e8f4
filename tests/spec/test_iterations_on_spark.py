"""Loops on Spark: each superstep is a Spark job, with Spark's shuffle and Spark's recovery inside (I2, I3)."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.spec.batch_programs import Slowly
from tests.spec.iteration_programs import (
    AddUp,
    Marked,
    add_second,
    components,
    first,
    k_means,
    plain_components,
    plain_k_means,
    sums,
)

from penstock.base.errors import JobExecutionError, UserFunctionError
from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.drivers.spark.session import hand_back, obtain_spark

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EDGES = [(0, 1), (1, 2), (4, 5)]


def env_of(mode: str = "BATCH", parallelism: int = 2, **options: Any) -> StreamExecutionEnvironment:
    settings = {key.replace("__", "."): str(value) for key, value in options.items()}
    configuration = Configuration.from_dict({"execution.runtime-mode": mode, **settings})
    return StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(parallelism)


def collect(stream: Any) -> list[Any]:
    with stream.execute_and_collect() as results:
        return sorted(results)


@pytest.mark.parametrize("mode", ["BATCH", "STREAMING"])
def test_connected_components(mode: str) -> None:
    """I3: a delta iteration, and a batch or a streaming job behind it."""
    vertices = list(range(6))
    found = collect(components(env_of(mode), vertices, EDGES).map(tuple))
    assert found == sorted(plain_components(vertices, EDGES).items())


def test_k_means() -> None:
    """I3: the data of a superstep, broadcast to all tasks; an aggregator of tasks in mid-job."""
    chance = random.Random(3)
    points = [(chance.gauss(x, 0.5), chance.gauss(x, 0.5)) for x in (0, 5) for _ in range(20)]
    begin = [points[0], points[1]]
    found = {n: at for n, *at in collect(k_means(env_of(), points, begin, 1e-9, 10))}
    assert found == {n: pytest.approx(at) for n, at in plain_k_means(points, begin, 1e-9, 10).items()}


def test_aggregates_are_exact_though_a_task_ran_twice(tmp_path: Path) -> None:
    """I3, G9: only what the attempt has added counts whose output Spark took."""
    seen, failed = tmp_path / "seen", tmp_path / "failed"
    env = env_of(parallelism=3, spark__master="local[4,3]")
    assert collect(sums(env, 22, 3, seen, AddUp(failed, fails_in=2))) == list(range(3, 25))
    assert failed.exists()
    assert seen.read_text() == "1:231 2:253 3:275 "


def test_a_step_that_fails_fails_the_job_with_the_place(tmp_path: Path) -> None:
    """I3: operator, subtask and record, and no Java; nothing is left."""
    env = env_of(penstock__cache__dir=tmp_path / "data")
    with pytest.raises(UserFunctionError, match="RuntimeError: once") as caught:
        collect(sums(env, 22, 3, tmp_path / "seen", AddUp(tmp_path / "failed", fails_in=1)))
    assert "'Map', subtask" in str(caught.value)
    assert "superstep 1" in caught.value.job_name
    assert "java" not in str(caught.value).lower()
    assert [path for path in (tmp_path / "data").rglob("*") if path.is_file()] == []


def test_cancelling_the_job_ends_the_superstep(tmp_path: Path) -> None:
    """E5, I3: the Spark job of the superstep ends too."""
    mark = tmp_path / "running"
    env = env_of()
    loop = env.from_collection(list(range(100_000))).iterate(3)
    loop.close_with(loop.map(Slowly(str(mark)))).print()
    job = env.execute_async()
    patience = threading.Event()
    while not mark.exists():
        patience.wait(0.05)
    job.cancel().result(10)
    with pytest.raises(JobExecutionError, match="cancelled"):
        job.wait()
    spark = obtain_spark({}, 1)
    try:
        assert list(spark.session.sparkContext.statusTracker().getActiveJobsIds()) == []
    finally:
        hand_back(spark, 1)


def test_data_frames_in_and_out_of_a_loop(tmp_path: Path) -> None:
    """I2, I3: a frame that the step reads is computed once, and the result is a frame again."""
    marked = Marked(tmp_path / "marks")
    spark = obtain_spark({}, 1)
    try:
        prices = spark.session.createDataFrame([("tea", 3), ("rye", 5)], "name STRING, price BIGINT")
        env = env_of()
        table = env.from_dataframe(prices).map(lambda row: (row.name, row.price)).map(marked)
        loop = env.from_collection([("tea", 0), ("rye", 0)]).iterate(3)
        result = loop.close_with(loop.union(table).key_by(first).reduce(add_second))
        frame = result.to_dataframe("name STRING, sum BIGINT")
        assert sorted(map(tuple, frame.collect())) == [("rye", 15), ("tea", 9)]
        assert marked.calls == 2
    finally:
        hand_back(spark, 1)
