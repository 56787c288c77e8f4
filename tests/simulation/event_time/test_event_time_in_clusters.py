"""C2: event time goes on in clusters whose inputs end, fall silent or bring late records, whatever happens."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.effort import tries
from tests.simulation.event_time.find_mutants import is_found
from tests.simulation.event_time.histories import EventTimeSimulation, run_event_time_seed
from tests.simulation.event_time.mutants import MUTANTS
from tests.simulation.fresh_seeds import fresh_seeds
from tests.simulation.planting import Mutant

FRESH_SEEDS = tries(20)
#: From the seed on that is known to find a mutant.
SEEDS_MAX = 5


def test_fresh_histories_keep_their_promises() -> None:
    """C2, H4: no window fires twice, and none waits."""
    first = fresh_seeds().start
    seeds = range(first, first + FRESH_SEEDS)
    failed = {seed: found for seed in seeds if (found := run_event_time_seed(seed).violations)}
    assert not failed, "\n".join(
        f"python -m tests.simulation.event_time --seeds {s}..{s} --trace\n{f}" for s, f in failed.items()
    )


def test_same_seed_is_same_history() -> None:
    once, again = run_event_time_seed(1, is_traced=True), run_event_time_seed(1, is_traced=True)
    assert len(once.log) > 50
    assert once.log == again.log


def test_without_faults_the_sink_has_the_windows() -> None:
    for seed in range(6):
        simulation = EventTimeSimulation(seed, without_faults=True)
        assert simulation.run().status == "FINISHED"
        assert not simulation.invariants.found


@pytest.mark.slow
def test_everything_happens() -> None:
    """Attempts and jobs begin from all kinds of checkpoints and savepoints."""
    resumed: Counter[str] = Counter()
    restarts = 0
    for seed in range(40):
        history = run_event_time_seed(seed)
        assert not history.violations, (seed, history.violations)
        resumed.update(history.resumed)
        restarts += history.restarts
    assert restarts > 20
    assert {"all", "other parallelism", "from a checkpoint", "with records in flight"} <= {*+resumed}


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_planted_bug_is_found(mutant: Mutant) -> None:
    first = MUTANTS[mutant]
    assert any(is_found(mutant, seed) for seed in range(first, first + SEEDS_MAX))
