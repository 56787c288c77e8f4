"""A program that is only looked at: the first job that it would run ends it, with the job's plan.

`penstock info` sets the taker in a process of its own. The program stops where it would execute, by an exception that
no `except Exception` of its own takes for a failure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.plan.description import Plan

#: Called with the plan in place of running the job; empty where programs run.
takers: Final[list[Callable[[Plan], None]]] = []


class PlanTaken(BaseException):
    """The program has come to its first job, and is not to go on."""
