"""Histories whose sinks write to Kafka: the sink as it is, on a model of the brokers.

A savepoint beside a running job is left out: the sink does not keep its transactions through a failure of the job (see
`connectors.kafka.transactions`), and says so to a job that begins from it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

from penstock.base import options
from penstock.drivers.simulation import stepwise_driver as driver
from penstock.drivers.simulation.file_sinks import kafka_sink
from penstock.drivers.simulation.jobs import Surroundings
from penstock.drivers.simulation.scenario import Scenario, draw_scenario
from penstock.drivers.simulation.simulation import Simulation
from penstock.drivers.simulation.stepwise_history import StepwiseSimulation
from penstock.drivers.simulation.stepwise_world import StepwiseScenario, draw

_INSTEAD = {"savepoint": "suspend"}


def kafka_scenario(seed: int) -> Scenario:
    """The scenario of a seed, with Kafka in place of all sinks."""
    scenario = draw_scenario(random.Random(seed), f"sim-{seed}", None)
    for stage in scenario.topology.stages:
        if stage.kind == "sink":
            stage.make_sink = kafka_sink
    kinds = tuple({**_INSTEAD, "cancel": "abandon"}.get(kind, kind) for kind in scenario.wishes.kinds)
    if "abandon" in kinds:
        scenario.configuration.write(options.CHECKPOINT_RETENTION, "RETAIN_ON_CANCELLATION")
    return replace(scenario, wishes=replace(scenario.wishes, kinds=kinds))


def kafka_simulation(seed: int) -> Simulation:
    """The history of a seed, not yet run."""
    return Simulation(seed, scenario=kafka_scenario(seed))


@contextmanager
def kafka_epochs(seed: int) -> Iterator[StepwiseSimulation]:
    """The history of a seed, of a job of epochs; to be run within this."""
    world = f"stepwise-{seed}"
    scenario = draw(random.Random(f"stepwise {seed}"), world)
    for stage in scenario.scenario.topology.stages:
        if stage.kind == "sink":
            stage.make_sink = kafka_sink
    with mock.patch.object(driver, "WISHES", tuple(_INSTEAD.get(wish, wish) for wish in driver.WISHES)):
        yield StepwiseSimulation(seed, scenario, around=surroundings(seed, world, scenario))


def surroundings(seed: int, world: str, scenario: StepwiseScenario) -> Surroundings:
    """With the chance of any other history of that seed."""
    return Surroundings.made(seed, world, scenario.scenario, random.Random(f"stepwise {seed}"), is_traced=False)
