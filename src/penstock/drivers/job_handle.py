"""The interface for observing and controlling a job, wherever its master runs.

A job of this process is a `RunningJob`. A job of a program that a session runs in a separate process is a `RemoteJob`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Protocol

from penstock.base.job_execution_result import JobExecutionResult
from penstock.base.job_id import JobID
from penstock.base.job_status import JobStatus
from penstock.core.job.resource_requirements import Bounds
from penstock.core.job.view import JobView
from penstock.drivers.moves import Moves
from penstock.drivers.questions import Answer, Question
from penstock.drivers.running_job import ANSWER_MS_MAX


class JobHandle(Protocol):
    """A job. The methods are thread-safe, and work like the methods of `RunningJob`."""

    @property
    def moves(self) -> Moves | None:
        """The status transitions; None if they are not recorded."""

    def get_job_id(self) -> JobID:
        """Return the job's id."""

    def status(self) -> JobStatus:
        """Return the status of the job."""

    def get_view(self) -> Future[JobView]:
        """Return the current view of the job; the future is cancelled when the job is over."""

    def last_view(self) -> JobView | None:
        """Return the view of the job at its end."""

    def get_job_execution_result(self) -> Future[JobExecutionResult]:
        """Return the outcome."""

    def get_accumulators(self) -> Future[dict[str, Any]]:
        """Return the user's accumulators."""

    def get_bounds(self) -> Future[dict[int, Bounds]]:
        """Return the bounds of each vertex's parallelism."""

    def before_result(self, action: Callable[[BaseException | None], None]) -> None:
        """Call `action` when the job is over, before the outcome is visible to anyone."""

    def cancel(self) -> Future[None]:
        """Cancel the job."""

    def rescale(self, parallelism: Mapping[str, int]) -> Future[Mapping[str, int]]:
        """Change the parallelism and continue."""

    def trigger_checkpoint(self, is_full: bool = False) -> Future[int | None]:
        """Take a checkpoint now; a full one writes all state again."""

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> Future[str]:
        """Take a savepoint while the job continues."""

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> Future[str]:
        """End the job with a savepoint."""

    def cancel_with_savepoint(self, savepoint_directory: str | None = None) -> Future[str]:
        """Take a savepoint, then cancel the job."""

    def ask_worker(self, worker_id: str, question: Question, timeout_ms: int = ANSWER_MS_MAX) -> Future[Answer]:
        """Ask a question to the process of a worker."""

    def ask_driver(self, question: Question) -> Future[Answer]:
        """Ask a question to the process of the job's master."""

    def engine_page(self, worker_id: str | None = None) -> str | None:
        """Return the address of the engine's page about a worker, or about the engine itself."""
