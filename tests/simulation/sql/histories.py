"""Histories of jobs that are SQL plans, one a seed. Their chance is their own: other histories do not change."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import ClassVar

from tests.simulation.sql.sources import expiring_since
from tests.simulation.sql.worlds import SINK, SqlTopology, draw_topology

from penstock.drivers.simulation.invariants import Invariants
from penstock.drivers.simulation.jobs import Surroundings
from penstock.drivers.simulation.scenario import draw_scenario, fault_free
from penstock.drivers.simulation.simulation import History, Simulation

#: What is promised of tables needs each row exactly once.
MODES = ("aligned", "unaligned", "timed")


def world_of(seed: int, kind: str = "sql") -> str:
    """The name under which connectors find the world of a seed; the kind says which queries there are."""
    return f"{kind}-{seed}"


class SqlInvariants(Invariants):
    """Those of any job; in the end the rows of the query are compared."""

    def check_output(self, may_lack: bool = False) -> None:
        """See `Invariants`."""
        simulation = self._simulation
        topology = simulation.scenario.topology
        assert isinstance(topology, SqlTopology)
        self.found.extend(topology.flaws(simulation.outside.committed.get(SINK, []), self.read()))


class SqlSimulation(Simulation):
    """A history of a job that is a SQL plan."""

    invariants_type: ClassVar[type[Invariants]] = SqlInvariants

    def __init__(self, seed: int, is_traced: bool = False, without_faults: bool = False, kind: str = "sql") -> None:
        world = world_of(seed, kind)
        chance = random.Random(world)
        scenario = draw_scenario(chance, world, chance.choice(MODES))
        changes = replace(scenario.changes, graph=0.0, order=0.0, misfit=0.0)
        scenario = replace(scenario, topology=draw_topology(world), changes=changes)
        scenario = fault_free(scenario) if without_faults else scenario
        super().__init__(seed, around=Surroundings.made(seed, world, scenario, chance, is_traced))


def run_sql_seed(seed: int, is_traced: bool = False, without_faults: bool = False, kind: str = "sql") -> History:
    """The history of a seed."""
    simulation = SqlSimulation(seed, is_traced, without_faults, kind)
    try:
        return simulation.run()
    finally:
        expiring_since.pop(simulation.around.world, None)
