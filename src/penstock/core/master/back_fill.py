"""The master of a batch that keeps its state: one epoch over all input, whose checkpoint is a savepoint.

All output of the job becomes visible after the savepoint. A job that dies before it leaves only files that are never
read. If a job dies just after it, the job that starts from the savepoint commits the remaining output.
"""

from __future__ import annotations

from msgspec.structs import replace

from penstock.base.configuration import Configuration
from penstock.base.errors import CheckpointError, JobExecutionError
from penstock.base.options import BATCH_SAVEPOINT_PATH, RECOVERY_PATH
from penstock.core.graph.job_graph import JobGraph
from penstock.core.master.epochs import Epoch, EpochMaster
from penstock.core.master.steps import (
    Cancelled,
    CheckClaim,
    ClaimSavepoint,
    Complete,
    EmptySavepoint,
    Log,
    ReleaseSavepoint,
    Steps,
)
from penstock.core.ports import Clock
from penstock.storage.metadata import CheckpointMetadata


class BackFillMaster(EpochMaster):
    """See the module docstring; `path` is the path of the savepoint."""

    def __init__(self, job_graph: JobGraph, job_id: str, configuration: Configuration, clock: Clock, path: str) -> None:
        super().__init__(job_graph, job_id, configuration, clock, directory=None)
        self._path = path

    def work(self) -> Steps[None]:
        """Run one pass, repeated until it succeeds or no restart is left."""
        try:
            yield ClaimSavepoint(self._path)
        except CheckpointError as error:
            raise JobExecutionError(self.job_graph.name, f"{BATCH_SAVEPOINT_PATH.key()}: {error}") from error
        try:
            begin_from = yield from self.begin_from_path()
            yield from self.with_sources(begin_from, self._fill)
        except GeneratorExit:
            raise
        except BaseException:
            yield from self._release()
            raise
        yield from self._release()

    def _release(self) -> Steps[None]:
        try:
            yield ReleaseSavepoint(self._path)
        except Exception as error:  # noqa: BLE001 - what the job came to is what counts
            yield Log(f"the claim on {self._path} could not be removed: {error}")

    def _fill(self) -> Steps[None]:
        epoch = yield from self.until_it_holds(self._pass, self.go_back)
        yield from self._empty(epoch.metadata)
        yield Log(f"the state is in {self._path}; to resume from it, set {RECOVERY_PATH.key()}: {self._path}")
        yield from self.deliver(epoch.last)

    def _pass(self) -> Steps[Epoch]:
        try:
            epoch = yield from self.run_epoch(ends=False, records_max=None, path=self._path, reads=not self.is_drained)
            yield CheckClaim(self._path)
            # No job may find it among the checkpoints of this one.
            yield Complete(replace(epoch.metadata.as_savepoint(self._path), ends_job=False), self._path)
        except Exception:
            yield from self._empty(None)
            raise
        return epoch

    def _empty(self, checkpoint: CheckpointMetadata | None) -> Steps[None]:
        """Delete files of failed passes and discarded task runs, except those in `checkpoint`; leftovers do no harm."""
        try:
            yield EmptySavepoint(self._path, checkpoint)
        except Cancelled:
            raise
        except Exception as error:  # noqa: BLE001 - the pass's own success or failure is what counts
            yield Log(f"leftover files at {self._path} could not be deleted: {error}")
