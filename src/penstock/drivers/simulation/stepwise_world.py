"""The scenario and the environment of one history whose masters work step by step.

`StepwiseScenario` is the scenario of one seed: a job, its options, and the faults.

`StoppedDrivers` are drivers that were stopped between two steps and resume next to the drivers started in their place
(E7).

`TaskProcesses` are the processes of tasks that write files: each may die between two steps of the file system, or write
late (G9). A process that is cut off counts as dead, and its task is run again, as on Spark. The process does not
notice, and resumes later: next to other tasks, while output is committed, or long after the job has ended. Such a
process has a thread, but only one thread runs at a time, and the random generator chooses which, so a seed still
determines the history. The generator is separate from the others, and used only where sinks write files.

`StepwiseWorld` holds the clock, random generator, disk and outside world of one history, and its record of events.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeVar

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.drivers.simulation.disk import METADATA, SAVEPOINTS
from penstock.drivers.simulation.faults import Killed
from penstock.drivers.simulation.file_sinks import Outsiders, file_sink, kafka_sink, maybe_write_files, written
from penstock.drivers.simulation.jobs import Surroundings
from penstock.drivers.simulation.scenario import FaultRates, Scenario, power_cut
from penstock.drivers.simulation.simulation import History
from penstock.drivers.simulation.topology import TopologyMaker
from penstock.runtime.master.steps import Cancelled
from penstock.storage.metadata import CheckpointMetadata

#: The path of a back-fill's savepoint.
FILLED: Final = f"{SAVEPOINTS}/filled"


@dataclass(frozen=True)
class StepwiseScenario:
    """The scenario of one seed."""

    scenario: Scenario
    #: whether the first job is a back-fill over all existing records
    fills_first: bool
    dies_before: float
    dies_after: float
    dies_within: float
    deaths_max: int
    commit_error: float
    source_error: float
    runs_twice: float
    #: the probability that a person makes a request when the master looks for one
    asks: float
    cancels: float
    #: the probability that a driver is stopped after a step, to resume when others think it is dead
    stops: float = 0.0


def draw(chance: random.Random, world: str) -> StepwiseScenario:
    """Draw the scenario of a seed."""
    topology = TopologyMaker(chance, world, is_exactly_once=True, ends=None).make()
    for stage in topology.stages:
        stage.calls = None
    fills_first = chance.random() < 0.2
    if fills_first:
        for stage in topology.stages:
            if stage.source is not None:
                stage.source.is_lazy, stage.source.pauses = False, 0.0
    write = Configuration().write
    write(options.RUNTIME_MODE, "MICRO_BATCH")
    write(options.CHECKPOINTING_DIR, "disk")
    write(options.MICRO_BATCH_RECORDS_MAX, chance.choice((1, 3, 10)))
    write(options.CHECKPOINTING_NUM_RETAINED, chance.choice((1, 1, 2, 3)))
    write(options.RESTART_STRATEGY, "fixed-delay")
    write(options.FIXED_DELAY_ATTEMPTS, chance.choice((0, 1, 3, 1_000)))
    write(options.FIXED_DELAY_MS, chance.choice((0, 10)))
    write(options.IDENTICAL_FAILURES_MAX, chance.choice((2, 10)))
    write(options.OPERATOR_CHAINING_ENABLED, chance.random() < 0.7)
    configuration = write(options.MAX_PARALLELISM, chance.choice((4, 7, 128)))
    if chance.random() < 0.4:
        configuration.write(options.MICRO_BATCH_INTERVAL_MS, chance.choice((1, 50)))
    rates = FaultRates(
        user_errors_max=chance.choice((0, 0, 1, 3)),
        user_error=chance.choice((0.003, 0.02)),
        storage_errors_max=chance.choice((0, 0, 3, 6)),
        storage_error=chance.choice((0.02, 0.1)),
        power_cut=power_cut(world),
    )
    inline_bytes_max = chance.choice((0, 0, 600, 1 << 20))
    scenario = Scenario(topology, "aligned", configuration, rates, inline_bytes_max, 0.0, 0, False)
    stops = random.Random(f"stops of {world}").choice((0.0, 0.0, 0.01, 0.05))
    return replace(draw_around(chance, scenario, fills_first), stops=stops)


def draw_around(chance: random.Random, scenario: Scenario, fills_first: bool = False) -> StepwiseScenario:
    """Draw the faults of the steps and the requests between them."""

    def some(share: float, value: float) -> float:
        return value if chance.random() < share else 0.0

    return StepwiseScenario(
        scenario,
        fills_first,
        some(0.5, 0.02),
        some(0.5, 0.02),
        some(0.5, 0.02),
        chance.choice((0, 1, 2, 5)),
        some(0.5, 0.1),
        some(0.3, 0.03),
        some(0.4, 0.1),
        some(0.7, 0.2),
        some(0.4, 0.03),
    )


#: The probability that a stopped driver resumes after or within a step of another driver, and the most steps that it
#: then takes.
DRIVER_GOES_ON: Final = 0.05
DRIVER_GOES_ON_WITHIN: Final = 0.3
DRIVER_STEPS_MAX: Final = 6
STOPS_MAX: Final = 5


class Stopped(Protocol):
    """A driver that can be stopped without noticing."""

    @property
    def may_lead(self) -> bool:
        """Whether the driver may lead: it was not deposed, or has yet to take the job over."""
        ...

    def advance(self) -> bool:
        """Take a step; return whether more steps follow."""
        ...

    def close(self) -> None:
        """Release the driver's resources."""
        ...


