"""Dispatches a statement of any kind to its handler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.base.errors import UnsupportedError
from penstock.sql.data.errors import ValidationError
from penstock.sql.parser import statements
from penstock.sql.parser.statements import Statement
from penstock.sql.session.result import TableResult
from penstock.sql.session.session import TableSession
from penstock.sql.statements import alter, catalogs, insert, modify, objects, plans, show
from penstock.sql.statements import materialized_tables as materialized

_MODULES: Final = (
    alter,
    catalogs,
    insert,
    modify,
    materialized,
    objects,
    plans,
    show,
)
#: the statements that Penstock does not support, each with an explanation
_REFUSED: Final[dict[type[Statement], str]] = {
    statements.Analyze: "ANALYZE TABLE collects statistics for a planner that has costs, which Penstock's has not",
    statements.CallProcedure: "CALL runs a procedure of a catalog, and Penstock's catalogs have none",
    statements.JarStatement: "ADD JAR and REMOVE JAR are for functions in Java, which Penstock cannot run",
    statements.JobStatement: "statements about jobs are not supported: use the command penstock, or the job client of "
    "a result",
    statements.ShellCommand: "QUIT, CLEAR and HELP are commands of a shell, and no statements",
}
Handler = Callable[[TableSession, Any], TableResult]
_HANDLERS: Final[dict[type[Statement], Handler]] = {}
for _module in _MODULES:
    _HANDLERS.update(_module.HANDLERS)


def run(session: TableSession, statement: Statement) -> TableResult:
    """Run a statement.

    Raises:
        ValidationError: if it cannot be planned, or names an unknown object.
        UnsupportedError: if Penstock does not support it.
    """
    if isinstance(statement, statements.Execute):
        return run(session, statement.statement)
    if session.open_set is not None and not isinstance(statement, statements.Insert | statements.EndStatementSet):
        raise ValidationError(
            "Only INSERT statement is allowed in Statement Set. Use 'END' to terminate the Statement Set."
        )
    if isinstance(statement, statements.QueryStatement):
        return session.collect(session.manager.analyser().result(statement.query))
    refusal = _REFUSED.get(type(statement))
    handler = _HANDLERS.get(type(statement))
    if refusal is not None or handler is None:
        raise UnsupportedError(refusal or f"{type(statement).__name__} is not supported")
    return handler(session, statement)
