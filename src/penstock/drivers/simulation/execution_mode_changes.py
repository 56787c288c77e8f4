"""One history, from one seed, of jobs that change their execution mode: each continues from its predecessor's state.

**Scenario.** A seed determines a program, options for every execution mode, and faults.

**History.** All jobs share sources, sinks and storage, and each runs in its own execution mode. A streaming job has a
cluster, as in `simulation`; a job of epochs and a batch that saves its state have a driver, as in `stepwise_history`.
Faults and a person's requests depend on the execution mode. However a job ends, the next one begins from a savepoint, a
retained checkpoint, or the newest checkpoint left by jobs of its name. The sinks must hold the result of one plain
computation over all records, regardless of which jobs wrote them.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

from penstock.base import options
from penstock.base.job import JobStatus
from penstock.drivers.simulation import stepwise_world
from penstock.drivers.simulation.disk import METADATA
from penstock.drivers.simulation.invariants import expected_refusals, judge
from penstock.drivers.simulation.jobs import Job, Surroundings
from penstock.drivers.simulation.oracle import check_exact, check_order, consumed, outputs_of_jobs
from penstock.drivers.simulation.scenario import Wishes, draw_scenario
from penstock.drivers.simulation.simulation import History, Simulation
from penstock.drivers.simulation.stepwise_driver import Driver
from penstock.runtime.graph import BACK_FILL
from penstock.storage.metadata import CheckpointMetadata

STREAMING, EPOCHS, BATCH = EXECUTION_MODES = ("STREAMING", "MICRO_BATCH", "BATCH")
#: The execution modes whose jobs can look for the newest checkpoint on request.
LOOKING: Final = (STREAMING, EPOCHS)
#: Without "at-least-once": repeated records in streaming would change the totals of the epochs that follow.
MODES: Final = ("aligned", "unaligned", "unaligned", "timed")
#: The requests to a job that is to have a successor.
KINDS: Final = ("savepoint", "cancel", "cancel", "suspend", "suspend", "suspend", "drain", "abandon", "abandon")


def draw(chance: random.Random, world: str) -> stepwise_world.StepwiseScenario:
    """Draw the scenario of a seed: the one of its streaming jobs, wrapped in the one of the other jobs."""
    drawn = draw_scenario(chance, world, chance.choice(MODES))
    for stage in drawn.topology.stages:
        stage.calls = None  # drivers of epochs do not run coroutines
    write = drawn.configuration.write
    write(options.CHECKPOINTING_DIR, "disk")
    write(options.CHECKPOINT_RETENTION, "RETAIN_ON_CANCELLATION")
    write(options.MICRO_BATCH_RECORDS_MAX, chance.choice((1, 3, 10)))
    if chance.random() < 0.3:
        write(options.MICRO_BATCH_INTERVAL_MS, chance.choice((1, 50)))
    # The expected output needs a single order of the operators of all jobs.
    changes = replace(drawn.changes, uses_rocksdb=chance.random() < 0.2, returns=False)
    rates = replace(drawn.rates, storage_errors_max=2 * drawn.rates.storage_errors_max)
    return stepwise_world.draw_around(chance, replace(drawn, wishes=Wishes(), changes=changes, rates=rates))


def draw_wishes(chance: random.Random) -> Wishes:
    """Draw a person's requests to one streaming job."""
    return Wishes(
        tuple(chance.choice(KINDS) for _ in range(chance.choice((1, 1, 2)))),
        chance.choice((0.002, 0.01)),
        chance.choice((0.03, 0.1)),
        chance.choice((0.0, 0.3)),
        insists=True,
    )


JOBS_MAX: Final = 60
#: Faults and requests stop after this many jobs.
FAULTY_JOBS: Final = 8
#: How likely a driver's death ends a streaming job, so that another continues, possibly in another execution mode.
GOES: Final = 0.5


@dataclass(frozen=True)
class Start:
    """Where a job begins: at `path`, or from scratch. `is_told`: whether it is given the path or looks for the newest.

    `as_it_was`: whether it runs the previous program; `execution_modes`: the ones to choose from; `is_end`: whether it
    will find nothing left to do.
    """

    path: str | None = None
    is_told: bool = True
    as_it_was: bool = False
    execution_modes: tuple[str, ...] = EXECUTION_MODES
    is_end: bool = False


