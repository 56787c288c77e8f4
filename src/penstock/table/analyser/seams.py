"""Interfaces between the parts of the analyser, and to the catalogs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.table.analyser.calls import Calls
from penstock.table.analyser.scopes import RelationScope
from penstock.table.plan.logical import Node
from penstock.table.sql import relations, syntax


class Tables(Protocol):
    """The tables of the catalogs, as the analyser sees them."""

    def scan(self, path: tuple[str, ...], hints: tuple[relations.Hint, ...]) -> tuple[Node, tuple[str, ...]] | None:
        """Return the plan that reads a table or view, and its full path; None for an unknown table."""

    def table_names(self) -> Sequence[str]:
        """Return the names of tables and views that need no qualifier, for suggestions."""


@dataclass(frozen=True, slots=True)
class CommonTable:
    """A planned WITH query."""

    name: str
    plan: Node


class Queries(Protocol):
    """The query analyser, for analysers of other syntax that contains queries."""

    tables: Tables
    calls: Calls
    common: list[CommonTable]

    def query(self, node: syntax.Query, outer: RelationScope | None = None) -> Node:
        """Return the plan of a query."""
