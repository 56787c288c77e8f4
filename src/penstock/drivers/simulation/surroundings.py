"""The environment of a history's jobs in every execution mode: storage, the outside world, and faults."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.drivers.simulation.engine import EventLog
from penstock.drivers.simulation.faults import Faults
from penstock.drivers.simulation.jobs import Jobs
from penstock.drivers.simulation.outside import Outside, present
from penstock.drivers.simulation.power import Power
from penstock.drivers.simulation.scenario import Scenario
from penstock.drivers.simulation.store_kind import make_disk

_files_log = logging.getLogger("penstock.connectors.file")


@dataclass
class Surroundings:
    """See the module docstring. `world` is the name under which connectors find the outside world."""

    seed: int
    world: str
    scenario: Scenario
    chance: random.Random
    log: EventLog
    faults: Faults
    jobs: Jobs
    outside: Outside
    power: Power

    @classmethod
    def made(cls, seed: int, world: str, scenario: Scenario, chance: random.Random, is_traced: bool) -> Surroundings:
        """Create the surroundings of a scenario before the first event."""
        log = EventLog(f"seed {seed}: {scenario.topology}", is_traced)
        faults = Faults(scenario.rates, chance, log.write)
        disk = make_disk(world, faults)
        jobs = Jobs(seed, scenario, disk, faults)
        power = Power(scenario.rates.power_cut, world, disk, faults, log.write)
        return cls(
            seed, world, scenario, chance, log, faults, jobs, Outside(chance, faults.on_user_call, files=disk), power
        )

    @contextmanager
    def present(self) -> Iterator[None]:
        """Let connectors find the outside world, and workers their directories, within this context."""
        level = _files_log.level
        _files_log.setLevel(logging.ERROR)  # it warns about each file that an outside reader has taken
        try:
            with self.jobs.folder, present(self.world, self.outside):
                yield
        finally:
            _files_log.setLevel(level)

    def flaws(self) -> list[str]:
        """Return the violations of all invariants that hold regardless of how the jobs ended."""
        disk = self.jobs.disk
        return [
            *self.outside.violations,
            *(f"storage: {violation}" for violation in disk.violations),
            *(f"power-cut: {loss}" for loss in disk.losses),
            *(f"savepoint: {flaw}" for path in disk.savepoints for flaw in disk.find_flaws(path)),
            *(f"retained: {flaw}" for flaw in disk.flaws_of_retained()),
        ]
