"""A job in this process: one thread runs its master and all its tasks, another runs their asynchronous calls."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from penstock.base import options
from penstock.base.completable_future import CompletableFuture
from penstock.base.configuration import Configuration
from penstock.base.errors import PenstockError
from penstock.base.job_execution_result import JobExecutionResult
from penstock.base.job_id import JobID
from penstock.base.job_status import JobStatus
from penstock.core.effects import carry_out
from penstock.core.graph.job_graph import JobGraph
from penstock.core.job.failures import ending
from penstock.core.job.job_master import JobMaster
from penstock.core.job.resource_requirements import is_reactive
from penstock.core.job.view import JobView
from penstock.core.ports import JobListener
from penstock.core.protocol import ProcessFigures
from penstock.drivers.answers import Answers
from penstock.drivers.backends import BackendSettings
from penstock.drivers.cancellation import where_is
from penstock.drivers.clock import WAIT_MS_MAX, SystemClock
from penstock.drivers.driver_log import set_thread_job
from penstock.drivers.event_loop import EventLoopThread
from penstock.drivers.failure_enrichers import failure_enrichers
from penstock.drivers.local.cluster import LocalCluster
from penstock.drivers.local.stalls import watch
from penstock.drivers.process_figures import process_figures
from penstock.drivers.questions import Answer, Question
from penstock.drivers.running_job import ANSWER_MS_MAX, RunningJob, settle
from penstock.drivers.worker_storage import StorageSettings

T = TypeVar("T")

_log = logging.getLogger("penstock.job")


class LocalJob(RunningJob):
    """A streaming job in this process."""

    def __init__(self, job_graph: JobGraph, configuration: Configuration, listener: JobListener) -> None:
        savepoint_directory = configuration.read(options.SAVEPOINT_DIR)
        super().__init__(
            JobID.generate(),
            job_graph.name,
            CompletableFuture[JobExecutionResult](),
            configuration,
            savepoint_directory,
        )
        job_id = str(self._job_id)
        self._name = job_graph.name
        self._clock = SystemClock()
        self._started_ms = self._clock.steady_ms()
        storage = StorageSettings.of(configuration, job_id)
        self._directory = storage.directory
        backends = BackendSettings.of(configuration, job_id).backends()
        self._wake = threading.Event()
        self._coroutines = EventLoopThread(f"penstock-async-{job_graph.name}", self._wake.set)
        self._cluster = LocalCluster(self._clock, storage.storage, os.getpid(), backends, self._coroutines)
        self._master = JobMaster(
            job_graph,
            job_id,
            configuration,
            clock=self._clock,
            store=storage.store(),
            watches_heartbeats=False,  # workers share this thread, so while one is silent the job master is silent too
            slots_max=os.cpu_count() if is_reactive(configuration) else None,
            labellers=failure_enrichers(configuration),
        )
        self._listener = listener
        self._questions: deque[tuple[Future[Any], Callable[[JobMaster], Any]]] = deque()
        self._over = False
        self._ended: JobStatus | None = None
        self._thread = threading.Thread(target=self._run, name=f"penstock-job-{job_graph.name}", daemon=True)

        self._answers = Answers(self._thread, self._log)

    def start(self) -> None:
        """Start the job's thread."""
        self._thread.start()

    def status(self) -> JobStatus:
        """Return the status of the job."""
        return self._master.status

    def begin_cancel(self) -> None:
        """Cancel the job in its next turn."""
        self.ask(lambda master: master.cancel())

    def where(self) -> str | None:
        """Return where the job's thread is in user code."""
        return where_is(self._thread)

    def end(self, patience_seconds: float = 5.0) -> None:
        """Cancel the job and wait for its end, or until the waiting ends."""
        self._cancel_once()
        self._cancellation.join(self._thread)

    def get_view(self) -> Future[JobView]:
        """Return the view of the job at its next turn, with the figures of this process, which runs all workers."""
        figures = process_figures()
        return self.ask(lambda master: _in_this_process(master.view(), figures))

    def last_view(self) -> JobView | None:
        """Return the view of the job at its end."""
        return replace(self._master.view(), status=self._ended) if self._ended is not None else None

    def ask_worker(self, worker_id: str, question: Question, timeout_ms: int = ANSWER_MS_MAX) -> Future[Answer]:
        """Ask this process: it is every worker, and the job's thread is their loop."""
        return self.ask_driver(question)

    def trigger_checkpoint(self, is_full: bool = False) -> Future[int | None]:
        """Trigger a checkpoint now."""
        return self.ask(lambda master: master.trigger_checkpoint(is_full))

    def ask(self, question: Callable[[JobMaster], T]) -> Future[T]:
        """Call `question` with the job master in its next turn."""
        future: Future[T] = Future()
        self._questions.append((future, question))
        self._wake.set()
        if self._over:
            self._refuse_questions()
        return future

    def _refuse_questions(self) -> None:
        while self._questions:
            self._questions.popleft()[0].cancel()

    def _run(self) -> None:
        set_thread_job(str(self._job_id))
        failure: PenstockError | None = None
        try:
            self._let(self._master.start)
            while not self._master.is_done:
                self._turn()
        except BaseException as error:  # noqa: BLE001 - whatever it is ends the job, and its waiter must hear of it
            failure = ending(self._name, error)
        try:
            self._clean_up()
        except BaseException as error:  # noqa: BLE001 - the same
            _log.warning("the job could not release everything: %r", error, exc_info=True)
        self._over = True
        self._refuse_questions()
        status = JobStatus.FAILED if failure is not None else self._master.status
        runtime_ms = self._clock.steady_ms() - self._started_ms
        accumulators = self._master.accumulators()
        self._ended = status
        failure = failure or self._master.failure
        settle(self._result, self._job_id, self._name, status, failure, runtime_ms, accumulators, self._directory)

    def _clean_up(self) -> None:
        self._cluster.close()
        self._coroutines.close()
        self._let(self._cluster.background.deliver)
        if self._master.is_done:
            self._let(self._master.sweep)

    def _let(self, handler: Callable[[], T]) -> T:
        """Call a handler of the master, then carry out the master's decisions."""
        try:
            return handler()
        finally:
            cluster = self._cluster
            carry_out(self._master.take_effects(), cluster, cluster.background, self._listener)

    def _turn(self) -> None:
        master, cluster = self._master, self._cluster
        worked = cluster.step()
        worked = self._let(cluster.background.deliver) or worked
        worked = self._coroutines.deliver() or worked
        while cluster.inbox:
            worked = True
            self._let(partial(master.on_message, cluster.inbox.popleft()))
        while self._questions:
            worked = True  # the answer may have caused background work, whose results the next turn delivers
            future, question = self._questions.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(self._let(partial(question, master)))
                except Exception as error:  # noqa: BLE001 - goes to the caller that asked
                    future.set_exception(error)
        deadline = master.next_deadline()
        now = self._clock.steady_ms()
        if deadline is not None and deadline <= now:
            self._let(master.on_time)
        elif not worked:
            self._sleep(WAIT_MS_MAX if deadline is None else deadline - now)

    def _sleep(self, for_ms: int) -> None:
        due_ms = self._cluster.next_deadline()
        if due_ms is not None:
            for_ms = min(for_ms, due_ms - self._clock.now_ms())
        if self._wake.wait(min(max(0, for_ms), WAIT_MS_MAX) / 1000):
            self._wake.clear()


def _in_this_process(view: JobView, figures: ProcessFigures) -> JobView:
    """Return the view with this process's figures for each worker; remote workers report theirs in heartbeats."""
    workers = tuple(replace(worker, heard_ms=view.now_ms, process=figures) for worker in view.workers)
    return replace(view, workers=workers)


def submit_local(job_graph: JobGraph, configuration: Configuration, listener: JobListener) -> LocalJob:
    """Start a job in this process."""
    job = LocalJob(job_graph, configuration, listener)
    watch(job, configuration)
    job.start()
    return job
