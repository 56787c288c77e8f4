"""A job in micro-batch execution, or a batch that saves its state; drivers define how an epoch runs.

Steps that call the checkpoint store; a store that hangs does not block a job forever (G8).

Each call runs in its own thread. After the checkpoint timeout, a call that may complete late without harm is abandoned:
its step fails, and the job restarts. For any other call the job waits, and logs that it does.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from penstock.base.configuration import Configuration
from penstock.base.errors import CallTimeoutError
from penstock.base.options import BATCH_SAVEPOINT_PATH, CHECKPOINTING_TIMEOUT_MS
from penstock.drivers.stepwise.exchange import Sources, separate_answers
from penstock.drivers.stepwise.job import StepwiseJob, Table
from penstock.drivers.worker_storage import BackendSettings, StorageSettings
from penstock.runtime.checkpoint.savepoints import garbage, read_through
from penstock.runtime.epochs.coordinator import EpochWork, Task, epoch_vertices
from penstock.runtime.graph.job_graph import BACK_FILL, JobGraph
from penstock.runtime.master.epochs import BackFillMaster, EpochMaster
from penstock.runtime.master.steps import (
    CheckClaim,
    CheckLeads,
    ClaimSavepoint,
    Complete,
    DealSplits,
    DeleteGarbage,
    DeleteJobs,
    DeleteSavepoint,
    EmptySavepoint,
    Join,
    Last,
    Left,
    Load,
    MarkJob,
    OpenSources,
    ReadThrough,
    ReleaseSavepoint,
    Revoke,
    RunEpoch,
    SnapshotSources,
    Step,
    TakeOver,
)
from penstock.runtime.ports import CheckpointStore, JobListener
from penstock.storage.files import absolute_url
from penstock.storage.savepoints import check_savepoint_is_own, claim_savepoint, empty_savepoint, release_savepoint

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


class EpochJob(StepwiseJob):
    """See the module docstring. Subclasses implement `run_epoch` and `interrupt`."""

    master: EpochMaster

    def __init__(self, job_graph: JobGraph, configuration: Configuration, listener: JobListener) -> None:
        self.sources = Sources(job_graph)
        super().__init__(job_graph, configuration, listener)
        job_id = str(self._job_id)
        self.epoch_vertices = epoch_vertices(job_graph, job_id)
        self.backends = BackendSettings.of(configuration, job_id)

    def make_master(self) -> EpochMaster:
        """Create the master of epochs, or of a back-fill."""
        job_id = str(self._job_id)
        self.storage = StorageSettings.of(self.configuration, job_id)
        self._store = self.storage.store()
        if self.job_graph.mode == BACK_FILL:
            path = absolute_url(str(self.configuration.read(BATCH_SAVEPOINT_PATH)))
            return BackFillMaster(self.job_graph, job_id, self.configuration, self.clock, path)
        return EpochMaster(self.job_graph, job_id, self.configuration, self.clock, self.storage.directory)

    @abstractmethod
    def run_epoch(self, works: Mapping[Task, EpochWork]) -> Iterator[Last]:
        """Run all tasks of an epoch; return their results, including their answers."""

    def table(self) -> Table:
        """Return the step functions, including those for checkpoints, savepoints and epochs."""
        owner, patience_ms = str(self._job_id), self.configuration.read(CHECKPOINTING_TIMEOUT_MS)
        store_steps = StoreSteps(self._store, patience_ms, self.listener.on_log)
        return {
            **super().table(),
            **store_steps.table(),
            ClaimSavepoint: lambda step: claim_savepoint(step.path, owner),
            CheckClaim: lambda step: check_savepoint_is_own(step.path, owner),
            EmptySavepoint: self._empty_savepoint,
            ReleaseSavepoint: lambda step: release_savepoint(step.path, owner),
            OpenSources: self.sources.open,
            DealSplits: self.sources.deal,
            SnapshotSources: self.sources.snapshot,
            RunEpoch: self._run_epoch,
        }

    def _empty_savepoint(self, step: EmptySavepoint) -> None:
        files = None if step.kept is None else step.kept.state_files()
        empty_savepoint(step.path, str(self._job_id), files)

    def _run_epoch(self, step: RunEpoch) -> Left:
        return separate_answers(self.run_epoch(step.works))

    def release(self) -> None:
        """Release the sources, because the job is over."""
        self.sources.close()

    def why_no_savepoint(self) -> str | None:
        """Return a reason for a back-fill, which writes its own savepoint."""
        if self.job_graph.mode == BACK_FILL:
            return f"job {self.job_graph.name!r} is a batch that writes one savepoint, at its end; cancel it to stop it"
        return None
