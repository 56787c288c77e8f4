"""The running and ended jobs of this process, for observers.

An observer gets the latest known view. A job is asked for a view at most twice a second, however many observers there
are, so that pages and scrapes cannot slow it down.

The view of a job without a report: it has not answered yet, or it ended before it had a master.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Final

from penstock.base.configuration import Configuration
from penstock.base.job import JobStatus
from penstock.base.secrets import remember
from penstock.drivers.running_job import JobHandle
from penstock.runtime.checkpoint.statistics import CheckpointStatistics
from penstock.runtime.graph.execution_graph import ExecutionState
from penstock.runtime.graph.job_graph import JobGraph
from penstock.runtime.job.view import JobHistory, JobView, SubtaskView, job_view
from penstock.server.events import JobEvents

#: Maximum age (s) of a view.
VIEW_SECONDS: Final = 0.5
#: How long (s) an observer waits for the first view of a job.
PATIENCE_SECONDS: Final = 5.0
#: The age (s) of the known view from which an observer waits for a newer one, and how long (s) it waits.
OLD_SECONDS: Final = 1.0
PATIENCE_WITH_OLD_SECONDS: Final = 0.25
#: How many ended jobs are kept, unless a session sets another limit.
ENDED_MAX: Final = 50


class DispatchedJob:
    """A job known to the dispatcher.

    Attributes:
        handle: controls the job.
        graph: its job graph.
        configuration: its options; they may hold secrets.
        began_ms: when the dispatcher learned of it (ms since the epoch).
    """

    def __init__(
        self,
        handle: JobHandle,
        graph: JobGraph,
        configuration: Configuration,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.handle = handle
        self.graph = graph
        self.configuration = configuration
        remember(configuration.to_dict())
        self.began_ms = int(time.time() * 1000)
        self._now = now
        #: its events, for subscribers
        self.events = JobEvents(handle, graph.name, self.view)
        self._lock = threading.Lock()
        self._view: JobView | None = None
        self._asked: Future[JobView] | None = None
        self._asked_at = self._known_at = -VIEW_SECONDS
        self._is_last = False

    @property
    def job_id(self) -> str:
        """The job id, as 32 hexadecimal digits."""
        return str(self.handle.get_job_id())

    @property
    def name(self) -> str:
        """The name that the program gave it."""
        return self.graph.name

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended completely."""
        return self.handle.get_job_execution_result().done()

    def view(self) -> JobView | None:
        """Return a view of the job; None before its first answer.

        It is at most half a second old, or a second with many observers; older only if the job answers late.
        """
        with self._lock:
            self._take()
            if not self._is_last and self._asked is None and self._now() >= self._asked_at + VIEW_SECONDS:
                self._asked, self._asked_at = self.handle.get_view(), self._now()
                self._take()
            is_old = self._now() >= self._known_at + OLD_SECONDS
            future = self._asked if self._view is None or is_old else None
            patience = PATIENCE_SECONDS if self._view is None else PATIENCE_WITH_OLD_SECONDS
        if future is not None:
            wait([future], patience)
            with self._lock:
                self._take()
        return self._view

    def _take(self) -> None:
        """Store the requested view if it has arrived."""
        if self._asked is not None and self._asked.done():
            future, self._asked = self._asked, None
            if not future.cancelled() and future.exception() is None:
                self._view, self._known_at = future.result(), self._asked_at
        if not self._is_last and (last := self.handle.last_view()) is not None:
            self._view, self._is_last = last, True


class Dispatcher:
    """The jobs of one process or session, by id. Thread-safe.

    Args:
        ended_max: how many ended jobs are kept.
        ended_seconds: for how long; None for as long as there is room.
        now: the clock.
    """

    def __init__(
        self,
        ended_max: int = ENDED_MAX,
        ended_seconds: float | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[str, DispatchedJob] = {}
        self._ended_at: dict[str, float] = {}
        self._ended_max = ended_max
        self._ended_seconds = ended_seconds
        self._now = now

    def add(self, job: DispatchedJob) -> None:
        """Add a job. If there are too many ended jobs, the oldest are dropped."""
        with self._lock:
            self._jobs[job.job_id] = job
            self._forget()

    def jobs(self) -> list[DispatchedJob]:
        """Return all jobs, in the order of their arrival."""
        with self._lock:
            self._forget()
            return list(self._jobs.values())

    def job(self, job_id: str) -> DispatchedJob | None:
        """Return the job with this id."""
        with self._lock:
            self._forget()
            return self._jobs.get(job_id)

    def _forget(self) -> None:
        now = self._now()
        for job_id, job in self._jobs.items():
            if job.has_ended:
                self._ended_at.setdefault(job_id, now)
        ended = sorted(self._ended_at, key=lambda job_id: self._ended_at[job_id])
        expired = ended[: max(0, len(ended) - self._ended_max)]
        if self._ended_seconds is not None:
            expired += [
                job_id for job_id in ended[len(expired) :] if now >= self._ended_at[job_id] + self._ended_seconds
            ]
        for job_id in expired:
            del self._jobs[job_id], self._ended_at[job_id]


_FINAL = {JobStatus.FAILED: ExecutionState.FAILED, JobStatus.CANCELED: ExecutionState.CANCELED}


def unseen_view(job: DispatchedJob) -> JobView:
    """Build a view of a job from its graph and its handle."""
    status, now_ms = job.handle.status(), int(time.time() * 1000)
    history = JobHistory()
    history.moved(JobStatus.INITIALIZING, job.began_ms)
    if status is not JobStatus.INITIALIZING:
        history.moved(status, job.began_ms if not status.is_terminal_state() else now_ms)
    state = _FINAL.get(status, ExecutionState.CREATED)
    subtasks = {
        vertex.index: [SubtaskView(index, 0, state) for index in range(vertex.parallelism)]
        for vertex in job.graph.vertices
    }
    return job_view(
        job.job_id,
        job.graph,
        status,
        history,
        subtasks,
        CheckpointStatistics(),
        now_ms=now_ms,
        configuration=job.configuration,
    )
