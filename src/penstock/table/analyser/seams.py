"""What the parts of the analyser know of each other and of the world: tables, and the analyser of queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.table.analyser.calls import Calls
from penstock.table.analyser.scopes import RelationScope
from penstock.table.plan.logical import Node
from penstock.table.sql import relations, syntax


class Tables(Protocol):
    """What the analyser asks of catalogs."""

    def scan(self, path: tuple[str, ...], hints: tuple[relations.Hint, ...]) -> tuple[Node, tuple[str, ...]] | None:
        """The plan that reads a table or view, and its whole path; None where there is none."""

    def table_names(self) -> Sequence[str]:
        """The names of the tables and views that go by one name alone, to propose one."""


@dataclass(frozen=True, slots=True)
class CommonTable:
    """A query of WITH, planned."""

    name: str
    plan: Node


class Queries(Protocol):
    """The analyser of queries, for those who find queries in what they analyse."""

    tables: Tables
    calls: Calls
    common: list[CommonTable]

    def query(self, node: syntax.Query, outer: RelationScope | None = None) -> Node:
        """The plan of a query."""
