"""What those who look at a job and steer it ask of it, wherever its master is.

A job of this process is a `RunningJob`; a job of a program that a session runs in a process of its own is a
`RemoteJob`.
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
    """A job. Methods are those of `RunningJob`, and mean the same; any thread may call them."""

    @property
    def moves(self) -> Moves | None:
        """The moves from status to status; None where nobody keeps them."""

    def get_job_id(self) -> JobID:
        """The job's id."""

    def status(self) -> JobStatus:
        """Where the job is in its life."""

    def get_view(self) -> Future[JobView]:
        """The job as it is now; cancelled when it is over."""

    def last_view(self) -> JobView | None:
        """The job as it ended."""

    def get_job_execution_result(self) -> Future[JobExecutionResult]:
        """The outcome."""

    def get_accumulators(self) -> Future[dict[str, Any]]:
        """The users' accumulators."""

    def get_bounds(self) -> Future[dict[int, Bounds]]:
        """Between which bounds the parallelism of each vertex is."""

    def before_result(self, action: Callable[[BaseException | None], None]) -> None:
        """Do something before anyone hears that the job is over."""

    def cancel(self) -> Future[None]:
        """Cancel the job."""

    def rescale(self, parallelism: Mapping[str, int]) -> Future[Mapping[str, int]]:
        """Go on at other parallelisms."""

    def trigger_checkpoint(self, is_full: bool = False) -> Future[int | None]:
        """Take a checkpoint now; one that is full writes all state anew."""

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> Future[str]:
        """Take a savepoint while the job goes on."""

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> Future[str]:
        """End the job with a savepoint."""

    def cancel_with_savepoint(self, savepoint_directory: str | None = None) -> Future[str]:
        """Take a savepoint, then cancel the job."""

    def ask_worker(self, worker_id: str, question: Question, timeout_ms: int = ANSWER_MS_MAX) -> Future[Answer]:
        """Ask the process of a worker."""

    def ask_driver(self, question: Question) -> Future[Answer]:
        """Ask the process of the job's master."""

    def engine_page(self, worker_id: str | None = None) -> str | None:
        """Where the engine under the job shows a worker, or itself."""
