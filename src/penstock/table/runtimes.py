"""Selects the executor of plans by `execution.runtime-mode`: Spark SQL for BATCH, streams for all other modes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from penstock.base.options import RUNTIME_MODE
from penstock.plan.stream_graph import Plan
from penstock.sql.executor import CollectingJob, Executor, Job
from penstock.sql.functions.definition import Session
from penstock.sql.logical.nodes import Node, Write
from penstock.sql.stream.executor import StreamExecutor
from penstock.sql.tables.connector import Connectors


class ExecutorOfMode:
    """An `Executor` that delegates each plan to the executor of the mode then set in the options."""

    def __init__(self, connectors: Connectors) -> None:
        self._streams: Executor = StreamExecutor(connectors)
        self._connectors = connectors

    @cached_property
    def _batches(self) -> Executor:
        from penstock.sql.spark.executor import BatchExecutor  # imports PySpark

        return BatchExecutor(self._connectors)

    def _select_executor(self, options: Mapping[str, str]) -> Executor:
        return self._batches if options.get(RUNTIME_MODE.key(), "").upper() == "BATCH" else self._streams

    def write(
        self, plans: Sequence[Write], options: Mapping[str, str], session: Session, name: str | None = None
    ) -> Job:
        """Start one job that writes to all these tables."""
        return self._select_executor(options).write(plans, options, session, name)

    def collect(self, plan: Node, options: Mapping[str, str], session: Session) -> CollectingJob:
        """Start a job that sends the rows of a plan to the client."""
        return self._select_executor(options).collect(plan, options, session)

    def frame(self, plan: Node, options: Mapping[str, str], session: Session) -> Any:
        """Return the rows of a plan as a Spark data frame."""
        return self._select_executor(options).frame(plan, options, session)

    def explain(
        self, plans: Sequence[Node], options: Mapping[str, str], session: Session, details: Sequence[str]
    ) -> str:
        """Return how the plans would run, for EXPLAIN."""
        return self._select_executor(options).explain(plans, options, session, details)

    def plan(self, plans: Sequence[Node], options: Mapping[str, str], session: Session) -> Plan:
        """Return the job plan without running it."""
        return self._select_executor(options).plan(plans, options, session)
