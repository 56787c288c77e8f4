"""A worker that lives and does not work: it is named, and replaced where an option asks for it (E2).

A stopped process is another thing: its heartbeats stop, and then it is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.drivers.spark.programs import (
    KEYS,
    PATIENCE_S,
    CollectingListener,
    counting_job,
    expected_counts,
    wait_until,
)

from penstock.base.configuration import Configuration
from penstock.base.job import JobStatus
from penstock.drivers.spark.handle import SparkHandle
from penstock.drivers.spark.job import SparkJobClient, submit
from penstock.runtime.job.view import FailureRecord, WorkerView

pytestmark = pytest.mark.spark

RECORDS = 400
CONF = {
    "heartbeat.interval": "100 ms",
    "execution.checkpointing.interval": "200 ms",
    "execution.checkpointing.timeout": "4 s",
    "execution.checkpointing.tolerable-failed-checkpoints": "1000",
    "penstock.slow-workers.threshold": "2500 ms",
}
#: The innermost function of the program that a worker is in.
AT = "operator 'map', subtask {}/2, in napping.<locals>.nap (test_slow_workers_on_spark.py:"


def napping(begun: Path, is_over: Callable[[], bool]) -> Callable[[int], tuple[int, int]]:
    """A function that takes one nap, at one record, which is over when somebody says so; it is slow after that.

    So the job does not end before the worker is heard of again.
    """

    def nap(number: int) -> tuple[int, int]:
        if number == RECORDS // 2 and not begun.exists():
            begun.touch()
            while not is_over():
                time.sleep(0.05)
        elif number > RECORDS // 2:
            time.sleep(0.01)
        return number % KEYS, 1

    return nap


def slow_ones(client: SparkJobClient) -> list[WorkerView]:
    return [worker for worker in client.get_view().result(PATIENCE_S).workers if worker.slow is not None]


@pytest.mark.slow
def test_a_function_that_sleeps_long_is_named_with_operator_and_worker(spark: SparkHandle, tmp_path: Path) -> None:
    """E2: in the log, in the view, and with the checkpoint that times out for it; nobody is replaced."""
    woken, listener = tmp_path / "woken", CollectingListener()
    nap = napping(tmp_path / "begun", woken.exists)
    client = submit(counting_job(RECORDS, 400, 2, nap), Configuration.from_dict(CONF), listener)
    wait_until(lambda: any(" is stuck: " in line for line in listener.lines), "a word about the worker")
    (worker,) = slow_ones(client)
    (line,) = [line for line in listener.lines if " is stuck: " in line]
    name = f"worker {worker.worker_id} (host {worker.host}, process {worker.process_id})"
    assert line.startswith(f"{name} is stuck: its loop has not turned for ")
    (subtask,) = [i for i in (1, 2) if AT.format(i) in line]
    assert AT.format(subtask) in str(worker.slow)

    def failures() -> list[str]:
        history = client.get_view().result(PATIENCE_S).checkpoints.history
        return [record.failure for record in history if record.failure is not None]

    wait_until(lambda: any(name in failure and AT.format(subtask) in failure for failure in failures()), "a time-out")
    woken.touch()
    wait_until(lambda: f"{name}: its loop turns again" in listener.lines, "the end of the nap")
    client.get_job_execution_result().result(PATIENCE_S)
    assert "RESTARTING" not in listener.statuses
    assert listener.counts == expected_counts(RECORDS)


@pytest.mark.slow
def test_a_worker_that_is_stuck_for_too_long_is_replaced(spark: SparkHandle, tmp_path: Path) -> None:
    """E2, G8: as one that was lost; in another worker the same function returns, and each record counts once."""
    enrichers = {"jobmanager.failure-enrichers": "penstock.runtime.failure:TypeFailureEnricher"}
    conf, listener = CONF | enrichers | {"penstock.slow-workers.replace-after": "3 s"}, CollectingListener()
    nap = napping(tmp_path / "begun", lambda: False)
    client = submit(counting_job(RECORDS, 400, 2, nap), Configuration.from_dict(conf), listener)
    wait_until(lambda: "RESTARTING" in listener.statuses, "the worker to be given up")

    def failure_of_job() -> FailureRecord:
        (failure,) = client.get_view().result(PATIENCE_S).failures
        return failure

    wait_until(lambda: failure_of_job().labels == {"type": "SYSTEM"}, "its label")
    failure = failure_of_job()
    assert "(penstock.slow-workers.replace-after)" in failure.text
    assert failure.worker_id is not None
    assert any("map" in task for task in failure.lost)
    client.get_job_execution_result().result(PATIENCE_S)
    assert client.status() is JobStatus.FINISHED
    assert listener.counts == expected_counts(RECORDS)
