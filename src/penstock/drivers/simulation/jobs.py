"""The consecutive jobs of a history, and their environment.

`Jobs`: each job continues from its predecessor's state, possibly with another program.

`Surroundings` is the environment of a history's jobs in every execution mode: storage, the outside world, and faults.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.drivers.simulation import program_changes
from penstock.drivers.simulation.checkpoint_store import MemoryStore
from penstock.drivers.simulation.disk import Disk
from penstock.drivers.simulation.faults import Faults, Power
from penstock.drivers.simulation.object_store import make_disk, make_store
from penstock.drivers.simulation.oracle import Consumed, Epoch, consumed
from penstock.drivers.simulation.outside_world import Outside, present
from penstock.drivers.simulation.scenario import Scenario
from penstock.drivers.simulation.scheduler import EventLog
from penstock.drivers.simulation.worker import SimulatedBackends, StateFolder
from penstock.runtime.checkpoint.savepoints import choose_latest
from penstock.runtime.graph import JobGraph
from penstock.runtime.protocol import StopMode
from penstock.storage.metadata import CheckpointMetadata


@dataclass
class Job:
    """A job of a history. `begun_from`: the savepoint or checkpoint it began from."""

    job_id: str
    program: program_changes.Program
    configuration: Configuration
    graph: JobGraph
    store: MemoryStore
    begun_from: CheckpointMetadata | None = None
    #: the positions of the sources at that point
    begun_at: Consumed | None = None
    #: the positions at which an earlier job was drained
    read_to: Consumed | None = None
    #: the savepoints begun, and how each is to stop the job
    savepoints: dict[str, StopMode | None] = field(default_factory=dict)
    #: whether records in flight moved to other subtasks, which does not preserve their order
    is_unordered: bool = False
    #: whether it restarted to change its parallelism, or has changed it
    was_rescaled: bool = False
    #: whether all its tasks restarted for that, or to leave a worker
    has_moved: bool = False
    #: whether a savepoint that drained it is complete
    was_drained: bool = False

    def in_execution_mode(self, mode: str, filled: str | None = None) -> None:
        """Set the job's execution mode; `filled`: where a batch leaves its state."""
        self.configuration.write(options.RUNTIME_MODE, mode)
        if filled is not None:
            self.configuration.write(options.BATCH_SAVEPOINT_PATH, filled)
        self.graph = self.program.topology.job_graph(self.configuration)


