"""A bounded job in batch execution; drivers define how its tasks run."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

from penstock.base.configuration import Configuration
from penstock.core.batch.task import BatchVertex, batch_vertices
from penstock.core.graph.job_graph import JobGraph
from penstock.core.master.batch import BatchMaster
from penstock.core.master.steps import Last, RunTasks
from penstock.core.ports import JobListener
from penstock.drivers.stepwise.job import StepwiseJob, Table
from penstock.drivers.stepwise.sinks import Sinks


class BatchJob(StepwiseJob):
    """Base class of batch jobs. Subclasses implement `run_tasks` and `interrupt`."""

    def __init__(self, job_graph: JobGraph, configuration: Configuration, listener: JobListener) -> None:
        super().__init__(job_graph, configuration, listener)
        self.vertices: list[BatchVertex] = batch_vertices(job_graph, str(self._job_id))

    def make_master(self) -> BatchMaster:
        """Create the master, which runs all tasks and then commits all output or none."""
        return BatchMaster(self.job_graph, str(self._job_id), self.configuration, self.clock)

    def make_sinks(self) -> Sinks:
        """Create sinks that commit all or nothing."""
        figures = self.master.figures
        return Sinks(self.job_graph, str(self._job_id), self.listener, self.clock, figures, self._let_pass, True)

    @abstractmethod
    def run_tasks(self) -> Iterator[Last]:
        """Run all vertices and return their output for the client. Raises the `PenstockError` that fails the job."""

    def table(self) -> Table:
        """Return the step functions, including the one that runs the tasks."""
        return {**super().table(), RunTasks: lambda _: self._run_tasks()}

    def _run_tasks(self) -> list[Last]:
        last = list(self.run_tasks())
        self.check_cancelled()
        return last

    def why_no_savepoint(self) -> str | None:
        """Return the reason: a batch has no state between its start and its end."""
        return f"job {self.job_graph.name!r} runs in batch execution, which has neither checkpoints nor savepoints"
