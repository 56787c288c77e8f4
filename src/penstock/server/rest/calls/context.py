"""The state that all handlers share: jobs, pending operations, metrics, logs and the server's settings.

Asynchronous operations: one request starts them, others poll them, until five minutes after they end.

The server's own process: its threads and the tail of its log.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from penstock.base.configuration import Configuration
from penstock.base.secrets import hide
from penstock.drivers.inspection import FileText, threads
from penstock.drivers.job_log import DRIVER, KEEPS, LastLines
from penstock.drivers.logs import OUTPUT_VARIABLE, LogSettings, build_formatter, end_of_file
from penstock.runtime.job.view import JobView
from penstock.server.dispatcher import DispatchedJob, Dispatcher, unseen_view
from penstock.server.inspection import WorkerInsight
from penstock.server.rest.calls.access import Logins, RestSettings
from penstock.server.rest.calls.answers import RestError, not_found
from penstock.server.session.programs import Programs

#: How long (s) the result of an operation is kept (Flink's `rest.async.store-duration`).
KEPT_SECONDS: Final = 300.0
#: The maximum number of operations, pending ones included.
OPERATIONS_MAX: Final = 1_000


@dataclass
class _Operation:
    future: Future[Any]
    #: when it was first seen to have ended (s)
    ended: float | None = None
    #: whether a client has fetched the outcome
    is_told: bool = False


class Operations:
    """Operations by kind, by their subject (a job or other thing), and by id."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._operations: dict[tuple[str, str, str], _Operation] = {}

    def begin(self, kind: str, about: str, begin: Callable[[], Future[Any]], trigger_id: str | None = None) -> str:
        """Start an operation, unless one with this id exists, and return its id.

        An error of `begin` becomes the operation's result, as in Flink: a savepoint of an unknown job is accepted, and
        polling it returns the failure.
        """
        trigger_id = (trigger_id or secrets.token_hex(16)).lower()
        key = (kind, about, trigger_id)
        with self._lock:
            self._forget()
            if key in self._operations:
                return trigger_id
            if len(self._operations) >= OPERATIONS_MAX:
                raise RestError(429, f"{OPERATIONS_MAX} operations are under way or kept; ask again in a few minutes")
            operation = self._operations[key] = _Operation(Future())
        try:
            future = begin()
        except Exception as error:  # noqa: BLE001 - it is told to whoever asks after the operation
            operation.future.set_exception(error)
        else:
            operation.future = future
        return trigger_id

    def find(self, kind: str, about: str, trigger_id: str) -> Future[Any]:
        """Return the operation's future; 404 if it is unknown or ended too long ago."""
        with self._lock:
            self._forget()
            operation = self._operations.get((kind, about, trigger_id))
        if operation is None:
            raise not_found(f"Operation not found under key: {trigger_id}")
        operation.is_told = operation.future.done()
        return operation.future

    def all_told(self) -> bool:
        """Return whether clients have fetched all outcomes. A server that ends waits briefly for this."""
        with self._lock:
            return all(operation.is_told for operation in self._operations.values())

    def _forget(self) -> None:
        now = self._now()
        for key, operation in list(self._operations.items()):
            if operation.ended is None and operation.future.done():
                operation.ended = now
            elif operation.ended is not None and now >= operation.ended + KEPT_SECONDS:
                del self._operations[key]


LOG_NAME: Final = "penstock.log"


class OwnProcess:
    """This process: its threads, and the tail of what Penstock logs in it.

    Args:
        settings: the format of the log lines.
    """

    def __init__(self, settings: LogSettings) -> None:
        self.tail = LastLines()
        self.tail.set_name(f"{KEEPS}rest")
        self.tail.setFormatter(build_formatter(settings, DRIVER))

    def listen(self) -> None:
        """Start to keep log lines."""
        logging.getLogger("penstock").addHandler(self.tail)

    def forget(self) -> None:
        """Stop keeping log lines."""
        logging.getLogger("penstock").removeHandler(self.tail)

    def thread_dump(self) -> list[tuple[str, str]]:
        """Return the name and the stack of each thread."""
        return list(threads().stacks)

    def logs(self) -> list[tuple[str, int, int]]:
        """Return the only log, which is kept in memory."""
        return [(LOG_NAME, len(self.log().encode()), self.tail.written_ms)]

    def log(self) -> str:
        """Return the log's text. Secrets of jobs that began after a line was logged are hidden as well."""
        return hide(self.tail.text()) or "nothing was logged yet\n"

    def stdout(self) -> str:
        """Return the process's output, if its launcher said where that goes."""
        path = os.environ.get(OUTPUT_VARIABLE)
        if path is not None and isinstance(output := end_of_file(Path(path)), FileText):
            return output.data.decode("utf-8", "replace")
        return "The output of this process is not kept: it is where the program was started.\n"


Values: TypeAlias = Mapping[str, "str | float"]


class Metrics(Protocol):
    """Metrics of jobs under Flink's names (`penstock.server.metrics`); unknown ids have no metrics."""

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
