"""Faults: whether one happens now, and the count of those that did. After their end no more faults happen."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from penstock.drivers.simulation.outside import PlannedError
from penstock.drivers.simulation.scenario import FaultRates


class Killed(BaseException):
    """The process ends here, in the middle of whatever it does. No `except Exception` may catch it."""


class WorkerKilled(Killed):
    """A worker's process."""


class MasterKilled(Killed):
    """The job master's process."""


class Faults:
    """Draws faults by their rates, each kind up to its number."""

    def __init__(self, rates: FaultRates, chance: random.Random, log: Callable[[str], None]) -> None:
        self.rates = rates
        self.seen: Counter[str] = Counter()
        self.are_over = False
        #: whether some task has come to the end of its data
        self.has_ending = False
        #: whether a worker's own code runs now: only then can it be killed within a call
        self.in_worker = False
        #: the worker whose code it is
        self.worker_id = ""
        #: whether that worker is one of a deposed job master
        self.in_deposed = False
        #: whether the job master's code runs now
        self.in_master = False
        #: whether the job has ended
        self.is_job_done: Callable[[], bool] = lambda: False
        #: whether there is no power
        self.is_dark: Callable[[], bool] = lambda: False
        #: faults that the next storage operations meet, in this order, each as soon as it can
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
        """Whether any worker will be killed yet."""
        seen, rates = self.seen, self.rates
        if self.are_over or not rates.kills_max or (rates.spares_until_end and not self.has_ending):
            return False
        return seen["kill"] + seen["kill-within-call"] < rates.kills_max

    def kills_after(self, is_protocol: bool) -> bool:
        """Whether a worker dies after this action."""
        if not self.kills_left:
            return False
        rates = self.rates
        return self._happens("kill", rates.kill_after_protocol if is_protocol else rates.kill_after_action, 1_000)

    def maybe_die(self) -> None:
        """Call wherever a worker meets the world: a worker may end there, in mid-step."""
        rate = self.rates.kill_within_call
        if rate and self.in_worker and self.kills_left and self._happens("kill-within-call", rate, 1_000):
            raise WorkerKilled

    @property
    def master_kills_left(self) -> bool:
        """Whether the job master will be killed yet."""
        seen, kills_max = self.seen, self.rates.master_kills_max
        if self.are_over or not kills_max:
            return False
        return seen["master-kill"] + seen["master-kill-within-call"] < kills_max

    def kills_master_after(self, is_protocol: bool) -> bool:
        """Whether the job master dies after this action."""
        if not self.master_kills_left:
            return False
        rates = self.rates
        rate = rates.master_kill_after_protocol if is_protocol else rates.master_kill_after_action
        return self._happens("master-kill", rate, 1_000)

    def maybe_kill_master(self) -> None:
        """Call wherever the job master meets the world: it may end there, in mid-turn."""
        rate = self.rates.master_kill_within_call
        can_die = rate and self.in_master and self.master_kills_left
        if can_die and self._happens("master-kill-within-call", rate, 1_000):
            raise MasterKilled

    def drops_connection(self) -> bool:
        """Whether a connection between two workers breaks after this action."""
        rates = self.rates
        return self._happens("dropped-connection", rates.dropped_connection, rates.dropped_connections_max)

    def is_doubled(self) -> bool:
        """Whether a message is delivered a second time."""
        return self._happens("doubled-message", self.rates.doubled_message, 1_000)

    def is_silent(self) -> bool:
        """Whether a death is noticed only by silence."""
        return self._happens("silent-kill", self.rates.silent_kill, 1_000)

    def is_zombie(self) -> bool:
        """Whether a released worker goes on for a while."""
        return self._happens("zombie", self.rates.zombie, 1_000)

    def is_split(self) -> bool:
        """Whether a job master that seems to have died goes on."""
        return self._happens("split-brain", self.rates.split_brain, 1_000)

    def sets_clocks(self) -> bool:
        """Whether the clocks of all hosts are set forwards, as after a suspension."""
        return self._happens("clock-jump", self.rates.clock_jump, 3)

    def is_slow(self, kind: str, rate: float) -> bool:
        """Whether something new is slow."""
        return self._happens(kind, rate, 1_000_000)

    def on_user_call(self) -> None:
        """Raise, at times, as a user function might; or die within it."""
        self.maybe_die()
        rates = self.rates
        if rates.user_errors_max and self._happens("user-error", rates.user_error, rates.user_errors_max):
            self._log("fault: a user function raises")
            raise PlannedError("planned")

    def storage_fault(self, kinds: tuple[str, ...]) -> str | None:
        """Which of these faults a storage operation meets, if any."""
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
