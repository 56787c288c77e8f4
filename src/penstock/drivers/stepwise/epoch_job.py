"""A job in micro-batch execution, or a batch that saves its state; drivers define how an epoch runs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping

from penstock.base.configuration import Configuration
from penstock.base.options import BATCH_SAVEPOINT_PATH, CHECKPOINTING_TIMEOUT_MS
from penstock.core.epochs.coordinator import epoch_vertices
from penstock.core.epochs.work import EpochWork, Task
from penstock.core.graph.job_graph import BACK_FILL, JobGraph
from penstock.core.master.back_fill import BackFillMaster
from penstock.core.master.epochs import EpochMaster
from penstock.core.master.steps import (
    CheckClaim,
    ClaimSavepoint,
    DealSplits,
    EmptySavepoint,
    Last,
    Left,
    OpenSources,
    ReleaseSavepoint,
    RunEpoch,
    SnapshotSources,
)
from penstock.core.ports import JobListener
from penstock.drivers.backends import BackendSettings
from penstock.drivers.stepwise.exchange import separate_answers
from penstock.drivers.stepwise.job import StepwiseJob, Table
from penstock.drivers.stepwise.sources import Sources
from penstock.drivers.stepwise.store_steps import StoreSteps
from penstock.drivers.worker_storage import StorageSettings
from penstock.storage.files import absolute_url
from penstock.storage.savepoint_directories import (
    check_savepoint_is_own,
    claim_savepoint,
    empty_savepoint,
    release_savepoint,
)


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
