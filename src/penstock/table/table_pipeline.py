"""`TablePipeline`: rows of a table on their way into another, not yet started."""

from __future__ import annotations

import sys

from penstock.table.explain_detail import ExplainDetail
from penstock.table.plan.logical import Write
from penstock.table.session.session import TableSession
from penstock.table.session.table_result import TableResult

__all__ = ["TablePipeline"]


class TablePipeline:
    """Rows of a table on their way into another. `Table.insert_into` makes it; `execute` starts it."""

    def __init__(self, plan: Write, session: TableSession) -> None:
        self._plan = plan
        self._session = session

    @property
    def plan(self) -> Write:
        """The plan that fills the table."""
        return self._plan

    def execute(self) -> TableResult:
        """Start the job that fills the table."""
        return self._session.write([self._plan])

    def explain(self, *extra_details: ExplainDetail) -> str:
        """How the job would run, as EXPLAIN shows it."""
        return self._session.explain([self._plan], [detail.name for detail in extra_details])

    def print_explain(self, *extra_details: ExplainDetail) -> None:
        """Print how the job would run."""
        sys.stdout.write(self.explain(*extra_details) + "\n")

    def get_sink_identifier(self) -> str | None:
        """The path of the table that is filled; None for one without a name."""
        if self._plan.path[2].startswith("*anonymous_"):
            return None
        return ".".join(self._plan.path)
