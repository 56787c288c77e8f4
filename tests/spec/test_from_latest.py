"""`penstock.recovery.from-latest`: a driver that died goes on where its job was, without being told where (G8, G9).

A driver dies in the middle of a turn: nothing of it is cleaned up, as after kill -9. Time is virtual.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.spec.virtual_job import LEDGER, LedgerSink, Timed, VirtualJob, clear_ledger, environment, records

from penstock.base.errors import ConfigurationError
from penstock.base.job import JobStatus
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor

pytestmark = pytest.mark.usefixtures("checkpoints_in_store")

RECORDS = 50
FROM_LATEST = "penstock.recovery.from-latest"


class Died(BaseException):
    """The driver's process is gone."""


class Count(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.state.update((self.state.value() or 0) + 1)
        yield (*value, self.state.value())


@pytest.fixture(autouse=True)
def nothing_so_far() -> None:
    clear_ledger()


class Driver:
    """Starts jobs of one name, one after another, each an hour behind the one before."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.hour = 0

    def job(self, name: str = "words", **options: Any) -> VirtualJob:
        conf: dict[str, Any] = {
            "execution.checkpointing.dir": self.directory,
            "execution.checkpointing.interval": "1 s",
            FROM_LATEST: "true",
            **options,
        }
        env = environment(1, **conf)
        period_ms = 100 if self.hour == 0 else 0
        timed = env.from_source(Timed(period_ms, (RECORDS,)), WatermarkStrategy.no_watermarks(), "timed").uid("timed")
        timed.key_by(lambda value: value[0]).process(Count()).uid("counts").sink_to(LedgerSink("out")).uid("out")
        job = VirtualJob(env.job_graph(name), env.get_configuration())
        job._clock.advance_to(self.hour * 3_600_000)  # type: ignore[attr-defined]
        self.hour += 1
        return job

    def first(self, at_ms: int, act: Callable[[VirtualJob], Any], **options: Any) -> VirtualJob:
        job = self.job(**options)
        job.at(at_ms, lambda: act(job))
        return job


def die(job: VirtualJob) -> None:
    raise Died


@pytest.fixture
def driver(store_directory: Path) -> Driver:
    return Driver(store_directory)


def check_the_whole_answer(job: VirtualJob) -> None:
    assert job.status() is JobStatus.FINISHED, job.failure()
    assert sorted(LEDGER["out"]) == [(*record, record[1] + 1) for record in records(RECORDS)]


@pytest.fixture
def died(driver: Driver) -> Driver:
    """A driver that died with some output committed."""
    with pytest.raises(Died):
        driver.first(2_550, die).run()
    assert 0 < len(LEDGER["out"]) < RECORDS
    return driver


def test_it_goes_on(died: Driver) -> None:
    """G8, G9: with the newest checkpoint, and says so; each record is committed once."""
    (path,) = died.directory.glob("*/chk-2")
    second = died.job()
    second.run()
    check_the_whole_answer(second)
    assert any(line.startswith("begins from ") and line.endswith(str(path)) for line in second.listener.lines)


def test_it_dies_again_before_its_first_checkpoint(died: Driver) -> None:
    """G8: the same checkpoint is found once more."""
    second = died.job()
    second.when(lambda: "RUNNING" in second.listener.statuses, lambda: die(second))
    with pytest.raises(Died):
        second.run()
    third = died.job()
    third.run()
    check_the_whole_answer(third)


def test_a_job_that_has_finished_is_not_begun_again(died: Driver) -> None:
    """G8, G9: it says that there is nothing left to do, and commits nothing; without the option it begins anew."""
    died.job().run()
    third = died.job()
    third.run()
    check_the_whole_answer(third)
    assert "RUNNING" not in third.listener.statuses
    assert any("has finished, so there is nothing left to do" in line for line in third.listener.lines)
    died.job(**{FROM_LATEST: "false"}).run()
    assert len(LEDGER["out"]) == 2 * RECORDS


def test_the_first_of_its_name(driver: Driver) -> None:
    """G8: there is nothing, it says so, and begins from the beginning."""
    job = driver.job()
    job.run()
    check_the_whole_answer(job)
    assert any("no job named 'words' has left a checkpoint" in line for line in job.listener.lines)


def test_another_name(died: Driver) -> None:
    """G8: what a job of another name has left is not looked at."""
    LEDGER.clear()
    other = died.job("letters")
    other.run()
    check_the_whole_answer(other)


def test_one_that_was_stopped_with_a_savepoint(driver: Driver, store_directory: Path) -> None:
    """H2: it goes on from the savepoint, which the checkpoints' directory has a note of."""
    savepoints = str(store_directory / "savepoints")
    first = driver.first(2_550, lambda job: job.stop_with_savepoint(False, savepoints))
    assert first.run() is JobStatus.FINISHED
    second = driver.job()
    second.run()
    check_the_whole_answer(second)
    assert any("savepoints/savepoint-" in line for line in second.listener.lines)


def test_one_that_was_drained(driver: Driver, store_directory: Path) -> None:
    """H2, F3: that was its end."""
    driver.first(2_550, lambda job: job.stop_with_savepoint(True, str(store_directory / "savepoints"))).run()
    committed = list(LEDGER["out"])
    second = driver.job()
    assert second.run() is JobStatus.FINISHED
    assert LEDGER["out"] == committed


def test_a_run_without_the_option_comes_between(died: Driver) -> None:
    """G8: what had been left before that run is not its own, even when it dies before its first checkpoint."""
    second = died.job(**{FROM_LATEST: "false"})
    second.when(lambda: "RUNNING" in second.listener.statuses, lambda: die(second))
    with pytest.raises(Died):
        second.run()
    LEDGER.clear()
    third = died.job()
    third.run()
    check_the_whole_answer(third)


def test_a_damaged_checkpoint_is_not_passed_over(died: Driver) -> None:
    """G9, G11: metadata or a state file; the error names it."""
    (metadata,) = died.directory.glob("*/chk-2/_metadata")
    whole = metadata.read_bytes()
    metadata.write_bytes(whole[:-1])
    second = died.job()
    assert second.run() is JobStatus.FAILED
    assert "chk-2 cannot be restored" in second.failure()
    metadata.write_bytes(whole)
    third = died.job()
    third.run()
    check_the_whole_answer(third)


def test_the_newest_of_those_retained(driver: Driver) -> None:
    """G11: going back to an older one can be chosen."""
    options = {"execution.checkpointing.num-retained": 3, "execution.checkpointing.data-inline-threshold": 0}
    with pytest.raises(Died):
        driver.first(3_550, die, **options).run()
    (file, *_) = (path for path in driver.directory.glob("*/chk-3/*") if path.name != "_metadata")
    file.write_bytes(b"spoilt")
    refused = driver.job()
    assert refused.run() is JobStatus.FAILED
    assert "chk-3 cannot be restored" in refused.failure()
    assert "chk-2 is intact" in refused.failure()
    second = driver.job(**{"penstock.recovery.past-damaged-checkpoint": "fall-back"})
    assert second.run() is JobStatus.FINISHED, second.failure()
    (line,) = (line for line in second.listener.lines if line.startswith("falls back"))
    assert re.fullmatch(r"falls back: skips \S+/chk-3 as damaged, and takes \S+/chk-2", line)
    assert {record[:2] for record in LEDGER["out"]} == set(records(RECORDS))


@pytest.mark.parametrize("retains", [False, True])
def test_one_that_was_cancelled(driver: Driver, retains: bool) -> None:
    """E5, G8: its checkpoints count if they were to be retained, and the job begins anew otherwise."""
    retention = "RETAIN_ON_CANCELLATION" if retains else "DELETE_ON_CANCELLATION"
    options = {"execution.checkpointing.externalized-checkpoint-retention": retention}
    first = driver.first(2_550, lambda job: job.cancel(), **options)
    assert first.run() is JobStatus.CANCELED
    committed = len(LEDGER["out"])
    assert 0 < committed < RECORDS
    second = driver.job(**options)
    if retains:
        second.run()
        check_the_whole_answer(second)
    else:
        assert second.run() is JobStatus.FINISHED, second.failure()
        assert len(LEDGER["out"]) == committed + RECORDS


def test_a_path_is_where_the_first_run_begins(driver: Driver, store_directory: Path) -> None:
    """H4: with both options the path counts as long as nothing else is there."""
    other = Driver(store_directory / "other")
    other.first(2_550, lambda job: job.stop_with_savepoint(False, str(store_directory / "savepoints"))).run()
    (path,) = (store_directory / "savepoints").iterdir()
    begin = {"execution.state-recovery.path": str(path)}
    with pytest.raises(Died):
        driver.first(1_550, die, **begin).run()
    second = driver.job(**begin)
    second.run()
    check_the_whole_answer(second)
    assert any("/chk-" in line for line in second.listener.lines)


def test_it_needs_a_name_and_a_directory(store_directory: Path) -> None:
    """G8: the default name is everybody's, and without a directory nothing is left."""
    env = environment(1, **{FROM_LATEST: "true", "execution.checkpointing.dir": store_directory})
    env.from_collection([1]).print()
    with pytest.raises(ConfigurationError, match="give this job its own name"):
        env.job_graph()
    with pytest.raises(ConfigurationError, match=r"searches execution\.checkpointing\.dir"):
        VirtualJob(
            env.job_graph("words"),
            environment(1, **{FROM_LATEST: "true", "execution.checkpointing.dir": None}).get_configuration(),
        )
