"""The jobs of a history, one after another: each goes on from the savepoint with which the one before it ended."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.common import options
from penstock.common.configuration import Configuration
from penstock.core.job.job_graph import JobGraph
from penstock.core.protocol import StopMode
from penstock.drivers.simulation.disk import Disk
from penstock.drivers.simulation.faults import Faults
from penstock.drivers.simulation.scenario import Scenario
from penstock.drivers.simulation.store import MemoryStore
from penstock.storage.metadata import CheckpointMetadata


@dataclass
class Job:
    """One of them. `begun_from`: the savepoint's directory."""

    job_id: str
    configuration: Configuration
    graph: JobGraph
    store: MemoryStore
    begun_from: CheckpointMetadata | None = None
    #: the savepoints that were begun, with what they are to do to the job
    savepoints: dict[str, StopMode | None] = field(default_factory=dict)


class Jobs:
    """Makes them; `now` is the last one."""

    def __init__(self, seed: int, scenario: Scenario, disk: Disk, faults: Faults) -> None:
        self.disk = disk
        self._seed = seed
        self._scenario = scenario
        self._faults = faults
        self.all: list[Job] = []
        self.now = self.begin(None)

    def begin(self, path: str | None) -> Job:
        """A new job, from a savepoint or from nothing."""
        configuration = Configuration()
        configuration.add_all(self._scenario.configuration)
        if path is not None:
            configuration.write(options.RECOVERY_PATH, path)
            configuration.write(options.RECOVERY_CLAIM_MODE, "CLAIM" if self._scenario.wishes.claims else "NO_CLAIM")
            self.disk.claimed = path if self._scenario.wishes.claims else None
        # The names of savepoints begin with the first half of the id.
        job_id = f"{len(self.all) + 1:012x}{self._seed % 2**80:020x}"
        job = Job(
            job_id,
            configuration,
            self._scenario.topology.job_graph(configuration),
            MemoryStore(self.disk, job_id, self._scenario.inline_bytes_max, self._faults),
            None if path is None else self.disk.load_savepoint(path),
        )
        self.all.append(job)
        self.now = job
        return job

    def may_commit(self, job_id: str, owner: str, checkpoint_id: int) -> bool:
        """Whether a job may commit what `owner` prepared for a checkpoint: one that holds it has to be visible.

        Its own ones have to be among its checkpoints. What former jobs left is in the savepoint that it began from.
        """
        by_id = {job.job_id: job for job in self.all}
        if owner == job_id:
            return checkpoint_id <= by_id[job_id].store.visible_id_max
        begun_from = by_id[job_id].begun_from
        return begun_from is not None and checkpoint_id <= begun_from.checkpoint_id
