"""Real jobs on real Spark tasks."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.drivers.spark.programs import (
    PATIENCE_S,
    CollectingListener,
    counting_job,
    expected_counts,
    wait_for_checkpoint,
    wait_until,
)

from penstock.base.configuration import Configuration
from penstock.base.errors import JobExecutionError, UserFunctionError
from penstock.base.job import JobStatus
from penstock.drivers.spark.handle import SparkHandle
from penstock.drivers.spark.job import submit
from penstock.storage.leadership import DeposedError

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def settings(directory: Path) -> Configuration:
    return Configuration.from_dict(
        {
            "execution.checkpointing.interval": "300 ms",
            "execution.checkpointing.dir": str(directory),
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "3",
            "restart-strategy.fixed-delay.delay": "50 ms",
        }
    )


def test_output_is_exactly_once_through_the_death_of_a_worker(
    spark: SparkHandle, tmp_path: Path, store_directory: Path
) -> None:
    listener, count = CollectingListener(), 5_000
    copies = tmp_path / "copies"
    configuration = settings(store_directory / "checkpoints")
    configuration.set_string("execution.checkpointing.data-inline-threshold", "0 bytes")
    configuration.set_string("execution.state-recovery.from-local", "true")
    configuration.set_string("execution.checkpointing.local-backup.dirs", str(copies))
    client = submit(counting_job(count, 1_000, 2), configuration, listener)
    wait_for_checkpoint(client, 2)
    assert len(list(copies.iterdir())) == 2, "each worker keeps copies of its state"
    worker_id, _, process_id = client.get_progress().result(PATIENCE_S).workers[0]
    os.kill(process_id, signal.SIGKILL)
    result = client.wait()
    assert result.get_job_id() == client.get_job_id()
    assert client.get_job_status().result() is JobStatus.FINISHED
    assert listener.counts == expected_counts(count)
    # A busy machine may be slow to tell of the death; then the other worker's lost connection is what is heard first.
    died = rf"{worker_id} \(process {process_id} .* its Python process died"
    told = re.compile(rf"{died}|connection to {worker_id} was lost")
    assert any(told.search(reason or "") for reason in listener.reasons), listener.reasons
    # The dead worker's as well, by the one that took its place.
    wait_until(lambda: not list(copies.iterdir()), "the copies are gone")


def test_a_users_error_comes_with_its_place_and_without_java(spark: SparkHandle) -> None:
    def divide(number: int) -> tuple[int, int]:
        return number, 1 // (number - 50)

    client = submit(counting_job(100, None, 2, divide), Configuration(), CollectingListener())
    with pytest.raises(UserFunctionError) as caught:
        client.wait()
    text = str(caught.value)
    # Which subtask reads the split with the 50 is the splits' race.
    assert re.search(r"operator 'map', subtask [12]/2\nrecord: 50\n", text)
    assert text.endswith("ZeroDivisionError: integer division or modulo by zero")
    assert "java" not in text.lower()


def test_cancel_ends_the_job(spark: SparkHandle) -> None:
    client = submit(counting_job(None, 1_000, 2), Configuration(), CollectingListener())
    client.cancel()
    with pytest.raises(JobExecutionError, match="it was cancelled"):
        client.get_job_execution_result().result(PATIENCE_S)
    assert client.get_job_status().result() is JobStatus.CANCELED


def test_a_job_whose_driver_leads_no_longer_is_suspended(spark: SparkHandle, store_directory: Path) -> None:
    """E7: its checkpoints stay for the driver that leads next."""
    client = submit(counting_job(None, 1_000, 2), settings(store_directory), CollectingListener())
    wait_for_checkpoint(client, 1)
    client.lose_leadership("somebody said so")
    with pytest.raises(DeposedError, match="was suspended: somebody said so"):
        client.get_job_execution_result().result(PATIENCE_S)
    assert client.get_job_status().result() is JobStatus.SUSPENDED
    assert list(store_directory.glob("*/chk-*/_metadata"))


def test_an_interrupt_cancels_the_job_and_goes_on(spark: SparkHandle) -> None:
    client = submit(counting_job(None, 1_000, 2), Configuration(), CollectingListener())

    def interrupt() -> None:
        wait_until(lambda: client.get_progress().result(PATIENCE_S).status == "RUNNING", "a running job")
        os.kill(os.getpid(), signal.SIGINT)

    def wait() -> None:
        threading.Thread(target=interrupt).start()
        client.wait()

    with pytest.raises(KeyboardInterrupt):
        wait()
    assert client.get_job_execution_result().done()


PROGRAM = """
import os, signal, sys
from penstock.base.configuration import Configuration
from penstock.drivers.spark.job import submit
from tests.drivers.spark.programs import (
    PATIENCE_S,
    CollectingListener,
    counting_job,
    expected_counts,
    wait_for_checkpoint,
    wait_until,
)

assert "pyspark" not in sys.modules
listener = CollectingListener()
client = submit(counting_job(1_000, None, 4), Configuration(), listener)
client.wait()
print(listener.counts == expected_counts(1_000))
submit(counting_job(None, 100, 1), Configuration(), CollectingListener())
"""


#: PySpark 4.0 leaves sockets to its JVM to the garbage collector.
SOCKETS_OF_SPARK = "ignore:unclosed <socket.socket:ResourceWarning"


def test_a_program_of_its_own_is_quiet_and_leaves_nothing_behind() -> None:
    """From start to end, with a job left running, Spark itself says nothing, and all processes are gone after."""
    root = Path(__file__).parents[3]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    program = subprocess.run(
        [sys.executable, "-W", "error", "-W", SOCKETS_OF_SPARK, "-c", PROGRAM],
        env=environ,
        cwd=root,
        capture_output=True,
        timeout=PATIENCE_S * 2,
    )
    # `run` returns when stdout has come to its end, that is when the JVM, which inherits it, has gone too.
    assert (program.returncode, program.stdout.split()) == (0, [b"True"])
    (line,) = program.stderr.decode().splitlines()
    assert "penstock starting Spark on local" in line
