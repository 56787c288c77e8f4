"""Savepoints: checkpoints that the user requests, each in its own directory (H1, H2).

A savepoint is taken while no checkpoint is in progress, and none begins meanwhile, so neither disturbs the other. A
savepoint that leaves the job running is not a recovery point and commits nothing. A savepoint that ends the job is its
last recovery point: its output is committed, and after a failure in between only that commit remains to be done.

A task that is about to end declines a savepoint. The savepoint is then retried a little later, as long as the request
has time; meanwhile checkpoints may begin, because the task may be waiting for one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.core.checkpoint.recovery import ATTEMPTS_PER_MASTER
from penstock.core.protocol import StopMode

#: The shortest and the longest wait before retrying a savepoint that a task was not ready for.
FIRST_PAUSE_MS: Final = 50
LONGEST_PAUSE_MS: Final = 2_000


@dataclass(frozen=True, slots=True)
class TakeSavepoint:
    """A command to a job master, in any execution mode.

    Attributes:
        directory: the parent of the savepoint's own directory.
        stop: how the job ends with the savepoint; None if it continues.
        cancels: whether the job is cancelled once the savepoint is complete.
    """

    directory: str
    stop: StopMode | None = None
    cancels: bool = False


@dataclass
class SavepointRequest:
    """A queued command; `waiter(path, error)` is called once, with one of the two."""

    command: TakeSavepoint
    waiter: Callable[[str | None, str | None], None]
    #: When (ms) the request is abandoned if it could not begin.
    deadline_ms: int
    #: When (ms) it is retried after a task was not ready; None if it may begin at once.
    again_ms: int | None = None
    #: Why tasks have declined it so far.
    declined: str | None = None
    _pause_ms: int = FIRST_PAUSE_MS

    def put_off(self, now_ms: int, reason: str) -> None:
        """Wait because a task was not ready, each time twice as long."""
        self.declined = reason
        self.again_ms = now_ms + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, LONGEST_PAUSE_MS)


def savepoint_path(directory: str, job_id: str, checkpoint_id: int, attempt: int = 0) -> str:
    """Return the directory of a savepoint, unique among all jobs: Flink's `savepoint-<job>-<number>`.

    A job master that takes over a job does not know its savepoints, so it may reuse their ids. Its attempt numbers
    distinguish its savepoints from earlier ones.
    """
    master = attempt // ATTEMPTS_PER_MASTER
    number = f"{checkpoint_id:06x}{f'-{master}' if master else ''}"
    return f"{directory.rstrip('/')}/savepoint-{job_id[:6]}-{job_id[6:12]}{number}"
