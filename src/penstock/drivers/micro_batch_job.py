"""A job in micro-batch execution: epochs one behind the other, each with a checkpoint; drivers say how one is run.

Without an interval epochs follow each other until one finds nothing to read: then the job stops, and its last
checkpoint is where the next run goes on (`execution.state-recovery.path`). With an interval an epoch begins every so
often, until the job is stopped. When all sources have ended for good, a last epoch drains the job, as at the end of a
stream.
"""

from __future__ import annotations

import pickle
import queue
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import NamedTuple

from penstock.common import options
from penstock.common.completable_future import CompletableFuture
from penstock.common.configuration import Configuration
from penstock.common.errors import CheckpointError, JobExecutionError, PenstockError
from penstock.core.checkpoint.garbage import garbage
from penstock.core.checkpoint.restore import check_fit
from penstock.core.checkpoint.savepoints import savepoint_path
from penstock.core.checkpoint.settings import CheckpointSettings
from penstock.core.epochs.coordinator import EpochCoordinator, Task, epoch_vertices
from penstock.core.epochs.task import ANSWER
from penstock.core.epochs.work import EpochAnswer, EpochWork
from penstock.core.job.failover import Failover
from penstock.core.job.failures import failure_from
from penstock.core.job.job_graph import BACK_FILL, JobGraph
from penstock.core.ports import JobListener
from penstock.core.protocol import StopMode
from penstock.drivers.backends import BackendSettings
from penstock.drivers.latest import HasEnded, latest_of_name
from penstock.drivers.masterless_job import Cancelled, Last, MasterlessJob
from penstock.drivers.worker_storage import StorageSettings
from penstock.storage.file_store import absolute_url
from penstock.storage.job_marks import BEGUN, JobMark
from penstock.storage.metadata import CheckpointMetadata


class _Request(NamedTuple):
    """Somebody waits for a savepoint."""

    directory: str
    stop: StopMode | None
    cancels: bool
    future: CompletableFuture[str]


