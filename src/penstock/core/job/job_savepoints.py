"""Savepoints that a user requests of a running job, alone or to end the job (H1, H2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from penstock.base.job_status import JobStatus
from penstock.core.checkpoint.coordinator import CheckpointCoordinator
from penstock.core.checkpoint.news import SavepointSettled
from penstock.core.checkpoint.savepoints import SavepointRequest, TakeSavepoint
from penstock.core.effects import Effects

#: Called once, with the path of a savepoint or with an error.
SavepointWaiter: TypeAlias = Callable[[str | None, str | None], None]


class CheckpointedMaster(Protocol):
    """The job master, as savepoints see it."""

    @property
    def status(self) -> JobStatus: ...

    @property
    def is_done(self) -> bool: ...

    @property
    def checkpoints(self) -> CheckpointCoordinator: ...


class JobSavepoints:
    """Takes savepoints of a job master's job, and answers their requests."""

    def __init__(self, master: CheckpointedMaster, effects: Effects) -> None:
        self._master = master
        self._effects = effects
        #: The waiter for the end of a job that a savepoint ends.
        self._waiter: SavepointWaiter | None = None

    def take(self, command: TakeSavepoint, waiter: SavepointWaiter, now_ms: int) -> None:
        """Take a savepoint.

        If the job continues, it does so whether or not the savepoint succeeds. If the savepoint ends the job, the
        answer comes once everything in the savepoint is committed. If it cancels the job, no checkpoint completes in
        between.
        """
        master = self._master
        if master.is_done or master.status is JobStatus.CANCELLING:
            self._effects.answer(waiter, None, f"the job is {master.status.name}")
            return
        deadline_ms = now_ms + master.checkpoints.settings.timeout_ms
        master.checkpoints.request_savepoint(SavepointRequest(command, waiter, deadline_ms))

    def on_settled(self, news: SavepointSettled) -> None:
        """Handle a savepoint that has completed or failed."""
        command, waiter = news.request.command, news.request.waiter
        if news.path is not None and command.stop is not None:
            self._waiter = waiter
            return
        self._effects.answer(waiter, news.path, news.error)

    def on_end(self) -> None:
        """Answer a waiting request when the job has ended."""
        waiter, self._waiter = self._waiter, None
        last = self._master.checkpoints.last
        if waiter is None or last is None:
            return
        path, status = last.external_path, self._master.status
        if status is JobStatus.FINISHED:
            self._effects.answer(waiter, path, None)
        else:
            reason = f"{path} is complete, but the job ended {status.name} before everything in it was committed"
            self._effects.answer(waiter, None, reason)
