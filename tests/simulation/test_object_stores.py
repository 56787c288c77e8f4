"""Checkpoints in a store of objects: no renaming, late listings, requests that are refused for a while (G8, G11)."""

from __future__ import annotations

import pytest
from tests.effort import tries
from tests.simulation.find_mutants import list_violation_kinds
from tests.simulation.fresh_seeds import fresh_seeds
from tests.simulation.mutants_of_objects import MUTANTS_OF_OBJECTS
from tests.simulation.planting import Mutant

from penstock.drivers.simulation.execution_mode_changes import run_changing_seed
from penstock.drivers.simulation.object_store import OBJECTS, with_store
from penstock.drivers.simulation.simulation import run_seed
from penstock.drivers.simulation.stepwise_history import run_stepwise_seed

pytestmark = pytest.mark.slow

EXECUTION_MODES = {"streaming": run_seed, "epochs": run_stepwise_seed, "changing": run_changing_seed}


@pytest.mark.parametrize("execution_mode", EXECUTION_MODES)
def test_fresh_histories_keep_their_promises(execution_mode: str) -> None:
    """G5, G8, G11: the same promises as in a file system, and nothing of them hangs on a listing."""
    first = fresh_seeds().start
    with with_store(OBJECTS):
        failed = {
            seed: found
            for seed in range(first, first + tries(15))
            if (found := EXECUTION_MODES[execution_mode](seed).violations)
        }
    assert not failed, [
        f"penstock-sim --seeds {s}..{s} --execution-mode {execution_mode} --store objects" for s in failed
    ] + [failed]


@pytest.mark.parametrize("mutant", MUTANTS_OF_OBJECTS, ids=lambda mutant: mutant.__name__)
def test_planted_bug_is_found(mutant: Mutant) -> None:
    by = MUTANTS_OF_OBJECTS[mutant]
    with with_store(OBJECTS):
        assert not by.run(by.seed).violations
        with mutant():
            assert list_violation_kinds(by.run(by.seed).violations).intersection(by.kinds)
