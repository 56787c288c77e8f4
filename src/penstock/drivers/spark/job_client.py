"""The handle of a job on Spark."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from penstock.common.completable_future import CompletableFuture
from penstock.common.job_execution_result import JobExecutionResult
from penstock.common.job_id import JobID
from penstock.common.job_status import JobStatus
from penstock.core.job.job_master import JobMaster
from penstock.core.job.progress import JobProgress
from penstock.drivers.running_job import RunningJob, completed
from penstock.drivers.spark.job_thread import JobThread

T = TypeVar("T")


class SparkJobClient(RunningJob):
    """A job on Spark whose master lives in a thread of this process.

    Args:
        job_id: the job.
        thread: where its master lives.
        status: tells where the job is in its life.
        result: becomes done when nothing of the job is left.
        savepoint_directory: for savepoints that name none.
    """

    def __init__(
        self,
        job_id: JobID,
        thread: JobThread[JobMaster],
        status: Callable[[], JobStatus],
        result: CompletableFuture[JobExecutionResult],
        savepoint_directory: str | None = None,
    ) -> None:
        super().__init__(job_id, result, savepoint_directory)
        self._thread = thread
        self._status = status

    def status(self) -> JobStatus:
        return self._status()

    def ask(self, question: Callable[[JobMaster], T]) -> Future[T]:
        return self._thread.ask(question)

    def cancel(self) -> Future[None]:
        self._thread.ask(lambda master: master.cancel())
        return completed(None)

    def get_progress(self) -> Future[JobProgress]:
        return self._thread.ask(lambda master: master.progress())

    def trigger_checkpoint(self) -> Future[int | None]:
        return self._thread.ask(lambda master: master.checkpoints.trigger_now())

    def end(self, patience_seconds: float = 5.0) -> None:
        """Cancels the job and waits until it is gone: first in order, then without its tasks' consent."""
        self.cancel()
        if not self._thread.join(patience_seconds):
            self._thread.abandon()
            self._thread.join()
