"""`StatementSet`: several INSERTs that run as one job."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.base.errors import WrongTimeError
from penstock.plan.stream_graph import Plan
from penstock.sql.data.errors import ValidationError, names_located
from penstock.sql.logical.nodes import Write
from penstock.sql.parser import parse_path, parse_statement, statements
from penstock.sql.session.result import TableResult
from penstock.sql.session.session import TableSession
from penstock.sql.statements.insert import plan_insert
from penstock.table.compiled_plan import CompiledPlan
from penstock.table.explain_detail import ExplainDetail, detail_names
from penstock.table.sinks import anonymous_table, write_into
from penstock.table.table_descriptor import TableDescriptor
from penstock.table.table_pipeline import TablePipeline

if TYPE_CHECKING:
    from penstock.table.table import Table

__all__ = ["StatementSet"]


class StatementSet:
    """Collects INSERTs and runs all of them as one job. Created by `TableEnvironment.create_statement_set`.

    Examples:
        >>> from penstock.table import EnvironmentSettings, TableEnvironment
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> _ = t_env.execute_sql("CREATE TABLE shown (n BIGINT) WITH ('connector' = 'print')")
        >>> statements = t_env.create_statement_set()
        >>> _ = statements.add_insert_sql("INSERT INTO shown VALUES (1)")
        >>> statements.add_insert("shown", t_env.from_elements([(2,)], ["n"])).execute().wait()
        +I[1]
        +I[2]
    """

    def __init__(self, session: TableSession, attach: Callable[[Sequence[Write]], None] | None = None) -> None:
        self._session = session
        self._attach = attach
        self._plans: list[Write] = []

    def add_insert_sql(self, stmt: str) -> StatementSet:
        """Add an INSERT in SQL. Returns the set itself.

        Raises:
            ValidationError: if the statement is not an INSERT, or cannot be planned.

        Examples:
            >>> _ = statements.add_insert_sql("INSERT INTO shown VALUES (3)")
            >>> statements.execute().wait()
            +I[3]
        """
        statement = parse_statement(stmt)
        if not isinstance(statement, statements.Insert):
            raise ValidationError("Only insert statement is supported now: add_insert_sql takes one INSERT")
        with names_located(stmt):
            self._plans.append(plan_insert(self._session, statement))
        return self

    def add_insert(
        self, target_path_or_descriptor: str | TableDescriptor, table: Table, overwrite: bool = False
    ) -> StatementSet:
        """Add a write of a table's rows into another table, given by its path or a descriptor. Returns the set itself.

        Raises:
            ValidationError: if the target table does not exist, or its columns do not match.

        Examples:
            >>> table = t_env.from_elements([(3,)], ["n"])
            >>> statements.add_insert("shown", table).execute().wait()
            +I[3]
        """
        where = target_path_or_descriptor
        path = parse_path(where) if isinstance(where, str) else anonymous_table(self._session, where)
        self._plans.append(write_into(self._session, path, table._plan, overwrite))
        return self

    def add(self, table_pipeline: TablePipeline) -> StatementSet:
        """Add a pipeline that `Table.insert_into` returned. Returns the set itself."""
        self._plans.append(table_pipeline.plan)
        return self

    def explain(self, *extra_details: ExplainDetail) -> str:
        """Return the plan of the job, as EXPLAIN shows it."""
        return self._session.explain(self._plans, detail_names(extra_details))

    def print_explain(self, *extra_details: ExplainDetail) -> None:
        """Print the plan of the job."""
        sys.stdout.write(self.explain(*extra_details) + "\n")

    def compile_plan(self) -> CompiledPlan:
        """Return the plan of the job to keep, which runs all INSERTs, and clear the set.

        Raises:
            ValidationError: if the set has no INSERT.
            UnsupportedError: in batch mode, and if tables or functions exist in this program alone.
        """
        return CompiledPlan(self._session.compile(self._taken()), self._session)

    def plan(self) -> Plan:
        """Return the plan of the job, to inspect as text, JSON, Mermaid or SVG. For streams only."""
        return self._session.plan(self._plans)

    def execute(self) -> TableResult:
        """Start one job for all INSERTs, and clear the set.

        Raises:
            ValidationError: if the set has no INSERT.

        Examples:
            >>> statements.add_insert_sql("INSERT INTO shown VALUES (3)").execute().wait()
            +I[3]
        """
        return self._session.write(self._taken())

    def attach_as_datastream(self) -> None:
        """Add all INSERTs to the DataStream program, whose `execute` starts them, and clear the set.

        Raises:
            ValidationError: if the set has no INSERT.
            WrongTimeError: if the set belongs to an environment without streams.
        """
        if self._attach is None:
            raise WrongTimeError(
                "attach_as_datastream needs an environment of streams: make the set with "
                "StreamTableEnvironment.create(env).create_statement_set()"
            )
        self._attach(self._taken())

    def _taken(self) -> list[Write]:
        if not self._plans:
            raise ValidationError("the statement set has no INSERT: add one first")
        plans, self._plans = self._plans, []
        return plans
