"""`ExplainDetail`: optional parts of EXPLAIN output."""

from __future__ import annotations

from enum import Enum

__all__ = ["ExplainDetail"]


class ExplainDetail(Enum):
    """The parts that EXPLAIN shows besides the plans."""

    #: the estimated number of rows of each step
    ESTIMATED_COST = 0
    #: the kinds of changes that each step emits: inserts (I), updates (UB, UA), deletes (D)
    CHANGELOG_MODE = 1
    #: the operators of the job, as JSON
    JSON_EXECUTION_PLAN = 2
    #: possible problems of the plan
    PLAN_ADVICE = 3