class Jobs:
    """Creates the jobs; `now` is the last one. `resumed` counts how resumed jobs differed from their predecessors."""

    def __init__(self, seed: int, scenario: Scenario, disk: Disk, faults: Faults) -> None:
        self.disk = disk
        self.folder = StateFolder()
        self.resumed: Counter[str] = Counter()
        self._seed = seed
        self._scenario = scenario
        self._faults = faults
        chance = random.Random(f"changes of {scenario.topology.world}")
        max_parallelism = scenario.configuration.read(options.MAX_PARALLELISM)
        is_exactly_once = scenario.mode != "at-least-once"
        self._changes = program_changes.ChangeMaker(chance, scenario.changes, max_parallelism, is_exactly_once)
        self.all: list[Job] = []
        #: the program of the last job that was accepted
        self.accepted = self._changes.first(scenario.topology)
        self.now = self._add(self.accepted, None)

    def newest(self) -> tuple[str | None, bool]:
        """Find the newest state left by jobs of this name: return its path, and whether there is nothing left to do."""
        choice = choose_latest(self.disk.read_retained(self._scenario.topology.world))
        if choice.end is not None:
            return choice.end.savepoint, True
        return choice.checkpoints[0].external_path if choice.checkpoints else choice.path, False

    def begin(self, path: str | None, as_it_was: bool, is_told: bool = True) -> Job:
        """Begin the next job from a savepoint, a checkpoint or scratch; `as_it_was`: with the previous program.

        `is_told`: whether it gets the path and does not have to find it.
        """
        metadata = None if path is None else self.disk.load_savepoint(path)
        before = self.accepted
        program = self._changes.same(before) if as_it_was else self._changes.next(before, metadata)
        return self._add(program, metadata, is_told)

    def accept(self) -> None:
        """Accept the current job, which was not refused, and count its differences."""
        job, before = self.now, self.accepted
        self.accepted = job.program
        if job.begun_from is None:
            return
        was, now = before.shape, job.program.shape
        counts = self.resumed
        counts["all"] += 1
        counts["other parallelism"] += any(was[uid] != now[uid] for uid in was.keys() & now.keys())
        counts["other operators"] += was.keys() != now.keys()
        counts["other chaining"] += job.program.chaining != before.chaining
        common = [[s.uid for s in p.topology.stages if s.uid in was.keys() & now.keys()] for p in (before, job.program)]
        counts["other order"] += common[0] != common[1]
        counts[f"from {before.backend} to {job.program.backend}"] += 1
        counts["from a checkpoint"] += not job.begun_from.is_savepoint
        in_flight = bool(program_changes.records_in_flight(job.begun_from))
        counts["with records in flight"] += in_flight
        counts["from RocksDB's own files"] += program_changes.holds_native(job.begun_from)
        # Calls to be repeated are redistributed one by one regardless of their keys, like all operator state.
        forerunner = next(candidate for candidate in self.all if candidate.job_id == job.begun_from.job_id)
        has_moved = was != now or forerunner.was_rescaled or job.was_rescaled
        job.is_unordered |= (in_flight or program_changes.holds_calls(job.begun_from)) and has_moved
        counts["with records in flight, other parallelism"] += in_flight and was != now

    def _add(self, program: program_changes.Program, metadata: CheckpointMetadata | None, is_told: bool = True) -> Job:
        configuration = Configuration()
        configuration.add_all(self._scenario.configuration)
        write = configuration.write
        write(options.STATE_BACKEND, program.backend)
        write(options.RECOVERY_IGNORE_UNCLAIMED_STATE, program.ignores_unclaimed)
        if program.topology.is_elastic:
            self._scenario.elasticity.configure(configuration)
        self._scenario.stillness.configure(configuration)
        if program.chaining is not None:
            write(options.OPERATOR_CHAINING_ENABLED, program.chaining)
        if program.max_parallelism is not None:
            write(options.MAX_PARALLELISM, program.max_parallelism)
        if not is_told:
            write(options.RECOVERY_FROM_LATEST, True)
        elif metadata is not None:
            path = metadata.external_path
            assert path is not None
            write(options.RECOVERY_PATH, path)
            write(options.RECOVERY_CLAIM_MODE, "CLAIM" if self._scenario.wishes.claims else "NO_CLAIM")
            self.disk.claimed = path if self._scenario.wishes.claims else None
        # Savepoint names begin with the first half of the id.
        forerunner = None if metadata is None else next(job for job in self.all if job.job_id == metadata.job_id)
        begun_at = None if metadata is None else consumed(self.disk, metadata)
        job_id = f"{len(self.all) + 1:012x}{self._seed % 2**80:020x}"
        job = Job(
            job_id,
            program,
            configuration,
            program.topology.job_graph(configuration),
            make_store(self.disk, job_id, self._scenario.inline_bytes_max, self._faults),
            metadata,
            begun_at,
            None if forerunner is None else begun_at if forerunner.was_drained else forerunner.read_to,
        )
        self.all.append(job)
        self.now = job
        return job

    def backends(self) -> SimulatedBackends:
        """Create the state backends of a worker of the current job."""
        return SimulatedBackends(self.now.program.backend, self.folder)

    def epochs(self, last: Job | None = None) -> list[Epoch]:
        """Return the jobs that contributed to the committed output, with the source positions where each began."""
        by_id = {job.job_id: job for job in self.all}
        epochs: list[Epoch] = []
        job = last or self.now
        while True:
            epochs.append(Epoch(job.program.topology, job.begun_at))
            if job.begun_from is None:
                return epochs[::-1]
            job = by_id[job.begun_from.job_id]

    def may_commit(self, job_id: str, owner: str, checkpoint_id: int) -> bool:
        """Return whether a job may commit a transaction that `owner` prepared: a checkpoint holding it must be visible.

        This is one of the job's checkpoints for its own transactions, and its initial savepoint for earlier jobs'.
        """
        by_id = {job.job_id: job for job in self.all}
        if owner == job_id:
            return checkpoint_id <= by_id[job_id].store.visible_id_max
        begun_from = by_id[job_id].begun_from
        return begun_from is not None and checkpoint_id <= begun_from.checkpoint_id


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
