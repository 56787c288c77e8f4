"""`ExplainDetail`: optional parts of EXPLAIN output."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from penstock.base.errors import WrongTypeError

__all__ = ["ExplainDetail"]


class ExplainDetail(Enum):
    """The parts that EXPLAIN shows besides the plans.

    Examples:
        >>> from penstock.table import EnvironmentSettings, ExplainDetail, TableEnvironment
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> print(t_env.explain_sql("SELECT 1 AS n", ExplainDetail.CHANGELOG_MODE))
        == Abstract Syntax Tree ==
        Project(select=[1 AS n])
          Values(1 rows, fields=[])
        <BLANKLINE>
        == Streams ==
        Project(select=[1 AS n], changelogMode=[I])
          Values(1 rows, fields=[], changelogMode=[I])
    """

    #: in batch, the sizes that Spark estimates
    ESTIMATED_COST = 0
    #: the kinds of changes that each step emits: inserts (I), updates (UB, UA), deletes (D)
    CHANGELOG_MODE = 1
    #: the operators of the job, as JSON
    JSON_EXECUTION_PLAN = 2
    #: advice on the plan of a stream, and warnings
    PLAN_ADVICE = 3


def detail_names(details: Iterable[object]) -> list[str]:
    """Return the names of the details. Raises `TypeError` for one that is no `ExplainDetail`."""
    names = []
    for detail in details:
        if not isinstance(detail, ExplainDetail):
            known = ", ".join(f"ExplainDetail.{known.name}" for known in ExplainDetail)
            raise WrongTypeError(f"explain takes members of ExplainDetail ({known}), not {detail!r}")
        names.append(detail.name)
    return names
