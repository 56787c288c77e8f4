"""Delivers the output of tasks to the client, and commits it for the sinks, once all tasks have succeeded.

A task that was run again therefore leaves no trace.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from penstock.core.accumulators import get_values, merge_accumulators
from penstock.core.batch.exchange import SEQUENCES_PER_SUBTASK
from penstock.core.batch.figures import JobFigures
from penstock.core.batch.rows import ACCUMULATORS, CLIENT, METRICS
from penstock.core.graph.job_graph import JobGraph
from penstock.core.master.steps import Last
from penstock.core.ports import Clock, JobListener
from penstock.drivers.stepwise.commits import BatchCommits, Place, SinkCommits


class Sinks:
    """All sinks of one job.

    Args:
        job_graph: the job.
        job_id: its id.
        listener: receives the sinks' output for the client.
        clock: processing time.
        figures: accumulates the metrics that tasks report.
        wait: waits for a time (ms) before a commit is retried.
        all_or_nothing: whether to roll back commits if not all of them succeed.
    """

    def __init__(
        self,
        job_graph: JobGraph,
        job_id: str,
        listener: JobListener,
        clock: Clock,
        figures: JobFigures,
        wait: Callable[[int], None],
        all_or_nothing: bool = False,
    ) -> None:
        self._job_graph = job_graph
        self._listener = listener
        self._figures = figures
        #: accumulators of all tasks whose output was delivered, merged by name
        self._accumulators: dict[str, Any] = {}

        def build_context(job_id: str, operator_id: str) -> _CommitterContext:
            return _CommitterContext(job_id, operator_id, clock, listener)

        make = BatchCommits if all_or_nothing else SinkCommits
        self._commits = make(job_graph, job_id, build_context, wait, listener.on_log)

    def begin(self) -> None:
        """Prepare for commits, before anything is delivered."""
        if isinstance(self._commits, BatchCommits):
            self._commits.begin()

    def deliver(self, left: Iterable[Last]) -> None:
        """Commit, then notify the client. A failed delivery may be repeated: the client has not been notified."""
        last = sorted(left, key=lambda item: (item.vertex, item.operator, item.sequence))
        committables: dict[Place, list[Any]] = defaultdict(list)
        others = []
        for record in last:
            if record.kind in (ACCUMULATORS, METRICS, CLIENT):
                others.append(record)
            else:
                committables[record.vertex, record.operator].extend(pickle.loads(record.payload))
        self._commits.commit(committables)
        for record in others:
            self._tell(record)

    def _tell(self, record: Last) -> None:
        if record.kind == ACCUMULATORS:
            merge_accumulators(self._accumulators, pickle.loads(record.payload))
        elif record.kind == METRICS:
            self._figures.add(record.payload)
        else:
            operator = self._job_graph.vertices[record.vertex].operators[record.operator]
            subtask = record.sequence // SEQUENCES_PER_SUBTASK
            self._listener.on_client_output(operator.operator_id, subtask, record.payload)

    def accumulators(self) -> dict[str, Any]:
        """Return the values of the user-defined accumulators so far, by name."""
        return get_values(dict(self._accumulators))

    def end_forerunners(self, job_ids: Iterable[str]) -> None:
        """Clean up after the jobs that this one continues; they have nothing left to commit."""
        self._commits.end_forerunners(job_ids)

    def end(self) -> None:
        """Clean up at the end of the job, which has nothing left to commit."""
        if isinstance(self._commits, BatchCommits):
            self._commits.end()
        else:
            self._commits.end_job()


class _CommitterContext:
    """The context of a committer in the client's process."""

    subtask_index = 0
    parallelism = 1
    attempt = 0
    run = ""
    restored_checkpoint_id = None
    forerunners = ()
    owes_nothing = False

    def __init__(self, job_id: str, operator_id: str, clock: Clock, listener: JobListener) -> None:
        self.job_id = job_id
        self.operator_id = operator_id
        self.now_ms = clock.now_ms
        self._listener = listener

    def count(self, name: str, increment: int = 1) -> None:
        """Ignore the count: nothing displays a committer's counters in the client's process."""

    def emit_to_client(self, payload: bytes) -> None:
        self._listener.on_client_output(self.operator_id, 0, payload)
