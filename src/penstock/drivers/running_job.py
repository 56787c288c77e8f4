"""What every driver returns for a job that it runs: PyFlink's `JobClient`, with progress and an orderly end."""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.base.completable_future import CompletableFuture
from penstock.base.configuration import Configuration
from penstock.base.errors import (
    CheckpointError,
    ConfigurationError,
    JobExecutionError,
    OperationError,
    PenstockError,
    shorten,
)
from penstock.base.job_execution_result import JobExecutionResult
from penstock.base.job_id import JobID
from penstock.base.job_status import JobStatus
from penstock.base.options import SAVEPOINT_DIR
from penstock.core.checkpoint.savepoints import TakeSavepoint
from penstock.core.job.progress import JobProgress, job_progress
from penstock.core.job.view import JobView
from penstock.core.protocol import StopMode
from penstock.drivers.answers import Answers
from penstock.drivers.cancellation import CancellationWatch
from penstock.drivers.driver_log import DriverLog
from penstock.drivers.interrupts import ends_on_second_interrupt, wait_until_done
from penstock.drivers.job_client import JobClient
from penstock.drivers.log_settings import LogSettings
from penstock.drivers.moves import Moves
from penstock.drivers.questions import Answer, Question
from penstock.storage.disposal import note_end
from penstock.storage.files import absolute_url
from penstock.storage.leadership import DeposedError

if TYPE_CHECKING:  # workers load this module with the API, and no master
    from penstock.core.job.job_master import JobMaster
    from penstock.core.job.resource_requirements import Bounds

#: How long (ms) a worker may take to answer a question.
ANSWER_MS_MAX: Final = 10_000
#: How long (s) a job that ends waits until its end is recorded.
END_RECORD_SECONDS: Final = 5.0

_log = logging.getLogger("penstock.drivers")

S = TypeVar("S")
T = TypeVar("T")


def completed(value: T) -> CompletableFuture[T]:
    """A future that is done."""
    future: CompletableFuture[T] = CompletableFuture()
    future.complete(value)
    return future


def mapped(future: Future[S], function: Callable[[S], T]) -> Future[T]:
    """What a function makes of a future's result; cancelled, or failed, as the future is."""
    result: Future[T] = Future()

    def on_done(done: Future[S]) -> None:
        if done.cancelled():
            result.cancel()
            return
        try:
            result.set_result(function(done.result()))
        except Exception as error:  # noqa: BLE001 - goes to the caller that asked
            result.set_exception(error)

    future.add_done_callback(on_done)
    return result


