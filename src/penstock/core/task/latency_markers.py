"""A task's part in latency markers (Flink's `metrics.latency.interval`).

Sources send a marker periodically. It follows the path of the records, after those emitted before it, and a task
forwards it to one channel of each edge in turn. Operators do not see it, and it does not wait for asynchronous calls:
its age when a task receives it shows how long records wait between tasks, for the network, and for upstream operators.
Checkpoints do not include markers, so some are lost after a failure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from penstock.base.histograms import SlidingHistogram
from penstock.core.operators.context import OperatorContext
from penstock.core.protocol import LatencySettings
from penstock.core.records import LatencyMarker
from penstock.core.task.channels.result_partition import ResultPartition


class LatencyMarkers:
    """Emits and forwards the markers of one task.

    Args:
        settings: how often sources send a marker, and the granularity of the measurements.
        subtask: the task's index.
        contexts: the contexts of its operators.
        partitions: the partitions to which it sends.
        is_source: whether the first operator is a source, which has no latency.
    """

    def __init__(
        self,
        settings: LatencySettings,
        subtask: int,
        contexts: Collection[OperatorContext],
        partitions: Iterable[ResultPartition],
        is_source: bool,
    ) -> None:
        self._settings = settings
        self._subtask = subtask
        self._contexts = list(contexts)
        self._partitions = list(partitions)
        self._is_source = is_source
        self._sent = subtask
        self._due_ms: int | None = None

    def next_deadline(self) -> int | None:
        """Return when (ms) a source must send the next marker; None before it has started, and for other tasks."""
        return self._due_ms

    def emit_if_due(self, now_ms: int) -> None:
        """Send a marker if this is a source and one is due. The first is due one interval after the first call."""
        if self._due_ms is not None and now_ms >= self._due_ms:
            self.on_marker(LatencyMarker(now_ms, self._contexts[0].operator_id, self._subtask), now_ms)
        elif self._due_ms is not None or not self._is_source:
            return
        self._due_ms = now_ms + self._settings.interval_ms

    def on_marker(self, marker: LatencyMarker, now_ms: int) -> None:
        """Record the marker's age and forward it. Host clocks differ, so a negative age counts as 0."""
        name, age_ms = self._build_source_label(marker), max(0, now_ms - marker.marked_ms)
        for context in self._contexts[1 if self._is_source else 0 :]:
            histogram = context.latency.get(name)
            if histogram is None:
                histogram = context.latency[name] = SlidingHistogram(self._settings.history_size)
            histogram.update(age_ms)
        self._sent += 1
        for partition in self._partitions:
            subpartitions = partition.subpartitions
            subpartitions[self._sent % len(subpartitions)].add_event(marker)

    def _build_source_label(self, marker: LatencyMarker) -> str:
        if self._settings.granularity == "single":
            return ""
        return marker.source_id if self._settings.granularity == "operator" else f"{marker.source_id}.{marker.subtask}"
