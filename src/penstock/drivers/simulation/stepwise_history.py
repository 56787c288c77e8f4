"""Histories of jobs whose masters work step by step, from one seed: of epochs, of a batch, and with planned failures.

`StepwiseSimulation` runs consecutive jobs. The masters, tasks and split enumerators are the same ones that run on
Spark. The clock, storage, the outside world and the driver are simulated: steps fail, tasks run twice, and the driver
dies before, after and within each step. However a job ends, the next one starts where a user would start it: from the
newest checkpoint under the job's name, or from the savepoint that it was given. In the end the sinks must hold exactly
the output of a plain computation over all records.

`BatchSimulation` runs a batch: it is repeated until it finishes, and commits all or nothing each time.

`StepwiseCrash` plans a failure at one step of an epoch, a savepoint, an end or a back-fill: the driver dies there, or
the step fails.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.drivers.simulation.connectors import SimulatedSource
from penstock.drivers.simulation.crash_points import JOBS, KEYS
from penstock.drivers.simulation.faults import Killed
from penstock.drivers.simulation.file_sinks import hidden, left_open, maybe_write_files
from penstock.drivers.simulation.jobs import Job
from penstock.drivers.simulation.oracle import check_exact, consumed, outputs
from penstock.drivers.simulation.scenario import FaultRates, Scenario, power_cut
from penstock.drivers.simulation.simulation import History
from penstock.drivers.simulation.stepwise_driver import Driver, Listening
from penstock.drivers.simulation.stepwise_world import FILLED, DriverKilled, StepwiseScenario, StepwiseWorld
from penstock.drivers.simulation.topology import Stage, Topology, TopologyMaker
from penstock.drivers.stepwise.flow import Sinks, run_in_order
from penstock.runtime.batch.exchange import Rows, enumerate_splits
from penstock.runtime.batch.task import BatchTask, batch_vertices
from penstock.runtime.master import steps
from penstock.runtime.master.master import BatchMaster, drive
from penstock.runtime.master.steps import Cancelled

JOBS_MAX: Final = 60
#: After this many jobs no more faults are injected.
FAULTY_JOBS: Final = 20


class StepwiseSimulation(StepwiseWorld):
    """Runs one history."""

    def run(self) -> History:
        """Run the whole history."""
        status = "?"
        with self.around.present():
            path, is_filled = None, not self.scenario.fills_first
            for number in range(JOBS_MAX):
                if number == FAULTY_JOBS:
                    self.faults.are_over = True
                job = self._job(number, path, not is_filled)
                self.tasks.begin_driver()
                driver = Driver(self, job, path)
                try:
                    status = driver.run().name
                except DriverKilled:
                    self.seen["driver stopped" if driver.is_stopped else "driver killed"] += 1
                    self.on_driver_death()
                    status = "?"
                driver.check_answers()
                if status == "FAILED":
                    self.outsiders.on_failure(str(driver.master.failure))
                if self.violations:
                    break
                path = driver.goes_on_from
                if driver.is_back_fill or (path == FILLED and FILLED not in self.disk.savepoints):
                    # If a power cut removed the savepoint before a job started from it, no user knows of it yet.
                    is_filled = FILLED in self.disk.savepoints
                    path = FILLED if is_filled else None
                elif (status == "FINISHED" and driver.is_at_end()) or self.violations:
                    break
            else:
                self.violations.append(f"stalled: {JOBS_MAX} jobs, the last one {status}")
            self.power.is_over = True
            self.stopped.end()
            self.tasks.end()
            self.outsiders.end()
            self._check_output()
            self._check_hidden_files()
        return self.history("epochs", status)

    def _job(self, number: int, path: str | None, fills: bool) -> Job:
        job = self.jobs.now if number == 0 else self.jobs.begin(path, as_it_was=True)
        self.jobs.accept()
        if fills:
            job.in_execution_mode("BATCH", FILLED)
            if FILLED not in self.disk.savepoints:
                for left in self.disk.below(FILLED):  # a user would choose another path or check for files first
                    self.disk.unlink(left)
        elif path is not None:
            self.stopped.kill_those_that_may_lead()
        else:
            job.configuration.write(options.RECOVERY_FROM_LATEST, True)
        self.write(f"job {job.job_id}: {job.graph.mode}, from {path or 'the newest'}")
        return job

    # --- what must hold --------------------------------------------------------------------------------------------

    def _check_hidden_files(self) -> None:
        """Check that no job that ended well left hidden files, its own or its predecessors' (G9).

        Hidden files are those in progress or closed but not visible. Exceptions: files that a power cut restored, that
        could not be removed, or that were begun later than others assumed; files that a savepoint may name; files of
        unrelated jobs; and files that an outsider has put back.
        """
        is_excused = self.faults.seen["power-cut"] or self.seen["driver stopped"] or self.tasks.seen["file step failed"]
        if is_excused or self.tasks.seen["cut off"] or self.outsiders.seen["file moved away"]:
            return
        paths = left_open(self.disk) if self.disk.savepoints else hidden(self.disk)
        left = [path for path in paths if not self.outsiders.may_leave(path)]
        if left:
            self.violations.append(f"leaked-file: {len(left)} files that nobody needs are left: {left[0]}")

    def _check_output(self) -> None:
        topology = self.scenario.scenario.topology
        read = {} if self.drained is None else consumed(self.disk, self.drained)
        expected = outputs(topology, read)
        for sink in (stage.uid for stage in topology.stages if stage.kind == "sink"):
            flaw = check_exact(sink, expected[sink], self.read_sink_output(sink))
            if flaw is not None:
                self.violations.append(flaw)


def run_stepwise_seed(seed: int, is_traced: bool = False) -> History:
    """Run the history of a seed."""
    return StepwiseSimulation(seed, is_traced=is_traced).run()


RUNS_MAX: Final = 40
#: Faults stop after this many runs.
FAULTY_RUNS: Final = 12


def draw_batch(chance: random.Random, world: str) -> StepwiseScenario:
    """Draw the scenario of a seed: a job without running counts, because a batch emits only the final ones."""
    topology = TopologyMaker(chance, world, is_exactly_once=True, ends=None).make()
    while any(stage.kind == "reduce" for stage in topology.stages):
        topology = TopologyMaker(chance, world, is_exactly_once=True, ends=None).make()
    rates = FaultRates(
        user_errors_max=chance.choice((0, 0, 1, 3)),
        user_error=chance.choice((0.003, 0.02)),
        power_cut=power_cut(f"batch of {world}"),
    )
    return batch_scenario(
        topology,
        rates,
        dies=0.1 if chance.random() < 0.5 else 0.0,
        deaths_max=chance.choice((0, 1, 3)),
        commit_error=chance.choice((0.0, 0.1, 0.4)),
        runs_twice=chance.choice((0.0, 0.2)),
    )


def batch_scenario(
    topology: Topology, rates: FaultRates, dies: float, deaths_max: int, commit_error: float, runs_twice: float
) -> StepwiseScenario:
    """Build the scenario of a batch with a given topology."""
    for stage in topology.stages:
        stage.calls = None
        if stage.source is not None:
            stage.source.is_lazy, stage.source.pauses = False, 0.0
    configuration = Configuration().write(options.RUNTIME_MODE, "BATCH").write(options.MAX_PARALLELISM, 7)
    scenario = Scenario(topology, "aligned", configuration, rates, 0, 0.0, 0, False)
    return StepwiseScenario(
        scenario, False, dies, dies, dies, deaths_max, commit_error, 0.0, runs_twice, asks=0.0, cancels=dies / 4
    )


class BatchSimulation(StepwiseWorld):
    """Runs one history."""

    def run(self) -> History:
        """Repeat the job until a run has committed everything."""
        status = "?"
        self.outside.needs_checkpoints = False
        expected = outputs(self.scenario.scenario.topology)
        with self.around.present():
            for number in range(RUNS_MAX):
                self.tasks.begin_driver()
                self.faults.are_over = number >= FAULTY_RUNS
                job = self.jobs.now if number == 0 else self.jobs.begin(None, as_it_was=True)
                self.jobs.accept()
                self.write(f"run {number}")
                run = _Run(self, job)
                try:
                    status = run.drive()
                except DriverKilled:
                    self.seen["driver killed"] += 1
                    status = "?"
                    self.on_driver_death()
                    run.find_out()
                    if not run.has_committed:
                        continue  # the next run finds the commits that it began
                if run.has_committed or self.violations:
                    break
                if status == "FAILED":
                    self.outsiders.on_failure(str(run.master.failure))
                if status == "FINISHED":
                    self.violations.append("output: a run has finished, and committed nothing")
                if any(map(self.read_sink_output, expected)) and not self.disk_holds_list():
                    self.violations.append(f"atomic: a run that ended {status} has left output")
            else:
                self.violations.append(f"stalled: {RUNS_MAX} runs, the last one {status}")
            self.power.is_over = True
            self.tasks.end()
            self.outsiders.end()
            for sink, records in expected.items():
                flaw = check_exact(sink, records, self.read_sink_output(sink))
                if flaw is not None:
                    self.violations.append(flaw)
        return self.history("batch", status)

    def disk_holds_list(self) -> bool:
        """Return whether a run has listed its commits but not completed them: the next run takes them back."""
        return any(path.endswith(".commit") for path in self.disk.files)


class _Run:
    """One run of the job."""

    def __init__(self, history: BatchSimulation, job: Job) -> None:
        self._history = history
        self._job = job
        self.has_committed = False
        self._vertices = batch_vertices(job.graph, job.job_id)
        self.master = BatchMaster(job.graph, job.job_id, job.configuration, history)
        self._sinks = Sinks(
            job.graph,
            job.job_id,
            Listening(history.write),
            history,
            self.master.figures,
            history.pass_time,
            all_or_nothing=True,
        )
        self._runs = iter(range(1, 1 << 30))
        #: of each source: the splits, by vertex and subtask
        self._splits: dict[int, list[tuple[bytes, ...]]] = {}

    def drive(self) -> str:
        """Run to the end and return the final status. Raises `DriverKilled`."""
        drive(self.master.run(), self._perform, Killed)
        return self.master.status.name

    def find_out(self) -> None:
        """Find out, after the driver's death, whether the run is complete: it has output but no list of commits.

        A run is complete from the moment its list is removed, whatever its driver last reported.
        """
        history = self._history
        if history.has_files and not history.disk_holds_list():
            sinks = (stage.uid for stage in history.scenario.scenario.topology.stages if stage.kind == "sink")
            self.has_committed = self.has_committed or any(map(history.read_sink_output, sinks))

    def _perform(self, step: steps.Step) -> Any:
        was_driving, self._history.is_driving = self._history.is_driving, True
        try:
            return self._perform_step(step)
        finally:
            self._history.is_driving = was_driving

    def _perform_step(self, step: steps.Step) -> Any:
        history, name = self._history, f"{type(step).__name__} of a batch"
        history.step += 1
        history.now += 1
        history.write(name)
        history.on_point(f"before {name}")
        history.maybe_die(history.scenario.dies_before)
        result: Any = None
        if isinstance(step, steps.BeginCommits):
            self._sinks.begin()
        elif isinstance(step, steps.RunTasks):
            history.maybe_cancel()
            self._splits = {
                vertex.index: enumerate_splits(source, vertex.parallelism)
                for vertex in self._job.graph.vertices
                for source in vertex.sources.values()
            }
            result = list(run_in_order(self._job.graph, self._task, lambda: None))
        elif isinstance(step, steps.Deliver):
            self._sinks.deliver(step.last)
            self.has_committed = True
        elif isinstance(step, steps.EndSinks):
            self._sinks.end()
        history.on_point(f"after {name}")
        history.maybe_die(history.scenario.dies_after)
        history.between_steps()
        history.maybe_lose_power()
        return result

    def _task(self, vertex: int, subtask: int, rows: Rows) -> Iterable[Rows]:
        """Run a task, sometimes twice: then either run may be the one that counts."""
        once = partial(self._once, vertex, subtask, rows)
        first = once()
        history = self._history
        if history.faults.are_over or history.chance.random() >= history.scenario.runs_twice:
            return first
        history.seen["ran twice"] += 1
        second = once()
        return second if history.chance.random() < 0.5 else first

    def _once(self, vertex: int, subtask: int, rows: Rows) -> list[Rows]:
        if self._history.has_files:
            return self._history.tasks.run(partial(self._in_a_process, vertex, subtask, rows))
        return self._in_a_process(vertex, subtask, rows)

    def _in_a_process(self, vertex: int, subtask: int, rows: Rows) -> list[Rows]:
        history = self._history
        history.on_point("within RunTasks of a batch")
        history.maybe_die(history.scenario.dies_within / 4)
        task = BatchTask(self._vertices[vertex], subtask, history, lambda ms: None, run=f"{next(self._runs)}")
        splits = self._splits.get(vertex)
        return list(task.run([rows]) if splits is None else task.run_source(splits[subtask]))


def run_batch_seed(seed: int, is_traced: bool = False) -> History:
    """Run the history of a seed."""
    chance = random.Random(f"batch {seed}")
    scenario = draw_batch(chance, f"stepwise-{seed}")
    maybe_write_files(scenario.scenario.topology)
    return BatchSimulation(seed, scenario, is_traced).run()


#: The most runs to try until a crash happens.
TRIES_MAX: Final = 30

#: Each step, and its precondition: a person's request, or one of "fill" and "batch" (such a job), "again" (another job
#: continues), "fail" (an earlier failure), "doubt" (a checkpoint whose completion was reported as failed).
STEPS: Final[dict[str, str | None]] = {
    "PrepareSources": None,
    "MarkJob BEGUN with a savepoint": "suspend",
    "Join": "suspend",
    "TakeOver": "again",
    "Load": "suspend",
    "ReadThrough": "again",
    "OpenSources": None,
    "DealSplits": None,
    "RunEpoch": None,
    "SnapshotSources": None,
    "Complete of the checkpoint": None,
    "Revoke": "doubt",
    "Deliver": None,
    "DeleteGarbage": None,
    "EndForerunners": "again",
    "DeleteJobs": "again",
    "Wait": "fail",
    "RunEpoch of a savepoint": "savepoint",
    "Complete of the savepoint": "savepoint",
    "Answer": "savepoint",
    "Complete of the savepoint that ends the job": "drain",
    "Deliver of the savepoint that ends the job": "drain",
    "MarkJob FINISHED with a savepoint": "suspend",
    "RunEpoch of the last epoch": None,
    "Complete of the checkpoint that ends the job": None,
    "MarkJob FINISHED": None,
    "CheckLeads": None,
    "EndSinks": None,
    "ClaimSavepoint": "fill",
    "CheckClaim": "fill",
    "EmptySavepoint": "fill",
    "ReleaseSavepoint": "fill",
    "BeginCommits of a batch": "batch",
    "RunTasks of a batch": "batch",
    "Deliver of a batch": "batch",
    "EndSinks of a batch": "batch",
}
#: Points within steps.
WITHIN: Final[dict[str, str | None]] = {
    "within RunEpoch": None,
    "within Deliver": None,
    "within DeleteGarbage": None,
    "within Complete of the savepoint that ends the job": "drain",
    "within RunTasks of a batch": "batch",
    "within Deliver of a batch": "batch",
}
#: A person cancels the job while it takes a savepoint.
CANCELLED: Final = "cancelled in a savepoint"
#: Steps that drivers perform on their own, and that therefore do not fail.
NEVER_FAIL: Final = ("Answer", "Wait", "EndForerunners", "EndSinks", "EndSinks of a batch")
DIES, FAILS, FAILS_FOR_GOOD = HOWS = ("dies", "fails", "fails for good")
POINTS: Final[dict[str, str | None]] = {
    **{f"{when} {step}": prelude for step, prelude in STEPS.items() for when in ("before", "after")},
    **WITHIN,
    CANCELLED: "savepoint",
}


def applies(point: str, how: str) -> bool:
    """Return whether that failure can happen at that point."""
    if point == CANCELLED:
        return how == FAILS
    if POINTS[point] in ("batch", "doubt") and how == FAILS_FOR_GOOD:
        return False  # a batch as a whole never restarts, and a checkpoint is only in doubt before a restart
    if how == DIES or point.startswith("within Deliver"):
        return True
    return point.startswith("before") and not point.endswith(NEVER_FAIL)


def select_jobs(point: str, jobs: tuple[str, ...]) -> tuple[str, ...]:
    """Return the jobs in which it can happen: a batch emits only the final values of running counts."""
    return tuple(job for job in jobs if job != "counts") if POINTS[point] == "batch" else jobs


def planned(job: str, world: str, chance: random.Random, prelude: str | None, how: str) -> StepwiseScenario:
    """Build the scenario of a job with planned faults only."""
    stages = []
    for index, (kind, parallelism, inputs, size_ms) in enumerate(JOBS[job]):
        stage = Stage(kind, parallelism, inputs, size_ms=size_ms)
        if kind == "source":
            stage.source = SimulatedSource(world, index, parallelism + 1, 10, KEYS, prelude != "fill", pauses=0.0)
        stages.append(stage)
    write = Configuration().write
    write(options.RUNTIME_MODE, "MICRO_BATCH")
    write(options.CHECKPOINTING_DIR, "disk")
    write(options.MICRO_BATCH_RECORDS_MAX, 3)
    write(options.CHECKPOINTING_NUM_RETAINED, chance.choice((1, 2)))
    write(options.RESTART_STRATEGY, "fixed-delay")
    write(options.FIXED_DELAY_ATTEMPTS, 0 if how == FAILS_FOR_GOOD else 1_000)
    write(options.FIXED_DELAY_MS, 10)
    configuration = write(options.MAX_PARALLELISM, 7)
    rates = FaultRates(user_errors_max=1, user_error=0.05) if prelude == "fail" else FaultRates()
    if prelude == "batch":
        return batch_scenario(Topology(world, KEYS, stages), rates, 0.0, 0, 0.0, 0.0)
    scenario = Scenario(Topology(world, KEYS, stages), "aligned", configuration, rates, 10, 0.0, 0, False)
    return StepwiseScenario(scenario, prelude == "fill", 0.0, 0.0, 0.0, 0, 0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class StepwiseCrash:
    """One history with a failure at one point; equal fields give equal histories.

    `how`: the driver dies, the step fails once and the job restarts, or the step fails and there is no restart.
    """

    seed: int
    job: str
    point: str
    occurrence: int
    how: str = DIES

    def run(self, is_traced: bool = False) -> tuple[History, bool]:
        """Run the history; return it, and whether the failure happened."""
        chance = random.Random(f"{self}")
        prelude = POINTS[self.point]
        world = f"stepwise-{self.seed}"
        scenario = planned(self.job, world, chance, prelude, self.how)
        kind = BatchSimulation if prelude == "batch" else StepwiseSimulation
        simulation = kind(self.seed, scenario, is_traced)
        wishes = ("checkpoint", "savepoint", "suspend", "drain", "cancel")
        if prelude in wishes:
            simulation.wish = prelude, chance.randint(1, 4)
        elif prelude is None or prelude == "again":
            simulation.wish = chance.choice(wishes), chance.randint(1, 6)
        reached = has_begun_again = 0

        def on_point(point: str) -> None:
            nonlocal reached, has_begun_again
            if prelude == "again" and not has_begun_again and point == "after DeleteGarbage":
                has_begun_again = 1
                raise DriverKilled
            if prelude == "doubt" and not has_begun_again and point == "after Complete of the checkpoint":
                has_begun_again = 1
                raise OSError("planned: the checkpoint is complete, and the answer was lost")
            if self.point == CANCELLED and point == "before RunEpoch of a savepoint" and not reached:
                reached = 1
                raise Cancelled
            if point == self.point:
                reached += 1
                if reached == self.occurrence:
                    simulation.write(f"planned: {point}, {self.how}")
                    if self.how == DIES:
                        raise DriverKilled
                    raise OSError("planned: the step failed")

        simulation.on_point = on_point
        history = simulation.run()
        return history, reached >= self.occurrence


@dataclass
class StepwiseTable:
    """Results of the runs, by point."""

    covered: dict[str, int] = field(default_factory=dict)
    wanted: dict[str, int] = field(default_factory=dict)
    histories: int = 0
    failed: list[tuple[StepwiseCrash, list[str]]] = field(default_factory=list)

    @property
    def missed(self) -> list[str]:
        """The points that were not reached in every job."""
        return [point for point, possible in self.wanted.items() if self.covered.get(point, 0) < possible]

    def cover(self, point: str, how: str, job: str) -> None:
        """Run histories until the failure has happened in one."""
        name = f"{point}, {how}"
        self.wanted[name] = self.wanted.get(name, 0) + 1
        for attempt in range(TRIES_MAX):
            occurrence = random.Random(f"{point} {job} {attempt}").randint(1, 3) if attempt < TRIES_MAX // 2 else 1
            crash = StepwiseCrash(attempt, job, point, occurrence, how)
            history, happened = crash.run()
            self.histories += 1
            if history.violations:
                self.failed.append((crash, history.violations))
            if happened:
                self.covered[name] = self.covered.get(name, 0) + 1
                return


def cover_all_steps(
    table: StepwiseTable, jobs: tuple[str, ...] = tuple(JOBS), points: Iterable[str] = tuple(POINTS)
) -> Iterator[str]:
    """Fail at every point, or at some points only; yield each point when it is done."""
    for point in points:
        for how in HOWS:
            if applies(point, how):
                for job in select_jobs(point, jobs):
                    table.cover(point, how, job)
                yield f"{point}, {how}"
