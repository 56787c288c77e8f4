"""Views created with the Table API: they have a plan but no SQL text."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.table.catalog.objects import CatalogBaseTable
from penstock.table.catalog.schema import Schema, UnresolvedColumn
from penstock.table.plan.logical import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineView(CatalogBaseTable):
    """A view of a plan."""

    plan: Node

    @property
    def is_view(self) -> bool:
        """Always true."""
        return True


def inline_view(plan: Node) -> InlineView:
    """Return a view of a plan."""
    return InlineView(schema=view_schema(plan), plan=plan)


def view_schema(plan: Node) -> Schema:
    """Return the columns of a plan as the schema of a view."""
    return Schema(tuple(UnresolvedColumn(column.name, column.type) for column in plan.schema))
