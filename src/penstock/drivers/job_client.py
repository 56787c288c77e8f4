"""The program's interface to a job that it has submitted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import Future
from typing import Any

from penstock.base.job import JobExecutionResult, JobID, JobStatus

__all__ = ["JobClient"]


class JobClient(ABC):
    """The handle of a running job; each driver implements it.

    Every method but `get_job_id` returns a future at once; call its `.result()`, optionally with a timeout in seconds.
    """

    @abstractmethod
    def get_job_id(self) -> JobID:
        """Return the job's id."""

    @abstractmethod
    def get_job_status(self) -> Future[JobStatus]:
        """Return the status of the job."""

    @abstractmethod
    def cancel(self) -> Future[None]:
        """Cancel the job; the future completes when the request is accepted.

        After a second request, a job does not wait for functions that do not return. On Spark, their workers are
        killed; functions in this process keep running.
        """

    @abstractmethod
    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> Future[str]:
        """Take a savepoint, commit all it covers, and end the job.

        Args:
            advance_to_end_of_event_time: whether to send the last watermark first, so that all timers and windows fire;
                for jobs that will not be resumed.
            savepoint_directory: the target directory; None for the configured directory.

        Returns:
            A future of the savepoint's path, which completes when the job has ended and everything that the savepoint
            covers is committed. It raises CheckpointError if the savepoint fails; the job then continues. If the job's
            sources had ended for the savepoint, it restarts from its last checkpoint. After the savepoint, the job no
            longer recovers from failures: it is restarted only to commit the data in the savepoint.
        """

    @abstractmethod
    def cancel_with_savepoint(self, savepoint_directory: str | None = None) -> Future[str]:
        """Take a savepoint, then cancel the job.

        No checkpoint completes in between, so nothing that the savepoint does not cover is committed. The job that
        starts from the savepoint commits the data that it covers and that was not committed yet. Prefer
        `stop_with_savepoint`, which leaves nothing uncommitted.

        Args:
            savepoint_directory: the target directory; None for the configured directory.

        Returns:
            A future of the savepoint's path. It raises CheckpointError if the savepoint fails; the job then continues.
        """

    @abstractmethod
    def trigger_savepoint(self, savepoint_directory: str | None = None) -> Future[str]:
        """Take a savepoint while the job continues.

        The running job does not recover from a savepoint, and nothing is committed with it.

        Args:
            savepoint_directory: the target directory; None for the configured directory.

        Returns:
            A future of the savepoint's path, which raises CheckpointError if the savepoint fails.
        """

    @abstractmethod
    def get_accumulators(self) -> Future[dict[str, Any]]:
        """Return the current values of the job's accumulators, by name."""

    @abstractmethod
    def get_job_execution_result(self) -> Future[JobExecutionResult]:
        """Return the outcome of the job, once it has finished; the future raises JobExecutionError if it failed."""