class MicroBatchJob(MasterlessJob):
    """Runs in a thread of its own. Subclasses implement `run_epoch` and `interrupt`."""

    def __init__(self, job_graph: JobGraph, configuration: Configuration, listener: JobListener) -> None:
        super().__init__(job_graph, configuration, listener)
        job_id = str(self._job_id)
        self.epoch_vertices = epoch_vertices(job_graph, job_id)
        self.storage = StorageSettings.of(configuration, job_id)
        self.backends = BackendSettings.of(configuration, job_id)
        self._savepoint_directory = configuration.read(options.SAVEPOINT_DIR)
        self._store = self.storage.store()
        self._settings = CheckpointSettings.of(configuration)
        self._failover = Failover(configuration)
        self._interval_ms = configuration.read(options.MICRO_BATCH_INTERVAL_MS)
        self._records_max = configuration.read(options.MICRO_BATCH_RECORDS_MAX)
        self._completed: list[CheckpointMetadata] = []
        self._requests: queue.SimpleQueue[_Request] = queue.SimpleQueue()
        self._is_over = False
        #: Whether something that is in a checkpoint or savepoint has yet to be delivered.
        self._owes = False

    # --- for drivers -----------------------------------------------------------------------------------------------

    @abstractmethod
    def run_epoch(self, works: Mapping[Task, EpochWork]) -> Iterator[Last]:
        """Run all tasks of an epoch; give what they leave, their answers among it."""

    # --- epochs ----------------------------------------------------------------------------------------------------

    def run_all(self) -> None:
        """Epoch after epoch, until the job has ended or was stopped."""
        try:
            self._run_from(self._begin_from())
        except HasEnded as ended:
            self.listener.on_log(str(ended))
        finally:
            self._is_over = True
            self._refuse_requests()

    def _run_from(self, begin_from: CheckpointMetadata | None) -> None:
        coordinator = EpochCoordinator(self.job_graph, str(self._job_id), begin_from)
        try:
            if self.run_epochs(coordinator):
                self._epoch(coordinator, ends=True)
                self._store.mark_job(self._mark("FINISHED", discards=True))
                self._discard_all()
        finally:
            coordinator.close()
            if not self._owes:
                self.commits.end_job()

    def run_epochs(self, coordinator: EpochCoordinator) -> bool:
        """Epoch after epoch; whether the sources have come to their end, not the job to a stop."""
        while not coordinator.has_ended:
            begun_ms = self.clock.now_ms()
            found = self._epoch(coordinator)
            if self._serve(coordinator):
                return False
            if not self._goes_on(coordinator, found, begun_ms):
                self._say_where_to_go_on()
                return False
        return True

    def _begin_from(self) -> CheckpointMetadata | None:
        if self.job_graph.mode != BACK_FILL:
            if self.configuration.read(options.RECOVERY_FROM_LATEST):
                metadata = latest_of_name(self._store, self.job_graph, self.configuration, self.listener)
                if metadata is not None:
                    return self._fitting(metadata, options.RECOVERY_FROM_LATEST.key())
            else:
                self._store.mark_job(self._mark(BEGUN))
        path = self.configuration.read(options.RECOVERY_PATH)
        if path is None:
            return None
        try:
            metadata = self._store.load(path)
            self._store.verify(metadata)
        except Exception as error:
            where = f"{options.RECOVERY_PATH.key()} {path}"
            raise JobExecutionError(self.job_graph.name, f"{where} cannot be read: {error}") from error
        return self._fitting(metadata, options.RECOVERY_PATH.key())

    def _fitting(self, metadata: CheckpointMetadata, option: str) -> CheckpointMetadata:
        where = f"{option} {metadata.external_path}"
        try:
            for line in check_fit(metadata, self.job_graph, self.configuration):
                self.listener.on_log(line)
        except CheckpointError as misfit:
            raise JobExecutionError(self.job_graph.name, f"{where} does not fit the job: {misfit}") from misfit
        self.listener.on_log(f"begins from {metadata.external_path}")
        return metadata

    def _mark(
        self, status: str, savepoint: str | None = None, drained: bool = False, discards: bool = False
    ) -> JobMark:
        """What has become of the job, for whoever starts it again."""
        name, now = self.job_graph.name, self.clock.now_ms()
        return JobMark(str(self._job_id), name, status, now, savepoint, drained, discards)

    def _epoch(self, coordinator: EpochCoordinator, ends: bool = False) -> int:
        """One epoch, again and again until it succeeds or no restart is left; how many records its sources read."""
        while True:
            self.check_cancelled()
            begun_ms = self.clock.now_ms()
            try:
                works = coordinator.works(self._records_max, ends)
                answers, left = self._run_works(works)
                metadata = coordinator.metadata(answers, self.clock.now_ms(), ends)
                self._store.complete(metadata)
            except Cancelled:
                raise
            except Exception as error:  # noqa: BLE001 - the restart strategy decides
                self.figures.epoch_failed()
                self._wait_for_restart(error)
                self.figures.restarts += 1
                coordinator.roll_back()
                continue
            coordinator.complete(metadata, answers)
            self.figures.epoch_completed(metadata, self.clock.now_ms() - begun_ms)
            # If that fails, the older checkpoints are still there.
            self._deliver_owed(left)
            self._keep(metadata)
            return sum(answer.records_read for answer in answers.values())

    def _deliver_owed(self, left: Sequence[Last]) -> None:
        """Deliver what a checkpoint or savepoint that is visible names."""
        self._owes = True
        self.deliver(left)
        self._owes = False

    def _run_works(self, works: Mapping[Task, EpochWork]) -> tuple[dict[Task, EpochAnswer], list[Last]]:
        answers: dict[Task, EpochAnswer] = {}
        left = []
        for last in self.run_epoch(works):
            if last.kind == ANSWER:
                answers[last.vertex, last.operator] = pickle.loads(last.payload)
            else:
                left.append(last)
        missing = works.keys() - answers.keys()
        if missing:
            raise PenstockError(f"{len(missing)} tasks of the epoch have not answered")
        tokens = {answer.token for answer in answers.values()}
        if any(not answer.used <= tokens for answer in answers.values()):
            raise PenstockError("a task of the epoch was run again after others had used what it sent")
        return answers, left

    def _wait_for_restart(self, error: Exception) -> None:
        completed = self.figures.checkpoints.completed
        delay_ms = self._failover.restart_delay_ms(
            failure_from(error), None, completed, bool(self._completed), self.clock.now_ms()
        )
        if delay_ms is None:
            if self._failover.verdict is not None:
                error.add_note(self._failover.verdict)
                self.listener.on_log(self._failover.verdict)
            raise error
        self.listener.on_log(f"the epoch begins anew in {delay_ms} ms: {error}")
        self.pause(delay_ms)

    def _keep(self, metadata: CheckpointMetadata) -> None:
        self._completed = [*self._completed, metadata][-self._settings.retained :]
        # Nothing is in the making now: what the runs of tasks have left that did not count goes, too.
        self._store.delete(garbage(self._store.listing(), self._completed, metadata.checkpoint_id + 1))

    def _discard_all(self) -> None:
        self._completed = []
        self._store.delete(garbage(self._store.listing(), [], 1 << 62))

    def _goes_on(self, coordinator: EpochCoordinator, found: int, begun_ms: int) -> bool:
        """Wait for the next epoch, if there is to be one."""
        if coordinator.has_ended:
            return True  # the loop is over, and the last epoch follows
        if self._interval_ms is None:
            return found > 0
        while (left_ms := begun_ms + self._interval_ms - self.clock.now_ms()) > 0 and self._requests.empty():
            self.pause(min(left_ms, 100))
        return True

    def pause(self, for_ms: int) -> None:
        """Let time pass, unless the job is cancelled."""
        self._is_cancelled.wait(for_ms / 1000)
        self.check_cancelled()

    def _say_where_to_go_on(self) -> None:
        if self.storage.directory is not None and self._completed:
            path = f"{self.storage.directory}/{self._job_id}/chk-{self._completed[-1].checkpoint_id}"
            self.listener.on_log(f"nothing is left to read; {options.RECOVERY_PATH.key()}: {path} goes on from here")

    # --- savepoints ------------------------------------------------------------------------------------------------

    def _serve(self, coordinator: EpochCoordinator) -> bool:
        """Take the savepoints that were asked for; whether one of them ends the job."""
        while not self._requests.empty():
            request = self._requests.get()
            try:
                path = self._savepoint_of(coordinator, request)
            except Cancelled:
                raise
            except Exception as error:  # noqa: BLE001 - whoever asked is told, and the job goes on
                request.future.complete_exceptionally(CheckpointError(f"no savepoint: {error}"))
                continue
            request.future.complete(path)
            if request.cancels:
                self._is_cancelled.set()
                raise Cancelled
            if request.stop is not None:
                return True
        return False

    def _savepoint_of(self, coordinator: EpochCoordinator, request: _Request) -> str:
        ends = request.stop is StopMode.DRAIN
        path = savepoint_path(request.directory, str(self._job_id), coordinator.epoch + 1)
        works = coordinator.works(0, ends, path)
        answers, left = self._run_works(works)
        metadata = coordinator.metadata(answers, self.clock.now_ms(), ends)
        self._store.complete(metadata.as_savepoint(path), path)
        if request.stop is not None:
            self._deliver_owed(left)
            self._store.mark_job(self._mark("FINISHED", path, drained=ends))
        return path

    def _ask_for_savepoint(self, directory: str | None, stop: StopMode | None, cancels: bool = False) -> Future[str]:
        future: CompletableFuture[str] = CompletableFuture()
        directory = directory or self._savepoint_directory
        if directory is None:
            reason = f"name a directory for the savepoint, or set {options.SAVEPOINT_DIR.key()}"
            future.complete_exceptionally(CheckpointError(reason))
            return future
        self._requests.put(_Request(absolute_url(directory), stop, cancels, future))
        if self._is_over:
            self._refuse_requests()
        return future

    def _refuse_requests(self) -> None:
        while not self._requests.empty():
            self._requests.get().future.complete_exceptionally(CheckpointError("no savepoint: the job is over"))

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> Future[str]:
        """Take a savepoint between two epochs (H1)."""
        return self._ask_for_savepoint(savepoint_directory, None)

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> Future[str]:
        """Take a savepoint between two epochs and end the job, drained if asked for (H2)."""
        stop = StopMode.DRAIN if advance_to_end_of_event_time else StopMode.SUSPEND
        return self._ask_for_savepoint(savepoint_directory, stop)

    def cancel_with_savepoint(self, savepoint_directory: str | None = None) -> Future[str]:
        """Take a savepoint between two epochs, then cancel the job."""
        return self._ask_for_savepoint(savepoint_directory, None, cancels=True)
