"""Virtual time and the scheduling of a simulation: enabled actions and later events.

`ReadySet` is the set of enabled actions, from which the scheduler picks at random in constant time.
"""

from __future__ import annotations

import heapq
import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

from penstock.drivers.simulation.faults import Faults

#: The most times a single pick may pass over slow actions.
PASSED_OVER_MAX: Final = 8


class Action(ABC):
    """An action that can be scheduled. With a `speed` below 1 it is sometimes passed over in favour of others."""

    __slots__ = ("position", "speed")

    def __init__(self, speed: float = 1.0) -> None:
        self.position = -1
        self.speed = speed

    @abstractmethod
    def run(self) -> None:
        """Perform the action."""


class ReadySet:
    """The enabled actions. Their order depends only on the history, so replays pick the same ones."""

    def __init__(self) -> None:
        self.actions: list[Action] = []

    def add(self, action: Action) -> None:
        """Enable an action; enabling it twice has no further effect."""
        if action.position < 0:
            action.position = len(self.actions)
            self.actions.append(action)

    def remove(self, action: Action) -> None:
        """Disable an action if it is enabled."""
        position = action.position
        if position < 0:
            return
        last = self.actions.pop()
        if last is not action:
            self.actions[position] = last
            last.position = position
        action.position = -1

    def pick(self, chance: random.Random) -> Action:
        """Pick any enabled action; slow ones less often."""
        actions, draw = self.actions, chance.random
        size = len(actions)
        action = actions[int(draw() * size)]
        for _ in range(PASSED_OVER_MAX):
            if action.speed >= 1.0 or draw() < action.speed:
                break
            action = actions[int(draw() * size)]
        return action


class Channel(Action):
    """Messages from one sender to one receiver, first in, first out; the action delivers the first."""

    __slots__ = ("_deliver", "_ready", "items", "name", "receiver", "sender")

    def __init__(
        self,
        name: str,
        sender: str,
        receiver: str,
        ready: ReadySet,
        deliver: Callable[[Channel, Any], None],
        speed: float,
    ) -> None:
        super().__init__(speed)
        self.name = name
        self.sender = sender
        self.receiver = receiver
        self.items: deque[Any] = deque()
        self._ready = ready
        self._deliver = deliver

    def push(self, item: Any) -> None:
        """Send."""
        self.items.append(item)
        self._ready.add(self)

    def cut(self, length: int) -> int:
        """Drop all but the first `length` messages; return how many were lost."""
        lost = 0
        while len(self.items) > length:
            self.items.pop()
            lost += 1
        if not self.items:
            self._ready.remove(self)
        return lost

    def run(self) -> None:
        item = self.items.popleft()
        if not self.items:
            self._ready.remove(self)
        self._deliver(self, item)


T = TypeVar("T")

SLOW_SPEED = 0.1
#: Longer than every checkpoint timeout (ms).
LATE_MS_MAX = 30_000


class EventLog:
    """One line per transition; nothing is recorded unless a trace was requested."""

    def __init__(self, first_line: str, is_on: bool) -> None:
        self.is_on = is_on
        self.lines = [first_line]
        self.step = 0
        self.now: Callable[[], int] = lambda: 0

    def write(self, line: str) -> None:
        """Add a line with the step and the time."""
        if self.is_on:
            self.lines.append(f"{self.step:6} {self.now():7} ms  {line}")


