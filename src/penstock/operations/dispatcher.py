"""The jobs of this process, running and ended, for those who look at them.

Whoever looks gets the last view that is known. A view is asked for at most twice a second a job, however many look, so
that no number of pages and scrapes slows a job down.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Final

from penstock.base.configuration import Configuration
from penstock.base.secrets import remember
from penstock.core.graph.job_graph import JobGraph
from penstock.core.job.view import JobView
from penstock.drivers.job_handle import JobHandle
from penstock.operations.events.delivering import JobEvents

#: How old (s) a view may be.
VIEW_SECONDS: Final = 0.5
#: How long (s) one who looks waits for the first view of a job.
PATIENCE_SECONDS: Final = 5.0
#: How old (s) the known view must be for one who looks to wait for a newer one, and for how long (s).
OLD_SECONDS: Final = 1.0
PATIENCE_WITH_OLD_SECONDS: Final = 0.25
#: How many jobs that have ended are remembered, unless a session says otherwise.
ENDED_MAX: Final = 50


class DispatchedJob:
    """A job that the dispatcher knows.

    Attributes:
        handle: steers it.
        graph: what it runs.
        configuration: its options; they may hold secrets.
        began_ms: when the dispatcher heard of it (ms since the epoch).
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
        #: what happens to it, for those who subscribe
        self.events = JobEvents(handle, graph.name, self.view)
        self._lock = threading.Lock()
        self._view: JobView | None = None
        self._asked: Future[JobView] | None = None
        self._asked_at = self._known_at = -VIEW_SECONDS
        self._is_last = False

    @property
    def job_id(self) -> str:
        """32 hexadecimal digits."""
        return str(self.handle.get_job_id())

    @property
    def name(self) -> str:
        """The name that the program gave it."""
        return self.graph.name

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it is left."""
        return self.handle.get_job_execution_result().done()

    def view(self) -> JobView | None:
        """The job as of at most half a second ago, or a second where many look; older only when it answers late.

        None before it has answered at all.
        """
        with self._lock:
            self._take()
            if not self._is_last and self._asked is None and self._now() >= self._asked_at + VIEW_SECONDS:
                self._asked, self._asked_at = self.handle.get_view(), self._now()
                self._take()
            is_old = self._now() >= self._known_at + OLD_SECONDS
            asked = self._asked if self._view is None or is_old else None
            patience = PATIENCE_SECONDS if self._view is None else PATIENCE_WITH_OLD_SECONDS
        if asked is not None:
            wait([asked], patience)
            with self._lock:
                self._take()
        return self._view

    def _take(self) -> None:
        """Keep the view that was asked for, if it is there."""
        if self._asked is not None and self._asked.done():
            asked, self._asked = self._asked, None
            if not asked.cancelled() and asked.exception() is None:
                self._view, self._known_at = asked.result(), self._asked_at
        if not self._is_last and (last := self.handle.last_view()) is not None:
            self._view, self._is_last = last, True


class Dispatcher:
    """Knows the jobs of one process, or of a session, by their ids. Any thread may ask.

    Args:
        ended_max: how many jobs that have ended are remembered.
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
        """Take a job in; the oldest that have ended are forgotten when there are too many."""
        with self._lock:
            self._jobs[job.job_id] = job
            self._forget()

    def jobs(self) -> list[DispatchedJob]:
        """All jobs, in the order in which they came."""
        with self._lock:
            self._forget()
            return list(self._jobs.values())

    def job(self, job_id: str) -> DispatchedJob | None:
        """One of them."""
        with self._lock:
            self._forget()
            return self._jobs.get(job_id)

    def _forget(self) -> None:
        now = self._now()
        for job_id, job in self._jobs.items():
            if job.has_ended:
                self._ended_at.setdefault(job_id, now)
        ended = sorted(self._ended_at, key=lambda job_id: self._ended_at[job_id])
        gone = ended[: max(0, len(ended) - self._ended_max)]
        if self._ended_seconds is not None:
            gone += [job_id for job_id in ended[len(gone) :] if now >= self._ended_at[job_id] + self._ended_seconds]
        for job_id in gone:
            del self._jobs[job_id], self._ended_at[job_id]