class RunningJob(JobClient):
    """A job whose master lives in this process.

    Attributes:
        moves: those from status to status, since it began; None where nobody keeps them.
    """

    moves: Moves | None = None

    def __init__(
        self,
        job_id: JobID,
        job_name: str,
        result: CompletableFuture[JobExecutionResult],
        configuration: Configuration,
        savepoint_directory: str | None = None,
        grace_ms: int = 0,
    ) -> None:
        self._job_id = job_id
        self._job_name = job_name
        self._result = self._told = result
        self._savepoint_directory = savepoint_directory
        self._log = DriverLog(LogSettings.of(configuration, str(job_id)))
        result.add_done_callback(lambda _: self._log.close())
        self._answers = Answers(threading.main_thread(), self._log)
        self._cancellation = CancellationWatch(job_name, result, configuration, self.where, grace_ms)

    @abstractmethod
    def status(self) -> JobStatus:
        """Where the job is in its life."""

    @abstractmethod
    def get_view(self) -> Future[JobView]:
        """The job as it is now: vertices, subtasks, checkpoints, failures; cancelled when the job is over."""

    @abstractmethod
    def last_view(self) -> JobView | None:
        """The job as it ended; None while it runs, or if it ended before it had a master."""

    def get_progress(self) -> Future[JobProgress]:
        """Figures of the running job; the future is cancelled when the job is over."""
        return mapped(self.get_view(), job_progress)

    @abstractmethod
    def trigger_checkpoint(self, is_full: bool = False) -> Future[int | None]:
        """Trigger a checkpoint now; its id, or None when the job is not in a state to take one.

        One that `is_full` writes all state anew, and refers to no file of an earlier one. Later ones build on it.
        """

    @abstractmethod
    def ask(self, question: Callable[[JobMaster], T]) -> Future[T]:
        """Call with the job master in its next turn; the future is cancelled when the job is over by then."""

    def ask_worker(self, worker_id: str, question: Question, timeout_ms: int = ANSWER_MS_MAX) -> Future[Answer]:
        """Ask the process of a worker what it is at; the future fails with an `OperationError` without an answer."""
        future: Future[Answer] = Future()
        future.set_exception(OperationError(f"the job has no worker {shorten(worker_id)!r}: its tasks are Spark's own"))
        return future

    def engine_page(self, worker_id: str | None = None) -> str | None:
        """Where the engine under the job shows a worker, or itself; None where it has no page of its own."""
        return None

    def ask_driver(self, question: Question) -> Future[Answer]:
        """Ask this process what it is at, and for the log of the job."""
        future: Future[Answer] = Future()
        self._answers.begin(question, future.set_result)
        return future

    @abstractmethod
    def begin_cancel(self) -> None:
        """Let the job end soon; called again at each further request."""

    def lose_leadership(self, reason: str) -> None:
        """Suspend the job, because another driver may run it by now (E7); any thread may say so.

        The job's outcome is then a `DeposedError` with the reason. Nothing of it is committed or deleted any more,
        except what was being committed at that moment.
        """
        error = DeposedError(self._job_name, reason)
        self.ask(lambda master: master.suspend(error))

    @abstractmethod
    def where(self) -> str | None:
        """What keeps the job from ending, in words; None when nothing worth a message does."""

    @abstractmethod
    def end(self, patience_seconds: float = 5.0) -> None:
        """Cancel the job, unless it was, and wait until nothing of it is left, or until the waiting ends."""

    def cancel(self) -> Future[None]:
        """Cancel the job; see `JobClient`."""
        self._cancellation.on_cancel()
        self.begin_cancel()
        return completed(None)

    def wait(self) -> JobExecutionResult:
        """Wait for the outcome; Ctrl-C meanwhile cancels the job, and takes effect when nothing of it is left.

        While a function does not return, the log names it now and then. A second Ctrl-C, or a second `cancel`, ends the
        waiting. If the first Ctrl-C has no effect, because a call holds Python's global interpreter lock, the second
        one ends the process.

        Raises:
            JobExecutionError: if the job failed or was cancelled.
        """
        with ends_on_second_interrupt():
            try:
                wait_until_done(self._told)
                return self._told.result()
            except KeyboardInterrupt:
                try:
                    self.end()
                except KeyboardInterrupt:
                    self._cancellation.say_what_is_left()
                raise

    def _cancel_once(self) -> None:
        if not self._cancellation.has_begun:
            self.cancel()

    def get_job_id(self) -> JobID:
        """The job's id."""
        return self._job_id

    def get_job_status(self) -> Future[JobStatus]:
        """Where the job is in its life."""
        return completed(self.status())

    def get_job_execution_result(self) -> Future[JobExecutionResult]:
        """The outcome: done when nothing of the job is left."""
        return self._told

    def before_result(self, action: Callable[[BaseException | None], None]) -> None:
        """Do something with the failure, or None, when the job is over and before anyone hears of it.

        A callback of the result is too late for what must not be lost: the program may end before it is called.
        Call this before the job is handed on.
        """
        outcome, told = self._told, CompletableFuture[JobExecutionResult]()
        self._told = told

        def on_done(done: Future[JobExecutionResult]) -> None:
            failure = None if done.cancelled() else done.exception()
            try:
                action(failure)
            finally:
                if done.cancelled():
                    told.cancel()
                elif failure is not None:
                    told.complete_exceptionally(failure)
                else:
                    told.complete(done.result())

        outcome.add_done_callback(on_done)

    def get_bounds(self) -> Future[dict[int, Bounds]]:
        """Between which bounds the parallelism of each vertex is to be, by its index; cancelled if it is over."""
        return self.ask(lambda master: master.bounds())

    def get_accumulators(self) -> Future[dict[str, Any]]:
        """The users' accumulators, by name, as last reported; when the job has finished, their final values."""
        if self._result.done() and self._result.exception() is None:
            return completed(self._result.result().get_all_accumulator_results())
        return self.ask(lambda master: master.accumulators())

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> Future[str]:
        """Take a savepoint, commit all it covers, and end the job (H2); see `JobClient`."""
        return self._savepoint(
            savepoint_directory, StopMode.DRAIN if advance_to_end_of_event_time else StopMode.SUSPEND
        )

    def cancel_with_savepoint(self, savepoint_directory: str | None = None) -> Future[str]:
        """Take a savepoint, then cancel the job; see `JobClient`."""
        return self._savepoint(savepoint_directory, cancels=True)

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> Future[str]:
        """Take a savepoint while the job goes on (H1); see `JobClient`."""
        return self._savepoint(savepoint_directory)

    def _savepoint(self, directory: str | None, stop: StopMode | None = None, cancels: bool = False) -> Future[str]:
        directory = directory or self._savepoint_directory
        refusal = self.why_no_savepoint()
        if refusal is None and directory is None:
            refusal = f"name a directory for the savepoint, or set {SAVEPOINT_DIR.key()}"
        if refusal is None and directory is not None:
            try:
                where = absolute_url(directory)
            except ConfigurationError as error:
                refusal = str(error)
            else:
                return self.take_savepoint(TakeSavepoint(where, stop, cancels))
        refused: CompletableFuture[str] = CompletableFuture()
        refused.complete_exceptionally(CheckpointError(refusal))
        return refused

    def rescale(self, parallelism: Mapping[str, int]) -> Future[Mapping[str, int]]:
        """Let operators of the running job go on at other parallelisms (D4, E3).

        The job takes a checkpoint, ends its tasks, and begins again from the checkpoint. It does so when there are
        enough slots, and runs as it was until then. With the adaptive scheduler these are the highest parallelisms,
        and the job runs with fewer slots, too.

        Args:
            parallelism: by an operator's uid, id or name. All that is chained with it, or connected by forward edges,
                gets the same.

        Returns:
            A future of the parallelism of each vertex of the job, by its name, which is done when the job runs like
            that. It raises OperationError if the job cannot, or if there are not enough slots within
            `slot.request.timeout`; the job then goes on as it was.
        """
        future: CompletableFuture[Mapping[str, int]] = CompletableFuture()

        def done(result: Mapping[str, int] | None, error: str | None) -> None:
            if result is not None:
                future.complete(result)
            else:
                future.complete_exceptionally(OperationError(f"job {self._job_name!r} is not rescaled: {error}"))

        def refused(asked: Future[None]) -> None:
            if asked.cancelled():
                done(None, "the job is over")

        if (refusal := self.why_no_rescaling()) is not None:
            done(None, refusal)
        else:
            self.ask(lambda master: master.rescale(parallelism, done)).add_done_callback(refused)
        return future

    def why_no_rescaling(self) -> str | None:
        """Why the job cannot be rescaled while it runs; None when it can."""
        return None

    def why_no_savepoint(self) -> str | None:
        """Why savepoints of the job cannot be asked for; None when they can."""
        return None

    def take_savepoint(self, command: TakeSavepoint) -> Future[str]:
        """Hand the command to the job's master; the future has the savepoint's path, or a `CheckpointError`."""
        future: CompletableFuture[str] = CompletableFuture()

        def done(path: str | None, error: str | None) -> None:
            if path is not None:
                future.complete(path)
            else:
                future.complete_exceptionally(CheckpointError(f"no savepoint under {command.directory}: {error}"))

        def refused(asked: Future[None]) -> None:
            if asked.cancelled():
                done(None, "the job is over")

        self.ask(lambda master: master.take_savepoint(command, done)).add_done_callback(refused)
        return future


