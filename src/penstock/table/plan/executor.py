"""What runs plans: the seam between the Table API and the runtimes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from penstock.drivers.job_client import JobClient
from penstock.plan.description import Plan
from penstock.table.functions.definition import Session
from penstock.table.plan.logical import Node, Write

#: a row of a changelog: its kind (`+I`, `-U`, `+U`, `-D`) and its values, as programs see them
ChangelogRow = tuple[str, tuple[Any, ...]]


class Job(Protocol):
    """A job that was started."""

    def wait(self, timeout_ms: int | None = None) -> None:
        """Wait for its end. Raises what made it fail, and `CallTimeoutError` if it still runs after `timeout_ms`."""

    def client(self) -> JobClient:
        """The client of the job, as `StreamExecutionEnvironment.execute_async` gives it."""


class CollectingJob(Job, Protocol):
    """A job whose rows come to the client. `wait` waits until the first row can be read, and keeps all rows."""

    def rows(self) -> Iterator[ChangelogRow]:
        """The rows as they come; ends with the job."""

    def held_rows(self) -> Iterator[ChangelogRow]:
        """As `rows`, with values as tables hold them (`penstock.table.data.values`): nanoseconds are kept."""

    def cancel(self) -> None:
        """Stop it: nobody reads the rows any more."""


class Executor(Protocol):
    """Plans to jobs. `options` are those of the session, as text; `session` is what functions know of it."""

    def write(
        self, plans: Sequence[Write], options: Mapping[str, str], session: Session, name: str | None = None
    ) -> Job:
        """Start one job that writes into all these tables."""

    def collect(self, plan: Node, options: Mapping[str, str], session: Session) -> CollectingJob:
        """Start a job that gives the rows of a plan to the client."""

    def frame(self, plan: Node, options: Mapping[str, str], session: Session) -> Any:
        """The rows of a plan as a Spark data frame. Raises `ConfigurationError` outside of batch."""

    def explain(
        self, plans: Sequence[Node], options: Mapping[str, str], session: Session, details: Sequence[str]
    ) -> str:
        """What EXPLAIN shows below the logical plans: how they would run."""

    def plan(self, plans: Sequence[Node], options: Mapping[str, str], session: Session) -> Plan:
        """The job of these plans, to look at. Raises `UnsupportedError` where there is none before it runs."""
