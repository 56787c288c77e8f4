"""One history of a batch, from one seed: it is repeated until it finishes, and commits all or nothing each time."""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.core.batch.rows import Rows
from penstock.core.batch.splits import enumerate_splits
from penstock.core.batch.task import BatchTask, batch_vertices
from penstock.core.master import steps
from penstock.core.master.batch import BatchMaster
from penstock.core.master.driving import drive
from penstock.drivers.simulation.answers import check_exact
from penstock.drivers.simulation.faults import Killed
from penstock.drivers.simulation.file_sinks import maybe_write_files
from penstock.drivers.simulation.jobs import Job
from penstock.drivers.simulation.reference import outputs
from penstock.drivers.simulation.scenario import FaultRates, Scenario, power_cut
from penstock.drivers.simulation.simulation import History
from penstock.drivers.simulation.stepwise.listening import Listening
from penstock.drivers.simulation.stepwise.scenario import StepwiseScenario
from penstock.drivers.simulation.stepwise.world import DriverKilled, StepwiseWorld
from penstock.drivers.simulation.topology import Topology
from penstock.drivers.simulation.topology_maker import TopologyMaker
from penstock.drivers.stepwise.exchange import run_in_order
from penstock.drivers.stepwise.sinks import Sinks

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
