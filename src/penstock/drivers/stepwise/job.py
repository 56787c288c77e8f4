"""Jobs whose masters work step by step; a thread of the client's process carries out the steps, one after another.

`BatchJob` is a bounded job in batch execution; drivers define how its tasks run.

`StoreSteps` carries out the steps that call the checkpoint store; a store that hangs does not block a job forever (G8).
Each call runs in its own thread. After the checkpoint timeout, a call that may complete late without harm is abandoned:
its step fails, and the job restarts. For any other call the job waits, and logs that it does.

`EpochJob` is a job in micro-batch execution, or a batch that saves its state; drivers define how an epoch runs.
"""

from __future__ import annotations

import itertools
import queue
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Final, TypeVar

from penstock.base.configuration import Configuration
from penstock.base.errors import CallTimeoutError, CheckpointError, JobExecutionError, UnsupportedError
from penstock.base.job import CompletableFuture, JobExecutionResult, JobID, JobStatus
from penstock.base.options import BATCH_SAVEPOINT_PATH, CHECKPOINTING_DIR, CHECKPOINTING_TIMEOUT_MS, SAVEPOINT_DIR
from penstock.drivers.cancellation import where_is
from penstock.drivers.event_loop import SystemClock
from penstock.drivers.failure_enrichers import LabellingThread, failure_enrichers
from penstock.drivers.logs import set_thread_job
from penstock.drivers.running_job import RunningJob, completed, settle
from penstock.drivers.stepwise.flow import Sinks, Sources, separate_answers
from penstock.drivers.worker_storage import BackendSettings, StorageSettings
from penstock.runtime.batch.task import BatchVertex, batch_vertices
from penstock.runtime.checkpoint.savepoints import TakeSavepoint
from penstock.runtime.connector import Source
from penstock.runtime.epochs.coordinator import EpochWork, Task, epoch_vertices
from penstock.runtime.graph import BACK_FILL, JobGraph
from penstock.runtime.job.failover import broken
from penstock.runtime.job.job_master import JobMaster
from penstock.runtime.job.recovery import read_through
from penstock.runtime.job.view import JobView
from penstock.runtime.master import steps
from penstock.runtime.master.epochs import BackFillMaster, EpochMaster
from penstock.runtime.master.master import BatchMaster, StepwiseMaster, drive
from penstock.runtime.ports import CheckpointStore, JobListener
from penstock.runtime.task.failures import clear_own_frames
from penstock.storage.files import absolute_url
from penstock.storage.leadership import DeposedError
from penstock.storage.metadata import garbage
from penstock.storage.savepoints import check_savepoint_is_own, claim_savepoint, empty_savepoint, release_savepoint

T = TypeVar("T")
#: The function that carries out a step, by the step's class.
Table = Mapping[type[steps.Step], Callable[[Any], Any]]
#: Steps that take long; the job checks for cancellation before each.
_LONG: Final = (steps.PrepareSources, steps.RunEpoch, steps.RunTasks, steps.Wait)


