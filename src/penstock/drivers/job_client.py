"""What a program can do with a job it has submitted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import Future
from typing import Any

from penstock.base.job_execution_result import JobExecutionResult
from penstock.base.job_id import JobID
from penstock.base.job_status import JobStatus

__all__ = ["JobClient"]


class JobClient(ABC):
    """The handle of a running job; each driver has its own.

    Every call but `get_job_id` returns at once with a future; ask it for `.result()`, with a timeout in seconds if
    wanted.
    """

    @abstractmethod
    def get_job_id(self) -> JobID:
        """The job."""

    @abstractmethod
    def get_job_status(self) -> Future[JobStatus]:
        """Where the job is in its life."""

    @abstractmethod
    def cancel(self) -> Future[None]:
        """Cancels the job; the future is done when the request is accepted.

        After a second request, a job does not wait for functions that do not return. On Spark their workers are ended
        by force; functions in this process are left to run.
        """

    @abstractmethod
    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> Future[str]:
        """Takes a savepoint, commits all it covers, and ends the job.

        Args:
            advance_to_end_of_event_time: whether to send the last watermark first, so that all timers and windows fire;
                for jobs that will not be resumed.
            savepoint_directory: where to write; None for the configured directory.

        Returns:
            A future of the savepoint's path, which is done when the job has ended and everything that the savepoint
            covers is committed. It raises CheckpointError if the savepoint fails; the job then goes on. If its sources
            had ended for the savepoint, it goes on by a restart from its last checkpoint. After the savepoint, a
            failure no longer brings the job back: it is only started again to commit what the savepoint holds.
        """

    @abstractmethod
    def cancel_with_savepoint(self, savepoint_directory: str | None = None) -> Future[str]:
        """Takes a savepoint, then cancels the job.

        No checkpoint completes in between, so nothing that the savepoint does not cover is committed. The job that
        begins from the savepoint commits what it covers and was not committed yet. Prefer `stop_with_savepoint`, which
        leaves nothing open.

        Args:
            savepoint_directory: where to write; None for the configured directory.

        Returns:
            A future of the savepoint's path. It raises CheckpointError if the savepoint fails; the job then goes on.
        """

    @abstractmethod
    def trigger_savepoint(self, savepoint_directory: str | None = None) -> Future[str]:
        """Takes a savepoint while the job goes on.

        The running job does not recover from a savepoint, and nothing is committed with it.

        Args:
            savepoint_directory: where to write; None for the configured directory.

        Returns:
            A future of the savepoint's path, which raises CheckpointError if the savepoint fails.
        """

    @abstractmethod
    def get_accumulators(self) -> Future[dict[str, Any]]:
        """The present values of the job's accumulators, by name."""

    @abstractmethod
    def get_job_execution_result(self) -> Future[JobExecutionResult]:
        """The outcome of the job, once it has finished; raises JobExecutionError if it failed."""
