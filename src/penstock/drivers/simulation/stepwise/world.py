"""The clock, random generator, disk and outside world of one history, and its record of events."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from penstock.base import options
from penstock.core.master.steps import Cancelled
from penstock.drivers.simulation.disk import METADATA
from penstock.drivers.simulation.faults import Killed
from penstock.drivers.simulation.file_outsiders import Outsiders
from penstock.drivers.simulation.file_sinks import file_sink, maybe_write_files, written
from penstock.drivers.simulation.kafka_sinks import kafka_sink
from penstock.drivers.simulation.simulation import History
from penstock.drivers.simulation.stepwise.scenario import StepwiseScenario, draw
from penstock.drivers.simulation.stepwise.stopped import StoppedDrivers
from penstock.drivers.simulation.stepwise.task_processes import TaskProcesses
from penstock.drivers.simulation.surroundings import Surroundings
from penstock.storage.metadata import CheckpointMetadata


class DriverKilled(Killed):
    """Ends the driver's process."""


class StepwiseWorld:
    """The environment of the masters of one history."""

    def __init__(
        self,
        seed: int,
        scenario: StepwiseScenario | None = None,
        is_traced: bool = False,
        around: Surroundings | None = None,
    ) -> None:
        self.seed = seed
        if around is None:
            chance, world = random.Random(f"stepwise {seed}"), f"stepwise-{seed}"
            if scenario is None:
                scenario = draw(chance, world)
                maybe_write_files(scenario.scenario.topology)
            around = Surroundings.made(seed, world, scenario.scenario, chance, is_traced)
        assert scenario is not None, "surroundings come with a scenario"
        self.around = around
        self.scenario = scenario
        self.chance = around.chance
        self.log = around.log
        self.faults = around.faults
        self.jobs = around.jobs
        self.disk = around.jobs.disk
        self.outside = around.outside
        self.power = around.power
        #: whether a driver is taking a step
        self.is_driving = False
        self.violations: list[str] = []
        self.seen: Counter[str] = Counter()
        self.epochs = 0
        self.now = 0
        #: the checkpoint at which the job was drained; the sinks must then show exactly the output up to it
        self.drained: CheckpointMetadata | None = None
        #: the drivers that all others think are dead
        name = scenario.scenario.topology.world
        self.stopped = StoppedDrivers(name, scenario.stops, self.write, self._look_for_power)
        #: whether the sinks are real ones, which write to files or Kafka, and the processes of their tasks
        self.has_files = any(stage.make_sink is not None for stage in scenario.scenario.topology.stages)
        self.tasks = TaskProcesses(name, self.write, lambda: self.faults.are_over, self._die)
        sinks = [stage.uid for stage in scenario.scenario.topology.stages if stage.make_sink is file_sink]
        is_batch = scenario.scenario.configuration.read(options.RUNTIME_MODE) == "BATCH"
        self.outsiders = Outsiders(
            name, self.outside, sinks, lambda: self.faults.are_over, self.write, batches=is_batch
        )
        #: called with the name of each point at which a driver may die; may raise `DriverKilled`
        self.on_point: Callable[[str], None] = lambda point: None
        #: the request of a person and the number of the master's look at which it is made; None for random requests
        self.wish: tuple[str, int] | None = None
        self.looks = 0
        self.watch()

    def watch(self) -> None:
        """Connect the log, the outside world and the power supply to this history."""
        self.log.now = self.now_ms
        self.outside.watch(self._on_commit, self._may_commit)
        self.outside.on_file_step = self.outside.kafka.step = self.tasks.before_step
        self.outside.process = lambda: self.tasks.name
        self.outside.is_alive = lambda name: self.tasks.is_alive(name) or self.outsiders.is_alive(name)
        self.power.die, self.power.is_anybody_there = self._die, lambda: self.is_driving

    # --- power cuts ------------------------------------------------------------------------------------------------

    def _die(self) -> None:
        self.tasks.is_driver_dead = True
        raise DriverKilled

    def _look_for_power(self) -> None:
        if self.power.is_out:
            raise DriverKilled

    def between_steps(self) -> None:
        """Let processes that are thought to be dead resume, or outsiders act, sometimes, after a step."""
        self.tasks.between_steps()
        self.outsiders.look()

    def maybe_lose_power(self) -> None:
        """Cut the power, sometimes, after a step."""
        if self.power.fails_after(is_protocol=True):
            self.power.fail()
            raise DriverKilled

    def on_driver_death(self) -> None:
        """Handle the driver's death; if the power failed, kill all other processes and restore the power."""
        self.tasks.is_driver_dead = True
        self.write("the driver is dead")
        if not self.power.is_out:
            return
        self.violations += [f"power-cut: {loss}" for loss in self.disk.losses]
        self.disk.losses.clear()
        self.stopped.kill_all()
        self.tasks.kill_all()
        self.outsiders.on_power_cut()
        self.power.come_back()
        drained = self.drained
        if drained is not None and f"{drained.job_id}/chk-{drained.checkpoint_id}/{METADATA}" in self.disk.lost:
            self.drained = None  # no later job will find that checkpoint

    @property
    def step(self) -> int:
        """The number of steps taken so far."""
        return self.log.step

    @step.setter
    def step(self, step: int) -> None:
        self.log.step = step

    def write(self, line: str) -> None:
        """Write a line to the event log."""
        self.log.write(line)

    def now_ms(self) -> int:
        """Return the time, for the port `Clock`; time passes as steps are taken."""
        return self.now

    def steady_ms(self) -> int:
        """Return the time for measuring timeouts."""
        return self.now

    def steady_ns(self) -> int:
        """Return the same time in nanoseconds."""
        return self.now * 1_000_000

    # --- the outside world -----------------------------------------------------------------------------------------

    def _on_commit(self) -> None:
        self.on_point("within Deliver" if self.outside.needs_checkpoints else "within Deliver of a batch")
        if self.faults.are_over:
            return
        if self.chance.random() < self.scenario.commit_error:
            self.seen["commit failed"] += 1
            raise OSError("planned: the commit failed")
        self.maybe_die(self.scenario.dies_within)

    def maybe_die(self, rate: float) -> None:
        """Kill the driver with the given probability."""
        has_died = self.seen["driver killed"] >= self.scenario.deaths_max
        if rate and not has_died and not self.faults.are_over and self.chance.random() < rate:
            self._die()

    def _may_commit(self, job_id: str, owner: str, checkpoint_id: int) -> bool:
        """Return whether output prepared for a checkpoint may be visible.

        It may once that checkpoint, of whichever job, or a savepoint of its job exists.
        """
        if owner != job_id and self.jobs.may_commit(job_id, owner, checkpoint_id):
            return True  # although the checkpoint may have been deleted since
        directories = (f"{owner}/chk-{checkpoint_id}", *self.disk.savepoints)
        for directory in directories:
            if self.disk.is_durable(f"{directory}/{METADATA}"):
                metadata = self.disk.load_savepoint(directory)
                if metadata.job_id == owner and metadata.checkpoint_id >= checkpoint_id:
                    return True
        return False

    def maybe_cancel(self) -> None:
        """Cancel the job, sometimes, as a person would."""
        rate = self.scenario.cancels
        if rate and not self.faults.are_over and self.chance.random() < rate:
            self.seen["cancelled"] += 1
            raise Cancelled

    def pass_time(self, for_ms: int) -> None:
        """Let time pass."""
        self.now += for_ms

    def read_sink_output(self, sink: str) -> list[Any]:
        """Return the visible output of a sink."""
        stage = next(stage for stage in self.scenario.scenario.topology.stages if stage.uid == sink)
        if stage.make_sink is kafka_sink:
            return self.outside.kafka.visible_at_last(sink)
        return written(self.disk, sink) if self.has_files else self.outside.committed.get(sink, [])

    def history(self, mode: str, status: str) -> History:
        """Return the history as it happened."""
        return History(
            self.seed,
            mode,
            status,
            self.step,
            self.now,
            0,
            self.epochs,
            self.outside.commits,
            len(self.jobs.all),
            len(self.disk.savepoints),
            self.seen + self.tasks.seen + self.outsiders.seen,
            [*self.violations, *self.outsiders.violations, *self.disk.violations, *self.outside.violations],
            self.faults.seen,
            self.log.lines,
            str(self.scenario.scenario.topology),
        )
