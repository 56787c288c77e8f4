"""What a worker of a real job runs."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.task.executor import TaskExecutor
from penstock.drivers.backends import BackendSettings
from penstock.drivers.cycle_collector import EndedTasks
from penstock.drivers.spark.worker_settings import WorkerServices
from penstock.drivers.worker_storage import StorageSettings


@dataclass(frozen=True)
class TaskExecutorFactory:
    """Builds a worker's `TaskExecutor`; travels to the worker."""

    storage: StorageSettings
    backends: BackendSettings

    def __call__(self, services: WorkerServices) -> TaskExecutor:
        return TaskExecutor(
            services.worker_id,
            clock=services.clock,
            network=services.network,
            master=services.master,
            background=services.background,
            storage=self.storage.storage(),
            backends=self.backends.backends(),
            coroutines=services.coroutines,
            cycles=EndedTasks(),
        )
