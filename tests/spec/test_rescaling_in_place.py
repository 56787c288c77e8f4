"""Running jobs change their parallelism, and the output is that of a run without any change (D4, E3, G9)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.spec.kill_loop import committed
from tests.spec.regions_program import Numbered
from tests.spec.test_regions import PATIENCE_S, openings, wait_for_output, written

from penstock.base.errors import OperationError
from penstock.common import Configuration, RestartStrategies, WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.drivers.running_job import RunningJob
from penstock.runtime.job.view import RescaleCause

pytestmark = pytest.mark.slow

RECORDS = 9_000
RATE = 1_500
EXPECTED = {f"numbers {key} {n + 1}": 1 for key in range(7) for n in range(len(range(key, RECORDS, 7)))}
TARGETS = ["local", pytest.param("spark", marks=pytest.mark.spark)]


def start(folder: Path, store: Path, target: str, parallelism: int, **options: str) -> RunningJob:
    """A job that counts the records of seven keys."""
    configuration = Configuration()
    configuration.set_string("execution.target", target)
    configuration.set_string("execution.checkpointing.dir", str(store / "checkpoints"))
    for key, value in options.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(parallelism).enable_checkpointing(300)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(10, 100))
    source = DataGeneratorSource(int, count=RECORDS, rate_per_second=RATE)
    numbers: Any = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    counted = numbers.key_by(lambda value: value % 7).process(Numbered(folder, "numbers")).uid("count")
    written(counted, folder / "out")
    return env.execute_async("rescaled")


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"never {what}"
        time.sleep(0.05)


def subtasks(job: RunningJob) -> list[int]:
    return [vertex.parallelism for vertex in job.get_view().result().vertices]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("unaligned", ["false", "true"])
def test_a_running_job_is_rescaled_up_and_down(
    tmp_path: Path, store_directory: Path, target: str, unaligned: str
) -> None:
    """D4, G9: no record is lost or counted twice, and none of it is a failure."""
    job = start(tmp_path, store_directory, target, 2, **{"execution.checkpointing.unaligned.enabled": unaligned})
    wait_for_output(tmp_path / "out", job)
    for parallelism in (3, 1):
        reached = job.rescale({"count": parallelism}).result(PATIENCE_S)
        assert sorted(reached.values()) == sorted([2, parallelism])
        assert sorted(subtasks(job)) == sorted([2, parallelism])
    view = job.get_view().result()
    assert [list(rescale.changed.values()) for rescale in view.rescales] == [[(3, 1)], [(2, 3)]]
    assert (view.restarts, view.failures) == (0, ())
    job.get_job_execution_result().result(PATIENCE_S)
    assert committed(str(tmp_path / "out")) == EXPECTED
    assert openings(tmp_path, "numbers") == {0: [0, 1, 2], 1: [0, 1], 2: [1]}


def test_what_cannot_be_is_told_to_who_asked(tmp_path: Path, store_directory: Path) -> None:
    job = start(tmp_path, store_directory, "local", 2)
    with pytest.raises(OperationError, match="job 'rescaled' is not rescaled: no operator has the uid, id or name 'x'"):
        job.rescale({"x": 1}).result(PATIENCE_S)
    job.cancel()
    with pytest.raises(Exception, match="cancelled"):
        job.get_job_execution_result().result(PATIENCE_S)
    with pytest.raises(OperationError, match="the job is over"):
        job.rescale({"count": 1}).result(PATIENCE_S)


@pytest.mark.spark
def test_a_job_takes_the_slots_that_there_are(tmp_path: Path, store_directory: Path) -> None:
    """E3: it begins with two of the three that it wants, and takes the third when another job has let go of it."""
    from penstock.drivers.spark.session import obtain_spark

    spark = obtain_spark({"spark.master": "local[3]"}, 0)
    release, stop = tmp_path / "release", threading.Event()

    def hold(_: int) -> int:
        deadline = time.monotonic() + PATIENCE_S
        while not release.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        return 0

    def take_a_slot() -> None:
        spark.session.sparkContext.parallelize([0], 1).map(hold).collect()
        stop.set()

    threading.Thread(target=take_a_slot).start()
    tracker = spark.session.sparkContext.statusTracker()
    wait_until(lambda: bool(tracker.getActiveJobsIds()), "held")
    adaptive = {
        "spark.master": "local[3]",
        "jobmanager.scheduler": "adaptive",
        "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout": "1 s",
    }
    job = start(tmp_path, store_directory, "spark", 3, **adaptive)
    wait_for_output(tmp_path / "out", job)
    assert set(subtasks(job)) == {2}
    release.touch()
    assert stop.wait(PATIENCE_S)
    wait_until(lambda: set(subtasks(job)) == {3} and len(job.get_view().result().rescales) == 2, "rescaled")
    causes = [rescale.cause for rescale in job.get_view().result().rescales]
    assert causes == [RescaleCause.NEW_RESOURCE_AVAILABLE, RescaleCause.INITIAL_SCHEDULE]
    job.get_job_execution_result().result(PATIENCE_S)
    assert committed(str(tmp_path / "out")) == EXPECTED
