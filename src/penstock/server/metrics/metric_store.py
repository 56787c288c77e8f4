"""The metrics of all jobs of a process, by their names in Flink's REST API.

`ViewMetrics` are all metrics of one view of a job, each computed once, on first request.

`Charts` hold the last hour of a job's most important metrics, one point every ten seconds.

`MetricStore` is thread-safe. Requested metrics are computed once for each view of a job.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Final, TypeAlias

from penstock.base.configuration import Configuration
from penstock.base.metrics import STATE_LATENCY_NAME_AS_VARIABLE
from penstock.base.options import MANAGED_MEMORY_BYTES, STATE_BACKEND
from penstock.runtime.job.view import JobView, RescaleCause, SubtaskView, VertexView, WorkerView
from penstock.runtime.protocol import OperatorFigures
from penstock.runtime.records import MAX_WATERMARK, MIN_TIMESTAMP
from penstock.server.dispatcher import DispatchedJob, Dispatcher
from penstock.server.metrics import scopes
from penstock.server.metrics.tasks import (
    SENT,
    History,
    Rates,
    counter_names,
    job_metrics,
    nothing_counted,
    operator_metrics,
    task_metrics,
)

_NO_WORKER: Final = "none"


class ViewMetrics:
    """See the module docstring.

    Args:
        rates: the rates between the view and an earlier one.
        rescales: the number of rescales of the job.
        driver: this process.
    """

    def __init__(self, rates: Rates, rescales: int, driver: scopes.ThisProcess) -> None:
        self.view = rates.view
        self._rates = rates
        self._rescales = rescales
        self._driver = driver
        self._subtasks: dict[tuple[int, int], tuple[scopes.Scoped, ...]] = {}
        self._listed: dict[int, dict[str, str | int | float]] = {}

    # --- as lists of names -----------------------------------------------------------------------------------------

    def subtask(self, vertex: VertexView, subtask: SubtaskView) -> dict[str, str | int | float]:
        """Return the metrics of a subtask and of its operators, prefixed with their names; zeros before it reports."""
        task, *operators = self.of_subtask(vertex, subtask) or self._made(vertex, nothing_counted(vertex, subtask))
        listed = scopes.flat(task.values)
        for operator in operators:
            name = operator.variables["operator_name"]
            listed.update(
                (scopes.of_operator(name, scopes.spelled(operator, key)), of)
                for key, of in scopes.flat(operator.values).items()
            )
        return listed

    def vertex(self, vertex: VertexView) -> dict[str, str | int | float]:
        """Return the metrics of all subtasks, each with the subtask's index as prefix."""
        if vertex.index not in self._listed:
            self._listed[vertex.index] = {
                f"{subtask.subtask}.{name}": value
                for subtask in vertex.subtasks
                for name, value in self.subtask(vertex, subtask).items()
            }
        return self._listed[vertex.index]

    # --- with scopes -----------------------------------------------------------------------------------------------

    @cached_property
    def job(self) -> scopes.Scoped:
        """The metrics of the job itself."""
        variables = {"host": self._driver.host, **self._of_job}
        return scopes.Scoped(scopes.Scope.JOB, variables, job_metrics(self.view, self._rescales))

    @cached_property
    def latency(self) -> tuple[scopes.Scoped, ...]:
        """The ages of latency markers at each operator, by subtask and, depending on the granularity, by source."""
        return tuple(
            scoped
            for vertex in self.view.vertices
            for subtask in vertex.subtasks
            if subtask.metrics is not None and subtask.metrics.figures is not None
            for operator in subtask.metrics.figures.operators
            for scoped in self._of_markers(subtask, operator)
        )

    @cached_property
    def workers(self) -> dict[str, scopes.Scoped]:
        """The metrics of its workers, by id."""
        return {
            worker.worker_id: scopes.Scoped(
                scopes.Scope.TASK_MANAGER, {"host": worker.host, "tm_id": worker.worker_id}, self._worker(worker)
            )
            for worker in self.view.workers
        }

    def of_subtask(self, vertex: VertexView, subtask: SubtaskView) -> tuple[scopes.Scoped, ...]:
        """Return the metrics of a subtask and then of its operators; empty before its first report."""
        key = vertex.index, subtask.subtask
        if key not in self._subtasks:
            self._subtasks[key] = tuple(self._made(vertex, subtask))
        return self._subtasks[key]

    def scoped(self) -> Iterator[scopes.Scoped]:
        """Yield all metrics."""
        yield self.job
        yield from self.workers.values()
        yield from self.latency
        for vertex in self.view.vertices:
            for subtask in vertex.subtasks:
                yield from self.of_subtask(vertex, subtask)

    @cached_property
    def _of_job(self) -> dict[str, str]:
        return {"job_id": self.view.job_id, "job_name": self.view.name}

    def _made(self, vertex: VertexView, subtask: SubtaskView) -> Iterator[scopes.Scoped]:
        metrics = subtask.metrics
        if metrics is None:
            return
        rates = self._rates.of_subtask(vertex.index, subtask)
        attempt = metrics.execution.attempt
        variables = {
            **self._of_job,
            **self._place(subtask),
            "task_id": vertex.vertex_id,
            "task_name": vertex.name,
            "task_attempt_id": f"{self.view.job_id}_{vertex.vertex_id}_{subtask.subtask}_{attempt}",
            "task_attempt_num": str(attempt),
            "subtask_index": str(subtask.subtask),
        }
        figures = metrics.figures
        users = counter_names(metrics) if figures is None else frozenset[str]()
        yield scopes.Scoped(scopes.Scope.TASK, variables, task_metrics(metrics, rates, vertex.is_source), users)
        if figures is None:
            return
        operators = {operator.operator_id: operator for operator in figures.operators}
        is_last = not any(edge.source == vertex.index for edge in self.view.edges)
        for info in vertex.infos:
            if (own := operators.get(info.operator_id)) is None:
                continue
            values = operator_metrics(vertex, info, own, figures, rates, self.view.now_ms)
            if is_last and info is vertex.infos[-1]:  # a sink
                values = {**SENT, "numRecordsSend": own.records_in, **values}
            named = {**variables, "operator_id": info.operator_id, "operator_name": info.name}
            yield scopes.Scoped(scopes.Scope.OPERATOR, named, values, counter_names(own))
            yield from self._of_state(named, own)

    def _place(self, subtask: SubtaskView) -> dict[str, str]:
        worker_id = subtask.worker_id or _NO_WORKER
        host = next((worker.host for worker in self.view.workers if worker.worker_id == worker_id), self._driver.host)
        return {"host": host, "tm_id": worker_id}

    def _of_markers(self, subtask: SubtaskView, figures: OperatorFigures) -> Iterator[scopes.Scoped]:
        operator = {"operator_id": figures.operator_id, "operator_subtask_index": str(subtask.subtask)}
        for source, ages in figures.latency.items():
            source_id, _, source_subtask = source.partition(".")
            of_source = {"source_id": source_id, "source_subtask_index": source_subtask}
            named = {key: value for key, value in of_source.items() if value} | operator
            variables = {**self._of_job, **self._place(subtask), **named}
            name = ".".join(["latency", *named, "latency"])
            yield scopes.Scoped(scopes.Scope.JOB_ON_TASK_MANAGER, variables, {name: scopes.Histogram.of(ages)})

    def _of_state(self, operator: dict[str, str], figures: OperatorFigures) -> Iterator[scopes.Scoped]:
        """Yield the access latencies of an operator's states, one state after the other."""
        by_state: dict[str, dict[str, scopes.Value]] = {}
        for name, times in figures.state_latency.items():
            state, _, metric = name.rpartition(".")
            by_state.setdefault(state, {})[metric] = scopes.Histogram.of(times)
        is_variable = bool(by_state) and self._configuration.read(STATE_LATENCY_NAME_AS_VARIABLE)
        for state, metrics in by_state.items():
            if is_variable:
                named = {f"state_name.{name}": value for name, value in metrics.items()}
                yield scopes.Scoped(scopes.Scope.OPERATOR, {**operator, "state_name": state}, named)
            else:
                yield scopes.Scoped(
                    scopes.Scope.OPERATOR, operator, {f"{state}.{name}": value for name, value in metrics.items()}
                )

    # --- workers ---------------------------------------------------------------------------------------------------

    def _worker(self, worker: WorkerView) -> dict[str, scopes.Value]:
        values: dict[str, scopes.Value] = {"Status.Penstock.Slow": worker.slow is not None}
        if worker.process_id == os.getpid() and worker.host in ("localhost", self._driver.host):
            values.update(scopes.process_metrics(*self._driver.figures()))
        elif worker.process is not None:
            known = [] if self._rates.base is None else self._rates.base.workers
            before = next((candidate.process for candidate in known if candidate.worker_id == worker.worker_id), None)
            total, earlier = worker.process.collections_ms, None if before is None else before.collections_ms
            values.update(scopes.process_metrics(worker.process, self._rates.of_process(total, earlier)))
        managed = self._managed_bytes
        used = managed if self._has_rocksdb else 0
        return {
            **values,
            **scopes.memory_metrics(used, managed, self._channels.get(worker.worker_id, scopes.NO_CHANNELS)),
        }

    @cached_property
    def _managed_bytes(self) -> int:
        return self._configuration.read(MANAGED_MEMORY_BYTES) or 0

    @cached_property
    def _has_rocksdb(self) -> bool:
        return "rocksdb" in str(self._configuration.read(STATE_BACKEND)).lower()

    @cached_property
    def _configuration(self) -> Configuration:
        return Configuration.from_dict(self.view.configuration)

    @cached_property
    def _channels(self) -> Mapping[str, scopes.ChannelMemory]:
        return scopes.channel_memory(self.view)


