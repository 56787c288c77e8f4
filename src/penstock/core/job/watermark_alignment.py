"""The job master's half of watermark alignment: limits how far each source may read by the reports of its group (C2).

A subtask reports its watermark at its own pace and is answered at once, so the master needs no clock for this. A
subtask may be ahead of the slowest one of its group by the drift that its own strategy allows. A subtask that has not
reported counts as being at the very beginning, so no subtask runs ahead while others start. An idle or finished subtask
reports the end of time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from penstock.base.watermark_strategy import WatermarkAlignment
from penstock.core.graph.job_graph import JobVertex
from penstock.core.graph.regions import Subtask
from penstock.core.records import MAX_WATERMARK, MIN_TIMESTAMP


class AlignmentGroups:
    """All alignment groups of a job; a subtask starts over with every attempt."""

    def __init__(self, vertices: Iterable[JobVertex]) -> None:
        self._vertices: dict[str, int] = {}
        self._parallelism: dict[str, int] = {}
        self._alignments: dict[str, WatermarkAlignment] = {}
        for vertex in vertices:
            for operator_id, alignment in vertex.alignments.items():
                self._vertices[operator_id] = vertex.index
                self._parallelism[operator_id] = vertex.parallelism
                self._alignments[operator_id] = alignment
        self._reported: dict[str, dict[tuple[str, int], int]] = {a.group: {} for a in self._alignments.values()}
        self.reset()

    def reset(self, part: Collection[Subtask] | None = None) -> None:
        """Forget the reports of all subtasks, or only those in `part`, because they start again."""
        for operator_id, alignment in self._alignments.items():
            for subtask in range(self._parallelism[operator_id]):
                if part is None or (self._vertices[operator_id], subtask) in part:
                    self._reported[alignment.group][operator_id, subtask] = MIN_TIMESTAMP

    def on_report(self, operator_id: str, subtask: int, watermark_ms: int) -> int | None:
        """Record a subtask's watermark; returns the watermark (ms) up to which it may read, None if it has no group."""
        alignment = self._alignments.get(operator_id)
        if alignment is None or not 0 <= subtask < self._parallelism[operator_id]:
            return None
        reported = self._reported[alignment.group]
        reported[operator_id, subtask] = watermark_ms
        slowest = min(reported.values())
        return slowest if slowest == MIN_TIMESTAMP else min(slowest + alignment.max_drift_ms, MAX_WATERMARK)
