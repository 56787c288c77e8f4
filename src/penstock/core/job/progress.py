"""Figures of a running job, for progress lines and pages."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.core.job.view import JobView
from penstock.core.records import MIN_TIMESTAMP


@dataclass(frozen=True)
class VertexProgress:
    """One vertex: totals over the current attempts of its subtasks; the watermark is the lowest (ms)."""

    name: str
    is_source: bool
    records_in: int
    records_out: int
    watermark_ms: int


@dataclass(frozen=True)
class JobProgress:
    """A job at one moment."""

    status: str
    vertices: tuple[VertexProgress, ...] = ()
    checkpoints_completed: int = 0
    last_checkpoint_id: int = 0
    last_checkpoint_ms: int = 0
    last_checkpoint_bytes: int = 0
    restarts: int = 0
    workers: tuple[tuple[str, str, int], ...] = ()
    #: totals over all subtasks
    counters: dict[str, int] = field(default_factory=dict)
    #: by `<vertex>.<subtask from 0>.<name>`
    gauges: dict[str, float] = field(default_factory=dict)
    #: count, sum, minimum and maximum over all subtasks
    distributions: dict[str, tuple[int, float, float, float]] = field(default_factory=dict)

    @property
    def source_records(self) -> int:
        """The number of records that all sources have emitted in the current attempt."""
        return sum(v.records_in for v in self.vertices if v.is_source)

    @property
    def watermark_ms(self) -> int:
        """The lowest watermark of all vertices, or `MIN_TIMESTAMP` without a watermark."""
        return min((v.watermark_ms for v in self.vertices), default=MIN_TIMESTAMP)


def job_progress(view: JobView) -> JobProgress:
    """Return the figures of a job."""
    vertices, counters = [], dict[str, int]()
    gauges = dict[str, float]()
    distributions = dict[str, tuple[int, float, float, float]]()
    for vertex in view.vertices:
        known = [subtask.metrics for subtask in vertex.subtasks if subtask.metrics is not None]
        complete = len(known) == vertex.parallelism
        vertices.append(
            VertexProgress(
                vertex.name,
                vertex.is_source,
                sum(m.records_in for m in known),
                sum(m.records_out for m in known),
                min(m.watermark_ms for m in known) if complete else MIN_TIMESTAMP,
            )
        )
        for m in known:
            for name, value in m.counters.items():
                counters[name] = counters.get(name, 0) + value
            for name, gauge in m.gauges.items():
                gauges[f"{vertex.name}.{m.execution.subtask}.{name}"] = gauge
            for name, summary in m.distributions.items():
                distributions[name] = merged_distributions(distributions.get(name), summary)
    checkpoints, last = view.checkpoints, view.checkpoints.last
    return JobProgress(
        view.status.name,
        tuple(vertices),
        checkpoints.completed,
        0 if last is None else last.checkpoint_id,
        0 if last is None else last.duration_ms,
        0 if last is None else last.state_bytes,
        view.restarts,
        tuple((worker.worker_id, worker.host, worker.process_id) for worker in view.workers),
        counters,
        gauges,
        distributions,
    )


def merged_distributions(
    distribution: tuple[int, float, float, float] | None, other: tuple[int, float, float, float]
) -> tuple[int, float, float, float]:
    """Merge two distributions (count, sum, minimum, maximum)."""
    if distribution is None or not distribution[0]:
        return other
    if not other[0]:
        return distribution
    return (
        distribution[0] + other[0],
        distribution[1] + other[1],
        min(distribution[2], other[2]),
        max(distribution[3], other[3]),
    )