class StepwiseJob(RunningJob):
    """See the module docstring. Subclasses define a master, the functions of their own steps, and `interrupt`."""

    #: The only steps of a suspended job: they report something, or release the job's own resources.
    last_steps: tuple[type[steps.Step], ...] = (steps.Answer, steps.Log, steps.NextRequest, steps.Report)

    def __init__(
        self, job_graph: JobGraph, configuration: Configuration, listener: JobListener, job_id: JobID | None = None
    ) -> None:
        result: CompletableFuture[JobExecutionResult] = CompletableFuture()
        directory = configuration.read(SAVEPOINT_DIR)
        super().__init__(job_id or JobID.generate(), job_graph.name, result, configuration, directory)
        self.job_graph = job_graph
        self.configuration = configuration
        self.clock = SystemClock()
        self.listener = listener
        self._status = JobStatus.CREATED
        #: set when the job must end: because it was suspended if there is an error, otherwise because it was cancelled
        self._must_end = threading.Event()
        self._suspension: DeposedError | None = None
        #: set when there is a request, or the job must end
        self._is_wanted = threading.Event()
        self._is_over = False
        self._requests: queue.SimpleQueue[steps.Request] = queue.SimpleQueue()
        self._waiters: dict[int, CompletableFuture[Any]] = {}
        self._numbers = itertools.count(1)
        self.master = self.make_master()
        labelling = LabellingThread(
            failure_enrichers(configuration), str(self._job_id), job_graph.name, self.master.history
        )
        self.master.on_failure = labelling.on_failure
        self._sinks = self.make_sinks()
        self._table = self.table()
        self._started_ms = self.clock.steady_ms()
        self._thread = threading.Thread(target=self._run, name=f"penstock-job-{job_graph.name}", daemon=True)

    # --- for drivers -----------------------------------------------------------------------------------------------

    @abstractmethod
    def make_master(self) -> StepwiseMaster:
        """Create the job's master."""

    @abstractmethod
    def interrupt(self) -> None:
        """Make the running step end soon, because the job was cancelled."""

    @abstractmethod
    def why_no_savepoint(self) -> str | None:
        """Return why the job takes no savepoints on request; None if it does."""

    def why_no_rescaling(self) -> str | None:
        """Return the reason: Spark assigns new slots for each step."""
        return (
            "it runs step by step, with any number of slots; to change its parallelism, stop it with a savepoint and "
            "start it from there"
        )

    def make_sinks(self) -> Sinks:
        """Create the sinks that deliver the output of the tasks."""
        return Sinks(self.job_graph, str(self._job_id), self.listener, self.clock, self.master.figures, self._let_pass)

    def table(self) -> Table:
        """Return the function that carries out each step."""
        return {
            steps.Report: self._report,
            steps.Log: lambda step: self.listener.on_log(step.line),
            steps.Wait: self._wait,
            steps.NextRequest: lambda _: self._next_request(),
            steps.Answer: self._answer,
            steps.PrepareSources: lambda _: self._prepare_sources(),
            steps.BeginCommits: lambda _: self._sinks.begin(),
            steps.Deliver: lambda step: self._sinks.deliver(step.last),
            steps.EndForerunners: lambda step: self._sinks.end_forerunners(step.job_ids),
            steps.EndSinks: lambda _: self._sinks.end(),
        }

    def reads_splits(self, source: Source[Any, Any]) -> bool:
        """Return whether a source is read by its splits, and therefore prepared."""
        return True

    def release(self) -> None:
        """Release resources, because the job is over."""

    def check_cancelled(self) -> None:
        """Raise `Cancelled` or `DeposedError` if the job must end."""
        if self._suspension is not None:
            raise self._suspension
        if self._must_end.is_set():
            raise steps.Cancelled

    # --- steps -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def _run(self) -> None:
        set_thread_job(str(self._job_id))
        try:
            drive(self.master.run(), self._perform)
            failure = self.master.failure
        except BaseException as fault:  # noqa: BLE001 - a fault of the master must not leave a waiter unanswered
            failure = broken(self.job_graph.name, fault)
            self._report(steps.Report(JobStatus.FAILED, str(failure)))
        self._is_over = True
        self._refuse_requests()
        runtime_ms = self.clock.steady_ms() - self._started_ms
        name, accumulators = self.job_graph.name, self._sinks.accumulators()
        directory = self.configuration.read(CHECKPOINTING_DIR)
        settle(self._result, self._job_id, name, self._status, failure, runtime_ms, accumulators, directory)

    def _perform(self, step: steps.Step) -> Any:
        try:
            if isinstance(step, _LONG) or (self._suspension is not None and not isinstance(step, self.last_steps)):
                self.check_cancelled()
            return self._table[type(step)](step)
        except (steps.Cancelled, DeposedError):
            raise
        except Exception as error:
            if isinstance(error, JobExecutionError):  # its message says where it was raised
                clear_own_frames(error)
            if self._must_end.is_set():
                raise (self._suspension or steps.Cancelled()) from error
            raise

    def _report(self, step: steps.Report) -> None:
        if step.status.is_terminal_state():
            try:
                self.release()
            except Exception as error:  # noqa: BLE001 - the job itself has come to its end
                self.listener.on_log(f"not all resources of the job could be released: {type(error).__name__}: {error}")
        self._status = step.status
        self.listener.on_job_status(step.status.name, step.reason)

    def _wait(self, step: steps.Wait) -> None:
        (self._is_wanted if step.until_request else self._must_end).wait(step.for_ms / 1000)
        self.check_cancelled()

    def _let_pass(self, for_ms: int) -> None:
        """Wait for a time, unless the job is cancelled."""
        self._must_end.wait(for_ms / 1000)

    def _prepare_sources(self) -> None:
        for vertex in self.job_graph.vertices:
            for source in filter(self.reads_splits, vertex.sources.values()):
                source.prepare(self.check_cancelled)

    # --- requests --------------------------------------------------------------------------------------------------

    def _next_request(self) -> steps.Request | None:
        self._is_wanted.clear()
        if self._must_end.is_set():
            self._is_wanted.set()
        try:
            return self._requests.get_nowait()
        except queue.Empty:
            return None

    def _answer(self, step: steps.Answer) -> None:
        waiter = self._waiters.pop(step.request.number)
        if step.error is None:
            waiter.complete(step.result)
        else:
            waiter.complete_exceptionally(CheckpointError(step.error))

    def _request(self, savepoint: TakeSavepoint | None) -> Future[Any]:
        future: CompletableFuture[Any] = CompletableFuture()
        request = steps.Request(next(self._numbers), savepoint)
        self._waiters[request.number] = future
        self._requests.put(request)
        self._is_wanted.set()
        if self._is_over:
            self._refuse_requests()
        return future

    def _refuse_requests(self) -> None:
        while (request := self._next_request()) is not None:
            kind = "checkpoint" if request.savepoint is None else "savepoint"
            self._answer(steps.Answer(request, None, f"no {kind}: the job is over"))

    # --- the client's side -----------------------------------------------------------------------------------------

    def take_savepoint(self, command: TakeSavepoint) -> Future[str]:
        """Take a savepoint between two epochs (H1, H2)."""
        return self._request(command)

    def trigger_checkpoint(self, is_full: bool = False) -> Future[int | None]:
        """Begin the next epoch now. Return the id of its checkpoint, or None if the job takes none.

        Raises:
            UnsupportedError: for a full checkpoint; epochs build on each other.
        """
        if is_full:
            raise UnsupportedError("a job in steps takes no full checkpoint: take a savepoint, which is always whole")
        return completed(None) if self.why_no_savepoint() is not None else self._request(None)

    def status(self) -> JobStatus:
        """Return the job's status."""
        return self._status

    def begin_cancel(self) -> None:
        """Begin to cancel. Undelivered output will not become visible."""
        self._end_soon()

    def lose_leadership(self, reason: str) -> None:
        """Suspend the job before its next step; see `RunningJob`."""
        self._suspension = DeposedError(self.job_graph.name, reason)
        self._end_soon()

    def _end_soon(self) -> None:
        self._must_end.set()
        self._is_wanted.set()
        self.interrupt()

    def where(self) -> str | None:
        """Return the user code that the job's thread is running."""
        return where_is(self._thread)

    def end(self, patience_seconds: float = 5.0) -> None:
        """Cancel the job and wait until it ends, or until the wait is given up."""
        self._cancel_once()
        self._cancellation.join(self._thread)

    def get_view(self) -> Future[JobView]:
        """Return the current view.

        Its figures of delivered output change after each epoch, and at the end of a batch.
        """
        return completed(replace(self.master.view(), status=self._status))

    def last_view(self) -> JobView | None:
        """Return the job's final view, or None if it has not ended."""
        return replace(self.master.view(), status=self._status) if self._result.done() else None

    def get_accumulators(self) -> Future[dict[str, Any]]:
        """Return the user-defined accumulators of delivered output, by name."""
        return completed(self._sinks.accumulators())

    def ask(self, question: Callable[[JobMaster], T]) -> Future[T]:
        """Return a cancelled future: a job in steps has no job master that runs tasks."""
        future: Future[T] = Future()
        future.cancel()
        return future


