"""The handle of a running job, the same from every driver: progress, control, and an orderly shutdown.

`JobClient` is the program's interface to a job that it has submitted, as in PyFlink.

`Moves` are the status transitions of a job, as reported by its master: none is lost, however rarely a reader polls.

`JobHandle` is the interface for observing and controlling a job, wherever its master runs. A job of this process is a
`RunningJob`. A job of a program that a session runs in a separate process is a `RemoteJob`.

`find_job_page` finds the page of a job. Higher layers, which drivers cannot import, register their pages in `pages`.

`ends_on_sigterm` handles SIGTERM in a program that waits for its job, if `penstock.on-sigterm` says so. Only the main
thread receives the signal, and only while it waits. Another thread carries out the action, because a handler may
interrupt the main thread anywhere. A second signal has the effect that the first would have had without this module.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from penstock.base import errors
from penstock.base.configuration import Configuration
from penstock.base.job import CompletableFuture, JobExecutionResult, JobID, JobStatus
from penstock.base.options import ON_SIGTERM, SAVEPOINT_DIR
from penstock.drivers.cancellation import CancellationWatch, ends_on_second_interrupt, wait_until_done
from penstock.drivers.inspection import Answer, Answers, Question
from penstock.drivers.logs import DriverLog, LogSettings
from penstock.runtime.checkpoint.savepoints import TakeSavepoint
from penstock.runtime.job.slots import Bounds
from penstock.runtime.job.view import JobProgress, JobView, job_progress
from penstock.runtime.ports import JobListener
from penstock.runtime.protocol import StopMode
from penstock.storage.files import absolute_url
from penstock.storage.leadership import DeposedError
from penstock.storage.savepoints import note_end

if TYPE_CHECKING:
    from penstock.runtime.job.job_master import JobMaster


class JobClient(ABC):
    """The handle of a running job; each driver implements it.

    Every method but `get_job_id` returns a future at once; call its `.result()`, optionally with a timeout in seconds.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> _ = env.from_elements("tea").map(str.upper)
        >>> job = env.execute_async("cups")
        >>> result = job.get_job_execution_result().result(timeout=60)
        >>> job.get_job_status().result().name
        'FINISHED'
    """

    @abstractmethod
    def get_job_id(self) -> JobID:
        """Return the job's id."""

    @abstractmethod
    def get_job_status(self) -> Future[JobStatus]:
        """Return the status of the job."""

    @abstractmethod
    def cancel(self) -> Future[None]:
        """Cancel the job; the future completes when the request is accepted.

        After a second request, a job does not wait for functions that do not return. On Spark, their workers are
        killed; functions in this process keep running.
        """

    @abstractmethod
    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> Future[str]:
        """Take a savepoint, commit all it covers, and end the job.

        Args:
            advance_to_end_of_event_time: whether to send the last watermark first, so that all timers and windows fire;
                for jobs that will not be resumed.
            savepoint_directory: the target directory; None for the configured directory.

        Returns:
            A future of the savepoint's path, which completes when the job has ended and everything that the savepoint
            covers is committed. It raises CheckpointError if the savepoint fails; the job then continues. If the job's
            sources had ended for the savepoint, it restarts from its last checkpoint. After the savepoint, the job no
            longer recovers from failures: it is restarted only to commit the data in the savepoint.
        """

    @abstractmethod
    def cancel_with_savepoint(self, savepoint_directory: str | None = None) -> Future[str]:
        """Take a savepoint, then cancel the job.

        No checkpoint completes in between, so nothing that the savepoint does not cover is committed. The job that
        starts from the savepoint commits the data that it covers and that was not committed yet. Prefer
        `stop_with_savepoint`, which leaves nothing uncommitted.

        Args:
            savepoint_directory: the target directory; None for the configured directory.

        Returns:
            A future of the savepoint's path. It raises CheckpointError if the savepoint fails; the job then continues.
        """

    @abstractmethod
    def trigger_savepoint(self, savepoint_directory: str | None = None) -> Future[str]:
        """Take a savepoint while the job continues.

        The running job does not recover from a savepoint, and nothing is committed with it.

        Args:
            savepoint_directory: the target directory; None for the configured directory.

        Returns:
            A future of the savepoint's path, which raises CheckpointError if the savepoint fails.
        """

    @abstractmethod
    def get_accumulators(self) -> Future[dict[str, Any]]:
        """Return the current values of the job's accumulators, by name."""

    @abstractmethod
    def get_job_execution_result(self) -> Future[JobExecutionResult]:
        """Return the outcome of the job, once it has finished; the future raises JobExecutionError if it failed."""


