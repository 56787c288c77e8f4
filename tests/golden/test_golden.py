"""Savepoints that earlier versions wrote must be read, and gone on from, by every later one (H4, H5)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.golden.make import BACKENDS, DIRECTORY
from tests.golden.program import COUNT, KEYS, build, expected
from tests.spec.virtual_job import LEDGER, VirtualJob, clear_ledger, environment
from tests.stores import put_tree

from penstock.common.job_status import JobStatus
from penstock.state_processor import SavepointReader

SAVEPOINTS = sorted(path for path in DIRECTORY.iterdir() if path.is_dir())


@pytest.fixture(autouse=True)
def nothing_committed() -> None:
    clear_ledger()


@pytest.fixture(params=SAVEPOINTS, ids=lambda path: path.name)
def savepoint(request: pytest.FixtureRequest, store_directory: Path) -> Path:
    """One of them, in the store of this run."""
    place = store_directory / "golden"
    put_tree(request.param, place)
    return place


def test_there_are_some() -> None:
    """H4: both backends have left one."""
    assert {path.name.rpartition("-")[2] for path in SAVEPOINTS} >= set(BACKENDS)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_job_goes_on_from_it(savepoint: Path, backend: str, parallelism: int) -> None:
    """H4, D3, D4: on either backend and at any parallelism a job that begins from it ends with the whole answer."""
    options = {"execution.state-recovery.path": savepoint, "state.backend.type": backend}
    env = environment(parallelism, **{"pipeline.max-parallelism": 16, **options})
    build(env)
    job = VirtualJob(env)
    assert job.run() is JobStatus.FINISHED, job.failure()
    assert Counter(map(repr, LEDGER["golden"])) == expected()


def test_its_tables_are_read(savepoint: Path) -> None:
    """H5: states, timers and windows are there as tables."""
    reader = SavepointReader.read(str(savepoint))
    reader.verify()
    totals = reader.read_reducing_state("everything", "total").to_pandas()
    numbers = reader.read_list_state("everything", "numbers").to_pandas()
    assert 0 < len(numbers) < COUNT
    assert totals["value"].sum() == numbers["value"].sum()
    timers = reader.read_timers("everything").to_pandas()
    assert set(timers["key"]) == set(totals["key"]) <= set(range(KEYS))
    assert len(reader.read_window_state("tumbling").to_pandas()) > 0
    assert len(reader.read_window_state("session").to_pandas()) > 0
