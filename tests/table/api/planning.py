"""A table environment that plans, and remembers what it is asked to run."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.table.planned import CUSTOMERS, ORDERS, manager_of, plan_query

from penstock.base.types import Row, RowKind
from penstock.plan.stream_graph import Plan
from penstock.sql.executor import ChangelogRow
from penstock.sql.logical.explain import plan_text
from penstock.sql.logical.nodes import Node
from penstock.table.table import Table


@dataclass
class Rows:
    """Rows of a result."""

    rows: list[Row]
    is_closed: bool = False

    def collect(self) -> Rows:
        """The rows."""
        return self

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __enter__(self) -> Rows:
        return self

    def __exit__(self, *error: object) -> None:
        self.is_closed = True


@dataclass
class Pipeline:
    """What writes into a table."""

    plan: Node
    path: tuple[str, ...]
    overwrite: bool

    def execute(self) -> Pipeline:
        """Pretend to run it."""
        return self


@dataclass(eq=False)
class PlanningEnvironment:
    """See the module's text. `rows`: what any query gives."""

    rows: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._manager = manager_of(ORDERS, CUSTOMERS)

    def _frame(self, plan: Node) -> Node:
        return plan

    def from_path(self, name: str) -> Table:
        """A table of the catalog."""
        return Table(plan_query(f"TABLE {name}", self._manager), self)

    def planned(self, sql: str) -> str:
        """The plan of a query of SQL."""
        return plan_text(plan_query(sql, self._manager))

    def _collect(self, plan: Node) -> Rows:
        return Rows(self.rows)

    @contextmanager
    def _held_rows(self, plan: Node) -> Iterator[tuple[Iterator[ChangelogRow], datetime.tzinfo]]:
        kinds = {kind: kind.short_string for kind in RowKind}
        yield iter([(kinds[row.get_row_kind()], tuple(row)) for row in self.rows]), datetime.UTC

    def _write(self, plan: Node, path: tuple[str, ...], overwrite: bool) -> Pipeline:
        return Pipeline(plan, path, overwrite)

    def _drawn(self, plans: Sequence[Node]) -> Plan:
        raise NotImplementedError

    def _explain(self, plans: Sequence[Node], details: Sequence[Any] = ()) -> str:
        return "\n".join(map(plan_text, plans))

    def _sink_path(self, descriptor: Any) -> tuple[str, ...]:
        return ("sink of", str(descriptor))

    def _inline_name(self, plan: Node) -> str:
        return f"unnamed_with_{len(plan.schema)}_columns"


def show_plan(table: Table) -> str:
    """The plan of a table as text."""
    return plan_text(table._plan)
