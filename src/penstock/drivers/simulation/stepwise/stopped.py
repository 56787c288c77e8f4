"""Drivers that were stopped between two steps, and go on beside those that were started in their place (E7)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, Protocol

from penstock.drivers.simulation.faults import Killed

#: How likely a stopped driver goes on after a step of another one, and how many steps it takes at most.
GOES_ON: Final = 0.05
GOES_ON_WITHIN: Final = 0.3
STEPS_AT_A_TIME_MAX: Final = 6
STOPS_MAX: Final = 5


class Stopped(Protocol):
    """A driver that can be stopped, and does not know that it was."""

    @property
    def may_lead(self) -> bool:
        """Whether it was not deposed, or has yet to take the job over."""
        ...

    def advance(self) -> bool:
        """Take a step; returns whether there are more."""
        ...

    def close(self) -> None:
        """It is over."""
        ...


class StoppedDrivers:
    """`rate`: how likely one is stopped after a step. They have chance of their own."""

    def __init__(self, world: str, rate: float, write: Callable[[str], None], look: Callable[[], None]) -> None:
        self._chance = random.Random(f"stopped drivers of {world}")
        self._rate = rate
        self._left = STOPS_MAX if rate else 0
        self._write = write
        self._drivers: list[Stopped] = []
        self._is_going = False
        #: called when one has gone on; may raise
        self._look = look

    def stops(self) -> bool:
        """Whether the driver of now is stopped here."""
        if self._is_going or self._left == 0 or self._chance.random() >= self._rate:
            return False
        self._left -= 1
        return True

    def add(self, driver: Stopped) -> None:
        """It is stopped; others think that it is dead."""
        self._write("the driver is stopped, and thought to be dead")
        self._drivers.append(driver)

    def between_steps(self) -> None:
        """The driver of now has taken a step: at times a stopped one takes some."""
        self._maybe_go_on(GOES_ON)

    def within_step(self) -> None:
        """The driver of now is in the middle of a step in which others make a difference."""
        self._maybe_go_on(GOES_ON_WITHIN)

    def _maybe_go_on(self, rate: float) -> None:
        if self._drivers and not self._is_going and self._chance.random() < rate:
            self._go_on(self._chance.choice(self._drivers), self._chance.randint(1, STEPS_AT_A_TIME_MAX))
            self._look()

    def kill_those_that_may_lead(self) -> None:
        """A person who starts a job from a path, which deposes nobody, makes sure that no other driver of it runs."""
        for driver in [driver for driver in self._drivers if driver.may_lead]:
            driver.close()
            self._drivers.remove(driver)
            self._write("a stopped driver is killed")

    def kill_all(self) -> None:
        """None of them goes on."""
        for driver in self._drivers:
            driver.close()
        self._drivers.clear()

    def end(self) -> None:
        """All of them go on to their ends."""
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
            return False  # now it is dead
