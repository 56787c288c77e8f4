"""Figures of a running job, for progress lines and pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.core.graph.job_graph import JobGraph
from penstock.core.protocol import RegisterWorker, TaskMetrics
from penstock.core.records import MIN_TIMESTAMP

if TYPE_CHECKING:
    from penstock.core.checkpoint.statistics import CheckpointStatistics


@dataclass(frozen=True)
class VertexProgress:
    """One vertex: totals over its subtasks, of their current attempts; the watermark is the lowest (ms)."""

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
    #: count, sum, least and greatest over all subtasks
    distributions: dict[str, tuple[int, float, float, float]] = field(default_factory=dict)

    @property
    def source_records(self) -> int:
        """Records that all sources have emitted, in the current attempt."""
        return sum(v.records_in for v in self.vertices if v.is_source)

    @property
    def watermark_ms(self) -> int:
        """The lowest watermark of all vertices, or `MIN_TIMESTAMP` while there is none."""
        return min((v.watermark_ms for v in self.vertices), default=MIN_TIMESTAMP)


def job_progress(
    status: str,
    job_graph: JobGraph,
    metrics: Mapping[tuple[int, int], TaskMetrics],
    checkpoints: CheckpointStatistics,
    restarts: int,
    workers: Iterable[RegisterWorker],
) -> JobProgress:
    """The figures of a job, from those of its subtasks by (vertex, subtask)."""
    vertices, counters = [], dict[str, int]()
    gauges = dict[str, float]()
    distributions = dict[str, tuple[int, float, float, float]]()
    for vertex in job_graph.vertices:
        known = [m for (v, _), m in metrics.items() if v == vertex.index]
        complete = len(known) == vertex.parallelism
        vertices.append(
            VertexProgress(
                vertex.name,
                bool(vertex.sources),
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
    return JobProgress(
        status,
        tuple(vertices),
        checkpoints.completed,
        checkpoints.last_id,
        checkpoints.last_duration_ms,
        checkpoints.last_bytes,
        restarts,
        tuple((w.worker_id, w.host, w.process_id) for w in workers),
        counters,
        gauges,
        distributions,
    )


def merged_distributions(
    one: tuple[int, float, float, float] | None, other: tuple[int, float, float, float]
) -> tuple[int, float, float, float]:
    """Two distributions (count, sum, least, greatest) as one."""
    if one is None or not one[0]:
        return other
    if not other[0]:
        return one
    return one[0] + other[0], one[1] + other[1], min(one[2], other[2]), max(one[3], other[3])
