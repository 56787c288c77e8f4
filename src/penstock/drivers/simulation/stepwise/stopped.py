"""Drivers that were stopped between two steps and resume next to the drivers started in their place (E7)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, Protocol

from penstock.drivers.simulation.faults import Killed

#: The probability that a stopped driver resumes after or within a step of another driver, and the most steps that it
#: then takes.
GOES_ON: Final = 0.05
GOES_ON_WITHIN: Final = 0.3
STEPS_AT_A_TIME_MAX: Final = 6
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
        self._maybe_go_on(GOES_ON)

    def within_step(self) -> None:
        """Let a stopped driver take some steps, sometimes, within a step that other drivers can affect."""
        self._maybe_go_on(GOES_ON_WITHIN)

    def _maybe_go_on(self, rate: float) -> None:
        if self._drivers and not self._is_going and self._chance.random() < rate:
            self._go_on(self._chance.choice(self._drivers), self._chance.randint(1, STEPS_AT_A_TIME_MAX))
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
