"""`ExplainDetail`: what EXPLAIN shows besides the plans."""

from __future__ import annotations

from enum import Enum

__all__ = ["ExplainDetail"]


class ExplainDetail(Enum):
    """What EXPLAIN shows besides the plans."""

    #: how many rows each step is thought to have
    ESTIMATED_COST = 0
    #: which kinds of changes each step gives: inserts (I), updates (UB, UA), deletes (D)
    CHANGELOG_MODE = 1
    #: the operators of the job, as JSON
    JSON_EXECUTION_PLAN = 2
    #: what may be wrong with the plan
    PLAN_ADVICE = 3
