"""Views of what a program has made with the Table API: they have a plan, and no text."""

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
        """It is one."""
        return True


def inline_view(plan: Node) -> InlineView:
    """The view of a plan."""
    return InlineView(schema=view_schema(plan), plan=plan)


def view_schema(plan: Node) -> Schema:
    """The columns of a plan as those of a view."""
    return Schema(tuple(UnresolvedColumn(column.name, column.type) for column in plan.schema))