class Engine:
    """The clock, the enabled actions, and the agenda of future events. Independent of jobs."""

    def __init__(self, chance: random.Random, faults: Faults, log: EventLog) -> None:
        self.ready = ReadySet()
        self.chance = chance
        #: functions that enable delayed work at once
        self.late: list[Callable[[], None]] = []
        self.faults = faults
        self.log = log
        self._now_ms = 0
        #: how far ahead the hosts' clocks are
        self._ahead_ms = 0
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        log.now = self.steady_ms

    def now_ms(self) -> int:
        """Return the time on the hosts' clocks: the port `Clock`."""
        return self._now_ms + self._ahead_ms

    def jump(self, by_ms: int) -> None:
        """Set the clocks of all hosts forwards."""
        self._ahead_ms += by_ms

    def to_steady_time(self, now_ms: int) -> int:
        """Convert a clock time to steady time, assuming that the clocks are not set again."""
        return now_ms - self._ahead_ms

    def steady_ms(self) -> int:
        """Return virtual time as used for timeouts."""
        return self._now_ms

    def steady_ns(self) -> int:
        """Return the steady time in nanoseconds."""
        return self._now_ms * 1_000_000

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Schedule a call after a delay."""
        self._count += 1
        heapq.heappush(self._agenda, (self._now_ms + delay_ms, self._count, call))

    def next_due_ms(self) -> int | None:
        """Return when the next scheduled call is due."""
        return self._agenda[0][0] if self._agenda else None

    def advance(self, to_ms: int) -> None:
        """Advance time and run the calls that are due."""
        self._now_ms = max(self._now_ms, to_ms)
        agenda = self._agenda
        while agenda and agenda[0][0] <= self._now_ms:
            heapq.heappop(agenda)[2]()

    def let_late_work_begin(self) -> None:
        """Enable all delayed work: the faults are over, and the store responds."""
        for begin in self.late:
            begin()
        self.late.clear()

    def between(self, low: int, high: int) -> int:
        """Return a random number from `low` to `high`, inclusive."""
        return low + int(self.chance.random() * (high - low + 1))

    def channel_speed(self) -> float:
        """Draw the speed of a new channel."""
        return SLOW_SPEED if self.faults.is_slow("slow-channel", self.faults.rates.slow_channel) else 1.0


class BackgroundJob(Action):
    """Work outside an owner's turn. The scheduler decides when it runs and delivers its result."""

    __slots__ = ("_done", "_owner", "_work")

    def __init__(
        self,
        owner: SimulatedBackground,
        work: Callable[[], T],
        done: Callable[[T | None, BaseException | None], None],
    ) -> None:
        super().__init__()
        self._owner = owner
        self._work = work
        self._done = done

    def run(self) -> None:
        self._owner.finish(self)

    def work(self) -> Callable[[], None]:
        """Do the work; return a function that delivers the result."""
        try:
            result = self._work()
        except Exception as error:  # noqa: BLE001 - handed to `done`, whatever it is
            caught = error
            return lambda: self._done(None, caught)
        return lambda: self._done(result, None)


class SimulatedBackground:
    """The port `Background` of one owner; `turn` runs a function in the owner's turn."""

    def __init__(self, name: str, engine: Engine, turn: Callable[[Callable[[], None]], None]) -> None:
        self.name = name
        self.jobs: list[BackgroundJob] = []
        self._engine = engine
        self._turn = turn

    def submit(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        engine = self._engine
        engine.faults.maybe_die()
        engine.faults.maybe_kill_master()
        job = BackgroundJob(self, work, done)
        self.jobs.append(job)
        if self.name == "master" and engine.faults.is_slow("late-store", engine.faults.rates.late_store):
            # The result may arrive long after the job has stopped waiting for it.
            engine.late.append(lambda: self._enable(job))
            engine.call_later(engine.between(200, LATE_MS_MAX), engine.late[-1])
        elif engine.faults.is_slow("slow-background", engine.faults.rates.slow_background):
            engine.call_later(engine.between(1, 200), lambda: self._enable(job))
        else:
            engine.ready.add(job)

    def _enable(self, job: BackgroundJob) -> None:
        if job in self.jobs:
            self._engine.ready.add(job)

    def finish(self, job: BackgroundJob) -> None:
        """Do one job and deliver its result."""
        self._engine.ready.remove(job)
        self.jobs.remove(job)
        self._engine.log.write(f"{self.name}: background work")

        def whole() -> None:
            job.work()()

        self._turn(whole)

    def abandon(self) -> None:
        """Drop the results of an owner that has ended; some of its work may still be done."""
        faults = self._engine.faults
        whose_turn, faults.in_master = faults.in_master, False
        for job in self.jobs:
            self._engine.ready.remove(job)
            if self._engine.chance.random() < 0.4 and not faults.is_dark():
                job.work()
        self.jobs.clear()
        faults.in_master = whose_turn


__all__ = ["BackgroundJob", "Channel", "Engine", "EventLog", "SimulatedBackground"]
