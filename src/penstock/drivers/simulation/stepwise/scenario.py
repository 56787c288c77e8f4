"""The scenario of one seed: a job, its options, and the faults."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.drivers.simulation.disk import SAVEPOINTS
from penstock.drivers.simulation.scenario import FaultRates, Scenario, power_cut
from penstock.drivers.simulation.topology_maker import TopologyMaker

#: The path of a back-fill's savepoint.
FILLED: Final = f"{SAVEPOINTS}/filled"


@dataclass(frozen=True)
class StepwiseScenario:
    """The scenario of one seed."""

    scenario: Scenario
    #: whether the first job is a back-fill over all existing records
    fills_first: bool
    dies_before: float
    dies_after: float
    dies_within: float
    deaths_max: int
    commit_error: float
    source_error: float
    runs_twice: float
    #: the probability that a person makes a request when the master looks for one
    asks: float
    cancels: float
    #: the probability that a driver is stopped after a step, to resume when others think it is dead
    stops: float = 0.0


def draw(chance: random.Random, world: str) -> StepwiseScenario:
    """Draw the scenario of a seed."""
    topology = TopologyMaker(chance, world, is_exactly_once=True, ends=None).make()
    for stage in topology.stages:
        stage.calls = None
    fills_first = chance.random() < 0.2
    if fills_first:
        for stage in topology.stages:
            if stage.source is not None:
                stage.source.is_lazy, stage.source.pauses = False, 0.0
    write = Configuration().write
    write(options.RUNTIME_MODE, "MICRO_BATCH")
    write(options.CHECKPOINTING_DIR, "disk")
    write(options.MICRO_BATCH_RECORDS_MAX, chance.choice((1, 3, 10)))
    write(options.CHECKPOINTING_NUM_RETAINED, chance.choice((1, 1, 2, 3)))
    write(options.RESTART_STRATEGY, "fixed-delay")
    write(options.FIXED_DELAY_ATTEMPTS, chance.choice((0, 1, 3, 1_000)))
    write(options.FIXED_DELAY_MS, chance.choice((0, 10)))
    write(options.IDENTICAL_FAILURES_MAX, chance.choice((2, 10)))
    write(options.OPERATOR_CHAINING_ENABLED, chance.random() < 0.7)
    configuration = write(options.MAX_PARALLELISM, chance.choice((4, 7, 128)))
    if chance.random() < 0.4:
        configuration.write(options.MICRO_BATCH_INTERVAL_MS, chance.choice((1, 50)))
    rates = FaultRates(
        user_errors_max=chance.choice((0, 0, 1, 3)),
        user_error=chance.choice((0.003, 0.02)),
        storage_errors_max=chance.choice((0, 0, 3, 6)),
        storage_error=chance.choice((0.02, 0.1)),
        power_cut=power_cut(world),
    )
    inline_bytes_max = chance.choice((0, 0, 600, 1 << 20))
    scenario = Scenario(topology, "aligned", configuration, rates, inline_bytes_max, 0.0, 0, False)
    stops = random.Random(f"stops of {world}").choice((0.0, 0.0, 0.01, 0.05))
    return replace(draw_around(chance, scenario, fills_first), stops=stops)


def draw_around(chance: random.Random, scenario: Scenario, fills_first: bool = False) -> StepwiseScenario:
    """Draw the faults of the steps and the requests between them."""

    def some(share: float, value: float) -> float:
        return value if chance.random() < share else 0.0

    return StepwiseScenario(
        scenario,
        fills_first,
        some(0.5, 0.02),
        some(0.5, 0.02),
        some(0.5, 0.02),
        chance.choice((0, 1, 2, 5)),
        some(0.5, 0.1),
        some(0.3, 0.03),
        some(0.4, 0.1),
        some(0.7, 0.2),
        some(0.4, 0.03),
    )
