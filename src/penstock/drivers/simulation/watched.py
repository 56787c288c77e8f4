"""A simulation as its watchers and participants see it: the invariants, the person, the dump."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from penstock.core.job.job_master import JobMaster
from penstock.drivers.simulation.cluster import SimulatedCluster
from penstock.drivers.simulation.engine import Engine, EventLog
from penstock.drivers.simulation.file_outsiders import Outsiders
from penstock.drivers.simulation.jobs import Jobs
from penstock.drivers.simulation.master import MasterProcess
from penstock.drivers.simulation.outside import Outside
from penstock.drivers.simulation.scenario import Scenario
from penstock.drivers.simulation.surroundings import Surroundings


class Watched(Protocol):
    """See the module docstring."""

    @property
    def around(self) -> Surroundings: ...

    @property
    def scenario(self) -> Scenario: ...

    @property
    def log(self) -> EventLog: ...

    @property
    def engine(self) -> Engine: ...

    @property
    def events(self) -> Counter[str]: ...

    @property
    def jobs(self) -> Jobs: ...

    @property
    def cluster(self) -> SimulatedCluster: ...

    @property
    def outside(self) -> Outside: ...

    @property
    def process(self) -> MasterProcess: ...

    @property
    def master(self) -> JobMaster: ...

    @property
    def outsiders(self) -> Outsiders: ...

    @property
    def is_refused(self) -> bool: ...
