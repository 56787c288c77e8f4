"""What a driver sees of Spark's executors: which one runs a task, and which ones Spark takes away.

Spark tells Python programs neither, so this asks the driver's JVM. An executor is decommissioned when a standalone
master or worker, YARN, Kubernetes, dynamic allocation or a signal says so. Spark gives it no new tasks then, and lets
the running ones go on until they end, or until the executor is ended from outside. Where Spark is one process, or out
of reach behind Spark Connect, there are no executors to be seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark import SparkContext

#: How many tasks of a stage are looked at. A worker's stage has one, which runs again at most a few times.
TASKS_MAX = 100


class ExecutorName(NamedTuple):
    """An executor, as Spark's pages and logs name it, and where it runs."""

    executor_id: str
    host: str

    def __str__(self) -> str:
        return f"executor {self.executor_id} on {self.host}"


class Executors:
    """Of one Spark context. Any thread may ask; each call goes to the JVM and back."""

    def __init__(self, context: SparkContext) -> None:
        java: Any = context._jsc
        self._context = java.sc()

    def of(self, tag: str) -> ExecutorName | None:
        """Where the one running task of a job group is; None while none runs, or Spark has not noted it yet."""
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
        """Whether Spark decommissions the executor."""
        return bool(self._context.taskScheduler().getExecutorDecommissionState(executor_id).isDefined())