class StoppedDrivers:
    """The stopped drivers, with their own random generator. `rate`: how likely a driver is stopped after a step."""

    def __init__(self, world: str, rate: float, write: Callable[[str], None], look: Callable[[], None]) -> None:
        self._chance = random.Random(f"stopped drivers of {world}")
        self._rate = rate
        self._left = STOPS_MAX if rate else 0
        self._write = write
        self._drivers: list[Stopped] = []
        self._is_going = False
        #: called after a stopped driver has resumed; may raise
        self._look = look

    def stops(self) -> bool:
        """Decide at random whether the current driver is stopped here."""
        if self._is_going or self._left == 0 or self._chance.random() >= self._rate:
            return False
        self._left -= 1
        return True

    def add(self, driver: Stopped) -> None:
        """Add a driver that was just stopped; others think it is dead."""
        self._write("the driver is stopped, and thought to be dead")
        self._drivers.append(driver)

    def between_steps(self) -> None:
        """Let a stopped driver take some steps, sometimes, after a step of the current driver."""
        self._maybe_go_on(DRIVER_GOES_ON)

    def within_step(self) -> None:
        """Let a stopped driver take some steps, sometimes, within a step that other drivers can affect."""
        self._maybe_go_on(DRIVER_GOES_ON_WITHIN)

    def _maybe_go_on(self, rate: float) -> None:
        if self._drivers and not self._is_going and self._chance.random() < rate:
            self._go_on(self._chance.choice(self._drivers), self._chance.randint(1, DRIVER_STEPS_MAX))
            self._look()

    def kill_those_that_may_lead(self) -> None:
        """Kill the stopped drivers that may lead, as a person does before starting a job from a path.

        Such a start deposes no driver.
        """
        for driver in [driver for driver in self._drivers if driver.may_lead]:
            driver.close()
            self._drivers.remove(driver)
            self._write("a stopped driver is killed")

    def kill_all(self) -> None:
        """Kill all stopped drivers."""
        for driver in self._drivers:
            driver.close()
        self._drivers.clear()

    def end(self) -> None:
        """Let all stopped drivers run to their ends."""
        while self._drivers:
            self._go_on(self._drivers[0], 1)

    def _go_on(self, driver: Stopped, steps: int) -> None:
        self._write("a stopped driver goes on")
        self._is_going = True
        if not all(self._has_more(driver) for _ in range(steps)):
            driver.close()
            self._drivers.remove(driver)
        self._is_going = False
        self._write("it is stopped again, or has ended")

    def _has_more(self, driver: Stopped) -> bool:
        try:
            return driver.advance()
        except Killed:
            return False  # the driver has died


T = TypeVar("T")

#: The highest number of the step at which a process may be cut off.
FIRST_STEPS_MAX: Final = 40
#: The most steps that a process takes at a time after it was cut off, and the probability that it resumes after a step
#: of the driver, and before a step of a commit.
STEPS_AT_A_TIME_MAX: Final = 12
GOES_ON: Final = 0.15
GOES_ON_WITHIN: Final = 0.05
CUT_OFF_MAX: Final = 4
DEATHS_MAX: Final = 4
ERRORS_MAX: Final = 6
DRIVER_DEATHS_MAX: Final = 3
ALL: Final = 1 << 30


@dataclass(frozen=True)
class FileRates:
    """Fault probabilities.

    Before a step of the file system: that the step fails, its task dies, or the driver dies. Per run of a task: that
    the task is cut off.
    """

    error: float
    dies: float
    driver_dies: float
    cut_off: float

    @staticmethod
    def of(world: str) -> FileRates:
        """Draw the rates of a world."""
        own = random.Random(f"faults of files of {world}")
        return FileRates(
            own.choice((0.0, 0.0, 0.002, 0.02)),
            own.choice((0.0, 0.002, 0.01)),
            own.choice((0.0, 0.0, 0.01, 0.05)),
            own.choice((0.0, 0.1, 0.3)),
        )


class TaskDied(Killed):
    """Ends the process of a task."""


class _Thread:
    """A process that can be suspended between two steps and resumed later."""

    def __init__(self, name: str, call: Callable[[], Any]) -> None:
        self.name = name
        self.result: Any = None
        self.error: BaseException | None = None
        self.has_ended = False
        self._call = call
        self._steps_left = 0
        self._is_killed = False
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self._is_killed:
                self.result = self._call()
        except BaseException as error:  # noqa: BLE001 - whoever let it go on is told
            self.error = error
        self.has_ended = True
        self._back.release()

    def go_on(self, steps: int) -> None:
        """Run until the process has ended or has taken this many steps."""
        self._steps_left = steps
        self._go.release()
        self._back.acquire()
        if self.has_ended:
            self._thread.join()

    def kill(self) -> None:
        """Kill the process before its next step."""
        self._is_killed = True
        if not self.has_ended:
            self.go_on(ALL)

    def before_step(self) -> None:
        """Suspend the process if it has no steps left; raise `TaskDied` if it was killed."""
        if not self._steps_left and not self._is_killed:
            self._back.release()
            self._go.acquire()
        if self._is_killed:
            raise TaskDied
        self._steps_left -= 1


