"""A5: clusters whose jobs look for patterns keep every promise, whatever happens; planted bugs are found."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from tests.cep.oracle.specifications import Stage
from tests.effort import tries
from tests.simulation.cep.__main__ import main
from tests.simulation.cep.find_mutants import is_found
from tests.simulation.cep.histories import PatternSimulation, run_pattern_seed, world_of
from tests.simulation.cep.mutants import MUTANTS
from tests.simulation.cep.worlds import draw_topology
from tests.simulation.fresh_seeds import fresh_seeds
from tests.simulation.planting import Mutant

FRESH_SEEDS = tries(15)
#: From the seed on that is known to find a mutant.
SEEDS_MAX = 5


def test_fresh_histories_keep_their_promises() -> None:
    first = fresh_seeds().start
    failed = {seed: found for seed in range(first, first + FRESH_SEEDS) if (found := run_pattern_seed(seed).violations)}
    assert not failed, "\n".join(
        f"python -m tests.simulation.cep --seeds {seed}..{seed} --trace\n{found}" for seed, found in failed.items()
    )


def test_same_seed_is_same_history() -> None:
    once, again = run_pattern_seed(1, is_traced=True), run_pattern_seed(1, is_traced=True)
    assert len(once.log) > 50
    assert once.log == again.log


def test_without_faults_the_sink_has_what_the_oracle_finds() -> None:
    for seed in range(5):
        simulation = PatternSimulation(seed, without_faults=True)
        assert simulation.run().status == "FINISHED"
        assert not simulation.invariants.found


def test_seeds_meet_every_kind_of_pattern() -> None:
    drawn = [draw_topology(world_of(seed)).specification for seed in range(200)]
    parts = [part for one in drawn if one is not None for part in one.parts]
    assert any(isinstance(part, Stage) and part.parts for part in parts)
    assert any(not isinstance(part, Stage) for part in parts)
    assert len({one.skip.kind for one in drawn if one is not None}) == 5
    assert {one.window_ms is None for one in drawn if one is not None} == {True, False}


def test_there_are_enough_mutants() -> None:
    assert len(MUTANTS) >= 8


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_planted_bug_is_found(mutant: Mutant) -> None:
    first = MUTANTS[mutant]
    assert any(is_found(mutant, seed) for seed in range(first, first + SEEDS_MAX))


def test_command_prints_how_many_kept_their_promises() -> None:
    result = CliRunner().invoke(main, ["--seeds", "1..2"])
    assert "2 histories" in result.output
    assert "0 with violations" in result.output
