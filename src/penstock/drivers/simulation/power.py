"""Power cuts of all hosts: every process ends, and unsynced changes are lost (G8).

The power fails after actions, and between two steps of a store operation. In the same histories a single process may
end between such steps, so that others find its visible but unsynced changes and build on them. All of this uses its own
random numbers.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from penstock.drivers.simulation.disk import Disk
from penstock.drivers.simulation.faults import Faults

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
