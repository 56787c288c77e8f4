"""What a user asks of a running job: a savepoint, alone or with the job's end (H1, H2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from penstock.common.job_status import JobStatus
from penstock.core.checkpoint.coordinator import CheckpointCoordinator
from penstock.core.checkpoint.savepoints import SavepointRequest, TakeSavepoint
from penstock.core.ports import Clock

#: Called once, with the path of a savepoint or with what went wrong.
SavepointWaiter: TypeAlias = Callable[[str | None, str | None], None]


class CheckpointedMaster(Protocol):
    """The job master, as savepoints see it."""

    @property
    def status(self) -> JobStatus: ...

    @property
    def is_done(self) -> bool: ...

    @property
    def checkpoints(self) -> CheckpointCoordinator: ...

    def cancel(self) -> None:
        """End the job as it stands."""
        ...


class JobSavepoints:
    """The savepoints of a job master."""

    def __init__(self, master: CheckpointedMaster, clock: Clock) -> None:
        self._master = master
        self._clock = clock
        #: Who waits for the end of a job that a savepoint ends.
        self._waiter: SavepointWaiter | None = None

    def take(self, command: TakeSavepoint, done: SavepointWaiter) -> None:
        """Take a savepoint.

        If the job goes on, it does so whether or not the savepoint succeeds. If the savepoint ends the job, `done` is
        called when all that the savepoint holds is committed. If it cancels the job, no checkpoint completes in
        between.
        """

        def taken(path: str | None, error: str | None) -> None:
            if path is not None and command.stop is not None:
                self._waiter = done
                return
            done(path, error)
            if path is not None and command.cancels:
                self._master.cancel()

        master = self._master
        if master.is_done or master.status is JobStatus.CANCELLING:
            done(None, f"the job is {master.status.name}")
            return
        deadline_ms = self._clock.now_ms() + master.checkpoints.settings.timeout_ms
        master.checkpoints.request_savepoint(SavepointRequest(command, taken, deadline_ms))

    def on_end(self) -> None:
        """The job has ended."""
        waiter, self._waiter = self._waiter, None
        last = self._master.checkpoints.last
        if waiter is None or last is None:
            return
        path, status = last.external_path, self._master.status
        if status is JobStatus.FINISHED:
            waiter(path, None)
        else:
            waiter(None, f"{path} is complete, but the job ended {status.name} before all that it holds was committed")
