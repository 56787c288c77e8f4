"""How a stepwise master is driven: one step after another, each with its result or what it raised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from penstock.core.master.steps import Step, Steps

T = TypeVar("T")


class Driving(Generic[T]):
    """Drives a master's work as far as its owner wants.

    Args:
        work: the master's.
        perform: carries a step out.
        ends_driver: what `perform` may raise that the master does not learn of, because its driver is dead.
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
        #: what the work has come to, once `advance` has returned False
        self.outcome: list[T] = []

    def advance(self) -> bool:
        """Carry the next step out; returns whether there was one.

        Raises:
            BaseException: what the work itself raises, and `ends_driver`; nothing follows then.
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
    """Drive a master's work to its end, and return what it comes to; see `Driving`."""
    driving = Driving(work, perform, ends_driver)
    while driving.advance():
        pass
    return driving.outcome[0]
