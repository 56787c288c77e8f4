"""Support for showing a program's plan without running it: the first `execute()` takes the plan and ends the program.

`penstock info` sets the callback in a process of its own. The exception that ends the program is not an `Exception`, so
the program's own `except Exception` does not catch it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.plan.description import Plan

#: Called with the plan instead of running the job; empty in programs that run.
takers: Final[list[Callable[[Plan], None]]] = []


class PlanTaken(BaseException):
    """Raised at the first `execute()` when only the plan is wanted."""
