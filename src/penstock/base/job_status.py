"""The states in the life of a job."""

from __future__ import annotations

from enum import Enum

__all__ = ["JobStatus"]


class JobStatus(Enum):
    """Where a job is in its life.

    FINISHED, CANCELED and FAILED are final everywhere, and the job may be cleaned up. SUSPENDED is final only for the
    job master that reports it: another one may take the job up again.
    """

    CREATED = 0
    RUNNING = 1
    FAILING = 2
    FAILED = 3
    CANCELLING = 4
    CANCELED = 5
    FINISHED = 6
    RESTARTING = 7
    SUSPENDED = 8
    RECONCILING = 9
    INITIALIZING = 10

    def is_globally_terminal_state(self) -> bool:
        """True when the job is over for good: finished, canceled or failed."""
        return self in (JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED)

    def is_terminal_state(self) -> bool:
        """True when the job is over at least for the job master that reports it: as above, or suspended."""
        return self is JobStatus.SUSPENDED or self.is_globally_terminal_state()
