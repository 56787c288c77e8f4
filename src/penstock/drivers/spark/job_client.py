"""The handle of a job on Spark."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from penstock.common.completable_future import CompletableFuture
from penstock.common.errors import CheckpointError
from penstock.common.job_client import JobClient
from penstock.common.job_execution_result import JobExecutionResult
from penstock.common.job_id import JobID
from penstock.common.job_status import JobStatus
from penstock.core.job.job_master import JobMaster
from penstock.core.job.progress import JobProgress
from penstock.drivers.spark.job_thread import JobThread

T = TypeVar("T")


def completed(value: T) -> CompletableFuture[T]:
    """A future that is done."""
    future: CompletableFuture[T] = CompletableFuture()
    future.complete(value)
    return future


class SparkJobClient(JobClient):
    """A job whose master lives in this process.

    Args:
        job_id: the job.
        thread: where its master lives.
        status: tells where the job is in its life.
        result: becomes done when nothing of the job is left.
    """

    def __init__(
        self,
        job_id: JobID,
        thread: JobThread[JobMaster],
        status: Callable[[], JobStatus],
        result: CompletableFuture[JobExecutionResult],
    ) -> None:
        self._job_id = job_id
        self._thread = thread
        self._status = status
        self._result = result

    def get_job_id(self) -> JobID:
        return self._job_id

    def get_job_status(self) -> Future[JobStatus]:
        return completed(self._status())

    def cancel(self) -> Future[None]:
        self._thread.ask(lambda master: master.cancel())
        return completed(None)

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> Future[str]:
        return self._no_savepoint()

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> Future[str]:
        return self._no_savepoint()

    def get_accumulators(self) -> Future[dict[str, Any]]:
        return completed({})

    def get_job_execution_result(self) -> Future[JobExecutionResult]:
        return self._result

    def get_progress(self) -> Future[JobProgress]:
        """Figures of the running job; the future is cancelled when the job is over."""
        return self._thread.ask(lambda master: master.progress())

    def wait(self) -> JobExecutionResult:
        """Waits for the outcome; Ctrl-C meanwhile cancels the job, and goes on when nothing of it is left.

        Raises:
            JobExecutionError: if the job failed or was cancelled.
        """
        try:
            return self._result.result()
        except KeyboardInterrupt:
            self.end()
            raise

    def end(self, patience_seconds: float = 5.0) -> None:
        """Cancels the job and waits until it is gone: first in order, then without its tasks' consent."""
        self.cancel()
        if not self._thread.join(patience_seconds):
            self._thread.abandon()
            self._thread.join()

    def _no_savepoint(self) -> Future[str]:
        future: CompletableFuture[str] = CompletableFuture()
        future.complete_exceptionally(CheckpointError("savepoints cannot be taken on request yet"))
        return future
