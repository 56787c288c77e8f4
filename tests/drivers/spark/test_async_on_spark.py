"""Asynchronous functions in real workers: event loops beside tasks, through the death of a worker, and in batch."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.drivers.spark.programs import PATIENCE_S, wait_for_checkpoint

from penstock.base.configuration import Configuration
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import AsyncDataStream, RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.drivers.spark.handle import SparkHandle

pytestmark = pytest.mark.spark


async def look_up(value: int) -> list[tuple[int, int]]:
    await asyncio.sleep(value % 5 / 100)
    return [(value, os.getpid())]


def environment(**options: str) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options))
    return env.set_parallelism(2)


@pytest.mark.slow
def test_calls_that_were_out_when_a_worker_died_are_made_again(spark: SparkHandle, store_directory: Path) -> None:
    """G8: every result is there once; the calls of both workers."""
    options = {
        "execution.checkpointing.interval": "200 ms",
        "execution.checkpointing.dir": str(store_directory),
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "3",
        "restart-strategy.fixed-delay.delay": "50 ms",
    }
    env = environment(**options)
    source = DataGeneratorSource(lambda n: n, 2_000, 800)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    stream: Any = AsyncDataStream.unordered_wait(numbers, look_up, 10_000, 50)
    with stream.execute_and_collect() as results:
        job = results._job
        wait_for_checkpoint(job, 2)
        _, _, process_id = job.get_progress().result(PATIENCE_S).workers[0]
        os.kill(process_id, signal.SIGKILL)
        collected = list(results)
    assert sorted(value for value, _ in collected) == list(range(2_000))
    assert len({process for _, process in collected}) >= 2


@pytest.mark.slow
def test_batch_jobs_wait_for_calls(spark: SparkHandle) -> None:
    """I1: the same in batch execution, on Spark's own tasks."""
    env = environment().set_runtime_mode(RuntimeExecutionMode.BATCH)
    stream: Any = AsyncDataStream.ordered_wait(env.from_collection(range(300)).rebalance(), look_up, 10_000, 20)
    with stream.execute_and_collect() as results:
        assert sorted(value for value, _ in results) == list(range(300))
