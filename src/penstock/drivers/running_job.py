"""What every driver gives back for a job that it runs: PyFlink's `JobClient`, with progress and an orderly end."""

from __future__ import annotations

from abc import abstractmethod
from concurrent.futures import Future
from typing import Any, TypeVar

from penstock.common.completable_future import CompletableFuture
from penstock.common.errors import CheckpointError, JobExecutionError, PenstockError
from penstock.common.job_client import JobClient
from penstock.common.job_execution_result import JobExecutionResult
from penstock.common.job_id import JobID
from penstock.common.job_status import JobStatus
from penstock.core.job.progress import JobProgress

T = TypeVar("T")


def completed(value: T) -> CompletableFuture[T]:
    """A future that is done."""
    future: CompletableFuture[T] = CompletableFuture()
    future.complete(value)
    return future


class RunningJob(JobClient):
    """A job whose master lives in this process."""

    def __init__(self, job_id: JobID, result: CompletableFuture[JobExecutionResult]) -> None:
        self._job_id = job_id
        self._result = result

    @abstractmethod
    def status(self) -> JobStatus:
        """Where the job is in its life."""

    @abstractmethod
    def get_progress(self) -> Future[JobProgress]:
        """Figures of the running job; the future is cancelled when the job is over."""

    @abstractmethod
    def trigger_checkpoint(self) -> Future[int | None]:
        """Trigger a checkpoint now; its id, or None when the job is not in a state to take one."""

    @abstractmethod
    def end(self, patience_seconds: float = 5.0) -> None:
        """Cancel the job and wait until nothing of it is left."""

    def wait(self) -> JobExecutionResult:
        """Wait for the outcome; Ctrl-C meanwhile cancels the job, and goes on when nothing of it is left.

        Raises:
            JobExecutionError: if the job failed or was cancelled.
        """
        try:
            return self._result.result()
        except KeyboardInterrupt:
            self.end()
            raise

    def get_job_id(self) -> JobID:
        """The job's id."""
        return self._job_id

    def get_job_status(self) -> Future[JobStatus]:
        """Where the job is in its life."""
        return completed(self.status())

    def get_job_execution_result(self) -> Future[JobExecutionResult]:
        """The outcome: done when nothing of the job is left."""
        return self._result

    def get_accumulators(self) -> Future[dict[str, Any]]:
        """User accumulators; there are none yet."""
        return completed({})

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> Future[str]:
        """Fails: savepoints are not available yet."""
        return self._no_savepoint()

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> Future[str]:
        """Fails: savepoints are not available yet."""
        return self._no_savepoint()

    def _no_savepoint(self) -> Future[str]:
        future: CompletableFuture[str] = CompletableFuture()
        future.complete_exceptionally(CheckpointError("savepoints cannot be taken on request yet"))
        return future


def settle(
    result: CompletableFuture[JobExecutionResult],
    job_id: JobID,
    job_name: str,
    status: JobStatus,
    failure: PenstockError | None,
    runtime_ms: int,
) -> None:
    """Give the outcome of a job that has ended to whoever waits for it."""
    if status is JobStatus.FINISHED:
        result.complete(JobExecutionResult(job_id, runtime_ms))
    elif status is JobStatus.CANCELED:
        result.complete_exceptionally(JobExecutionError(job_name, "it was cancelled"))
    else:
        result.complete_exceptionally(failure or JobExecutionError(job_name, "for no known reason"))
