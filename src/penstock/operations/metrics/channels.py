"""The buffers of each worker's channels, under Flink's names for its pool of memory segments.

Penstock allocates a buffer when it needs one. Each channel has credit for a few buffers, and a producer keeps a few
full ones, so a worker's buffers are bounded. That bound replaces the pool: its size in bytes is the bound times the
average size of the buffers so far.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.core.job.view import JobView
from penstock.core.protocol import TaskFigures
from penstock.operations.metrics.scopes import Value


@dataclass(frozen=True)
class ChannelMemory:
    """The buffers of one worker.

    Attributes:
        used: the number of full buffers that wait.
        total: the number of buffers that may wait.
        used_bytes: the approximate size of the waiting buffers.
        total_bytes: the approximate size of as many buffers as may wait.
    """

    used: int = 0
    total: int = 0
    used_bytes: int = 0
    total_bytes: int = 0

    @property
    def available(self) -> int:
        """The number of further buffers that may wait."""
        return max(0, self.total - self.used)

    @property
    def available_bytes(self) -> int:
        """The approximate size (bytes) of these."""
        return max(0, self.total_bytes - self.used_bytes)

    @property
    def usage_percent(self) -> int:
        """The percentage of the bound in use."""
        return 100 * self.used // self.total if self.total else 0

    def metrics(self) -> dict[str, Value]:
        """Return Flink's metrics of a worker's shuffle memory."""
        return {
            "Status.Shuffle.Netty.UsedMemory": self.used_bytes,
            "Status.Shuffle.Netty.TotalMemory": self.total_bytes,
            "Status.Shuffle.Netty.AvailableMemory": self.available_bytes,
            "Status.Shuffle.Netty.UsedMemorySegments": self.used,
            "Status.Shuffle.Netty.TotalMemorySegments": self.total,
            "Status.Shuffle.Netty.AvailableMemorySegments": self.available,
            "Status.Shuffle.Netty.RequestedMemoryUsage": self.usage_percent,
        }


NO_CHANNELS = ChannelMemory()


def channel_memory(view: JobView) -> Mapping[str, ChannelMemory]:
    """Return the buffers of each worker of a job, by worker id."""
    tasks: dict[str, list[TaskFigures]] = {}
    for vertex in view.vertices:
        for subtask in vertex.subtasks:
            figures = None if subtask.metrics is None else subtask.metrics.figures
            if subtask.worker_id is not None and figures is not None:
                tasks.setdefault(subtask.worker_id, []).append(figures)
    return {worker_id: _of_tasks(figures) for worker_id, figures in tasks.items()}


def _of_tasks(tasks: list[TaskFigures]) -> ChannelMemory:
    used = sum(task.buffers_queued_in + task.buffers_queued_out for task in tasks)
    total = max(used, sum(task.buffers_in_max + task.buffers_out_max for task in tasks))
    buffers = sum(task.buffers_in + task.buffers_out for task in tasks)
    average = sum(task.bytes_in + task.bytes_out for task in tasks) / buffers if buffers else 0.0
    return ChannelMemory(used, total, int(used * average), int(total * average))
