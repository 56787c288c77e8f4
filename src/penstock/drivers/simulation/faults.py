"""Faults of a simulation, and power cuts of all its hosts (G8).

`Faults` decides whether a fault happens now, and counts the faults that did. Once they are over, no more happen.

`Power` cuts the power of all hosts: every process ends, and unsynced changes are lost. The power fails after actions,
and between two steps of a store operation. In the same histories a single process may end between such steps, so that
others find its visible but unsynced changes and build on them. All of this uses its own random numbers.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Final

from penstock.drivers.simulation.disk import Disk
from penstock.drivers.simulation.outside_world import PlannedError
from penstock.drivers.simulation.scenario import FaultRates


class Killed(BaseException):
    """Ends the process in the middle of whatever it is doing. No `except Exception` may catch it."""


class WorkerKilled(Killed):
    """Ends a worker's process."""


class MasterKilled(Killed):
    """Ends the job master's process."""


class Faults:
    """Draws faults by their rates, up to a limit for each kind."""

    def __init__(self, rates: FaultRates, chance: random.Random, log: Callable[[str], None]) -> None:
        self.rates = rates
        self.seen: Counter[str] = Counter()
        self.are_over = False
        #: whether any task has reached the end of its data
        self.has_ending = False
        #: whether a worker's own code is running: only then can it be killed within a call
        self.in_worker = False
        #: the worker whose code is running
        self.worker_id = ""
        #: whether that worker belongs to a deposed job master
        self.in_deposed = False
        #: whether the job master's code is running
        self.in_master = False
        #: whether the job has ended
        self.is_job_done: Callable[[], bool] = lambda: False
        #: whether the power is out
        self.is_dark: Callable[[], bool] = lambda: False
        #: faults for the next storage operations, in this order, each at the first operation that can have it
        self.planned_storage: list[str] = []
        self._chance = chance
        self._draw = chance.random
        self._log = log

    def _happens(self, kind: str, rate: float, limit: int) -> bool:
        if not rate or self.are_over or self.seen[kind] >= limit or self._draw() >= rate:
            return False
        self.seen[kind] += 1
        return True

    @property
    def kills_left(self) -> bool:
        """Whether any more workers may be killed."""
        seen, rates = self.seen, self.rates
        if self.are_over or not rates.kills_max or (rates.spares_until_end and not self.has_ending):
            return False
        return seen["kill"] + seen["kill-within-call"] < rates.kills_max

    def kills_after(self, is_protocol: bool) -> bool:
        """Return whether a worker dies after this action."""
        if not self.kills_left:
            return False
        rates = self.rates
        return self._happens("kill", rates.kill_after_protocol if is_protocol else rates.kill_after_action, 1_000)

    def maybe_die(self) -> None:
        """Kill the worker, at random; called wherever a worker interacts with the outside, in mid-step."""
        rate = self.rates.kill_within_call
        if rate and self.in_worker and self.kills_left and self._happens("kill-within-call", rate, 1_000):
            raise WorkerKilled

    @property
    def master_kills_left(self) -> bool:
        """Whether the job master may be killed again."""
        seen, kills_max = self.seen, self.rates.master_kills_max
        if self.are_over or not kills_max:
            return False
        return seen["master-kill"] + seen["master-kill-within-call"] < kills_max

    def kills_master_after(self, is_protocol: bool) -> bool:
        """Return whether the job master dies after this action."""
        if not self.master_kills_left:
            return False
        rates = self.rates
        rate = rates.master_kill_after_protocol if is_protocol else rates.master_kill_after_action
        return self._happens("master-kill", rate, 1_000)

    def maybe_kill_master(self) -> None:
        """Kill the job master, at random; called wherever it interacts with the outside, in mid-turn."""
        rate = self.rates.master_kill_within_call
        can_die = rate and self.in_master and self.master_kills_left
        if can_die and self._happens("master-kill-within-call", rate, 1_000):
            raise MasterKilled

    def drops_connection(self) -> bool:
        """Return whether a connection between two workers breaks after this action."""
        rates = self.rates
        return self._happens("dropped-connection", rates.dropped_connection, rates.dropped_connections_max)

    def is_doubled(self) -> bool:
        """Return whether a message is delivered twice."""
        return self._happens("doubled-message", self.rates.doubled_message, 1_000)

    def is_silent(self) -> bool:
        """Return whether a death is noticed only by missing heartbeats."""
        return self._happens("silent-kill", self.rates.silent_kill, 1_000)

    def is_zombie(self) -> bool:
        """Return whether a released worker keeps running for a while."""
        return self._happens("zombie", self.rates.zombie, 1_000)

    def is_split(self) -> bool:
        """Return whether a job master that appears dead keeps running."""
        return self._happens("split-brain", self.rates.split_brain, 1_000)

    def sets_clocks(self) -> bool:
        """Return whether the clocks of all hosts are set forwards, as after a suspension."""
        return self._happens("clock-jump", self.rates.clock_jump, 3)

    def is_slow(self, kind: str, rate: float) -> bool:
        """Return whether something new is slow."""
        return self._happens(kind, rate, 1_000_000)

    def on_user_call(self) -> None:
        """Raise at random, as a user function might, or die within the call."""
        self.maybe_die()
        rates = self.rates
        if rates.user_errors_max and self._happens("user-error", rates.user_error, rates.user_errors_max):
            self._log("fault: a user function raises")
            raise PlannedError("planned")

    def storage_fault(self, kinds: tuple[str, ...]) -> str | None:
        """Choose one of these faults for a storage operation, if any."""
        rates = self.rates
        if self.planned_storage and self.planned_storage[0] in kinds:
            return self.planned_storage.pop(0)
        if not rates.storage_errors_max:
            return None
        if not self._happens("storage-error", rates.storage_error, rates.storage_errors_max):
            return None
        kind = kinds[int(self._draw() * len(kinds))]
        self.seen[kind] += 1
        self._log(f"fault: {kind}")
        return kind


