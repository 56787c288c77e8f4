"""Spark decommissions an executor of a streaming job: its tasks move to another one, and it is no failure (E2, G9)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.spec.kill_executor import HOST, cluster, executors, wait_for
from tests.spec.kill_loop import committed
from tests.spec.regions_program import Numbered
from tests.spec.test_regions import openings, written

from penstock.common import Configuration, RestartStrategies, WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.drivers.running_job import RunningJob
from penstock.drivers.spark.session import stop_spark
from penstock.runtime.job.view import JobView

RECORDS = 30_000
RATE = 1_000
PATIENCE_S = 200
EXPECTED = {f"numbers {key} {n + 1}": 1 for key in range(7) for n in range(len(range(key, RECORDS, 7)))}
ROOT = str(Path(__file__).parents[2])


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """A standalone Spark of two workers, with two slots each."""
    with cluster(tmp_path) as address:
        yield address
        stop_spark()


def start(folder: Path, master: str) -> RunningJob:
    """A job that counts the records of seven keys, and that no failure restarts."""
    settings = {
        "spark.master": master,
        "spark.driver.host": HOST,
        "spark.executor.memory": "600m",
        "spark.executor.cores": "2",
        "spark.executorEnv.PYTHONPATH": ROOT,
        "spark.decommission.enabled": "true",
        "execution.checkpointing.dir": str(folder / "checkpoints"),
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env.set_parallelism(2).enable_checkpointing(500)
    env.set_restart_strategy(RestartStrategies.no_restart())
    source = DataGeneratorSource(int, count=RECORDS, rate_per_second=RATE)
    numbers: Any = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    written(numbers.key_by(lambda value: value % 7).process(Numbered(folder, "numbers")), folder / "out")
    return env.execute_async("moved")


def executor_of(process_id: int) -> int:
    """The JVM of a worker: the parent of the daemon that has forked it."""
    return parent(parent(process_id))


def parent(process_id: int) -> int:
    return int(Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[1])


def executors_at_work(view: JobView) -> set[int]:
    """Where the tasks of a job are."""
    processes = {worker.worker_id: worker.process_id for worker in view.workers}
    places = {subtask.worker_id for vertex in view.vertices for subtask in vertex.subtasks}
    return {executor_of(processes[place]) for place in places if place is not None}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)  # seven JVMs start
def test_its_tasks_move_and_each_record_counts_once(tmp_path: Path, master: str) -> None:
    """E2, G8, G9: and the executor ends by itself, since nothing is left for it to do."""
    job = start(tmp_path, master)
    wait_for(lambda: committed(str(tmp_path / "out")), "there is output")
    leaving = min(executors_at_work(job.get_view().result()))
    os.kill(leaving, signal.SIGPWR)
    wait_for(lambda: any(one.moved_ms for one in job.get_view().result().departures), "its tasks have moved")
    view = job.get_view().result()
    assert leaving not in executors_at_work(view)
    assert (view.restarts, view.failures) == (0, ())
    assert all(one.reason.startswith("Spark decommissions its executor ") for one in view.departures)
    assert all(one.checkpoint_id is not None for one in view.departures)
    wait_for(lambda: leaving not in executors(tmp_path), "it is gone")
    job.get_job_execution_result().result(PATIENCE_S)
    assert committed(str(tmp_path / "out")) == EXPECTED
    assert {tuple(attempts) for attempts in openings(tmp_path, "numbers").values()} <= {(0, 1), (0, 1, 2)}