class BatchJob(StepwiseJob):
    """Base class of batch jobs. Subclasses implement `run_tasks` and `interrupt`."""

    def __init__(self, job_graph: JobGraph, configuration: Configuration, listener: JobListener) -> None:
        super().__init__(job_graph, configuration, listener)
        self.vertices: list[BatchVertex] = batch_vertices(job_graph, str(self._job_id))

    def make_master(self) -> BatchMaster:
        """Create the master, which runs all tasks and then commits all output or none."""
        return BatchMaster(self.job_graph, str(self._job_id), self.configuration, self.clock)

    def make_sinks(self) -> Sinks:
        """Create sinks that commit all or nothing."""
        figures = self.master.figures
        return Sinks(self.job_graph, str(self._job_id), self.listener, self.clock, figures, self._let_pass, True)

    @abstractmethod
    def run_tasks(self) -> Iterator[steps.Last]:
        """Run all vertices and return their output for the client. Raises the `PenstockError` that fails the job."""

    def table(self) -> Table:
        """Return the step functions, including the one that runs the tasks."""
        return {**super().table(), steps.RunTasks: lambda _: self._run_tasks()}

    def _run_tasks(self) -> list[steps.Last]:
        last = list(self.run_tasks())
        self.check_cancelled()
        return last

    def why_no_savepoint(self) -> str | None:
        """Return the reason: a batch has no state between its start and its end."""
        return f"job {self.job_graph.name!r} runs in batch execution, which has neither checkpoints nor savepoints"