#: How much more likely it fails after an action that advances a checkpoint or an end, and once a process has ended
#: between two steps.
MORE_AFTER_PROTOCOL: Final = 5
MORE_AFTER_DEATH: Final = 5
#: How likely a fault before a step of the store is, relative to one after an action.
MORE_WITHIN: Final = 40
#: The share of those faults that end only the process.
ALONE: Final = 0.4
CUTS_MAX: Final = 4
DEATHS_MAX: Final = 3


class Power:
    """The power of all hosts. `rate`: how likely it fails after an action."""

    def __init__(self, rate: float, world: str, disk: Disk, faults: Faults, log: Callable[[str], None]) -> None:
        self._rate = rate
        #: whether it no longer fails
        self.is_over = not rate
        self._disk = disk
        self._faults = faults
        self._log = log
        self._chance = random.Random(f"power cuts of {world}")
        #: ends the current process; called only if there is one
        self.die: Callable[[], None] = lambda: None
        #: whether a process is running
        self.is_anybody_there: Callable[[], bool] = lambda: False
        disk.before_step = self._before_step
        faults.is_dark = lambda: disk.is_off

    @property
    def is_out(self) -> bool:
        """Whether it has failed and is not back."""
        return self._disk.is_off

    def _may_fail(self) -> bool:
        return not self.is_over and not self._faults.are_over and self._faults.seen["power-cut"] < CUTS_MAX

    def fails_after(self, is_protocol: bool) -> bool:
        """Return whether it fails after this action; the caller then calls `fail`."""
        if not self._may_fail():
            return False
        rate = self._rate * (MORE_AFTER_PROTOCOL if is_protocol else 1)
        return self._chance.random() < rate * (MORE_AFTER_DEATH if self._faults.seen["kill-within-store"] else 1)

    def fail(self) -> None:
        """Cut the power: all processes are dead from now on."""
        self._faults.seen["power-cut"] += 1
        self._log("the power is cut")
        self._disk.lose_power(self._chance)

    def come_back(self) -> None:
        """Restore the power, so that processes may start again."""
        self._disk.is_off = False

    def _before_step(self) -> None:
        if not self._may_fail() or not self.is_anybody_there() or self._chance.random() >= self._rate * MORE_WITHIN:
            return
        if self._chance.random() >= ALONE:
            self.fail()
        elif self._faults.seen["kill-within-store"] < DEATHS_MAX:
            self._faults.seen["kill-within-store"] += 1
            self._log("a process ends between two steps of the store")
        else:
            return
        self.die()
