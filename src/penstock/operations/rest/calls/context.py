"""The state that all handlers share: jobs, pending operations, metrics, logs and the server's settings."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from penstock.base.configuration import Configuration
from penstock.core.job.view import JobView
from penstock.drivers.log_settings import LogSettings
from penstock.operations.dispatcher import DispatchedJob, Dispatcher
from penstock.operations.insight import WorkerInsight
from penstock.operations.rest.access.logins import Logins
from penstock.operations.rest.access.settings import RestSettings
from penstock.operations.rest.calls.operations import Operations
from penstock.operations.rest.calls.own_process import OwnProcess
from penstock.operations.rest.calls.programs import Programs
from penstock.operations.rest.calls.unseen import unseen_view

Values: TypeAlias = Mapping[str, "str | float"]


class Metrics(Protocol):
    """Metrics of jobs under Flink's names (`penstock.operations.metrics`); unknown ids have no metrics."""

    def jobmanager(self) -> Values:
        """Return the metrics of the job manager."""
        ...

    def taskmanager(self, tm_id: str) -> Values:
        """Return the metrics of a worker."""
        ...

    def job(self, job_id: str) -> Values:
        """Return the metrics of a job."""
        ...

    def vertex(self, job_id: str, vertex_id: str) -> Values:
        """Return the metrics of a vertex, each name prefixed with the subtask."""
        ...

    def subtask(self, job_id: str, vertex_id: str, subtask: int) -> Values:
        """Return the metrics of a subtask."""
        ...

    def jm_operator(self, job_id: str, vertex_id: str) -> Values:
        """Return the metrics of a vertex's operator coordinators, which run beside the job master."""
        ...


class NoMetrics:
    """The metrics of a server without a metric store: always empty."""

    def jobmanager(self) -> Values:
        """Nothing."""
        return {}

    def taskmanager(self, tm_id: str) -> Values:
        """Nothing."""
        return {}

    def job(self, job_id: str) -> Values:
        """Nothing."""
        return {}

    def vertex(self, job_id: str, vertex_id: str) -> Values:
        """Nothing."""
        return {}

    def subtask(self, job_id: str, vertex_id: str, subtask: int) -> Values:
        """Nothing."""
        return {}

    def jm_operator(self, job_id: str, vertex_id: str) -> Values:
        """Nothing."""
        return {}


class ViewCache:
    """Caches JSON by job view; a new view of a job invalidates the JSON of the previous one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[str, tuple[JobView, dict[str, bytes]]] = {}

    def get(self, view: JobView, name: str, make: Callable[[], bytes]) -> bytes:
        """Return the JSON cached under a name for this view, making it on a miss."""
        with self._lock:
            known, bodies = self._made.get(view.job_id, (None, {}))
            if known is not view:
                bodies = {}
                self._made[view.job_id] = (view, bodies)
            if (body := bodies.get(name)) is not None:
                return body
        body = make()
        with self._lock:
            bodies[name] = body
        return body

    def keep_only(self, job_ids: set[str]) -> None:
        """Drop the entries of forgotten jobs."""
        with self._lock:
            for job_id in self._made.keys() - job_ids:
                del self._made[job_id]


@dataclass
class RestContext:
    """See the module's docstring.

    Attributes:
        dispatcher: the jobs.
        configuration: the configuration of the job that requested the server.
        metrics: the metrics of jobs and workers.
        insight: queries worker processes.
        own: threads and logs of this process.
        shut_down: ends the process's jobs and the server (`DELETE /cluster`).
        port: the server's port, once it listens.
        programs: takes and runs programs; None outside a session.
        began_ms: when the server began (ms since the epoch).
        settings: the server's settings, once it exists.
        logins: the browsers that are logged in.
    """

    dispatcher: Dispatcher
    configuration: Configuration
    metrics: Metrics = field(default_factory=NoMetrics)
    insight: WorkerInsight = field(default_factory=WorkerInsight)
    own: OwnProcess = field(init=False)
    shut_down: Callable[[], None] = lambda: None
    port: int = 0
    programs: Programs | None = None
    operations: Operations = field(default_factory=Operations)
    cache: ViewCache = field(default_factory=ViewCache)
    began_ms: int = field(default_factory=lambda: int(time.time() * 1000))
    settings: RestSettings = field(default_factory=lambda: RestSettings("127.0.0.1", "0"))
    logins: Logins = field(default_factory=Logins)

    def __post_init__(self) -> None:
        self.own = OwnProcess(LogSettings.of(self.configuration, ""))

    def view(self, job: DispatchedJob) -> JobView:
        """Return a view of a job, at most half a second old, or one derived from its graph before its first report."""
        return job.view() or unseen_view(job)

    def views(self) -> list[tuple[DispatchedJob, JobView]]:
        """Return all jobs with their views, in order of submission."""
        jobs = self.dispatcher.jobs()
        self.cache.keep_only({job.job_id for job in jobs})
        return [(job, self.view(job)) for job in jobs]
