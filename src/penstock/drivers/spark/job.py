"""Streaming jobs on Spark: `submit` starts one, and `SparkJobClient` is its handle.

Jobs in micro-batch and batch execution start in `structured_streaming.submit_stepwise`.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.base.configuration import Configuration
from penstock.base.errors import PenstockError, SlotsUnavailableError
from penstock.base.job import CompletableFuture, JobExecutionResult, JobID, JobStatus
from penstock.base.options import SAVEPOINT_DIR
from penstock.drivers.event_loop import SystemClock
from penstock.drivers.failure_enrichers import failure_enrichers
from penstock.drivers.inspection import Answer, Question
from penstock.drivers.running_job import ANSWER_MS_MAX, RunningJob, settle
from penstock.drivers.spark.cluster import worker_tag
from penstock.drivers.spark.handle import SparkHandle, SparkPages, short_reason
from penstock.drivers.spark.job_master import CLEAN_UP_MS_MAX, JobThread
from penstock.drivers.spark.python_workers import TaskExecutorFactory
from penstock.drivers.spark.session import hand_back, obtain_spark, slots_of_machine
from penstock.drivers.worker_storage import BackendSettings, StorageSettings
from penstock.runtime.job.job_master import JobMaster
from penstock.runtime.job.slots import compute_requirements, is_reactive
from penstock.runtime.job.view import JobView

if TYPE_CHECKING:
    from penstock.runtime.graph import JobGraph
    from penstock.runtime.ports import Clock, JobListener


T = TypeVar("T")

_log = logging.getLogger("penstock.job")

#: The maximum time to clean up a job whose workers are killed.
FORCE_MS_MAX: Final = CLEAN_UP_MS_MAX + 10_000


class SparkJobClient(RunningJob):
    """A job on Spark whose master lives in a thread of this process.

    Args:
        job_id: the job's id.
        thread: the thread of its master.
        status: returns the job's status.
        result: becomes done when everything of the job is cleaned up.
        configuration: the job's settings.
        last_view: returns the view of the job as it ended.
        pages: Spark's own pages.
    """

    def __init__(
        self,
        job_id: JobID,
        thread: JobThread[JobMaster],
        status: Callable[[], JobStatus],
        result: CompletableFuture[JobExecutionResult],
        configuration: Configuration,
        last_view: Callable[[], JobView | None],
        pages: SparkPages,
    ) -> None:
        directory = configuration.read(SAVEPOINT_DIR)
        super().__init__(job_id, thread.job_name, result, configuration, directory, grace_ms=FORCE_MS_MAX)
        self._thread = thread
        self._status = status
        self._last_view = last_view
        self._pages = pages

    def status(self) -> JobStatus:
        return self._status()

    def ask(self, question: Callable[[JobMaster], T]) -> Future[T]:
        return self._thread.ask(question)

    def ask_worker(self, worker_id: str, question: Question, timeout_ms: int = ANSWER_MS_MAX) -> Future[Answer]:
        return self._thread.ask_worker(worker_id, question, timeout_ms)

    def engine_page(self, worker_id: str | None = None) -> str | None:
        if worker_id is None:
            return self._pages.url
        try:
            return self._pages.of_group(worker_tag(str(self._job_id), worker_id))
        except Exception as error:  # noqa: BLE001 - Spark may be gone, and its pages with it
            _log.debug("no page of worker %s: %s", worker_id, short_reason(error))
            return None

    def begin_cancel(self) -> None:
        self._thread.where()  # start to watch whether it makes progress
        self._thread.ask(lambda master: master.cancel())

    def where(self) -> str | None:
        return self._thread.where()

    def get_view(self) -> Future[JobView]:
        return self._thread.ask(lambda master: master.view())

    def last_view(self) -> JobView | None:
        return self._last_view()

    def trigger_checkpoint(self, is_full: bool = False) -> Future[int | None]:
        return self._thread.ask(lambda master: master.trigger_checkpoint(is_full))

    def end(self, patience_seconds: float = 5.0) -> None:
        """Cancel the job and wait until it has ended: first regularly, then by killing its workers."""
        self._cancel_once()
        if not self._thread.join(patience_seconds):
            _log.warning("%s: its tasks did not end; their workers are killed", self._thread.job_name)
            self._thread.abandon()
            self._thread.join(FORCE_MS_MAX / 1000)


_running: weakref.WeakSet[SparkJobClient] = weakref.WeakSet()


def submit(
    job_graph: JobGraph, configuration: Configuration, listener: JobListener, job_id: JobID | None = None
) -> SparkJobClient:
    """Start a job on the active Spark session, or on one that Penstock starts.

    Args:
        job_graph: the job.
        configuration: its settings; those under `spark.` apply to a session that Penstock starts.
        listener: is notified of events, in the job master's thread.
        job_id: the job's id; None for a new one.

    Raises:
        SlotsUnavailableError: if Spark can never run as many tasks at once as the job has slots.
        PenstockError: if Spark cannot be started.
    """
    job = _SparkJob(job_graph, configuration, listener, job_id or JobID.generate())
    client = job.start()
    _running.add(client)
    # Functions registered last are called first: the jobs end before the session stops.
    atexit.unregister(end_all)
    atexit.register(end_all)
    return client


def end_all() -> None:
    """End all jobs of this process that still run; also called when the interpreter exits."""
    for client in list(_running):
        if not client.get_job_execution_result().done():
            client.end()


class _SparkJob:
    """One job, from its session to its outcome."""

    def __init__(self, job_graph: JobGraph, configuration: Configuration, listener: JobListener, job_id: JobID) -> None:
        self._job_graph = job_graph
        self._configuration = configuration
        self._listener = listener
        self._job_id = job_id
        self._storage = StorageSettings.of(configuration, str(job_id))
        self._slots_max: int | None = None
        self._master: JobMaster | None = None
        self._labellers = failure_enrichers(configuration)
        self._clock = SystemClock()
        self._started_ms = self._clock.steady_ms()
        self._result: CompletableFuture[JobExecutionResult] = CompletableFuture()
        self._last_view: JobView | None = None

    def start(self) -> SparkJobClient:
        """Obtain a session and start the job's thread."""
        configuration, is_endless = self._configuration, is_reactive(self._configuration)
        slots = (os.cpu_count() or 1) if is_endless else self._job_graph.slots_required
        spark = obtain_spark(configuration.to_dict(), slots)
        give_back = functools.partial(hand_back, spark, slots)
        try:
            self._check_slots(compute_requirements(self._job_graph, configuration).sufficient, spark)
            self._slots_max = slots_of_machine(spark) if is_endless else spark.fixed_slots()
            spark.ship_dependencies(configuration)
            thread = JobThread(
                spark,
                str(self._job_id),
                self._job_graph.name,
                configuration,
                self._make_master,
                TaskExecutorFactory(self._storage, BackendSettings.of(configuration, str(self._job_id))),
                functools.partial(self._on_end, give_back),
                self._listener,
                self._job_graph.script,
            )
        except BaseException:
            give_back()
            raise
        client = SparkJobClient(
            self._job_id, thread, self._status, self._result, configuration, lambda: self._last_view, spark.pages
        )
        thread.start()
        return client

    def _check_slots(self, wanted: int, spark: SparkHandle) -> None:
        """Raise an error instead of waiting for slots that can never become available."""
        got = spark.fixed_slots()
        if got is not None and wanted > got:
            reason = (
                f"Spark runs on {spark.master}, which never has more; start it with spark.master: local[{wanted}] or "
                f"more, or lower the job's parallelism to {got} or less (parallelism.default)"
            )
            raise SlotsUnavailableError(self._job_graph.name, wanted, got, reason)

    def _make_master(self, clock: Clock) -> JobMaster:
        self._master = JobMaster(
            self._job_graph,
            str(self._job_id),
            self._configuration,
            clock=clock,
            store=self._storage.store(),
            slots_max=self._slots_max,
            labellers=self._labellers,
        )
        return self._master

    def _status(self) -> JobStatus:
        return JobStatus.INITIALIZING if self._master is None else self._master.status

    def _on_end(self, give_back: functools.partial[None], broke: PenstockError | None) -> None:
        give_back()
        failure = self._master.failure if self._master is not None else None
        status = self._status()
        if broke is not None:
            status, failure = JobStatus.FAILED, broke
        elif not status.is_terminal_state():  # its workers were ended without waiting for the job master
            status = JobStatus.CANCELED
        runtime_ms = self._clock.steady_ms() - self._started_ms
        accumulators = None
        if self._master is not None:
            accumulators = self._master.accumulators()
            self._last_view = replace(self._master.view(), status=status)
        name, directory = self._job_graph.name, self._storage.directory
        settle(self._result, self._job_id, name, status, failure, runtime_ms, accumulators, directory)