#: The interval (ms) between points, and the maximum number of points: an hour.
POINT_MS: Final = 10_000
POINTS_MAX: Final = 360

#: Metrics of a vertex: the sum over its subtasks, or the maximum.
SUMS: Final = ("numRecordsInPerSecond", "numRecordsOutPerSecond", "numBytesInPerSecond", "numBytesOutPerSecond")
MAXIMA: Final = ("busyTimeMsPerSecond", "backPressuredTimeMsPerSecond", "idleTimeMsPerSecond")
#: Metrics of the job.
OF_JOB: Final = ("lastCheckpointDuration", "lastCheckpointFullSize", "numRestarts", "numberOfFailedCheckpoints")
#: Metric of a vertex: how far (ms) its lowest watermark lags the clock.
LAG: Final = "watermarkLag"

Points = list[tuple[int, float]]


class Charts:
    """Points by (vertex id, or None for the job, and metric name); see the module docstring."""

    def __init__(self) -> None:
        self._at_ms: deque[int] = deque(maxlen=POINTS_MAX)
        self._values: dict[tuple[str | None, str], deque[float | None]] = {}

    def names(self) -> list[tuple[str | None, str]]:
        """Return the keys of all charts."""
        return list(self._values)

    def points(self, vertex_id: str | None, name: str) -> Points:
        """Return time (ms since the epoch) and value of each point, oldest first; empty without such a chart."""
        values = self._values.get((vertex_id, name), ())
        times = list(self._at_ms)[len(self._at_ms) - len(values) :]
        return [(at, value) for at, value in zip(times, values, strict=True) if value is not None]

    def add(self, metrics: ViewMetrics) -> None:
        """Add a point to each chart, unless the last one is too recent."""
        if self._at_ms and metrics.view.now_ms < self._at_ms[-1] + POINT_MS:
            return
        points = _taken(metrics)
        for key in points:
            if key not in self._values:
                self._values[key] = deque(maxlen=POINTS_MAX)
        self._at_ms.append(metrics.view.now_ms)
        for key, values in self._values.items():
            values.append(points.get(key))


