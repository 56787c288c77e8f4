"""Where rows of a plan go: a table by its path, or one that only a descriptor describes."""

from __future__ import annotations

from penstock.table.catalog.sink_plans import write_plan
from penstock.table.plan.logical import Node, Write
from penstock.table.session.session import TableSession
from penstock.table.statements.insert import target
from penstock.table.table_descriptor import TableDescriptor


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
    return write_plan(session.manager, whole, table, plan, overwrites=overwrites)
