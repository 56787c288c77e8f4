"""Figures of a running job, for progress lines and pages."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.core.records import MIN_TIMESTAMP


@dataclass(frozen=True)
class VertexProgress:
    """One vertex: totals over its subtasks, of all attempts' current ones; the watermark is the lowest (ms)."""

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
    counters: dict[str, int] = field(default_factory=dict)

    @property
    def source_records(self) -> int:
        """Records that all sources have emitted, in the current attempt."""
        return sum(v.records_in for v in self.vertices if v.is_source)

    @property
    def watermark_ms(self) -> int:
        """The lowest watermark of all vertices, or `MIN_TIMESTAMP` while there is none."""
        return min((v.watermark_ms for v in self.vertices), default=MIN_TIMESTAMP)
