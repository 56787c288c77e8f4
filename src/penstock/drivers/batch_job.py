"""A bounded job in batch execution; drivers say how its tasks are run."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

from penstock.common.completable_future import CompletableFuture
from penstock.common.configuration import Configuration
from penstock.common.errors import CheckpointError
from penstock.core.batch.task import BatchVertex, batch_vertices
from penstock.core.job.job_graph import JobGraph
from penstock.core.ports import JobListener
from penstock.drivers.commits import BatchCommits
from penstock.drivers.masterless_job import Last, MasterlessJob


class BatchJob(MasterlessJob):
    """Subclasses implement `run_tasks` and `interrupt`."""

    commits: BatchCommits

    def __init__(self, job_graph: JobGraph, configuration: Configuration, listener: JobListener) -> None:
        super().__init__(job_graph, configuration, listener)
        self.vertices: list[BatchVertex] = batch_vertices(job_graph, str(self._job_id))

    def make_commits(self) -> BatchCommits:
        """All or nothing."""
        return BatchCommits(*self.what_commits_need())

    @abstractmethod
    def run_tasks(self) -> Iterator[Last]:
        """Run all vertices; give what they leave for the client. Raises `PenstockError` for the job to fail with."""

    def run_all(self) -> None:
        """All tasks; what they leave is delivered when every one has ended."""
        try:
            self.commits.begin()
            last = list(self.run_tasks())
            self.check_cancelled()
            self.deliver(last)
        finally:
            self.commits.end()

    def _savepoint(self, directory: str | None, request: Any) -> Future[str]:
        future: CompletableFuture[str] = CompletableFuture()
        reason = f"job {self.job_graph.name!r} runs in batch execution, which keeps no checkpoints, nor savepoints"
        future.complete_exceptionally(CheckpointError(reason))
        return future
