"""The processes of tasks that write files: each may die between two steps of the file system, or write late (G9).

A process that is cut off counts as dead, and its task is run again, as on Spark. The process does not notice, and
resumes later: next to other tasks, while output is committed, or long after the job has ended. Such a process has a
thread, but only one thread runs at a time, and the random generator chooses which, so a seed still determines the
history. The generator is separate from the others, and used only where sinks write files.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from penstock.drivers.simulation.faults import Killed

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