def _taken(metrics: ViewMetrics) -> dict[tuple[str | None, str], float]:
    points: dict[tuple[str | None, str], float] = {}
    for name in OF_JOB:
        if (number := _number(metrics.job, name)) is not None and number >= 0:
            points[None, name] = number
    for vertex in metrics.view.vertices:
        tasks = [
            scoped
            for subtask in vertex.subtasks
            for scoped in metrics.of_subtask(vertex, subtask)
            if scoped.scope is scopes.Scope.TASK
        ]
        for name in (*SUMS, *MAXIMA):
            numbers = [number for task in tasks if (number := _number(task, name)) is not None]
            if numbers:
                points[vertex.vertex_id, name] = sum(numbers) if name in SUMS else max(numbers)
        watermarks = [subtask.metrics.watermark_ms for subtask in vertex.subtasks if subtask.metrics is not None]
        if watermarks and MIN_TIMESTAMP < min(watermarks) < MAX_WATERMARK:
            points[vertex.vertex_id, LAG] = metrics.view.now_ms - min(watermarks)
    return points


def _number(scoped: scopes.Scoped, name: str) -> float | None:
    value = scoped.values.get(name)
    return float(value) if isinstance(value, int | float) else None


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
        self._driver = scopes.ThisProcess.of_driver(now)

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
        return scopes.flat(self._cluster().values)

    def taskmanager(self, tm_id: str) -> Listed:
        """Return the metrics of a worker by id, or of the driver, which replaces the workers of a job without any."""
        for metrics in reversed(self._current()):
            if (scoped := metrics.workers.get(tm_id)) is not None:
                return scopes.flat(scoped.values)
        return (
            scopes.flat({**self._of_driver(), **scopes.memory_metrics(0, 0, scopes.NO_CHANNELS)})
            if tm_id == DRIVER_ID
            else {}
        )

    def job(self, job_id: str) -> Listed:
        """Return the metrics of a job itself, and the ages of latency markers, like Flink."""
        metrics = self._find_metrics(job_id)
        if metrics is None:
            return {}
        listed = scopes.flat(metrics.job.values)
        for scoped in metrics.latency:
            listed.update((scopes.spelled(scoped, name), value) for name, value in scopes.flat(scoped.values).items())
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

    def scoped(self, since: float = 0.0) -> Iterator[scopes.Scoped]:
        """Yield all metrics of the process and its running jobs, and of jobs whose end was unknown at `since`.

        `since` is a time of the store's clock. A worker appears once, whichever jobs it belongs to.
        """
        yield self._cluster()
        seen: set[tuple[str, str]] = set()
        for metrics in self._current(since):
            for scoped in metrics.scoped():
                if scoped.scope is scopes.Scope.TASK_MANAGER:
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

    def _cluster(self) -> scopes.Scoped:
        jobs = self._current()
        workers = [(worker.worker_id, metrics.view) for metrics in jobs for worker in metrics.view.workers]
        values: dict[str, scopes.Value] = {
            **self._of_driver(),
            "numRegisteredTaskManagers": len(workers),
            "numPendingTaskManagers": sum(metrics.view.workers_awaited for metrics in jobs),
            "numRunningJobs": len(jobs),
            "taskSlotsTotal": len(workers),
            "taskSlotsAvailable": sum(_is_free(worker_id, view) for worker_id, view in workers),
        }
        return scopes.Scoped(scopes.Scope.JOB_MANAGER, {"host": self._driver.host}, values)

    def _of_driver(self) -> dict[str, scopes.Value]:
        return scopes.process_metrics(*self._driver.figures())


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

    def refresh_metrics(self, view: JobView, driver: scopes.ThisProcess) -> ViewMetrics:
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
