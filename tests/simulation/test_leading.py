"""Two masters of one job, of which one does not know that it was deposed: planted bugs in who leads are found (E7)."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.simulation.find_mutants import list_violation_kinds
from tests.simulation.mutants_of_leading import FOUND_IN_EPOCHS, FOUND_IN_STREAMS
from tests.simulation.planting import Mutant
from tests.simulation.test_mutants import STEPS_MAX

from penstock.drivers.simulation import simulation
from penstock.drivers.simulation.simulation import run_seed
from penstock.drivers.simulation.stepwise_history import run_stepwise_seed

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("mutant", FOUND_IN_STREAMS, ids=lambda mutant: mutant.__name__)
def test_planted_bug_is_found_in_streams(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """E7, G5: by the first of its seeds that breaks a promise with it, and keeps all without it."""
    kinds, seeds = FOUND_IN_STREAMS[mutant]
    monkeypatch.setattr(simulation, "STEPS_MAX", STEPS_MAX)
    for seed in seeds:
        with mutant():
            found = list_violation_kinds(run_seed(seed).violations)
        if found.intersection(kinds) and not run_seed(seed).violations:
            return
    pytest.fail(f"{mutant.__name__} went unnoticed")


@pytest.mark.parametrize("mutant", FOUND_IN_EPOCHS, ids=lambda mutant: mutant.__name__)
def test_planted_bug_is_found_in_epochs(mutant: Mutant) -> None:
    """E7, I1: as above."""
    kinds, seeds = FOUND_IN_EPOCHS[mutant]
    for seed in seeds:
        with mutant():
            found = list_violation_kinds(run_stepwise_seed(seed).violations)
        if found.intersection(kinds) and not run_stepwise_seed(seed).violations:
            return
    pytest.fail(f"{mutant.__name__} went unnoticed")


def test_drivers_are_stopped_and_go_on() -> None:
    """E7: and some of their jobs are suspended."""
    seen = Counter[str]()
    for seed in range(1, 21):
        history = run_stepwise_seed(seed, is_traced=True)
        seen.update(history.events)
        seen["suspended"] += sum(" SUSPENDED " in line for line in history.log)
    assert seen["driver stopped"] > 0
    assert seen["suspended"] > 0
