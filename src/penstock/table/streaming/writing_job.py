"""A job that writes to tables, as a stream or as a batch."""

from __future__ import annotations

from concurrent.futures import TimeoutError as FutureTimeoutError

from penstock.base.errors import CallTimeoutError
from penstock.drivers.job_client import JobClient
from penstock.drivers.running_job import RunningJob


class WritingJob:
    """See `penstock.table.plan.executor.Job`."""

    def __init__(self, job: RunningJob) -> None:
        self._job = job

    def wait(self, timeout_ms: int | None = None) -> None:
        """See `Job`."""
        try:
            self._job.get_job_execution_result().result(None if timeout_ms is None else timeout_ms / 1000)
        except FutureTimeoutError:
            raise CallTimeoutError(f"the job still runs after {timeout_ms} ms") from None

    def client(self) -> JobClient:
        """See `Job`."""
        return self._job
