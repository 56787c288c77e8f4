"""EXPLAIN: prints plans as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from penstock.base.errors import UnsupportedError
from penstock.table.data.errors import ValidationError
from penstock.table.plan.logical import Node
from penstock.table.session.session import TableSession
from penstock.table.session.table_result import TableResult
from penstock.table.sql import statements
from penstock.table.sql.statements import Statement
from penstock.table.statements import results
from penstock.table.statements.insert import plan_insert
from penstock.table.statements.tables import create_as


def plan_statement(session: TableSession, statement: Statement) -> Sequence[Node]:
    """Return the plans of a query, an INSERT, a statement set or CREATE TABLE AS."""
    match statement:
        case statements.QueryStatement(query):
            return [session.manager.analyser().query(query)]
        case statements.Insert():
            return [plan_insert(session, statement)]
        case statements.StatementSet(inserts):
            return [plan_insert(session, insert) for insert in inserts]
        case statements.CreateTable(query=query) if query is not None:
            return [create_as(session, statement)[1]]
        case statements.Explain(inner) | statements.Execute(inner):
            return plan_statement(session, inner)
        case statements.CreateTable():
            raise ValidationError("EXPLAIN of CREATE TABLE needs a query: CREATE TABLE … AS SELECT …")
        case _:
            raise UnsupportedError(f"EXPLAIN is for queries and INSERT, and not for {type(statement).__name__}")


def _explain(session: TableSession, statement: statements.Explain) -> TableResult:
    return results.text(session.explain(plan_statement(session, statement.statement), statement.details))


HANDLERS: Final[dict[type[statements.Statement], Callable[[TableSession, Any], TableResult]]] = {
    statements.Explain: _explain
}
