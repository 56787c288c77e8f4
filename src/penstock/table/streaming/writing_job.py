"""A job that writes into tables, as a stream or as a batch."""

from __future__ import annotations

from typing import Any

from penstock.drivers.running_job import RunningJob


class WritingJob:
    """See `penstock.table.plan.executor.Job`."""

    def __init__(self, job: RunningJob) -> None:
        self._job = job

    def wait(self, timeout_ms: int | None = None) -> None:
        """Wait for its end. Raises what made it fail."""
        self._job.get_job_execution_result().result(None if timeout_ms is None else timeout_ms / 1000)

    def client(self) -> Any:
        """The job's client."""
        return self._job
