"""The states in the life of a job."""

from __future__ import annotations

from enum import Enum
from typing import Final

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
        return self in _GLOBALLY_TERMINAL

    def is_terminal_state(self) -> bool:
        """True when the job is over at least for the job master that reports it: as above, or suspended."""
        return self in _TERMINAL


# Made once, because an enum is slow to look its members up.
_GLOBALLY_TERMINAL: Final = (JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED)
_TERMINAL: Final = (*_GLOBALLY_TERMINAL, JobStatus.SUSPENDED)
