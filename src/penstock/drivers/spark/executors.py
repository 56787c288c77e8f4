"""The driver's view of Spark's executors: the executor that runs a task, and the executors that Spark takes away.

Spark has no Python API for either, so this module asks the driver's JVM. An executor is decommissioned at the request
of a standalone master or worker, YARN, Kubernetes, dynamic allocation or a signal. Spark then schedules no new tasks on
it, and lets the running ones continue until they end, or until the executor is ended from outside. No executors are
visible where Spark is one process, or is only reachable over Spark Connect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark import SparkContext

#: How many tasks of a stage to look at. A worker's stage has one, which is retried at most a few times.
TASKS_MAX = 100


class ExecutorName(NamedTuple):
    """An executor by its name on Spark's pages and in its logs, and its host."""

    executor_id: str
    host: str

    def __str__(self) -> str:
        return f"executor {self.executor_id} on {self.host}"


class Executors:
    """The executors of one Spark context. Any thread may call the methods; each call is a round trip to the JVM."""

    def __init__(self, context: SparkContext) -> None:
        java: Any = context._jsc
        self._context = java.sc()

    def of(self, tag: str) -> ExecutorName | None:
        """Return the executor of a job group's one running task; None if no task runs or Spark has not noted it yet."""
        tracker, store = self._context.statusTracker(), self._context.statusStore()
        for job_id in tracker.getJobIdsForGroup(tag):
            job = tracker.getJobInfo(job_id)
            for stage_id in job.get().stageIds() if job.isDefined() else ():
                tasks = store.taskList(stage_id, 0, TASKS_MAX)
                for index in range(tasks.size()):
                    task = tasks.apply(index)
                    if task.status() == "RUNNING":
                        return ExecutorName(task.executorId(), task.host())
        return None

    def is_leaving(self, executor_id: str) -> bool:
        """Return whether Spark is decommissioning the executor."""
        return bool(self._context.taskScheduler().getExecutorDecommissionState(executor_id).isDefined())