#: The maximum number of transitions that are kept.
MOVES_MAX: Final = 1_000


@dataclass(frozen=True)
class Move:
    """A status transition of a job.

    Attributes:
        number: the number of the job's transition, from 1.
        at_ms: its time (ms since the epoch).
        status: the new status.
        reason: why; None if no explanation is needed.
    """

    number: int
    at_ms: int
    status: str
    reason: str | None


class Moves:
    """Records a job's status transitions, and passes all events on to another listener."""

    def __init__(self, listener: JobListener) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self._moves: deque[Move] = deque(maxlen=MOVES_MAX)
        self._count = 0

    def after(self, number: int) -> list[Move]:
        """Return the stored transitions after the one with this number. Thread-safe."""
        with self._lock:
            return [move for move in self._moves if move.number > number]

    def on_job_status(self, status: str, reason: str | None) -> None:
        """Record a transition."""
        with self._lock:
            self._count += 1
            self._moves.append(Move(self._count, time.time_ns() // 1_000_000, status, reason))
        self._listener.on_job_status(status, reason)

    def on_client_output(self, operator_id: str, subtask_index: int, payload: bytes) -> None:
        """Pass the output on."""
        self._listener.on_client_output(operator_id, subtask_index, payload)

    def on_log(self, line: str) -> None:
        """Pass the line on."""
        self._listener.on_log(line)


#: Time limit (ms) for a worker to answer a question.
ANSWER_MS_MAX: Final = 10_000
#: How long (s) an ending job waits for its end to be recorded.
END_RECORD_SECONDS: Final = 5.0

_log = logging.getLogger("penstock.drivers")

S = TypeVar("S")
T = TypeVar("T")


def completed(value: T) -> CompletableFuture[T]:
    """Return a future that is already completed."""
    future: CompletableFuture[T] = CompletableFuture()
    future.complete(value)
    return future


def mapped(future: Future[S], function: Callable[[S], T]) -> Future[T]:
    """Apply a function to a future's result. The returned future is cancelled or fails if the original does."""
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
        moves: the status transitions since the job began; None if they are not recorded.
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
        """Return the job's status."""

    @abstractmethod
    def get_view(self) -> Future[JobView]:
        """Return the job's current view: vertices, subtasks, checkpoints, failures; cancelled once the job is over."""

    @abstractmethod
    def last_view(self) -> JobView | None:
        """Return the final view of the job; None while it runs, or if it ended before it had a master."""

    def get_progress(self) -> Future[JobProgress]:
        """Return the running job's progress figures; the future is cancelled once the job is over."""
        return mapped(self.get_view(), job_progress)

    @abstractmethod
    def trigger_checkpoint(self, is_full: bool = False) -> Future[int | None]:
        """Trigger a checkpoint now; the future has its id, or None if the job is not in a state to take one.

        A checkpoint that `is_full` writes all state again and refers to no file of an earlier one. Later ones build on
        it.
        """

    @abstractmethod
    def ask(self, question: Callable[[JobMaster], T]) -> Future[T]:
        """Call a function with the job master in its next turn; the future is cancelled if the job is over by then."""

    def ask_worker(self, worker_id: str, question: Question, timeout_ms: int = ANSWER_MS_MAX) -> Future[Answer]:
        """Ask a worker's process a diagnostic question; the future fails with an `OperationError` without an answer."""
        future: Future[Answer] = Future()
        future.set_exception(
            errors.OperationError(f"the job has no worker {errors.shorten(worker_id)!r}: its tasks are Spark's own")
        )
        return future

    def engine_page(self, worker_id: str | None = None) -> str | None:
        """Return the address of the engine's page for a worker, or its main page; None if the engine has no pages."""
        return None

    def ask_driver(self, question: Question) -> Future[Answer]:
        """Ask this process a diagnostic question, or for the job's log."""
        future: Future[Answer] = Future()
        self._answers.begin(question, future.set_result)
        return future

    @abstractmethod
    def begin_cancel(self) -> None:
        """Start cancelling the job; called again for each further request."""

    def lose_leadership(self, reason: str) -> None:
        """Suspend the job because another driver may be running it by now (E7). Thread-safe.

        The job's outcome is then a `DeposedError` with the reason. The job commits and deletes nothing more, apart from
        a commit already in progress.
        """
        error = DeposedError(self._job_name, reason)
        self.ask(lambda master: master.suspend(error))

    @abstractmethod
    def where(self) -> str | None:
        """Describe what keeps the job from ending; None if nothing is worth a message."""

    @abstractmethod
    def end(self, patience_seconds: float = 5.0) -> None:
        """Cancel the job, unless it was cancelled before, and wait until it has shut down or the time is up."""

    def cancel(self) -> Future[None]:
        """Cancel the job; see `JobClient`."""
        self._cancellation.on_cancel()
        self.begin_cancel()
        return completed(None)

    def wait(self) -> JobExecutionResult:
        """Wait for the outcome. Ctrl-C cancels the job and takes effect once the job has shut down.

        While a user function does not return, the log names it from time to time. A second Ctrl-C, or a second
        `cancel`, ends the wait. If the first Ctrl-C has no effect because a call holds Python's global interpreter
        lock, the second one ends the process.

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
        """Return the job's id."""
        return self._job_id

    def get_job_status(self) -> Future[JobStatus]:
        """Return the job's status."""
        return completed(self.status())

    def get_job_execution_result(self) -> Future[JobExecutionResult]:
        """Return the outcome; the future is done once the job has shut down."""
        return self._told

    def before_result(self, action: Callable[[BaseException | None], None]) -> None:
        """Run an action when the job is over, before its outcome is published; it gets the failure, or None.

        A callback on the result is too late for anything that must not be lost: the program may end before it is
        called. Call this before handing the job on.
        """
        outcome, result = self._told, CompletableFuture[JobExecutionResult]()
        self._told = result

        def on_done(done: Future[JobExecutionResult]) -> None:
            failure = None if done.cancelled() else done.exception()
            try:
                action(failure)
            finally:
                if done.cancelled():
                    result.cancel()
                elif failure is not None:
                    result.complete_exceptionally(failure)
                else:
                    result.complete(done.result())

        outcome.add_done_callback(on_done)

    def get_bounds(self) -> Future[dict[int, Bounds]]:
        """Return the bounds on each vertex's parallelism, by vertex index; cancelled if the job is over."""
        return self.ask(lambda master: master.bounds())

    def get_accumulators(self) -> Future[dict[str, Any]]:
        """Return the users' accumulators by name: as last reported, or their final values once the job has finished."""
        if self._result.done() and self._result.exception() is None:
            return completed(self._result.result().get_all_accumulator_results())
        return self.ask(lambda master: master.accumulators())

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> Future[str]:
        """Take a savepoint, commit everything it covers, and end the job (H2); see `JobClient`."""
        return self._savepoint(
            savepoint_directory, StopMode.DRAIN if advance_to_end_of_event_time else StopMode.SUSPEND
        )

    def cancel_with_savepoint(self, savepoint_directory: str | None = None) -> Future[str]:
        """Take a savepoint, then cancel the job; see `JobClient`."""
        return self._savepoint(savepoint_directory, cancels=True)

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> Future[str]:
        """Take a savepoint while the job keeps running (H1); see `JobClient`."""
        return self._savepoint(savepoint_directory)

    def _savepoint(self, directory: str | None, stop: StopMode | None = None, cancels: bool = False) -> Future[str]:
        directory = directory or self._savepoint_directory
        refusal = self.why_no_savepoint()
        if refusal is None and directory is None:
            refusal = f"name a directory for the savepoint, or set {SAVEPOINT_DIR.key()}"
        if refusal is None and directory is not None:
            try:
                where = absolute_url(directory)
            except errors.ConfigurationError as error:
                refusal = str(error)
            else:
                return self.take_savepoint(TakeSavepoint(where, stop, cancels))
        refused: CompletableFuture[str] = CompletableFuture()
        refused.complete_exceptionally(errors.CheckpointError(refusal))
        return refused

    def rescale(self, parallelism: Mapping[str, int]) -> Future[Mapping[str, int]]:
        """Change the parallelism of operators of the running job (D4, E3).

        The job takes a checkpoint, ends its tasks, and restarts from the checkpoint. It does so once there are enough
        slots, and runs unchanged until then. With the adaptive scheduler the given values are upper bounds, and the job
        also runs with fewer slots.

        Args:
            parallelism: by an operator's uid, id or name. All operators chained with it, or connected by forward edges,
                get the same.

        Returns:
            A future of the parallelism of each vertex by its name, done once the job runs that way. It raises
            OperationError if the job cannot be rescaled, or if there are not enough slots within
            `slot.request.timeout`; the job then continues unchanged.
        """
        future: CompletableFuture[Mapping[str, int]] = CompletableFuture()

        def done(result: Mapping[str, int] | None, error: str | None) -> None:
            if result is not None:
                future.complete(result)
            else:
                future.complete_exceptionally(errors.OperationError(f"job {self._job_name!r} is not rescaled: {error}"))

        def refused(request: Future[None]) -> None:
            if request.cancelled():
                done(None, "the job is over")

        if (refusal := self.why_no_rescaling()) is not None:
            done(None, refusal)
        else:
            self.ask(lambda master: master.rescale(parallelism, done)).add_done_callback(refused)
        return future

    def why_no_rescaling(self) -> str | None:
        """Return why the job cannot be rescaled while it runs; None if it can."""
        return None

    def why_no_savepoint(self) -> str | None:
        """Return why the job cannot take savepoints; None if it can."""
        return None

    def take_savepoint(self, command: TakeSavepoint) -> Future[str]:
        """Hand the command to the job's master; the future has the savepoint's path or a `CheckpointError`."""
        future: CompletableFuture[str] = CompletableFuture()

        def done(path: str | None, error: str | None) -> None:
            if path is not None:
                future.complete(path)
            else:
                future.complete_exceptionally(
                    errors.CheckpointError(f"no savepoint under {command.directory}: {error}")
                )

        def refused(request: Future[None]) -> None:
            if request.cancelled():
                done(None, "the job is over")

        self.ask(lambda master: master.take_savepoint(command, done)).add_done_callback(refused)
        return future


def settle(
    result: CompletableFuture[JobExecutionResult],
    job_id: JobID,
    job_name: str,
    status: JobStatus,
    failure: errors.PenstockError | None,
    runtime_ms: int,
    accumulators: dict[str, Any] | None = None,
    directory: str | None = None,
) -> None:
    """Hand the outcome of an ended job to the waiting caller.

    First record the end next to the checkpoints that the job leaves in its `directory`, if it has one.
    """
    if directory is not None and status.is_globally_terminal_state():
        _record_end(absolute_url(directory), str(job_id))
    if status is JobStatus.FINISHED:
        result.complete(JobExecutionResult(job_id, runtime_ms, accumulators))
    elif status is JobStatus.CANCELED:
        result.complete_exceptionally(errors.JobExecutionError(job_name, "it was cancelled"))
    else:
        result.complete_exceptionally(failure or errors.JobExecutionError(job_name, "for an unknown reason"))


def _record_end(directory: str, job_id: str) -> None:
    """Record a job's end so that its remaining checkpoints can be deleted; do not wait for a store that hangs."""

    def record() -> None:
        try:
            note_end(directory, job_id)
        except Exception as error:  # noqa: BLE001 - the job has ended all the same
            _log.warning("could not record the end of job %s in %s: %s", job_id, directory, error)

    recorder = threading.Thread(target=record, name="penstock-end", daemon=True)
    recorder.start()
    recorder.join(END_RECORD_SECONDS)


class JobHandle(Protocol):
    """A job. The methods are thread-safe, and work like the methods of `RunningJob`."""

    @property
    def moves(self) -> Moves | None:
        """The status transitions; None if they are not recorded."""

    def get_job_id(self) -> JobID:
        """Return the job's id."""

    def status(self) -> JobStatus:
        """Return the status of the job."""

    def get_view(self) -> Future[JobView]:
        """Return the current view of the job; the future is cancelled when the job is over."""

    def last_view(self) -> JobView | None:
        """Return the view of the job at its end."""

    def get_job_execution_result(self) -> Future[JobExecutionResult]:
        """Return the outcome."""

    def get_accumulators(self) -> Future[dict[str, Any]]:
        """Return the user's accumulators."""

    def get_bounds(self) -> Future[dict[int, Bounds]]:
        """Return the bounds of each vertex's parallelism."""

    def before_result(self, action: Callable[[BaseException | None], None]) -> None:
        """Call `action` when the job is over, before the outcome is visible to anyone."""

    def cancel(self) -> Future[None]:
        """Cancel the job."""

    def rescale(self, parallelism: Mapping[str, int]) -> Future[Mapping[str, int]]:
        """Change the parallelism and continue."""

    def trigger_checkpoint(self, is_full: bool = False) -> Future[int | None]:
        """Take a checkpoint now; a full one writes all state again."""

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> Future[str]:
        """Take a savepoint while the job continues."""

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> Future[str]:
        """End the job with a savepoint."""

    def cancel_with_savepoint(self, savepoint_directory: str | None = None) -> Future[str]:
        """Take a savepoint, then cancel the job."""

    def ask_worker(self, worker_id: str, question: Question, timeout_ms: int = ANSWER_MS_MAX) -> Future[Answer]:
        """Ask a question to the process of a worker."""

    def ask_driver(self, question: Question) -> Future[Answer]:
        """Ask a question to the process of the job's master."""

    def engine_page(self, worker_id: str | None = None) -> str | None:
        """Return the address of the engine's page about a worker, or about the engine itself."""


#: Return the address of a job's page by the job's id, or None while they serve none. Called in any thread.
pages: Final[list[Callable[[str], str | None]]] = []


def find_job_page(job_id: str) -> str | None:
    """Return the address of a job's page; None if nothing serves one."""
    return next((address for page in pages if (address := page(job_id)) is not None), None)


#: How long a program waits at its end for the log line about the outcome of its job.
LAST_WORDS_SECONDS: Final = 5.0
_job_log = logging.getLogger("penstock.job")


def check_on_sigterm(configuration: Configuration) -> None:
    """Raise `ConfigurationError` if SIGTERM takes a savepoint but no savepoint directory is set."""
    if configuration.read(ON_SIGTERM) == "stop-with-savepoint" and configuration.read(SAVEPOINT_DIR) is None:
        raise errors.ConfigurationError(f"{ON_SIGTERM.key()} is stop-with-savepoint: set {SAVEPOINT_DIR.key()} too")


@contextmanager
def ends_on_sigterm(job: RunningJob, configuration: Configuration) -> Iterator[None]:
    """Stop or cancel the job on SIGTERM within the `with` block, as configured."""
    action = configuration.read(ON_SIGTERM)
    if action == "none" or threading.current_thread() is not threading.main_thread():
        yield
        return

    begun: list[threading.Thread] = []

    def on_sigterm(number: int, frame: FrameType | None) -> None:
        signal.signal(number, before)
        begun.append(threading.Thread(target=_end, args=(job, action), name="penstock-sigterm", daemon=True))
        begun[-1].start()

    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, on_sigterm)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is on_sigterm:
            signal.signal(signal.SIGTERM, before)
        for thread in begun:
            thread.join(LAST_WORDS_SECONDS)  # the job is over; only its last log line is missing


def _end(job: RunningJob, action: str) -> None:
    if action == "cancel":
        _job_log.info("SIGTERM: the job is cancelled")
        job.cancel()
        return
    _job_log.info("SIGTERM: the job is stopped with a savepoint")
    try:
        path = job.stop_with_savepoint(False).result()
    except Exception as error:  # noqa: BLE001 - whatever kept it from being taken
        # Kill the program, do not cancel the job: a killed job resumes from its checkpoints; a cancelled job may delete
        # them.
        _job_log.warning("SIGTERM: %s; the program ends as it is", error)
        os.kill(os.getpid(), signal.SIGTERM)
    else:
        _job_log.info("SIGTERM: the job was stopped with savepoint %s", path)
