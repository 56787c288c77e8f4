"""Drives a stepwise master: carries out its steps one after another, and hands it each result or error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from penstock.core.master.steps import Step, Steps

T = TypeVar("T")


class Driving(Generic[T]):
    """Drives a master's work step by step, as far as its owner wants.

    Args:
        work: the master's work.
        perform: carries out a step.
        ends_driver: errors of `perform` that are not thrown into the master, because its driver is dead.
    """

    def __init__(
        self,
        work: Steps[T],
        perform: Callable[[Step], Any],
        ends_driver: type[BaseException] | tuple[()] = (),
    ) -> None:
        self._work = work
        self._perform = perform
        self._ends_driver = ends_driver
        self._result: Any = None
        self._error: BaseException | None = None
        #: the result of the work, once `advance` has returned False
        self.outcome: list[T] = []

    def advance(self) -> bool:
        """Carry out the next step; returns whether there was one.

        Raises:
            BaseException: an error of the work itself, or one of `ends_driver`; no step follows it.
        """
        try:
            step = self._work.send(self._result) if self._error is None else self._work.throw(self._error)
            self._result = self._error = None
            try:
                self._result = self._perform(step)
            except self._ends_driver:
                raise
            except BaseException as raised:  # noqa: BLE001 - the master decides what becomes of it
                self._error = raised
        except StopIteration as ended:
            self.outcome.append(ended.value)
            return False
        except BaseException:
            self._work.close()
            raise
        return True


def drive(work: Steps[T], perform: Callable[[Step], Any], ends_driver: type[BaseException] | tuple[()] = ()) -> T:
    """Drive a master's work to its end and return its result; see `Driving`."""
    driving = Driving(work, perform, ends_driver)
    while driving.advance():
        pass
    return driving.outcome[0]
