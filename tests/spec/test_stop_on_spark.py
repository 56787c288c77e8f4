"""Stops with savepoints on Spark, over the demo's flights: what goes on from them is exact, and so is what they end."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.spec.stop_and_resume import Series, compare_with_plain

from penstock.cli.demo.flights import Flights, prepare
from penstock.drivers.running_job import RunningJob
from penstock.runtime.job.job_master import JobMaster

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FLIGHTS = 20_000
#: So slow that no job comes to its end before it is stopped.
PER_SECOND = 1_000


#: For a job that has nothing to wait for; short of the suite's own limit, so that a job that hangs says where.
PATIENCE_S = 120


def finish(job: RunningJob) -> None:
    """Wait for the job's end."""
    try:
        job.get_job_execution_result().result(PATIENCE_S)
    except TimeoutError:
        dump = job.ask(describe).result(PATIENCE_S)
        job.end()
        pytest.fail(f"the job does not end: {dump}")


def describe(master: JobMaster) -> str:
    """Where a job stands."""
    checkpoints = master.checkpoints
    pending = [(p.checkpoint_id, sorted(map(str, p.missing))) for p in checkpoints._pending.values()]
    return f"{master.view()}\ncheckpoints in the making {pending}"


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Flights:
    return prepare(tmp_path_factory.mktemp("flights"), FLIGHTS)


def test_stopped_twice_and_resumed_the_output_is_that_of_one_run(
    flights: Flights, tmp_path: Path, store_directory: Path
) -> None:
    """H1, H2: no flight is lost, or read or committed twice; windows, timers and late flights go on."""
    series = Series(flights, tmp_path, random.Random(1), store=store_directory)
    for after in (500, 1_000):
        assert series.stop(series.start(PER_SECOND), after).differences == []
    assert 0 < series.left < FLIGHTS
    finish(series.start(per_second=None))
    assert compare_with_plain(series.output, flights, drained=False) == []


@pytest.mark.parametrize("checkpointing", ["on", "off"])
def test_with_drain_all_windows_and_timers_fire(
    flights: Flights, tmp_path: Path, store_directory: Path, checkpointing: str
) -> None:
    """F3, F6, H2: the output is what plain Python says of the flights that were read; also without checkpoints."""
    interval = {} if checkpointing == "on" else {"execution.checkpointing.interval": None}
    series = Series(flights, tmp_path, random.Random(1), interval, store_directory)
    assert series.stop(series.start(PER_SECOND), 500).differences == []
    stop = series.stop(series.start(PER_SECOND), 500, drain=True)
    assert stop.differences == []
    assert 1_000 <= stop.committed < FLIGHTS
    assert compare_with_plain(series.output, flights, drained=True) == []


def test_a_worker_killed_at_a_stop_changes_nothing(flights: Flights, tmp_path: Path, store_directory: Path) -> None:
    """H2, G9: the stop comes about, or fails, the job goes on, and the next one comes about."""
    series = Series(flights, tmp_path, random.Random(1), store=store_directory)
    stop = series.stop(series.start(PER_SECOND), 500, kills=True)
    assert (stop.kills, stop.differences) == (1, [])
    assert series.stop(series.start(PER_SECOND), 500, drain=True).differences == []
    assert compare_with_plain(series.output, flights, drained=True, has_killed=True) == []
