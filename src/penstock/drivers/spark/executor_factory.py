"""Builds the task executor of a real job's worker."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.task.executor import TaskExecutor
from penstock.drivers.backends import BackendSettings
from penstock.drivers.cycle_collector import EndedTasks
from penstock.drivers.spark.worker_settings import WorkerServices
from penstock.drivers.worker_log import LoggedStates
from penstock.drivers.worker_storage import StorageSettings


@dataclass(frozen=True)
class TaskExecutorFactory:
    """Builds a worker's `TaskExecutor`; is pickled and sent to the worker."""

    storage: StorageSettings
    backends: BackendSettings

    def __call__(self, services: WorkerServices) -> TaskExecutor:
        master = LoggedStates(services.master)
        executor = TaskExecutor(
            services.worker_id,
            clock=services.clock,
            network=services.network,
            master=master,
            background=services.background,
            storage=self.storage.storage(),
            backends=self.backends.backends(),
            coroutines=services.coroutines,
            cycles=EndedTasks(),
        )
        master.tasks = lambda: executor.tasks
        return executor
