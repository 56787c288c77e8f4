"""What a user asks of a running job: a savepoint, alone or with the job's end (H1, H2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from penstock.common.job_status import JobStatus
from penstock.core.checkpoint.coordinator import CheckpointCoordinator
from penstock.core.checkpoint.savepoints import SavepointRequest
from penstock.core.ports import Clock
from penstock.core.protocol import StopMode

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
    """The savepoints of a job master. `directory` is where each gets a directory of its own."""

    def __init__(self, master: CheckpointedMaster, clock: Clock) -> None:
        self._master = master
        self._clock = clock
        #: Who waits for the end of a job that a savepoint ends.
        self._waiter: SavepointWaiter | None = None

    def trigger(self, directory: str, done: SavepointWaiter) -> None:
        """Take a savepoint; the job continues whether or not it succeeds."""
        self._request(directory, None, done)

    def cancel(self, directory: str, done: SavepointWaiter) -> None:
        """Take a savepoint, then cancel the job; no checkpoint completes in between."""

        def taken(path: str | None, error: str | None) -> None:
            done(path, error)
            if path is not None:
                self._master.cancel()

        self._request(directory, None, taken)

    def stop(self, directory: str, mode: StopMode, done: SavepointWaiter) -> None:
        """End the job with a savepoint; `done` is called when all that the savepoint holds is committed."""

        def taken(path: str | None, error: str | None) -> None:
            if path is None:
                done(None, error)
            else:
                self._waiter = done

        self._request(directory, mode, taken)

    def _request(self, directory: str, stop: StopMode | None, done: SavepointWaiter) -> None:
        master = self._master
        if master.is_done or master.status is JobStatus.CANCELLING:
            done(None, f"the job is {master.status.name}")
            return
        deadline_ms = self._clock.now_ms() + master.checkpoints.settings.timeout_ms
        master.checkpoints.request_savepoint(SavepointRequest(directory, stop, done, deadline_ms))

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
