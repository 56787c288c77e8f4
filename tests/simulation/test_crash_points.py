"""Every step of the checkpoint protocol can be the last one of its process. `penstock-sim --crash-points` does all."""

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace
from tests.effort import EFFORT, tries
from tests.simulation.fresh_seeds import commit_number

from penstock.drivers.simulation.checkpoint_store import MemoryStore
from penstock.drivers.simulation.cli import run_pairs
from penstock.drivers.simulation.crash_points import CRASH_POINTS, JOBS, CrashTable, random_pair, watched
from penstock.drivers.simulation.disk import METADATA
from penstock.drivers.simulation.scenario import MODES
from penstock.runtime.checkpoint import coordinator
from penstock.storage.metadata import garbage

pytestmark = pytest.mark.slow

PAIRS = tries(30)
#: Another job and other pairs for each commit.
NUMBER = commit_number()


@pytest.mark.parametrize("mode", MODES)
def test_crash_at_every_step(mode: str) -> None:
    """G5, G8, G9: a process that ends at any step of the checkpoint protocol loses and repeats no output."""
    number = NUMBER + MODES.index(mode)
    job = list(JOBS)[number % len(JOBS)]
    # Each step in every other mode, so in two of the four.
    points = CRASH_POINTS if EFFORT > 1 else CRASH_POINTS[number % 2 :: 2]
    table = CrashTable()
    with watched():
        for point in points:
            if mode not in point.absent:
                table.cover(point, NUMBER % 2 == 0, point.select_job(job), mode)
    assert not table.failed
    assert not table.missed


def test_power_cut_at_every_step() -> None:
    """G8, G9, G11: all processes end there, and what was not synced is gone, as far as chance has it."""
    mode, job = MODES[NUMBER % len(MODES)], list(JOBS)[NUMBER % len(JOBS)]
    table = CrashTable(cuts_power=True)
    with watched():
        for point in CRASH_POINTS if EFFORT > 1 else CRASH_POINTS[NUMBER % 2 :: 2]:
            if mode not in point.absent:
                table.cover(point, NUMBER % 2 == 0, point.select_job(job), mode)
    assert not table.failed
    assert not table.missed


def test_pairs_of_crashes() -> None:
    """G8, G9: two crashes in one job."""
    with watched():
        failed = run_pairs(PAIRS, NUMBER * 1_000)
    assert not failed


def test_a_job_that_has_deleted_its_checkpoints_does_not_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """G8, G9: a job master that takes over finds the mark; without it, what was committed is committed again."""
    point = next(point for point in CRASH_POINTS if point.name == "last checkpoint deleted")

    def covered() -> CrashTable:
        table = CrashTable()
        with watched():
            table.cover(point, True, "union", "aligned")
        return table

    assert not covered().failed
    read_retained = MemoryStore.read_retained
    monkeypatch.setattr(MemoryStore, "read_retained", lambda store, name: replace(read_retained(store, name), marks=()))
    ((_, violations),) = covered().failed
    assert violations[0].startswith("output: ")


def test_what_is_half_deleted_never_looks_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """G6, G11: a job master that takes over would begin from it. The metadata of a checkpoint goes first."""
    point = next(point for point in CRASH_POINTS if point.name == "file deleted")

    def violations() -> list[str]:
        table = CrashTable()
        with watched():
            for job in ("keyed", "union", "wide"):
                table.cover(point, True, job, "aligned")
        return [violation for _, found in table.failed for violation in found]

    def metadata_last(*args: Any) -> list[str]:
        return sorted(garbage(*args), key=lambda path: path.endswith(METADATA))

    assert not violations()
    monkeypatch.setattr(coordinator, "garbage", metadata_last)
    assert any(found.startswith("missing-file: ") and "looks whole" in found for found in violations())


def test_planned_history_is_the_same_again() -> None:
    run = random_pair(1)
    with watched():
        once, again = (run.run(is_traced=True)[0] for _ in range(2))
    assert once.log == again.log


def test_steps_have_names_of_their_own() -> None:
    assert Counter(point.name for point in CRASH_POINTS).most_common(1)[0][1] == 1
    assert len(CRASH_POINTS) >= 40
