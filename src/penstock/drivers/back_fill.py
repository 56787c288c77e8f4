"""A batch that leaves its state behind: one epoch over all there is, its input sorted, whose checkpoint is a savepoint.

It is a job of micro-batch execution that knows neither interval nor end. All that it writes becomes visible behind the
savepoint: a job that dies before has left nothing but files that nobody reads, and what one has not committed that died
just behind it is committed by the job that begins from the savepoint.
"""

from __future__ import annotations

from concurrent.futures import Future

from penstock.common import options
from penstock.common.completable_future import CompletableFuture
from penstock.common.errors import CheckpointError, JobExecutionError
from penstock.core.epochs.coordinator import EpochCoordinator
from penstock.core.protocol import StopMode
from penstock.drivers.masterless_job import Cancelled, Last
from penstock.drivers.micro_batch_job import MicroBatchJob
from penstock.storage.file_store import absolute_url
from penstock.storage.metadata import CheckpointMetadata


class BackFillJob(MicroBatchJob):
    """Mixed into the micro-batch job of a driver. Subclasses implement `run_epoch` and `interrupt`."""

    def run_all(self) -> None:
        """One pass, again and again until it succeeds or no restart is left."""
        path = absolute_url(str(self.configuration.read(options.BATCH_SAVEPOINT_PATH)))
        owner = str(self._job_id)
        try:
            self._store.claim_savepoint(path, owner)
        except CheckpointError as taken:
            raise JobExecutionError(self.job_graph.name, f"{options.BATCH_SAVEPOINT_PATH.key()}: {taken}") from taken
        coordinator = EpochCoordinator(self.job_graph, str(self._job_id), self._begin_from())
        try:
            left = self._fill(coordinator, path)
            self.listener.on_log(f"the state is in {path}; {options.RECOVERY_PATH.key()}: {path} goes on from there")
            self._deliver_owed(left)
        finally:
            coordinator.close()
            self._store.release_savepoint(path, owner)
            if not self._owes:
                self.commits.end_job()

    def _fill(self, coordinator: EpochCoordinator, path: str) -> list[Last]:
        """Run until the savepoint is whole; what the tasks have left for the client."""
        while True:
            self.check_cancelled()
            try:
                answers, left = self._run_works(coordinator.works(savepoint_path=path))
                metadata = coordinator.metadata(answers, self.clock.now_ms(), ends=False)
                self._store.check_savepoint_is_own(path, str(self._job_id))
                self._store.complete(metadata.as_savepoint(path), path)
            except Cancelled:
                self._delete(path)
                raise
            except Exception as error:  # noqa: BLE001 - the restart strategy decides
                self._delete(path)
                self._wait_for_restart(error)
                coordinator.roll_back()
            else:
                self._delete(path, metadata)
                return left

    def _delete(self, path: str, kept: CheckpointMetadata | None = None) -> None:
        """Let go what passes that failed, or runs of tasks that did not count, have written; it is in nobody's way."""
        try:
            files = None if kept is None else kept.state_files()
            self._store.empty_savepoint(path, str(self._job_id), files)
        except Exception as error:  # noqa: BLE001 - the pass's own success or failure is what counts
            self.listener.on_log(f"what is left over at {path} could not be deleted: {error}")

    def _ask_for_savepoint(self, directory: str | None, stop: StopMode | None, cancels: bool = False) -> Future[str]:
        future: CompletableFuture[str] = CompletableFuture()
        reason = f"job {self.job_graph.name!r} is a batch that leaves one savepoint, at its end; cancel it to stop it"
        future.complete_exceptionally(CheckpointError(reason))
        return future
