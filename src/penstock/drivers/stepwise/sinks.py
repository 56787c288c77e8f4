"""What tasks leave for the client: handed to it, and committed for the sinks, when the tasks have all ended well.

A task that was run again therefore leaves no trace.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from penstock.core.accumulators import merge_accumulators, values_of
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
        listener: hears what sinks have for the client.
        clock: processing time.
        figures: what tasks report is added to them.
        wait: lets a time (ms) pass before a commit is tried again.
        all_or_nothing: whether what was committed is taken back when not all of it can be committed.
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
        #: by name: those of all tasks whose output was delivered, merged
        self._accumulators: dict[str, Any] = {}

        def context_of(job_id: str, operator_id: str) -> _CommitterContext:
            return _CommitterContext(job_id, operator_id, clock, listener)

        make = BatchCommits if all_or_nothing else SinkCommits
        self._commits = make(job_graph, job_id, context_of, wait, listener.on_log)

    def begin(self) -> None:
        """Before anything is delivered."""
        if isinstance(self._commits, BatchCommits):
            self._commits.begin()

    def deliver(self, left: Iterable[Last]) -> None:
        """Commit, then tell the client. What cannot be committed may be delivered again: the client was not told."""
        last = sorted(left, key=lambda one: (one.vertex, one.operator, one.sequence))
        committables: dict[Place, list[Any]] = defaultdict(list)
        others = []
        for one in last:
            if one.kind in (ACCUMULATORS, METRICS, CLIENT):
                others.append(one)
            else:
                committables[one.vertex, one.operator].extend(pickle.loads(one.payload))
        self._commits.commit(committables)
        for one in others:
            self._tell(one)

    def _tell(self, one: Last) -> None:
        if one.kind == ACCUMULATORS:
            merge_accumulators(self._accumulators, pickle.loads(one.payload))
        elif one.kind == METRICS:
            self._figures.add(one.payload)
        else:
            operator = self._job_graph.vertices[one.vertex].operators[one.operator]
            subtask = one.sequence // SEQUENCES_PER_SUBTASK
            self._listener.on_client_output(operator.operator_id, subtask, one.payload)

    def accumulators(self) -> dict[str, Any]:
        """The values of the users' accumulators so far, by name."""
        return values_of(dict(self._accumulators))

    def end_forerunners(self, job_ids: Iterable[str]) -> None:
        """The jobs that this one continues are over and owe nothing."""
        self._commits.end_forerunners(job_ids)

    def end(self) -> None:
        """The job is over and owes nothing."""
        if isinstance(self._commits, BatchCommits):
            self._commits.end()
        else:
            self._commits.end_job()


class _CommitterContext:
    """What a committer may ask of the client's process, where it runs."""

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
        """Nobody is shown what a committer counts where a job is driven."""

    def emit_to_client(self, payload: bytes) -> None:
        self._listener.on_client_output(self.operator_id, 0, payload)
