"""An executor that runs nothing, and remembers what it was given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock.plan.stream_graph import Plan
from penstock.sql.executor import ChangelogRow, PlanCompiler
from penstock.sql.functions.definition import Session
from penstock.sql.logical.explain import plan_text
from penstock.sql.logical.nodes import Node, Write
from penstock.sql.tables.connector import Connectors
from penstock.table import EnvironmentSettings, TableEnvironment


class RecordedJob:
    """A job that has ended."""

    def __init__(self, rows: Sequence[ChangelogRow] = ()) -> None:
        self._rows = rows
        self.is_cancelled = False
        self.waits: list[int | None] = []

    def wait(self, timeout_ms: int | None = None) -> None:
        self.waits.append(timeout_ms)

    def client(self) -> Any:
        return "client"

    def analyzed(self) -> str:
        return "what it has done"

    def rows(self) -> Iterator[ChangelogRow]:
        return iter(self._rows)

    def held_rows(self) -> Iterator[ChangelogRow]:
        return iter(self._rows)

    def cancel(self) -> None:
        self.is_cancelled = True


class Recorder:
    """See the module's text. `rows`: what queries give."""

    def __init__(self, rows: Sequence[ChangelogRow] = ()) -> None:
        self.rows = rows
        self.written: list[tuple[Write, ...]] = []
        self.collected: list[Node] = []
        self.names: list[str | None] = []
        self.jobs: list[RecordedJob] = []
        self.connectors = Connectors()

    def write(
        self, plans: Sequence[Write], options: Mapping[str, str], session: Session, name: str | None = None
    ) -> RecordedJob:
        self.written.append(tuple(plans))
        self.names.append(name)
        self.jobs.append(RecordedJob())
        return self.jobs[-1]

    def collect(self, plan: Node, options: Mapping[str, str], session: Session) -> RecordedJob:
        self.collected.append(plan)
        self.jobs.append(RecordedJob(self.rows))
        return self.jobs[-1]

    def frame(self, plan: Node, options: Mapping[str, str], session: Session) -> str:
        return plan_text(plan)

    def explain(
        self, plans: Sequence[Node], options: Mapping[str, str], session: Session, details: Sequence[str]
    ) -> str:
        return f"== Physical Plan ==\n{len(plans)} plans {','.join(details)}"

    def plan(self, plans: Sequence[Node], options: Mapping[str, str], session: Session) -> Plan:
        raise NotImplementedError

    def check_overwrites(self, plan: Write) -> None:
        raise NotImplementedError

    def options_up_to_now(self, options: Mapping[str, str]) -> dict[str, str]:
        raise NotImplementedError

    def compiler(self) -> PlanCompiler:
        raise NotImplementedError

    @property
    def last(self) -> str:
        """The plans of the last job that writes, as text."""
        return "\n".join(plan_text(plan) for plan in self.written[-1])


def environment(recorder: Recorder | None = None, *ddl: str, is_batch: bool = False) -> TableEnvironment:
    """An environment in which some statements have run."""
    settings = EnvironmentSettings.in_batch_mode() if is_batch else EnvironmentSettings.in_streaming_mode()
    made = TableEnvironment(settings, recorder)
    made.get_config().set_local_timezone("UTC")
    for statement in ddl:
        made.execute_sql(statement)
    return made


def read_rows(made: TableEnvironment, sql: str) -> list[tuple[object, ...]]:
    """The rows that a statement gives."""
    with made.execute_sql(sql).collect() as rows:
        return [tuple(row) for row in rows]


def read_names(made: TableEnvironment, sql: str) -> list[object]:
    """The first column of what a statement gives."""
    return [row[0] for row in read_rows(made, sql)]