class ChangingSimulation:
    """Runs one history."""

    def __init__(self, seed: int, is_traced: bool = False) -> None:
        chance, world = random.Random(f"changing {seed}"), f"changing-{seed}"
        scenario = draw(chance, world)
        self.seed = seed
        self.around = Surroundings.made(seed, world, scenario.scenario, chance, is_traced)
        #: the environment of the drivers of epochs and batches
        self.stepwise = stepwise_world.StepwiseWorld(seed, scenario, around=self.around)
        self.violations: list[str] = []
        self.seen: Counter[str] = Counter()
        self._steps = self._restarts = self._checkpoints = 0
        self._execution_mode = ""
        #: the last job that had anything to do
        self._last_job = self._job

    @property
    def _job(self) -> Job:
        return self.around.jobs.now

    def run(self) -> History:
        """Run the whole history."""
        faults, status = self.around.faults, "?"
        with self.around.present():
            start: Start | None = Start(as_it_was=True)
            for number in range(JOBS_MAX):
                faults.are_over = faults.are_over or number >= FAULTY_JOBS
                assert start is not None
                execution_mode = self._begin(number, start)
                status, start = self._stream(start) if execution_mode == STREAMING else self._step(start)
                self.violations += self.stepwise.violations
                self.stepwise.violations.clear()
                if start is None or self.violations:
                    break
            else:
                self.violations.append(f"stalled: {JOBS_MAX} jobs, the last one {status}")
            self.violations += self.around.flaws()
            if left := self.around.jobs.folder.left():
                self.violations.append(f"leaked-state: {len(left)} directories of RocksDB are left")
            if start is None:
                self._check_output()
        return self._history(status)

    # --- from one job to the next ----------------------------------------------------------------------------------

    def _begin(self, number: int, start: Start) -> str:
        """Begin the next job in a randomly drawn execution mode, and return the mode."""
        around, chance = self.around, self.around.chance
        execution_mode = chance.choice(start.execution_modes)
        around.outside.stopping.clear()
        for stage in around.scenario.topology.stages:
            if stage.source is not None:
                splits = len(stage.source.splits)
                stage.source.there = chance.randint(0, splits) if execution_mode == BATCH else None
        if number:
            # A batch does not look for checkpoints: a person looks and passes the path.
            path = None if start.is_end else start.path
            around.jobs.begin(path, start.as_it_was, start.is_told or execution_mode == BATCH)
        job = self._job
        if not start.is_end:
            self._last_job = job
        job.in_execution_mode(execution_mode, f"{stepwise_world.FILLED}-{number}" if execution_mode == BATCH else None)
        if start.path is not None:
            self._note_drain(around.jobs.disk.load_savepoint(start.path))
            self.seen[f"{self._execution_mode} to {execution_mode}"] += 1
        where = "the newest" if not start.is_told else start.path or "nothing"
        around.log.write(f"job {job.job_id}: {job.graph.mode}, from {where}; {job.program.topology}")
        self._execution_mode = execution_mode
        self.stepwise.now += 1
        return execution_mode

    def _note_drain(self, last: CheckpointMetadata | None) -> None:
        """Remember the first drain: the records read by then are all that the output may reflect."""
        if last is not None and last.is_drained and self.stepwise.drained is None:
            self.stepwise.drained = last

    def _go_on(self, path: str | None, is_known: bool) -> Start:
        """Choose the next job's start: a path, or the newest checkpoint; both are the same once the start `is_known`.

        A person may also look for the newest one and pass its path to the job.
        """
        if is_known and (path is None or self.around.chance.random() < 0.5):
            newest, is_end = self.around.jobs.newest()
            if is_end:
                return Start(newest, is_told=False, execution_modes=LOOKING, is_end=True)
            return Start(newest, self.around.chance.random() < 0.5)
        return Start(path)

    def _is_known(self, start: Start) -> bool:
        """Return whether the current job has recorded where it began, by a mark or by its first checkpoint."""
        job, left = self._job, self.around.jobs.disk.read_retained(self.around.world)
        return not start.is_told or job.job_id in {checkpoint.job_id for checkpoint in left.checkpoints} | {
            mark.job_id for mark in left.marks
        }

    # --- streaming -------------------------------------------------------------------------------------------------

    def _stream(self, start: Start) -> tuple[str, Start | None]:
        """Run the current job on a cluster; return its final status and the start of the next one."""
        around = self.around
        scenario = replace(around.scenario, wishes=draw_wishes(around.chance))
        simulation = Simulation(self.seed, scenario=scenario, around=around)
        simulation.may_go = lambda: not around.faults.are_over and around.chance.random() < GOES
        simulation.engine.advance(self.stepwise.now)
        simulation.run_job()
        master, totals = simulation.master, simulation.process.final_totals()
        self.stepwise.now = simulation.engine.now_ms()
        self._restarts += totals.restarts
        self._checkpoints += totals.checkpoints
        self._steps += around.log.step
        self.seen += simulation.events
        self.violations += simulation.invariants.found
        if simulation.is_gone:
            self.seen["driver of a stream gone"] += 1
            # It may have progressed beyond its start, or even to its end.
            is_known = self._is_known(start)
            return "?", self._go_on(None if is_known else start.path, is_known)
        if master.status is JobStatus.FAILED and not simulation.is_refused:
            self.violations.append(f"failed: a streaming job: {master.failure}")
        self._note_drain(master.checkpoints.last)
        next_job = simulation.person.continuation()
        if next_job is None:
            return master.status.name, None
        if next_job.as_it_was:
            return master.status.name, Start(next_job.path, as_it_was=True)
        return master.status.name, self._go_on(next_job.path, self._is_known(start))

    # --- epochs and batches ----------------------------------------------------------------------------------------

    def _step(self, start: Start) -> tuple[str, Start | None]:
        """Run the current job step by step; return its final status and the start of the next one."""
        world, job = self.stepwise, self._job
        world.watch()
        world.step = 0
        before = world.disk.directories()
        driver = Driver(world, job, start.path if start.is_told else None)
        try:
            status = driver.run().name
        except stepwise_world.DriverKilled:
            world.seen["driver killed"] += 1
            world.on_driver_death()
            status = "?"
        self._steps += world.step
        driver.check_answers()
        # Files written there by discarded runs do no harm.
        world.disk.excused.update(world.disk.directories() - before)
        error = str(driver.master.failure) if status == "FAILED" else ""
        reason, flaw = judge(job, error, has_looked=driver.has_written)
        if flaw is not None:
            world.violations.append(flaw)
        if reason is not None:
            world.jobs.resumed[f"refused: {reason}"] += 1
            execution_modes = (STREAMING,) if "not streaming" in reason else EXECUTION_MODES
            return status, replace(start, as_it_was=True, execution_modes=execution_modes)
        if not expected_refusals(job):
            world.jobs.accept()
        if driver.filled is not None:
            if left := job.store.leftovers():
                world.violations.append(f"leaked-file: a batch leaves {left[0]} beside its savepoint")
            is_there = world.disk.is_durable(f"{driver.filled}/{METADATA}")
            return status, Start(driver.filled) if is_there else start
        if status == "FINISHED" and driver.is_at_end():
            return status, None
        is_told = driver.goes_on_from is not None
        return status, self._go_on(driver.goes_on_from, is_known=not is_told)

    # --- what must hold --------------------------------------------------------------------------------------------

    def _check_output(self) -> None:
        around, drained = self.around, self.stepwise.drained
        read = {} if drained is None else consumed(around.jobs.disk, drained)
        stages = {stage.uid: stage for stage in around.scenario.topology.stages}
        has_order = not any(job.is_unordered or _sorts(job) for job in around.jobs.all)
        for sink, expected in outputs_of_jobs(around.jobs.epochs(self._last_job), read).items():
            records = around.outside.committed.get(sink, [])
            violations = [check_exact(sink, expected, records)]
            if has_order:
                violations.append(check_order(sink, stages[sink], records))
            self.violations += [line for line in violations if line is not None]

    def _history(self, status: str) -> History:
        around, jobs = self.around, self.around.jobs
        for violation in self.violations:
            around.log.write(f"VIOLATION {violation}")
        return History(
            self.seed,
            "changing",
            status,
            self._steps,
            self.stepwise.now,
            self._restarts,
            self._checkpoints + self.stepwise.epochs,
            around.outside.commits,
            len(jobs.all),
            len(jobs.disk.savepoints),
            self.seen + self.stepwise.seen,
            self.violations,
            around.faults.seen,
            around.log.lines,
            str(around.scenario.topology),
            jobs.resumed,
        )


def _sorts(job: Job) -> bool:
    """Return whether records of a key are emitted in timestamp order: a batch sorts a tally's input."""
    return job.graph.mode == BACK_FILL and any(stage.kind == "tally" for stage in job.program.topology.stages)


def run_changing_seed(seed: int, is_traced: bool = False) -> History:
    """Run the history of a seed."""
    return ChangingSimulation(seed, is_traced).run()
