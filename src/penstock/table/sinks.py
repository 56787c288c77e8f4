"""Resolves the target of a plan's rows: a table given by its path, or an anonymous one given by a descriptor."""

from __future__ import annotations

from penstock.sql.catalogs.sinks import write_plan
from penstock.sql.logical.nodes import Node, Write
from penstock.sql.session.session import TableSession
from penstock.sql.statements.insert import target
from penstock.table.table_descriptor import TableDescriptor


def anonymous_table(session: TableSession, descriptor: TableDescriptor) -> tuple[str, str, str]:
    """Register a table under a unique generated name."""
    path = session.anonymous_path(descriptor.options.get("connector", "table"))
    table = descriptor.to_catalog_table()
    session.manager.resolved(table)
    session.manager.create(path, table, True)
    return path


def write_into(session: TableSession, path: tuple[str, ...], plan: Node, overwrites: bool = False) -> Write:
    """Return the plan that writes another plan's rows into a table."""
    full_path, table = target(session, path)
    return write_plan(session.manager, full_path, table, plan, overwrites=overwrites)
