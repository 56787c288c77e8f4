"""What all handlers share: the jobs, the operations under way, metrics, logs, and the settings of the server."""

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
    """What `penstock.operations.metrics` knows of jobs under Flink's names; unknown ids give nothing."""

    def jobmanager(self) -> Values:
        """Of the job manager."""
        ...

    def taskmanager(self, tm_id: str) -> Values:
        """Of a worker."""
        ...

    def job(self, job_id: str) -> Values:
        """Of a job."""
        ...

    def vertex(self, job_id: str, vertex_id: str) -> Values:
        """Of a vertex, with the subtask before each name."""
        ...

    def subtask(self, job_id: str, vertex_id: str, subtask: int) -> Values:
        """Of a subtask."""
        ...

    def jm_operator(self, job_id: str, vertex_id: str) -> Values:
        """Of the parts of a vertex' operators that run beside the job master."""
        ...


class NoMetrics:
    """Where no store is: nothing is known."""

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
    """JSON by the view that it was made of; a new view of a job drops what was made of the one before."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[str, tuple[JobView, dict[str, bytes]]] = {}

    def get(self, view: JobView, name: str, make: Callable[[], bytes]) -> bytes:
        """What was made under a name of a view, made now if nothing was."""
        with self._lock:
            known, made = self._made.get(view.job_id, (None, {}))
            if known is not view:
                made = {}
                self._made[view.job_id] = (view, made)
            if (body := made.get(name)) is not None:
                return body
        body = make()
        with self._lock:
            made[name] = body
        return body

    def keep_only(self, job_ids: set[str]) -> None:
        """Drop what belongs to jobs that are forgotten."""
        with self._lock:
            for job_id in self._made.keys() - job_ids:
                del self._made[job_id]


@dataclass
class RestContext:
    """See the module's text.

    Attributes:
        dispatcher: the jobs.
        configuration: that of the job that asked for the server.
        metrics: what is measured.
        insight: looks into workers.
        own: what this process says of itself.
        shut_down: ends the process' jobs and the server (`DELETE /cluster`).
        port: where the server listens, once it does.
        programs: takes and runs programs; None where this is no session.
        began_ms: when the server began (ms since the epoch).
        settings: those of the server, once there is one.
        logins: the browsers that have logged in.
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
        """A job as of at most half a second ago, or as it can be told from its graph when it has said nothing yet."""
        return job.view() or unseen_view(job)

    def views(self) -> list[tuple[DispatchedJob, JobView]]:
        """All jobs, in the order in which they came."""
        jobs = self.dispatcher.jobs()
        self.cache.keep_only({job.job_id for job in jobs})
        return [(job, self.view(job)) for job in jobs]
