"""Jobs of epochs and back-fills keep every promise, whatever goes wrong at whichever step."""

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner
from tests.effort import EFFORT, tries
from tests.simulation.find_mutants import list_violation_kinds
from tests.simulation.fresh_seeds import commit_number, fresh_seeds
from tests.simulation.mutants_of_epochs import MUTANTS_OF_EPOCHS
from tests.simulation.planting import Mutant

from penstock.drivers.simulation.cli import main
from penstock.drivers.simulation.crash_points import JOBS
from penstock.drivers.simulation.stepwise_history import (
    POINTS,
    STEPS,
    StepwiseTable,
    cover_all_steps,
    run_batch_seed,
    run_stepwise_seed,
)
from penstock.runtime.master import steps

pytestmark = pytest.mark.slow

#: Enough for everything to happen.
SEEDS = range(1, 61)
FRESH_SEEDS = tries(40)
#: Histories that once found a fault. 4229: a drained job that only delivers dies as it does so, and the next reads on;
#: 357: a job is deposed when its last savepoint is complete, and nobody hears of that; 1060: a job fails for good, and
#: its sinks remove what a checkpoint holds that is visible; 1221: a deposed driver revokes what another begins from;
#: 5933041033: a job is drained just as its driver is deposed.
PINNED = (357, 1060, 1221, 4229, 5933041033)
A_TEST = 20
#: Steps without an effect on anything but what people see.
SEEN_ONLY = {"Report", "Log", "NextRequest", "DeleteSavepoint"}


@pytest.mark.parametrize("offset", range(0, FRESH_SEEDS, A_TEST))
def test_fresh_histories_keep_their_promises(offset: int) -> None:
    """G5, G8, G9, H2, I1: drivers die, steps fail, tasks run twice; what is committed is exact all the same."""
    first = fresh_seeds().start + offset
    failed = {seed: found for seed in range(first, first + A_TEST) if (found := run_stepwise_seed(seed).violations)}
    assert not failed, "\n".join(
        f"penstock-sim --execution-mode epochs --seeds {s}..{s} --trace\n{f}" for s, f in failed.items()
    )


@pytest.mark.parametrize("seed", PINNED)
def test_pinned_seed_keeps_its_promises(seed: int) -> None:
    assert not run_stepwise_seed(seed).violations


def test_fresh_batches_commit_all_or_nothing() -> None:
    """G9, I2: a run that fails, is cancelled or dies leaves no output, and the next one writes all of it once."""
    seen = set[str]()
    for seed in range(first := fresh_seeds().start, first + A_TEST):
        history = run_batch_seed(seed)
        assert not history.violations, f"penstock-sim --execution-mode batch --seeds {seed}..{seed} --trace"
        seen |= set(+history.events)
    assert seen >= {"ran twice", "commit failed", "driver killed"}


def test_everything_happens() -> None:
    seen, faults = set[str](), set[str]()
    for seed in SEEDS:
        history = run_stepwise_seed(seed)
        assert not history.violations, (seed, history.violations)
        seen |= set(+history.events)
        faults |= set(+history.faults)
    kinds = {f"asked for {kind}" for kind in ("checkpoint", "savepoint", "suspend", "drain", "cancel")}
    assert seen >= kinds | {"ran twice", "commit failed", "driver killed", "source failed", "cancelled"}
    assert faults >= {"complete-torn", "complete-done-but-error", "delete-torn", "user-error"}


def test_every_step_may_go_wrong() -> None:
    """G5, G8, G9, G11: the driver dies before, after or within it, or it fails once or for good; every other step."""
    jobs = [job for job in JOBS if job != "counts"]
    job = jobs[commit_number() % len(jobs)]
    points = list(POINTS) if EFFORT > 1 else list(POINTS)[commit_number() % 2 :: 2]
    table = StepwiseTable()
    for _ in cover_all_steps(table, (job,), points):
        pass
    assert not table.failed
    assert not table.missed


def test_every_step_has_points() -> None:
    named = {step.partition(" ")[0] for step in STEPS}
    assert named | SEEN_ONLY == {
        step.__name__ for step in steps.Step.__subclasses__() if step.__module__ == steps.__name__
    }
    assert len(POINTS) >= 50


def test_same_seed_is_same_history() -> None:
    for seed in range(5):
        once, again = run_stepwise_seed(seed, is_traced=True), run_stepwise_seed(seed, is_traced=True)
        assert len(once.log) > 10
        assert once.log == again.log


def test_history_does_not_depend_on_hash_order() -> None:
    command = [
        sys.executable,
        "-m",
        "penstock.drivers.simulation.cli",
        "--execution-mode",
        "epochs",
        "--seeds",
        "3..5",
        "--trace",
    ]
    environments = [{**os.environ, "PYTHONHASHSEED": str(h)} for h in (1, 2)]
    traces = {subprocess.run(command, env=e, capture_output=True, text=True, check=True).stdout for e in environments}
    assert len({trace.rpartition(" s, ")[0].rpartition("\n")[0] for trace in traces}) == 1


def test_command_replays_a_seed() -> None:
    shown = CliRunner().invoke(main, ["--execution-mode", "epochs", "--seeds", "7..7", "--trace"])
    assert shown.exit_code == 0, shown.output
    assert "RunEpoch" in shown.output
    assert "0 with violations" in shown.output


@pytest.mark.parametrize("mutant", MUTANTS_OF_EPOCHS, ids=lambda mutant: mutant.__name__)
def test_planted_bug_is_found(mutant: Mutant) -> None:
    found_by = MUTANTS_OF_EPOCHS[mutant]
    for history in found_by.histories():
        with mutant():
            found = list_violation_kinds(history().violations)
        if found.intersection(found_by.kinds) and not history().violations:
            return
    pytest.fail(f"{mutant.__name__} went unnoticed")
