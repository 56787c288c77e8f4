"""Batch and micro-batch execution in this process: one task after another, rows sorted in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from penstock.base.configuration import Configuration
from penstock.drivers.event_loop import WaitingEventLoop
from penstock.drivers.local.mini_cluster import watch
from penstock.drivers.process_resources import EndedTasks
from penstock.drivers.stepwise.epoch_job import EpochJob
from penstock.drivers.stepwise.exchange import run_in_order
from penstock.drivers.stepwise.job import BatchJob, StepwiseJob
from penstock.runtime.batch.exchange import Rows, keeps_step
from penstock.runtime.batch.splits import enumerate_splits
from penstock.runtime.batch.task import BatchTask
from penstock.runtime.epochs.coordinator import EpochWork, Task
from penstock.runtime.epochs.task import EpochTask
from penstock.runtime.graph.job_graph import JobGraph
from penstock.runtime.master.steps import Last
from penstock.runtime.operators.lockstep import Round, exchanged
from penstock.runtime.ports import JobListener


class LocalBatchJob(BatchJob):
    """A batch job in this process."""

    def run_tasks(self) -> Iterator[Last]:
        """Run one task after another."""
        splits = {
            vertex.index: enumerate_splits(source, vertex.parallelism)
            for vertex in self.job_graph.vertices
            for source in vertex.sources.values()
        }

        meetings = {
            vertex.index: _Meeting(vertex.parallelism, self.listener.on_log)
            for vertex in self.job_graph.vertices
            if keeps_step(vertex)
        }

        def run(vertex: int, subtask: int, rows: Rows) -> Iterable[Rows]:
            with WaitingEventLoop("penstock-async") as loop:
                task = BatchTask(self.vertices[vertex], subtask, self.clock, loop.wait, loop.coroutines)
                output = task.run_source(splits[vertex][subtask]) if vertex in splits else task.run([rows])
                for produced in output:
                    if task.round is not None:
                        meetings[vertex].bring(subtask, task)
                    yield produced

        return run_in_order(self.job_graph, run, self.check_cancelled, meetings.__contains__)

    def interrupt(self) -> None:
        """Do nothing: tasks check for cancellation themselves."""


class _Meeting:
    """Exchanges the rounds of the subtasks of a vertex that run in lockstep."""

    def __init__(self, parallelism: int, tell: Callable[[str], None]) -> None:
        self._parallelism = parallelism
        self._tell = tell
        self._tasks: dict[int, tuple[BatchTask, Round]] = {}

    def bring(self, subtask: int, task: BatchTask) -> None:
        """Add a task's round; once all tasks have one, pass them the answers."""
        assert task.round is not None
        self._tasks[subtask] = task, task.round
        if len(self._tasks) < self._parallelism:
            return
        met = [self._tasks[subtask] for subtask in range(self._parallelism)]
        self._tasks.clear()
        if met[0][1].progress:
            self._tell(met[0][1].progress)
        for (peer, _), answer in zip(met, exchanged([round_ for _, round_ in met]), strict=True):
            peer.answer(answer)


class LocalEpochJob(EpochJob):
    """A micro-batch job in this process."""

    def __init__(self, job_graph: JobGraph, configuration: Configuration, listener: JobListener) -> None:
        super().__init__(job_graph, configuration, listener)
        self._cycles = EndedTasks()

    def run_epoch(self, works: Mapping[Task, EpochWork]) -> Iterator[Last]:
        """Run one task after another."""
        self._cycles.collect()  # cycles of a failed epoch
        storage, backends = self.storage.store(), self.backends.backends()

        def run(vertex: int, subtask: int, rows: Rows) -> Iterable[Rows]:
            work, epoch_vertex = works[vertex, subtask], self.epoch_vertices[vertex]
            with WaitingEventLoop("penstock-async") as loop:
                task = EpochTask(
                    epoch_vertex,
                    subtask,
                    work,
                    self.clock,
                    storage,
                    backends,
                    wait=loop.wait,
                    coroutines=loop.coroutines,
                )
                yield from task.run([rows])

        try:
            yield from run_in_order(self.job_graph, run, self.check_cancelled)
        except Exception:
            self._cycles.note()
            raise

    def interrupt(self) -> None:
        """Do nothing: tasks check for cancellation themselves."""


def submit_local_batch(job_graph: JobGraph, configuration: Configuration, listener: JobListener) -> StepwiseJob:
    """Start a job in this process, in the execution mode of the graph."""
    make: type[BatchJob] | type[EpochJob] = LocalBatchJob if job_graph.mode == "BATCH" else LocalEpochJob
    job = make(job_graph, configuration, listener)
    watch(job, configuration)
    job.start()
    return job
