"""Savepoints: checkpoints that the user asked for, in a directory of their own (H1, H2).

A savepoint is taken while no checkpoint is in the making, and none begins meanwhile, so neither disturbs the other. A
savepoint that leaves the job running is no point of recovery and commits nothing. One that ends the job is its last
point of recovery: what it holds is committed, and after a failure in between nothing else is left to do.

A task that is just about to end declines it. Then it is tried again a little later, as long as the request has time;
meanwhile checkpoints may begin, because the task may wait for one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.core.checkpoint.recovery import ATTEMPTS_PER_MASTER
from penstock.core.protocol import StopMode

#: How long a savepoint waits that a task was not ready for: at first, and at last.
FIRST_PAUSE_MS: Final = 50
LONGEST_PAUSE_MS: Final = 2_000


@dataclass(frozen=True, slots=True)
class TakeSavepoint:
    """A command to the master of a job, in whatever tempo.

    Attributes:
        directory: where the savepoint gets a directory of its own.
        stop: how the job ends with the savepoint; None when it goes on.
        cancels: whether the job is cancelled once the savepoint is there.
    """

    directory: str
    stop: StopMode | None = None
    cancels: bool = False


@dataclass
class SavepointRequest:
    """A command that waits for its turn; `waiter(path, error)` is called once, with one of them."""

    command: TakeSavepoint
    waiter: Callable[[str | None, str | None], None]
    #: When (ms) it is given up if it could not begin.
    deadline_ms: int
    #: When (ms) it is tried again, after a task was not ready; None when it may begin at once.
    again_ms: int | None = None
    #: Why it could not be taken so far, as far as tasks have said so.
    declined: str | None = None
    _pause_ms: int = FIRST_PAUSE_MS

    def put_off(self, now_ms: int, reason: str) -> None:
        """A task was not ready: wait, each time twice as long."""
        self.declined = reason
        self.again_ms = now_ms + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, LONGEST_PAUSE_MS)


def savepoint_path(directory: str, job_id: str, checkpoint_id: int, attempt: int = 0) -> str:
    """The directory of a savepoint: Flink's `savepoint-<job>-<number>`, the same for no two savepoints of any jobs.

    A job master that takes a job over does not know of savepoints, so it may use their ids again. Its attempts tell its
    savepoints from earlier ones.
    """
    master = attempt // ATTEMPTS_PER_MASTER
    number = f"{checkpoint_id:06x}{f'-{master}' if master else ''}"
    return f"{directory.rstrip('/')}/savepoint-{job_id[:6]}-{job_id[6:12]}{number}"
