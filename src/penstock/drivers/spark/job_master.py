"""The thread in which a job's master lives, from the start to the end of the cleanup.

The job master and everything that it uses belong to this one thread. Other threads have one way to reach it: they queue
a call for its next turn and wake it. When the master is done, or has failed, the thread ends the workers and frees
everything before it reports the end. So when the wait for a job ends, everything of the job is cleaned up.
"""

from __future__ import annotations

import logging
import tempfile
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.base.errors import OperationError, PenstockError, shorten
from penstock.drivers.cancellation import where_is
from penstock.drivers.directories import remove_left_behind
from penstock.drivers.event_loop import WAIT_MS_MAX, SystemClock, ThreadBackground
from penstock.drivers.inspection import Answer, Question
from penstock.drivers.job_log import set_thread_job
from penstock.drivers.logs import LOGS_PREFIX, LogSettings
from penstock.drivers.spark.cluster import CUT_OFF_GRACE_IN_PROCESS_MS, CUT_OFF_GRACE_MS, LeavingWorkers, SparkCluster
from penstock.drivers.spark.handle import SparkHandle
from penstock.drivers.spark.master_endpoint import MasterEndpoint, WorkerQuestions
from penstock.drivers.spark.sockets import JobKeys
from penstock.drivers.spark.worker_settings import Executor, WorkerServices, WorkerSettings
from penstock.runtime.effects import Effect, carry_out
from penstock.runtime.ports import Clock, JobListener
from penstock.runtime.protocol import RegisterWorker, ToMaster

_log = logging.getLogger("penstock.spark")

BACKGROUND_THREADS: Final = 2
#: How long the workers of a finished job may take to end: their grace period, an interrupt, and the 2 s after which
#: Spark itself kills a Python process.
CLEAN_UP_MS_MAX: Final = 10_000


class Master(Protocol):
    """The part of `runtime.job.job_master.JobMaster` that the thread drives."""

    @property
    def is_done(self) -> bool: ...

    def start(self) -> None: ...

    def on_message(self, message: ToMaster) -> None: ...

    def on_time(self) -> None: ...

    def next_deadline(self) -> int | None: ...

    def cancel(self) -> None: ...

    def sweep(self) -> None: ...

    def take_effects(self) -> list[Effect]: ...


T = TypeVar("T")
MasterT = TypeVar("MasterT", bound=Master)


