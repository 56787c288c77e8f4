"""Executors of plans: the interface between the Table API and the runtimes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from penstock.drivers.running_job import JobClient
from penstock.plan.stream_graph import Plan
from penstock.sql.functions.definition import Session
from penstock.sql.logical.nodes import Node, Write
from penstock.sql.logical.stored_plans import CatalogObjects, CompiledQueries, Objects
from penstock.sql.typed import Typed

#: a changelog row: its kind (`+I`, `-U`, `+U`, `-D`) and its external values
ChangelogRow = tuple[str, tuple[Any, ...]]


class Job(Protocol):
    """A started job."""

    def wait(self, timeout_ms: int | None = None) -> None:
        """Wait for the job's end. Raises its error, or `CallTimeoutError` if it still runs after `timeout_ms`."""

    def client(self) -> JobClient:
        """Return the job's client, as `StreamExecutionEnvironment.execute_async` does."""

    def analyzed(self) -> str:
        """Return what the job has done, for EXPLAIN ANALYZE."""


class CollectingJob(Job, Protocol):
    """A job that sends its rows to the client. `wait` blocks until the first row is available, and keeps all rows."""

    def rows(self) -> Iterator[ChangelogRow]:
        """Yield rows as they arrive, until the job ends."""

    def held_rows(self) -> Iterator[ChangelogRow]:
        """Like `rows`, with internal values (`penstock.sql.data.arrow`), which keep nanoseconds."""

    def cancel(self) -> None:
        """Cancel the job when its rows are not needed any longer."""


class RowChanging(Protocol):
    """Changes rows of tables; see `TableConnector`. `options`: those of the table."""

    def pin_version(self, path: tuple[str, str, str], options: Mapping[str, str]) -> dict[str, str]:
        """Return options for reading and changing a table's rows. Raises `UnsupportedError` if this is impossible."""

    def remove_rows(
        self, path: tuple[str, str, str], options: Mapping[str, str], condition: Typed | None, names: Sequence[str]
    ) -> int | None:
        """Remove rows of a table without a job and return their number, -1 if unknown; None if that is impossible."""


class PlanCompiler(Protocol):
    """Compiles plans, and runs compiled ones; see `penstock.sql.logical.stored_plans`."""

    def compile(
        self,
        plans: Sequence[Write],
        options: Mapping[str, str],
        session: Session,
        objects: Objects,
        stores: CatalogObjects,
    ) -> str:
        """Return the optimised plan of a job as JSON."""

    def load(self, text: str, session: Session, objects: Objects, restores: CatalogObjects) -> CompiledQueries:
        """Return the queries of a compiled plan. Raises `ValidationError` if it does not fit the tables."""

    def write_compiled(
        self, queries: CompiledQueries, options: Mapping[str, str], session: Session, name: str | None = None
    ) -> Job:
        """Start the job of a compiled plan."""

    def explain_compiled(
        self, queries: CompiledQueries, options: Mapping[str, str], session: Session, details: Sequence[str]
    ) -> str:
        """Return how a compiled plan would run."""


class Executor(Protocol):
    """Runs plans as jobs. `options`: the session's options as strings; `session`: the state visible to functions."""

    @property
    def connectors(self) -> RowChanging:
        """The connectors, which change rows of tables."""

    def write(
        self, plans: Sequence[Write], options: Mapping[str, str], session: Session, name: str | None = None
    ) -> Job:
        """Start one job that writes to all these tables."""

    def check_overwrites(self, plan: Write) -> None:
        """Raise `UnsupportedError` unless a batch job may replace the contents of the table."""

    def options_up_to_now(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return the options with which a table is read up to its present end, if its connector can do so."""

    def collect(self, plan: Node, options: Mapping[str, str], session: Session) -> CollectingJob:
        """Start a job that sends the rows of a plan to the client."""

    def frame(self, plan: Node, options: Mapping[str, str], session: Session) -> Any:
        """Return the rows of a plan as a Spark data frame. Raises `ConfigurationError` except in BATCH mode."""

    def explain(
        self, plans: Sequence[Node], options: Mapping[str, str], session: Session, details: Sequence[str]
    ) -> str:
        """Return the part of EXPLAIN below the logical plans: how they would run."""

    def plan(self, plans: Sequence[Node], options: Mapping[str, str], session: Session) -> Plan:
        """Return the job plan without running it. Raises `UnsupportedError` if it does not exist before the run."""

    def compiler(self) -> PlanCompiler:
        """Return the compiler of plans. Raises `UnsupportedError` in BATCH mode."""
