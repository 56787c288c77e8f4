"""Starts jobs on Spark; the only entry point of this driver."""

from __future__ import annotations

import atexit
import functools
import os
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.base.completable_future import CompletableFuture
from penstock.base.configuration import Configuration
from penstock.base.errors import PenstockError, SlotsUnavailableError
from penstock.base.job_execution_result import JobExecutionResult
from penstock.base.job_id import JobID
from penstock.base.job_status import JobStatus
from penstock.core.job.job_master import JobMaster
from penstock.core.job.resource_requirements import compute_requirements, is_reactive
from penstock.core.job.view import JobView
from penstock.drivers.backends import BackendSettings
from penstock.drivers.clock import SystemClock
from penstock.drivers.failure_enrichers import failure_enrichers
from penstock.drivers.running_job import settle
from penstock.drivers.spark.executor_factory import TaskExecutorFactory
from penstock.drivers.spark.handle import SparkHandle
from penstock.drivers.spark.job_client import SparkJobClient
from penstock.drivers.spark.job_thread import JobThread
from penstock.drivers.spark.session import hand_back, obtain_spark, slots_of_machine
from penstock.drivers.worker_storage import StorageSettings

if TYPE_CHECKING:
    from penstock.core.graph.job_graph import JobGraph
    from penstock.core.ports import Clock, JobListener

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