class JobThread(Generic[MasterT]):
    """Runs one job on a Spark session.

    Args:
        spark: the session.
        job_id: the job's id.
        job_name: the job's name on Spark's own pages.
        configuration: the job's settings.
        make_master: builds the job master, with its clock; called in the thread.
        make_executor: builds a worker's executor; pickled, called in the worker.
        on_end: called in the thread at its very end, with the error that broke the job master, if any.
        listener: is notified of events; called in the thread.
        script: the definitions of the user's script, see `codecs.cloud`.
    """

    def __init__(
        self,
        spark: SparkHandle,
        job_id: str,
        job_name: str,
        configuration: Configuration,
        make_master: Callable[[Clock], MasterT],
        make_executor: Callable[[WorkerServices], Executor],
        on_end: Callable[[PenstockError | None], None],
        listener: JobListener,
        script: bytes = b"",
    ) -> None:
        self._make_master = make_master
        self._on_end = on_end
        self._listener = listener
        self._clock = SystemClock()
        self._questions: deque[tuple[Future[Any], Callable[[MasterT], Any]]] = deque()
        self.job_name = job_name
        self._over = False
        self._turns = self._turns_seen = 0
        self._abandoned = False
        frame_bytes_max = configuration.read(options.NETWORK_FRAME_BYTES_MAX)
        record_bytes_max = configuration.read(options.NETWORK_RECORD_BYTES_MAX)
        heartbeat_interval_ms = configuration.read(options.HEARTBEAT_INTERVAL_MS)
        heartbeat_timeout_ms = configuration.read(options.HEARTBEAT_TIMEOUT_MS)
        keys = JobKeys.generate()
        bind_host, advertise_host = spark.master_hosts()
        endpoint = self._endpoint = MasterEndpoint(keys, bind_host, advertise_host, frame_bytes_max, record_bytes_max)

        self._worker_questions = WorkerQuestions(endpoint.send_question, frame_bytes_max, self._clock)
        endpoint.hear_answers(self._worker_questions.on_frame)
        logs = LogSettings.of(configuration, job_id)
        self._job_id = job_id

        def worker_settings(worker_id: str) -> WorkerSettings:
            return WorkerSettings(
                worker_id=worker_id,
                keys=keys.for_worker(),
                master_address=endpoint.address,
                is_local=spark.is_local,
                heartbeat_interval_ms=heartbeat_interval_ms,
                heartbeat_timeout_ms=heartbeat_timeout_ms,
                frame_bytes_max=frame_bytes_max,
                record_bytes_max=record_bytes_max,
                make_executor=make_executor,
                script=script,
                logs=logs,
            )

        self._leaving = LeavingWorkers(spark.executors(), endpoint.wake)
        self._cluster = SparkCluster(
            spark,
            job_id,
            lambda worker_id: spark.pages.describe(job_name, job_id, worker_id),
            worker_settings,
            endpoint.send,
            endpoint.wake,
            self._clock,
            configuration.read(options.REDUNDANT_WORKERS),
            CUT_OFF_GRACE_IN_PROCESS_MS if spark.is_one_process else CUT_OFF_GRACE_MS,
            self._leaving,
        )
        self._thread = threading.Thread(target=self._run, name=f"penstock-job-{job_name}", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def ask(self, question: Callable[[MasterT], T]) -> Future[T]:
        """Call a function with the job master in its next turn; the future is cancelled if the job is over by then.

        Any thread may call this.
        """
        future: Future[T] = Future()
        self._questions.append((future, question))
        self._endpoint.wake()
        if self._over:
            self._refuse_questions()
        return future

    def ask_worker(self, worker_id: str, question: Question, timeout_ms: int) -> Future[Answer]:
        """Ask a worker's process; the future fails with an `OperationError` if no answer comes.

        Any thread may call this.
        """
        future: Future[Answer] = Future()

        def ask(_: MasterT) -> None:
            if self._cluster.serves(worker_id):
                self._worker_questions.ask(worker_id, question, future, timeout_ms)
            else:
                future.set_exception(OperationError(f"the job has no worker {shorten(worker_id)!r}"))

        def refused(request: Future[None]) -> None:
            if request.cancelled():
                future.set_exception(OperationError(f"worker {shorten(worker_id)} cannot answer: the job is over"))

        self.ask(ask).add_done_callback(refused)
        return future

    def abandon(self) -> None:
        """End the workers without waiting for the job master. Any thread may call this."""
        self._abandoned = True
        self._endpoint.wake()

    def where(self) -> str | None:
        """Return the user code that the thread runs, such as an enumerator; None if it progressed since last time."""
        is_still, self._turns_seen = self._turns == self._turns_seen, self._turns
        return where_is(self._thread) if is_still else None

    def join(self, timeout_seconds: float | None = None) -> bool:
        """Wait for the end; return True if it has come."""
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        set_thread_job(self._job_id)
        failure: PenstockError | None = None
        master: MasterT | None = None
        background = ThreadBackground("penstock-job-background", BACKGROUND_THREADS, self._endpoint.wake)
        try:
            master = self._make_master(self._clock)
            master.start()
            self._carry_out(master, background)
            while not master.is_done and not self._abandoned:
                self._turn(master, background)
        except BaseException as error:  # noqa: BLE001 - whatever it is ends the job, and its workers with it
            _log.debug("the job master broke", exc_info=True)
            failure = error if isinstance(error, PenstockError) else OperationError(f"the job master failed: {error!r}")
        try:
            self._clean_up(background)
            if master is not None and master.is_done:
                master.sweep()
                self._carry_out(master, background)
        except BaseException as error:  # noqa: BLE001 - the waiting caller must hear of the job's end all the same
            _log.warning("the job could not release everything: %r", error, exc_info=True)
        self._over = True
        self._refuse_questions()
        self._worker_questions.close()
        self._on_end(failure)

    def _refuse_questions(self) -> None:
        while self._questions:
            future, _ = self._questions.popleft()
            future.cancel()

    def _carry_out(self, master: MasterT, background: ThreadBackground) -> None:
        """Carry out the effects of the master's turns."""
        carry_out(master.take_effects(), self._cluster, background, self._listener)

    def _answer_questions(self, master: MasterT) -> None:
        while self._questions:
            future, question = self._questions.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(question(master))
                except Exception as error:  # noqa: BLE001 - goes to the caller that asked
                    future.set_exception(error)

    def _turn(self, master: MasterT, background: ThreadBackground) -> None:
        self._turns += 1
        for worker_id, message in self._endpoint.receive(self._wait_ms(master)):
            if isinstance(message, RegisterWorker) and not self._cluster.on_registered(message):
                continue
            if self._cluster.serves(worker_id):
                master.on_message(message)
                self._carry_out(master, background)
        for worker_id in self._endpoint.take_cut_off():
            self._cluster.on_cut_off(worker_id)
        for ended in self._cluster.collect():
            master.on_message(ended)
        background.deliver()
        self._answer_questions(master)
        self._carry_out(master, background)
        self._cluster.on_time()
        self._worker_questions.on_time()
        deadline = master.next_deadline()
        if deadline is not None and deadline <= self._clock.steady_ms():
            master.on_time()
            self._carry_out(master, background)

    def _wait_ms(self, master: MasterT) -> int:
        parts = master, self._cluster, self._worker_questions
        deadlines = [deadline for part in parts if (deadline := part.next_deadline()) is not None]
        if not deadlines:
            return WAIT_MS_MAX
        return max(0, min(WAIT_MS_MAX, min(deadlines) - self._clock.steady_ms()))

    def _clean_up(self, background: ThreadBackground) -> None:
        cluster, endpoint, clock = self._cluster, self._endpoint, self._clock
        self._leaving.close()
        cluster.release_all()
        end_ms = clock.steady_ms() + CLEAN_UP_MS_MAX
        while cluster.worker_count and clock.steady_ms() < end_ms:
            for _, message in endpoint.receive(100):
                if isinstance(message, RegisterWorker):
                    cluster.on_registered(message)
            cluster.collect()
            cluster.on_time()
        if cluster.worker_count:
            _log.warning("%d workers did not end within %d s", cluster.worker_count, CLEAN_UP_MS_MAX // 1000)
        remove_left_behind(Path(tempfile.gettempdir()), f"{LOGS_PREFIX}{self._job_id}-")  # by workers that were killed
        background.close(finish=True)  # such as the removal of unneeded checkpoints
        endpoint.close()
