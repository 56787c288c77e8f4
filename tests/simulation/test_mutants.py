"""Planted bugs are found. `python -m tests.simulation.find_mutants` searches all seeds for them anew."""

import pytest
from tests.simulation.find_mutants import list_violation_kinds
from tests.simulation.mutants import MUTANTS, planted
from tests.simulation.planting import Mutant

from penstock.drivers.simulation import simulation
from penstock.drivers.simulation.simulation import run_seed

pytestmark = pytest.mark.slow

#: From the seed on that is known to find a mutant.
SEEDS_MAX = 100
#: After the last fault: enough for a history that ends. One that a mutant holds up need not go on for 60,000.
STEPS_MAX = 10_000


def test_there_are_enough_mutants() -> None:
    assert len(MUTANTS) >= 40


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_planted_bug_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds, first = MUTANTS[mutant]
    monkeypatch.setattr(simulation, "STEPS_MAX", STEPS_MAX)
    for seed in range(first, first + SEEDS_MAX):
        with planted(mutant):
            found = list_violation_kinds(run_seed(seed).violations)
        # A seed that breaks a promise without the mutant too proves nothing about it.
        if found.intersection(kinds) and not run_seed(seed).violations:
            return
    pytest.fail(f"{mutant.__name__} went unnoticed in {SEEDS_MAX} seeds from {first} on")
