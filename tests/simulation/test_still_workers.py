"""Workers that live and stand still for a while, in simulated histories (E2)."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from tests.effort import tries

from penstock.drivers.simulation.scenario import Stillness, draw_scenario
from penstock.drivers.simulation.simulation import Simulation

pytestmark = pytest.mark.slow

SEEDS = range(tries(40))


def test_no_record_is_lost_and_no_other_worker_is_called_stuck() -> None:
    """E2, G8: whether the job waits for them or replaces them, beside all other faults."""
    events = Counter[str]()
    for seed in SEEDS:
        own, world = random.Random(f"stillness {seed}"), f"sim-{seed}"
        stillness = Stillness(world, 4, 0.01, own.choice((1_000, 3_000)), own.choice((None, 3_000, 6_000)))
        chance = random.Random(seed)
        scenario = replace(draw_scenario(chance, world), stillness=stillness)
        history = Simulation(seed, scenario=scenario).run()
        assert not history.violations, seed
        events += history.events
    assert {"stood still", "named a stuck worker", "replaced a stuck worker"} <= events.keys()