def settle(
    result: CompletableFuture[JobExecutionResult],
    job_id: JobID,
    job_name: str,
    status: JobStatus,
    failure: PenstockError | None,
    runtime_ms: int,
    accumulators: dict[str, Any] | None = None,
    directory: str | None = None,
) -> None:
    """Give the outcome of a job that has ended to the caller that waits for it.

    Before that, the end is recorded beside the checkpoints that the job leaves in its `directory`, if it has one.
    """
    if directory is not None and status.is_globally_terminal_state():
        _record_end(absolute_url(directory), str(job_id))
    if status is JobStatus.FINISHED:
        result.complete(JobExecutionResult(job_id, runtime_ms, accumulators))
    elif status is JobStatus.CANCELED:
        result.complete_exceptionally(JobExecutionError(job_name, "it was cancelled"))
    else:
        result.complete_exceptionally(failure or JobExecutionError(job_name, "for an unknown reason"))


def _record_end(directory: str, job_id: str) -> None:
    """Record a job's end, so that the checkpoints that it leaves can be deleted; a store that hangs is left alone."""

    def record() -> None:
        try:
            note_end(directory, job_id)
        except Exception as error:  # noqa: BLE001 - the job has ended all the same
            _log.warning("could not record the end of job %s in %s: %s", job_id, directory, error)

    recorder = threading.Thread(target=record, name="penstock-end", daemon=True)
    recorder.start()
    recorder.join(END_RECORD_SECONDS)
