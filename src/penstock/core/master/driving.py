"""How a stepwise master is driven: one step after another, each with its result or what it raised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from penstock.core.master.steps import Step, Steps

T = TypeVar("T")


def drive(work: Steps[T], perform: Callable[[Step], Any], ends_driver: type[BaseException] | tuple[()] = ()) -> T:
    """Drive a master's work to its end, and return what it comes to.

    Args:
        work: the master's.
        perform: carries a step out.
        ends_driver: what `perform` may raise that the master does not learn of, because its driver is dead.

    Raises:
        BaseException: what the work itself raises, and `ends_driver`.
    """
    result: Any = None
    error: BaseException | None = None
    try:
        while True:
            step = work.send(result) if error is None else work.throw(error)
            result = error = None
            try:
                result = perform(step)
            except ends_driver:
                raise
            except BaseException as raised:  # noqa: BLE001 - the master decides what becomes of it
                error = raised
    except StopIteration as ended:
        ended_with: T = ended.value
        return ended_with
    finally:
        work.close()
