"""Functions on real workers that do not return, or end the program."""

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.drivers.spark.programs import PATIENCE_S, CollectingListener, counting_job, wait_until

from penstock.base.configuration import Configuration
from penstock.base.errors import JobExecutionError, UserFunctionError
from penstock.drivers.client.submit import submit as submit_any
from penstock.drivers.spark.handle import SparkHandle
from penstock.drivers.spark.job import submit

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def spinning(marker: Path) -> Callable[[int], tuple[int, int]]:
    """A function that says when it begins, and never ends."""

    def spin(number: int) -> tuple[int, int]:
        marker.touch()
        while True:
            pass

    return spin


def leave(number: int) -> tuple[int, int]:
    sys.exit(3)


def test_a_loop_that_does_not_end_is_named_and_ended_when_asked_twice(spark: SparkHandle, tmp_path: Path) -> None:
    """F4: the worker's process is ended by force, and the job ends in order."""
    conf = {"heartbeat.interval": "100 ms", "task.cancellation.interval": "1 s"}
    listener, marker = CollectingListener(), tmp_path / "spins"
    client = submit(counting_job(None, 1_000, 1, spinning(marker)), Configuration.from_dict(conf), listener)
    wait_until(marker.exists, "the loop")
    client.cancel()
    named = "does not return from operator 'map', subtask 1/1, in spinning.<locals>.spin (test_stuck_functions_on_spark"
    wait_until(lambda: any(named in line for line in listener.lines), named)
    client.cancel()
    with pytest.raises(JobExecutionError, match=r"it was cancelled$"):
        client.get_job_execution_result().result(PATIENCE_S)


def test_a_worker_that_does_not_end_is_ended_after_the_timeout(spark: SparkHandle, tmp_path: Path) -> None:
    """F4: task.cancellation.timeout."""
    conf, marker = Configuration.from_dict({"task.cancellation.timeout": "1 s"}), tmp_path / "spins"
    client = submit(counting_job(None, 1_000, 1, spinning(marker)), conf, CollectingListener())
    wait_until(marker.exists, "the loop")
    client.cancel()
    with pytest.raises(JobExecutionError, match=r"it was cancelled$"):
        client.get_job_execution_result().result(PATIENCE_S)


def test_a_function_that_calls_sys_exit_fails_the_job(spark: SparkHandle) -> None:
    """F4: with the operator's name; the worker lives on."""
    client = submit_any(counting_job(10, None, 1, leave), Configuration(), CollectingListener())
    with pytest.raises(UserFunctionError, match="SystemExit: 3") as caught:
        client.wait()
    assert caught.value.operator_name == "map"


def block(number: int) -> tuple[int, int]:
    """Call C code that does not return and does not release Python's lock."""
    ctypes.PyDLL(None).sleep(1_000)
    return number, number


def test_a_call_that_holds_pythons_lock_is_named_and_counted_as_the_same_failure(spark: SparkHandle) -> None:
    """E2, G8: the worker sends no heartbeats, and the next attempt meets the same call."""
    conf = {
        "heartbeat.interval": "500 ms",
        "heartbeat.timeout": "4 s",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "100",
        "restart-strategy.fixed-delay.delay": "1 ms",
        "penstock.restart.identical-failures-max": "2",
    }
    listener = CollectingListener()
    client = submit(counting_job(10, None, 1, block), Configuration.from_dict(conf), listener)
    with pytest.raises(
        JobExecutionError, match=r"was silent for 4000 ms .*The call in block \(test_stuck_func"
    ) as caught:
        client.get_job_execution_result().result(PATIENCE_S)
    assert ", in block\n" in str(caught.value)
    assert caught.value.__notes__[0].startswith("not restarted: the same failure occurred 2 times")
    assert any("is blocked: it was silent for" in line and "in block (test_stuck" in line for line in listener.lines)