#: Steps to abandon: a late checkpoint is revoked before the next epoch, and deleted files are no longer needed.
_GIVEN_UP: Final = (
    steps.CheckLeads,
    steps.Complete,
    steps.DeleteGarbage,
    steps.DeleteJobs,
    steps.ReadThrough,
    steps.Revoke,
)


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
        self._calls: dict[type[steps.Step], Callable[[Any], object]] = {
            steps.MarkJob: lambda step: store.mark_job(step.mark),
            steps.Join: lambda step: store.join(step.job_name),
            steps.TakeOver: lambda step: store.take_over(step.job_name),
            steps.CheckLeads: lambda _: store.check_leads(),
            steps.Load: lambda step: store.load(step.path, step.job_name, step.claims),
            steps.ReadThrough: lambda step: read_through(store, step.metadata),
            steps.Complete: lambda step: store.complete(step.metadata, step.savepoint_path),
            steps.Revoke: lambda step: store.revoke(step.checkpoint_id),
            steps.DeleteGarbage: lambda step: store.delete(
                garbage(store.listing(), step.kept, step.oldest_live_id, step.revoked)
            ),
            steps.DeleteJobs: lambda step: store.delete_jobs(step.job_ids),
            steps.DeleteSavepoint: lambda step: store.delete_savepoint(step.path),
        }

    def table(self) -> dict[type[steps.Step], Callable[[steps.Step], object]]:
        """Return the function that carries out each step, by the step's class."""
        return dict.fromkeys(self._calls, self.carry_out)

    def carry_out(self, step: steps.Step) -> object:
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
            if isinstance(step, _GIVEN_UP) and not (isinstance(step, steps.Complete) and step.savepoint_path):
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
    def run_epoch(self, works: Mapping[Task, EpochWork]) -> Iterator[steps.Last]:
        """Run all tasks of an epoch; return their results, including their answers."""

    def table(self) -> Table:
        """Return the step functions, including those for checkpoints, savepoints and epochs."""
        owner, patience_ms = str(self._job_id), self.configuration.read(CHECKPOINTING_TIMEOUT_MS)
        store_steps = StoreSteps(self._store, patience_ms, self.listener.on_log)
        return {
            **super().table(),
            **store_steps.table(),
            steps.ClaimSavepoint: lambda step: claim_savepoint(step.path, owner),
            steps.CheckClaim: lambda step: check_savepoint_is_own(step.path, owner),
            steps.EmptySavepoint: self._empty_savepoint,
            steps.ReleaseSavepoint: lambda step: release_savepoint(step.path, owner),
            steps.OpenSources: self.sources.open,
            steps.DealSplits: self.sources.deal,
            steps.SnapshotSources: self.sources.snapshot,
            steps.RunEpoch: self._run_epoch,
        }

    def _empty_savepoint(self, step: steps.EmptySavepoint) -> None:
        files = None if step.kept is None else step.kept.state_files()
        empty_savepoint(step.path, str(self._job_id), files)

    def _run_epoch(self, step: steps.RunEpoch) -> steps.Left:
        return separate_answers(self.run_epoch(step.works))

    def release(self) -> None:
        """Release the sources, because the job is over."""
        self.sources.close()

    def why_no_savepoint(self) -> str | None:
        """Return a reason for a back-fill, which writes its own savepoint."""
        if self.job_graph.mode == BACK_FILL:
            return f"job {self.job_graph.name!r} is a batch that writes one savepoint, at its end; cancel it to stop it"
        return None
