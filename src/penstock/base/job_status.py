"""The states of a job."""

from __future__ import annotations

from enum import Enum
from typing import Final

__all__ = ["JobStatus"]


class JobStatus(Enum):
    """The state of a job.

    FINISHED, CANCELED and FAILED are final everywhere, and the job may be cleaned up. SUSPENDED is final only for the
    job master that reports it: another one may resume the job.
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
        """Return whether the job has ended for good: finished, canceled or failed."""
        return self in _GLOBALLY_TERMINAL

    def is_terminal_state(self) -> bool:
        """Return whether the job has ended at least for the job master that reports it: as above, or suspended."""
        return self in _TERMINAL


# Built once, because looking up enum members is slow.
_GLOBALLY_TERMINAL: Final = (JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED)
_TERMINAL: Final = (*_GLOBALLY_TERMINAL, JobStatus.SUSPENDED)
