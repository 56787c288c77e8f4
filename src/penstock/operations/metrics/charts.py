"""The last hour of a job's most important metrics, one point every ten seconds."""

from __future__ import annotations

from collections import deque
from typing import Final

from penstock.core.records import MAX_WATERMARK, MIN_TIMESTAMP
from penstock.operations.metrics.scopes import Scope, Scoped
from penstock.operations.metrics.view_metrics import ViewMetrics

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
            if scoped.scope is Scope.TASK
        ]
        for name in (*SUMS, *MAXIMA):
            numbers = [number for task in tasks if (number := _number(task, name)) is not None]
            if numbers:
                points[vertex.vertex_id, name] = sum(numbers) if name in SUMS else max(numbers)
        watermarks = [subtask.metrics.watermark_ms for subtask in vertex.subtasks if subtask.metrics is not None]
        if watermarks and MIN_TIMESTAMP < min(watermarks) < MAX_WATERMARK:
            points[vertex.vertex_id, LAG] = metrics.view.now_ms - min(watermarks)
    return points


def _number(scoped: Scoped, name: str) -> float | None:
    value = scoped.values.get(name)
    return float(value) if isinstance(value, int | float) else None
