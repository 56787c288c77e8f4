"""Steps that call the checkpoint store; a store that hangs does not block a job forever (G8).

Each call runs in its own thread. After the checkpoint timeout, a call that may complete late without harm is abandoned:
its step fails, and the job restarts. For any other call the job waits, and logs that it does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from penstock.base.errors import CallTimeoutError
from penstock.base.options import CHECKPOINTING_TIMEOUT_MS
from penstock.core.checkpoint.garbage import garbage
from penstock.core.checkpoint.recovery import read_through
from penstock.core.master.steps import (
    CheckLeads,
    Complete,
    DeleteGarbage,
    DeleteJobs,
    DeleteSavepoint,
    Join,
    Load,
    MarkJob,
    ReadThrough,
    Revoke,
    Step,
    TakeOver,
)
from penstock.core.ports import CheckpointStore

#: Steps to abandon: a late checkpoint is revoked before the next epoch, and deleted files are no longer needed.
_GIVEN_UP: Final = (CheckLeads, Complete, DeleteGarbage, DeleteJobs, ReadThrough, Revoke)


class StoreSteps:
    """Carries out these steps.

    Args:
        store: the store.
        patience_ms: how long a call may take.
        log: takes a line for the user.
    """

    def __init__(self, store: CheckpointStore, patience_ms: int, log: Callable[[str], None]) -> None:
        self._patience_ms = patience_ms
        self._log = log
        self._calls: dict[type[Step], Callable[[Any], object]] = {
            MarkJob: lambda step: store.mark_job(step.mark),
            Join: lambda step: store.join(step.job_name),
            TakeOver: lambda step: store.take_over(step.job_name),
            CheckLeads: lambda _: store.check_leads(),
            Load: lambda step: store.load(step.path, step.job_name, step.claims),
            ReadThrough: lambda step: read_through(store, step.metadata),
            Complete: lambda step: store.complete(step.metadata, step.savepoint_path),
            Revoke: lambda step: store.revoke(step.checkpoint_id),
            DeleteGarbage: lambda step: store.delete(
                garbage(store.listing(), step.kept, step.oldest_live_id, step.revoked)
            ),
            DeleteJobs: lambda step: store.delete_jobs(step.job_ids),
            DeleteSavepoint: lambda step: store.delete_savepoint(step.path),
        }

    def table(self) -> dict[type[Step], Callable[[Step], object]]:
        """Return the function that carries out each step, by the step's class."""
        return dict.fromkeys(self._calls, self.carry_out)

    def carry_out(self, step: Step) -> object:
        """Carry out a step and return its result. Raises the store's error, or `CallTimeoutError`."""
        result: list[object] = []
        failure: list[BaseException] = []
        has_ended = threading.Event()

        def call() -> None:
            try:
                result.append(self._calls[type(step)](step))
            except BaseException as error:  # noqa: BLE001 - raised by whoever waits
                failure.append(error)
            has_ended.set()

        threading.Thread(target=call, name="penstock-store", daemon=True).start()
        waited_ms = 0
        while not has_ended.wait(self._patience_ms / 1000):
            waited_ms += self._patience_ms
            silence = f"the checkpoint store has not answered for {waited_ms // 1000} s"
            # A late savepoint would remain without the files that are deleted in the meantime.
            if isinstance(step, _GIVEN_UP) and not (isinstance(step, Complete) and step.savepoint_path):
                raise CallTimeoutError(f"{type(step).__name__}: {silence} ({CHECKPOINTING_TIMEOUT_MS.key()})")
            self._log(f"{silence}; the job waits for {type(step).__name__}")
        if failure:
            raise failure[0]
        return result[0]
