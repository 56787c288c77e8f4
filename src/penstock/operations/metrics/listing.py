"""The metrics of all jobs of a process, by their names in Flink's REST API.

Thread-safe. Requested metrics are computed once for each view of a job.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from penstock.core.job.history import RescaleCause
from penstock.core.job.view import JobView, VertexView
from penstock.operations.dispatcher import DispatchedJob, Dispatcher
from penstock.operations.metrics.channels import NO_CHANNELS
from penstock.operations.metrics.charts import Charts
from penstock.operations.metrics.processes import memory_metrics, process_metrics
from penstock.operations.metrics.rates import History, Rates
from penstock.operations.metrics.scopes import Scope, Scoped, Value, flat, spelled
from penstock.operations.metrics.this_process import ThisProcess
from penstock.operations.metrics.view_metrics import ViewMetrics

#: The worker id of the driver's process, which has no managed memory and no channels.
DRIVER_ID: Final = "driver"

Listed: TypeAlias = dict[str, str | int | float]


class MetricStore:
    """See the module docstring. Unknown jobs, workers, vertices and subtasks have no metrics.

    Args:
        dispatcher: knows the jobs.
        now: a monotonic clock (s).
    """

    def __init__(self, dispatcher: Dispatcher, now: Callable[[], float] = time.monotonic) -> None:
        self._dispatcher = dispatcher
        self._now = now
        self._lock = threading.Lock()
        self._jobs: dict[str, _Followed] = {}
        self._driver = ThisProcess.of_driver(now)

    @classmethod
    def of(cls, dispatcher: Dispatcher) -> MetricStore:
        """Return the store that all observers of a dispatcher's jobs share."""
        with _shared_lock:
            if dispatcher not in _shared:
                _shared[dispatcher] = cls(dispatcher)
            return _shared[dispatcher]

    def close(self) -> None:
        """Stop sharing the store."""
        with _shared_lock:
            if _shared.get(self._dispatcher) is self:
                del _shared[self._dispatcher]

    # --- as Flink's REST API lists them ----------------------------------------------------------------------------

    def jobmanager(self) -> Listed:
        """Return the metrics of the driver's process, and of all its workers together."""
        return flat(self._cluster().values)

    def taskmanager(self, tm_id: str) -> Listed:
        """Return the metrics of a worker by id, or of the driver, which replaces the workers of a job without any."""
        for metrics in reversed(self._current()):
            if (scoped := metrics.workers.get(tm_id)) is not None:
                return flat(scoped.values)
        return flat({**self._of_driver(), **memory_metrics(0, 0, NO_CHANNELS)}) if tm_id == DRIVER_ID else {}

    def job(self, job_id: str) -> Listed:
        """Return the metrics of a job itself, and the ages of latency markers, like Flink."""
        metrics = self._find_metrics(job_id)
        if metrics is None:
            return {}
        listed = flat(metrics.job.values)
        for scoped in metrics.latency:
            listed.update((spelled(scoped, name), value) for name, value in flat(scoped.values).items())
        return listed

    def vertex(self, job_id: str, vertex_id: str) -> Listed:
        """Return the metrics of all subtasks of a vertex: `<subtask>.<name>` and `<subtask>.<operator>.<name>`."""
        metrics = self._find_metrics(job_id)
        vertex = None if metrics is None else _vertex(metrics.view, vertex_id)
        return {} if metrics is None or vertex is None else metrics.vertex(vertex)

    def subtask(self, job_id: str, vertex_id: str, subtask: int) -> Listed:
        """Return the metrics of one subtask, without its number."""
        metrics = self._find_metrics(job_id)
        vertex = None if metrics is None else _vertex(metrics.view, vertex_id)
        if metrics is None or vertex is None or not 0 <= subtask < vertex.parallelism:
            return {}
        return metrics.subtask(vertex, vertex.subtasks[subtask])

    def jm_operator(self, job_id: str, vertex_id: str) -> Listed:
        """Return the metrics of the operator parts that run in the driver; views do not have them yet."""
        return {}

    # --- for reporters and pages -----------------------------------------------------------------------------------

    def scoped(self, since: float = 0.0) -> Iterator[Scoped]:
        """Yield all metrics of the process and its running jobs, and of jobs whose end was unknown at `since`.

        `since` is a time of the store's clock. A worker appears once, whichever jobs it belongs to.
        """
        yield self._cluster()
        seen: set[tuple[str, str]] = set()
        for metrics in self._current(since):
            for scoped in metrics.scoped():
                if scoped.scope is Scope.TASK_MANAGER:
                    name = scoped.variables["host"], scoped.variables["tm_id"]
                    if name in seen:
                        continue
                    seen.add(name)
                yield scoped

    def views(self) -> list[JobView]:
        """Return the views of all jobs that have answered, including ended ones."""
        return [metrics.view for job in self._dispatcher.jobs() if (metrics := self._read_metrics(job)) is not None]

    def charts(self, job_id: str) -> Charts | None:
        """Return the charts of a job's last hour, as far as it was observed."""
        self._find_metrics(job_id)
        followed = self._jobs.get(job_id)
        return None if followed is None else followed.charts

    def look(self) -> None:
        """Take a view of each job, for rates and charts."""
        self._current()

    # --- within ----------------------------------------------------------------------------------------------------

    def _find_metrics(self, job_id: str) -> ViewMetrics | None:
        job = self._dispatcher.job(job_id)
        return None if job is None else self._read_metrics(job)

    def _current(self, since: float | None = None) -> list[ViewMetrics]:
        """Return the metrics of jobs that have not ended, or not before `since`."""
        current, jobs = [], self._dispatcher.jobs()
        for job in jobs:
            metrics = self._read_metrics(job)
            if metrics is None:
                continue
            ended_at = self._jobs[job.job_id].ended_at
            if ended_at is None or (since is not None and ended_at > since):
                current.append(metrics)
        with self._lock:
            for job_id in self._jobs.keys() - {job.job_id for job in jobs}:
                del self._jobs[job_id]
        return current

    def _read_metrics(self, job: DispatchedJob) -> ViewMetrics | None:
        view = job.view()
        if view is None:
            return None
        with self._lock:
            followed = self._jobs.setdefault(job.job_id, _Followed())
            if view.status.is_terminal_state() and followed.ended_at is None:
                followed.ended_at = self._now()
            return followed.refresh_metrics(view, self._driver)

    def _cluster(self) -> Scoped:
        jobs = self._current()
        workers = [(worker.worker_id, metrics.view) for metrics in jobs for worker in metrics.view.workers]
        values: dict[str, Value] = {
            **self._of_driver(),
            "numRegisteredTaskManagers": len(workers),
            "numPendingTaskManagers": sum(metrics.view.workers_awaited for metrics in jobs),
            "numRunningJobs": len(jobs),
            "taskSlotsTotal": len(workers),
            "taskSlotsAvailable": sum(_is_free(worker_id, view) for worker_id, view in workers),
        }
        return Scoped(Scope.JOB_MANAGER, {"host": self._driver.host}, values)

    def _of_driver(self) -> dict[str, Value]:
        return process_metrics(*self._driver.figures())


