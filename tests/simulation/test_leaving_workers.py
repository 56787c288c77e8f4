"""Workers that are announced as leaving, and taken away a while later, in simulated histories (E2)."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from tests.effort import tries

from penstock.base import options
from penstock.drivers.simulation.scenario import Leaving, draw_scenario, fault_free
from penstock.drivers.simulation.simulation import Simulation

pytestmark = pytest.mark.slow

SEEDS = range(tries(40))


def leaving(seed: int, world: str) -> Leaving:
    own = random.Random(f"leaving {seed}")
    return Leaving(world, 4, 0.003, 0.03, 0, own.choice((20, 1_000, 60_000)))


def test_no_record_is_lost_and_a_worker_that_leaves_gets_no_tasks() -> None:
    """E2, G8: whether its tasks leave in order or not, beside all other faults."""
    events = Counter[str]()
    for seed in SEEDS:
        world = f"sim-{seed}"
        scenario = replace(draw_scenario(random.Random(seed), world), leaving=leaving(seed, world))
        history = Simulation(seed, scenario=scenario).run()
        assert not history.violations, seed
        events += history.events
    assert {"leaving", "left in order"} <= events.keys()


def test_without_other_faults_tasks_that_have_the_time_leave_without_a_restart() -> None:
    """E2: a restart is what a failure leads to."""
    events = Counter[str]()
    for seed in SEEDS:
        world = f"sim-{seed}"
        scenario = fault_free(draw_scenario(random.Random(seed), world))
        scenario.configuration.write(options.CHECKPOINTING_TIMEOUT_MS, 20_000)  # so that none is a failure
        patient = replace(leaving(seed, world), grace_ms_min=10**7, grace_ms_max=10**7)
        history = Simulation(seed, scenario=replace(scenario, leaving=patient)).run()
        assert not history.violations, seed
        assert history.restarts == 0, seed
        events += history.events
    assert {"leaving", "left in order"} <= events.keys()
