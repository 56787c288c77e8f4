"""Batch and micro-batch execution in this process: one task after the other, rows sorted in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from penstock.base.configuration import Configuration
from penstock.core.batch.rows import Rows
from penstock.core.batch.splits import splits_of
from penstock.core.batch.task import BatchTask
from penstock.core.epochs.task import EpochTask
from penstock.core.epochs.work import EpochWork, Task
from penstock.core.graph.job_graph import JobGraph
from penstock.core.master.steps import Last
from penstock.core.ports import JobListener
from penstock.drivers.event_loop import WaitingEventLoop
from penstock.drivers.stepwise.batch_job import BatchJob
from penstock.drivers.stepwise.epoch_job import EpochJob
from penstock.drivers.stepwise.exchange import run_in_order
from penstock.drivers.stepwise.job import StepwiseJob


class LocalBatchJob(BatchJob):
    """See the module's text."""

    def run_tasks(self) -> Iterator[Last]:
        """Task after task."""
        splits = {
            vertex.index: splits_of(source, vertex.parallelism)
            for vertex in self.job_graph.vertices
            for source in vertex.sources.values()
        }

        def run(vertex: int, subtask: int, rows: Rows) -> Iterable[Rows]:
            with WaitingEventLoop("penstock-async") as loop:
                task = BatchTask(self.vertices[vertex], subtask, self.clock, loop.wait, loop.coroutines)
                yield from task.run_source(splits[vertex][subtask]) if vertex in splits else task.run([rows])

        return run_in_order(self.job_graph, run, self.check_cancelled)

    def interrupt(self) -> None:
        """Tasks look for themselves whether the job was cancelled."""


class LocalEpochJob(EpochJob):
    """See the module's text."""

    def run_epoch(self, works: Mapping[Task, EpochWork]) -> Iterator[Last]:
        """Task after task."""
        storage, backends = self.storage.store(), self.backends.backends()

        def run(vertex: int, subtask: int, rows: Rows) -> Iterable[Rows]:
            work, made = works[vertex, subtask], self.epoch_vertices[vertex]
            with WaitingEventLoop("penstock-async") as loop:
                task = EpochTask(
                    made, subtask, work, self.clock, storage, backends, wait=loop.wait, coroutines=loop.coroutines
                )
                yield from task.run([rows])

        return run_in_order(self.job_graph, run, self.check_cancelled)

    def interrupt(self) -> None:
        """Tasks look for themselves whether the job was cancelled."""


def submit_local_batch(job_graph: JobGraph, configuration: Configuration, listener: JobListener) -> StepwiseJob:
    """Begin to run a job in this process, in the mode that the graph was made for."""
    make: type[BatchJob] | type[EpochJob] = LocalBatchJob if job_graph.mode == "BATCH" else LocalEpochJob
    job = make(job_graph, configuration, listener)
    job.start()
    return job
