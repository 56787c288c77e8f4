"""What a worker of a real job runs."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.task.executor import TaskExecutor
from penstock.drivers.backends import BackendSettings
from penstock.drivers.spark.entry import WorkerServices
from penstock.storage.file_store import FileCheckpointStore


@dataclass(frozen=True)
class TaskExecutorFactory:
    """Builds a worker's `TaskExecutor`; travels to the worker."""

    checkpoint_directory: str | None
    job_id: str
    inline_bytes: int
    backends: BackendSettings

    def __call__(self, services: WorkerServices) -> TaskExecutor:
        return TaskExecutor(
            services.worker_id,
            clock=services.clock,
            network=services.network,
            master=services.master,
            background=services.background,
            storage=FileCheckpointStore(self.checkpoint_directory, self.job_id, self.inline_bytes),
            backends=self.backends.backends(),
        )