_shared: dict[Dispatcher, MetricStore] = {}
_shared_lock = threading.Lock()


class _Followed:
    """The state kept for a job from view to view."""

    def __init__(self) -> None:
        self.charts = Charts()
        self.ended_at: float | None = None
        self._history = History()
        self._metrics: ViewMetrics | None = None
        self._rescales_seen: set[int] = set()

    def refresh_metrics(self, view: JobView, driver: ThisProcess) -> ViewMetrics:
        if self._metrics is None or self._metrics.view is not view:
            self._rescales_seen.update(rescale.at_ms for rescale in view.rescales if rescale.cause is not _FIRST)
            self._metrics = ViewMetrics(Rates(view, self._history.add(view)), len(self._rescales_seen), driver)
            self.charts.add(self._metrics)
        return self._metrics


_FIRST = RescaleCause.INITIAL_SCHEDULE


def _vertex(view: JobView, vertex_id: str) -> VertexView | None:
    return next((vertex for vertex in view.vertices if vertex.vertex_id == vertex_id), None)


def _is_free(worker_id: str, view: JobView) -> bool:
    return not any(
        subtask.worker_id == worker_id and subtask.state is not None and not subtask.state.is_terminal
        for vertex in view.vertices
        for subtask in vertex.subtasks
    )
