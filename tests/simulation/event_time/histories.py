"""Histories of jobs that show how event time goes on, one a seed. Their chance is their own."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import ClassVar

from tests.simulation.event_time.worlds import (
    MAY_BE_LATE,
    SINK,
    LateTopology,
    choose_kind,
    draw_idle_topology,
    draw_late_topology,
)

from penstock.drivers.simulation.invariants import Invariants
from penstock.drivers.simulation.jobs import Surroundings
from penstock.drivers.simulation.oracle import check_exact
from penstock.drivers.simulation.scenario import MODES, draw_scenario, fault_free
from penstock.drivers.simulation.simulation import History, Simulation


class EventTimeInvariants(Invariants):
    """Those of any job; late records belong to no window.

    Which silent records are late after the end of the live source is a question of who is first, so no output is
    expected of such a history.
    """

    def check_output(self, may_lack: bool = False) -> None:
        """See `Invariants`."""
        simulation = self._simulation
        topology = simulation.scenario.topology
        if MAY_BE_LATE in simulation.outside.remarks:
            return
        if not isinstance(topology, LateTopology):
            super().check_output(may_lack)
            return
        records = simulation.outside.committed.get(SINK, [])
        if (flaw := check_exact(SINK, topology.windows(self.read()), records)) is not None:
            self.found.append(flaw)


class EventTimeSimulation(Simulation):
    """A history in which a source waits for windows to fire."""

    invariants_type: ClassVar[type[Invariants]] = EventTimeInvariants

    def __init__(self, seed: int, is_traced: bool = False, without_faults: bool = False) -> None:
        world, is_late = f"event-time-{seed}", choose_kind(seed) == "late"
        chance = random.Random(world)
        # What is late is a question of once and no more.
        modes = tuple(mode for mode in MODES if not is_late or mode != "at-least-once")
        scenario = draw_scenario(chance, world, chance.choice(modes))
        changes = replace(scenario.changes, graph=0.0)
        topology = draw_late_topology(world) if is_late else draw_idle_topology(world)
        scenario = replace(scenario, topology=topology, changes=changes)
        scenario = fault_free(scenario) if without_faults else scenario
        super().__init__(seed, around=Surroundings.made(seed, world, scenario, chance, is_traced))


def run_event_time_seed(seed: int, is_traced: bool = False, without_faults: bool = False) -> History:
    """The history of a seed."""
    return EventTimeSimulation(seed, is_traced, without_faults).run()
