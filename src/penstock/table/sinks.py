"""Where rows of a plan go: a table by its path, or one that only a descriptor describes."""

from __future__ import annotations

from penstock.table.plan.logical import Node, Write
from penstock.table.session.session import TableSession
from penstock.table.sql.statement_parser import StatementParser
from penstock.table.statements.insert import target, write_plan
from penstock.table.table_descriptor import TableDescriptor


def path_of_text(path: str) -> tuple[str, ...]:
    """The names of a path such as `` catalog.`data base`.table ``. Raises `SqlParserError` for what is none."""
    parser = StatementParser(path)
    found = parser.path()
    parser.finish()
    return found


def anonymous_table(session: TableSession, descriptor: TableDescriptor) -> tuple[str, str, str]:
    """Register a table under a name that nobody else uses."""
    path = session.anonymous_path(descriptor.options.get("connector", "table"))
    table = descriptor.to_catalog_table()
    session.manager.resolved(table)
    session.manager.create(path, table, True)
    return path


def write_into(session: TableSession, path: tuple[str, ...], plan: Node, overwrites: bool = False) -> Write:
    """The plan that writes the rows of another into a table."""
    whole, table = target(session, path)
    return write_plan(session, whole, table, plan, overwrites=overwrites)
