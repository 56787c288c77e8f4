"""`TablePipeline`: an INSERT from one table into another that has not started yet."""

from __future__ import annotations

import sys

from penstock.sql.logical.nodes import Write
from penstock.sql.session.result import TableResult
from penstock.sql.session.session import TableSession
from penstock.table.compiled_plan import CompiledPlan
from penstock.table.explain_detail import ExplainDetail, detail_names

__all__ = ["TablePipeline"]


class TablePipeline:
    """An INSERT into a table. `Table.insert_into` creates it; `execute` starts it.

    Examples:
        >>> from penstock.table import EnvironmentSettings, TableEnvironment
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> _ = t_env.execute_sql("CREATE TABLE shown (n BIGINT) WITH ('connector' = 'print')")
        >>> pipeline = t_env.from_elements([(1,), (2,)], ["n"]).insert_into("shown")
        >>> pipeline.execute().wait()
        +I[1]
        +I[2]
    """

    def __init__(self, plan: Write, session: TableSession) -> None:
        self._plan = plan
        self._session = session

    @property
    def plan(self) -> Write:
        """The plan that writes into the table."""
        return self._plan

    def execute(self) -> TableResult:
        """Start the job that writes into the table."""
        return self._session.write([self._plan])

    def compile_plan(self) -> CompiledPlan:
        """Return the plan of the job to keep. Raises `UnsupportedError` if it needs what only this program has."""
        return CompiledPlan(self._session.compile([self._plan]), self._session)

    def explain(self, *extra_details: ExplainDetail) -> str:
        """Return the job's plan, as EXPLAIN shows it."""
        return self._session.explain([self._plan], detail_names(extra_details))

    def print_explain(self, *extra_details: ExplainDetail) -> None:
        """Print the job's plan."""
        sys.stdout.write(self.explain(*extra_details) + "\n")

    def get_sink_identifier(self) -> str | None:
        """Return the path of the target table; None if it has no name."""
        if self._plan.path[2].startswith("*anonymous_"):
            return None
        return ".".join(self._plan.path)