class TaskProcesses:
    """See the module docstring. `kill_driver` raises the exception that ends the driver's process."""

    def __init__(
        self,
        world: str,
        write: Callable[[str], None],
        are_faults_over: Callable[[], bool],
        kill_driver: Callable[[], None],
    ) -> None:
        self.seen: Counter[str] = Counter()
        #: whether the driver's process has ended and no new one has started
        self.is_driver_dead = False
        self._rates = FileRates.of(world)
        self._own = random.Random(f"processes of tasks of {world}")
        self._write = write
        self._are_over = are_faults_over
        self._kill_driver = kill_driver
        self._count = 0
        self._driver = "driver-0"
        #: the running process, if it is a task's, and its thread
        self._task: str | None = None
        self._thread: _Thread | None = None
        self._is_task_dead = False
        #: the processes that were cut off
        self._late: list[_Thread] = []

    def begin_driver(self) -> None:
        """Start a new driver process."""
        self._count += 1
        self._driver, self.is_driver_dead = f"driver-{self._count}", False

    @property
    def name(self) -> str:
        """The name of the running process."""
        return self._task or self._driver

    def is_alive(self, name: str) -> bool:
        """Return whether a process is still alive."""
        if name == self._driver:
            return not self.is_driver_dead
        return (name == self._task and not self._is_task_dead) or any(name == late.name for late in self._late)

    def run(self, call: Callable[[], T]) -> T:
        """Run a task, again if its process dies or is cut off, and return its result."""
        while True:
            self._count += 1
            name = f"task-{self._count}"
            cuts = self._happens("cut off", self._rates.cut_off, CUT_OFF_MAX)
            try:
                if not cuts:
                    return self._within(name, None, call)
                thread = _Thread(name, call)
                self._within(name, thread, lambda: thread.go_on(self._own.randint(1, FIRST_STEPS_MAX)))  # noqa: B023
            except TaskDied:
                self._write(f"the process of {name} dies")
                continue
            if not thread.has_ended:
                self._write(f"{name} is cut off, and goes on")
                self._late.append(thread)
            elif thread.error is None:
                result: T = thread.result
                return result
            elif not isinstance(thread.error, TaskDied):
                raise thread.error

    def _within(self, name: str, thread: _Thread | None, call: Callable[[], T]) -> T:
        before = self._task, self._thread, self._is_task_dead
        self._task, self._thread, self._is_task_dead = name, thread, False
        try:
            return call()
        finally:
            self._task, self._thread, self._is_task_dead = before

    # --- what happens ------------------------------------------------------------------------------------------------

    def _happens(self, kind: str, rate: float, limit: int) -> bool:
        if not rate or self._are_over() or self.seen[kind] >= limit or self._own.random() >= rate:
            return False
        self.seen[kind] += 1
        return True

    def before_step(self) -> None:
        """Inject the faults that are due before the running process takes a step of the file system."""
        if self.is_driver_dead and self._task is None:
            self._kill_driver()
        if self._is_task_dead:
            raise TaskDied
        if self._thread is not None:
            self._thread.before_step()
        elif self._task is not None:
            if self.is_driver_dead:
                self._kill_driver()
            if self._happens("task died", self._rates.dies, DEATHS_MAX):
                self._is_task_dead = True
                raise TaskDied
        else:
            if self._late and self._own.random() < GOES_ON_WITHIN:
                self._go_on(self._own.choice(self._late), self._own.randint(1, STEPS_AT_A_TIME_MAX))
            if self._happens("driver died in a commit", self._rates.driver_dies, DRIVER_DEATHS_MAX):
                self._kill_driver()
        if self._happens("file step failed", self._rates.error, ERRORS_MAX):
            raise OSError("planned: a step of the file system failed")

    def between_steps(self) -> None:
        """Resume a process that was cut off, sometimes, after a step of the driver."""
        if self._late and self._own.random() < GOES_ON:
            self._go_on(self._own.choice(self._late), self._own.randint(1, STEPS_AT_A_TIME_MAX))

    def _go_on(self, late: _Thread, steps: int) -> None:
        self._write(f"{late.name} goes on")
        self._within(late.name, late, lambda: late.go_on(steps))
        if late.has_ended:
            self._write(f"{late.name} has ended")
            self._late.remove(late)
            if isinstance(late.error, Killed) and not isinstance(late.error, TaskDied):
                raise late.error  # it was running when the power failed

    def kill_all(self) -> None:
        """Kill all processes that were cut off, because the power is out."""
        while self._late:
            late = self._late.pop()
            self._within(late.name, late, late.kill)

    def end(self) -> None:
        """Let all processes that were cut off run to their ends."""
        while self._late:
            self._go_on(self._late[0], ALL)


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
